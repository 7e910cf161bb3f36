"""The papers' figures that recall decides, as the number of items grows: ever more items of one matrix.

    python benchmarks/at_size.py --data benchmarks/matrices/squad-sentences.npz --sizes 500 1000 2500 --train 40
    python benchmarks/at_size.py --data benchmarks/matrices/squad-13k.npz --sizes 1000 3000 13447
    python benchmarks/at_size.py --data benchmarks/matrices/squad-13k.npz --distilled ../shared/data/squad_sentences --encoder all-MiniLM-L6-v2/

A smaller world is a draw of the matrix's items, so that scorer, queries and encoder stay the same and n alone changes;
the best items of a query are then fewer and farther apart, which a collection of that size would not have.

AXN: recall against indexing calls, and the ratio of calls at equal recall; ADACUR: rounds and budgets; ANNCUR: k_q, k_i
and the size of the domain. Writes benchmarks/results/at_size-NAME.json, task by task; what is there is not made again.
"""  # noqa: E501

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

import indexing
from crosscut.evaluation.papers.experiments import EXPERIMENTS
from crosscut.evaluation.papers.setting import Setting
from crosscut.evaluation.report import machine
from crosscut.evaluation.world import make_world
from crosscut.storage import write_json
from indexing import Task, ratios, summarised

RESULTS = Path(__file__).parent / "results"
SIZES = (1_000, 3_000, 1 << 30)
STUDIES = ("recall-against-cost", "rounds", "grid", "recall-of-retrieved")
KEPT = ("method", "k", "x", "budget", "recall", "low", "high", "error", "error_reduction", "split")


SOLVERS = ("als", "transductive", "inductive")


MANY = 50_000  # items over which training by gradients is left out where G names them all: it takes hours


def tasks(train: int, seeds: int, solvers: Sequence[str] = SOLVERS, n: int = 0) -> list[Task]:
    """CUR with ever more queries, factors per query and per item, and no index."""
    made = [Task("none")]
    for seed in range(seeds):
        counts = dict.fromkeys(min(count, train) for count in (5, 10, 20, train))
        made += [Task("cur", "", count, 0, seed) for count in counts if count < train or not seed]
        for solver in solvers:
            made.append(Task(solver, "top", train, 100, seed))
            made += [Task(solver, "per-item", train, 5, seed)] if solver == "als" or n <= MANY else []
        made += [Task("als", "per-item", train, 2, seed), Task("als", "top", train, 400, seed)]
        made += [Task("als", "mix", train, 100, seed)]
    return made


def drawn(data: dict[str, Any], n: int) -> dict[str, Any]:
    """The world of n items, drawn."""
    every = data["test"].shape[1]
    if n >= every:
        return data
    some = np.sort(np.random.default_rng(0).choice(every, n, replace=False))
    cut = {"test": data["test"][:, some], "train": data["train"][:, some], "vectors": data["vectors"][some]}
    return {**data, **cut, **({"item_ids": data["item_ids"][some]} if "item_ids" in data else {})}


def of_size(
    data: dict[str, Any],
    report: dict[str, Any],
    seeds: int,
    studies: Sequence[str],
    save: Any,
    solvers: Sequence[str] = SOLVERS,
) -> None:
    """Everything that a world of one size is asked."""
    indexing.data.clear()
    indexing.data.update({name: data[name] for name in indexing.NAMES})
    if "records" in report and "found" not in report:  # done
        return
    found = report.setdefault("found", [])
    done = {(one["index"], one["seed"]) for one in found}
    for task in tasks(len(data["train"]), seeds, solvers, data["test"].shape[1]):
        if (task.label, task.seed) not in done:
            found += indexing.run(task)
            summary = summarised(found)
            report["records"], report["ratios"] = summary, ratios(summary)
            save()
            print(data["test"].shape[1], task.label, task.seed, flush=True)
    world = make_world(
        data["test"], data["train"], data["vectors"], data["query_vectors"], data["anchor_query_vectors"]
    )
    setting = Setting(world, budgets=(50, 100, 200, 500), seeds=1)
    for name in studies:
        if name not in report:
            report[name] = [{key: one[key] for key in KEPT if key in one} for one in EXPERIMENTS[name](setting)]
            save()
            print(data["test"].shape[1], name, flush=True)
    del report["found"]  # recall of every query: not needed once the size is done
    save()


def distilled(data: dict[str, Any], texts: Path, encoder: Path, epochs: int) -> list[dict[str, Any]]:
    """DE_DSTL on the same world (benchmarks/distillation.py)."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "world.npz"
        np.savez(path, **data)
        script = Path(__file__).parent / "distillation.py"
        given = ["--data", path, "--texts", texts, "--encoder", encoder, "--name", "x", "--results", folder]
        command = [sys.executable, script, *given, "--epochs", str(epochs), "--losses", "match"]
        subprocess.run([str(one) for one in command], check=True)
        return list(json.loads((Path(folder) / "distillation-x.json").read_text("utf-8"))["records"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--sizes", type=int, nargs="+", default=SIZES)
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--train", type=int, help="use only the first train queries")
    parser.add_argument("--studies", nargs="*", default=STUDIES)
    parser.add_argument("--solvers", nargs="+", default=SOLVERS, help="of factors; inductive takes longest")
    parser.add_argument("--distilled", type=Path, help="the BEIR folder of the texts: also distil")
    parser.add_argument("--encoder", type=Path)
    parser.add_argument("--epochs", type=int, default=4)
    options = parser.parse_args()
    results = RESULTS / f"at_size-{options.data.stem}.json"
    with np.load(options.data, allow_pickle=False) as archive:
        data = {name: archive[name] for name in archive.files}
    for name in indexing.NAMES:
        data[name] = data[name].astype(np.float32)
    for name in ("train", "anchor_query_vectors", "train_ids"):
        data[name] = data[name][: options.train]
    report: dict[str, Any] = {"sizes": {}}
    if results.is_file():
        report = json.loads(results.read_text("utf-8"))
    report |= {
        "command": f"python benchmarks/at_size.py --data benchmarks/matrices/{options.data.name}"
        + (f" --train {options.train}" if options.train else "")
        + ("" if tuple(options.solvers) == SOLVERS else f" --solvers {' '.join(options.solvers)}"),
        "machine": machine(),
        "data": options.data.stem,
        "test_queries": len(data["test"]),
        "train_queries": len(data["train"]),
        "seeds": options.seeds,
    }

    def save() -> None:
        write_json(results, report)

    for n in options.sizes:
        world = drawn(data, n)
        own = report["sizes"].setdefault(str(world["test"].shape[1]), {})
        if options.distilled is None:
            of_size(world, own, options.seeds, options.studies, save, options.solvers)
        elif "distilled" not in own:
            own["distilled"] = distilled(world, options.distilled, options.encoder, options.epochs)
            save()


if __name__ == "__main__":
    main()
