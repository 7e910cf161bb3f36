"""The papers' figures that recall decides, as the number of items grows: ever more items of one matrix.

    python benchmarks/at_size.py --data benchmarks/matrices/squad-sentences.npz --sizes 500 1000 2500 --train 40
    python benchmarks/at_size.py --data benchmarks/matrices/squad-13k.npz --sizes 1000 3000 13447
    python benchmarks/at_size.py --data wordnet-117k.npz --sizes 1000 3000 13000 117659 --distilled DATA/wordnet_wsd

A smaller world is a draw of the matrix's items, so that scorer, queries and encoder stay the same and n alone changes;
the best items of a query are then fewer and farther apart, which a collection of that size would not have.

AXN: recall against indexing calls, and the ratio of calls at equal recall; ADACUR: rounds and budgets; ANNCUR: k_q, k_i
and the size of the domain. Writes benchmarks/results/at_size-NAME.json, task by task; what is there is not made again.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from crosscut.evaluation.papers.experiments import EXPERIMENTS
from crosscut.evaluation.papers.setting import Setting
from crosscut.evaluation.report import machine
from crosscut.evaluation.world import make_world

import crosscut
import indexing
from crosscut.datasets.beir import read_beir, read_queries
from crosscut.encoders.dual import OnnxDualEncoder
from crosscut.encoders.folder import ModelFolder, default_folder
from crosscut.encoders.graph import Precision
from crosscut.encoders.tokens import marked_text
from crosscut.spaces.sparse import SparseScores
from crosscut.storage import write_json
from crosscut.training.distill import distill
from crosscut.training.export import export
from crosscut.training.jobs import Job, start_model
from crosscut.training.loop import TrainingSettings
from crosscut.training.models import DualModel
from indexing import Task, ratios, summarised

RESULTS = Path(__file__).parent / "results"
SIZES = (1_000, 3_000, 1 << 30)
STUDIES = ("recall-against-cost", "rounds", "grid", "recall-of-retrieved")
KEPT = ("method", "k", "x", "budget", "recall", "low", "high", "error", "error_reduction", "split")


class Texts(NamedTuple):
    """Texts by their ids."""

    items: dict[str, str]
    queries: dict[str, str]


SOLVERS = ("als", "transductive", "inductive")


RATE, CANDIDATES = 5e-5, 64  # of a distillation; the learning rate is that of benchmarks/distillation.py
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


def read_texts(folder: Path) -> Texts:
    """The texts of a BEIR folder by their ids: its items, and its queries, those of further files among them."""
    collection = read_beir(folder)
    queries = list(collection.queries)
    for path in sorted(folder.glob("queries_*.jsonl*")):
        queries += read_queries(path)
    items = {item.id: marked_text(item) for item in collection.items}
    return Texts(items, {query.id: query.text for query in queries})


def distilled(data: dict[str, Any], texts: Texts, k_d: int, seed: int, epochs: int) -> list[dict[str, Any]]:
    """DE_DSTL: the encoder in the box, trained on what the scorer says of each train query's top k_d (L_match).

    The world's vectors are its own in eight bits, and so are those that it gives afterwards. The seed decides which
    query validates, and the order of the others.
    """
    items = [texts.items[id] for id in data["item_ids"].tolist()]
    train, test = ([texts.queries[id] for id in data[f"{part}_ids"].tolist()] for part in ("train", "test"))
    task = Task("distilled", "top", len(data["train"]), k_d, seed)
    pairs = indexing.chosen_pairs(task, data["vectors"], data["anchor_query_vectors"], len(items))
    scores = SparseScores.buy(crosscut.MatrixScorer(data["train"]), range(len(train)), pairs)
    config = ModelFolder().config
    limits: dict[str, Any] = {name: config[name] for name in ("query_tokens", "item_tokens")}
    with tempfile.TemporaryDirectory() as folder:
        settings = TrainingSettings(
            learning_rate=RATE, epochs=epochs, candidates=CANDIDATES, validations=epochs, seed=seed
        )
        job = Job(default_folder(), Path(folder), settings=settings, **limits)
        started = time.process_time()
        outcome = distill(items, train, scores, job)
        seconds = time.process_time() - started
        trained = start_model(DualModel, replace(job, encoder=job.output / "model"))
        precision: Precision = "integer"
        small = export(
            Path(folder) / "small",
            default_folder() / "tokenizer.json",
            dual=trained,
            lower_precision=precision,
            upper_precision=precision,
            **limits,
        )
        encoder = OnnxDualEncoder.load(small, threads=1)
        vectors = encoder.encode_items(items)
        queries = encoder.encode_queries(test)
    told = {
        "index": task.label,
        **asdict(task),
        "calls": scores.calls,
        "training_seconds": seconds,
        "steps": outcome.steps,
        "best_step": outcome.best_step,
        "validation": outcome.best,
    }
    return list(indexing.searched(told, ("rnr", "axn", "crosscut"), vectors=vectors, queries=queries))


def with_distilled(
    data: dict[str, Any], report: dict[str, Any], texts: Texts, k_d: int, seeds: int, epochs: int, save: Any
) -> None:
    """A world of one size, with its rows of distillation; those without an index are searched again, to compare."""
    indexing.data.clear()
    indexing.data.update({name: data[name] for name in indexing.NAMES})
    own = [row for row in report["records"] if row["kind"] == "distilled" and row["k_d"] == k_d]
    if own and own[0]["seeds"] >= seeds:
        return
    found = indexing.run(Task("none"))
    for seed in range(seeds):
        found += distilled(data, texts, k_d, seed, epochs)
        print(data["test"].shape[1], "distilled", k_d, seed, flush=True)
    kept = [row for row in report["records"] if row not in own]
    report["records"] = kept + [row for row in summarised(found) if row["kind"] == "distilled"]
    report["ratios"] = ratios(report["records"])
    save()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--sizes", type=int, nargs="+", default=SIZES)
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--train", type=int, help="use only the first train queries")
    parser.add_argument("--studies", nargs="*", default=STUDIES)
    parser.add_argument("--solvers", nargs="+", default=SOLVERS, help="of factors; inductive takes longest")
    parser.add_argument("--distilled", type=Path, help="the BEIR folder of the texts: distil, where the rest is done")
    parser.add_argument("--k-d", type=int, nargs="+", default=(100,), help="scored items of a query, to distil")
    parser.add_argument("--epochs", type=int, default=10, help="of a distillation")
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
    if options.distilled is not None:
        sizes, depths = (" ".join(map(str, some)) for some in (options.sizes, options.k_d))
        told = (
            f"python benchmarks/at_size.py --data {options.data.name} --distilled {options.distilled.name} "
            f"--sizes {sizes} --k-d {depths} --seeds {options.seeds}"
        )
        before = report.get("distillation", {}).get("commands", [])
        report["distillation"] = {
            "commands": [*before, *([] if told in before else [told])],
            "loss": "match",
            "encoder": "the one in the box, every layer of it trained",
            "learning_rate": RATE,
            "candidates": CANDIDATES,
            "epochs": options.epochs,
            "training_seconds": "CPU seconds of one thread, beside other work",
        }
    else:
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

    if options.distilled is None:
        for n in options.sizes:
            world = drawn(data, n)
            own = report["sizes"].setdefault(str(world["test"].shape[1]), {})
            of_size(world, own, options.seeds, options.studies, save, options.solvers)
        return
    texts = read_texts(options.distilled)
    for k_d in options.k_d:
        for n in options.sizes:
            world = drawn(data, n)
            own = report["sizes"][str(world["test"].shape[1])]
            with_distilled(world, own, texts, k_d, options.seeds, options.epochs, save)


if __name__ == "__main__":
    main()
