# ruff: noqa: E501
"""The papers' experiments on one committed matrix, as `crosscut reproduce` makes them: benchmarks/results/papers.json.

    python benchmarks/papers.py --data benchmarks/matrices/wordnet-time.npz

and the pages docs/papers/*.md from it: `python benchmarks/papers.py --pages`.
"""

from __future__ import annotations

import argparse
import json
import re
import textwrap
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from crosscut.evaluation.papers.experiments import EXPERIMENTS
from crosscut.evaluation.papers.inventory import INVENTORY, PAPERS, Entry
from crosscut.evaluation.papers.setting import Setting
from crosscut.evaluation.papers.world_files import load_arrays
from crosscut.evaluation.report import machine
from crosscut.evaluation.world import make_world

ROOT = Path(__file__).parent.parent
RESULTS = ROOT / "benchmarks/results/papers.json"
TEXTS = ROOT / "benchmarks/papers.toml"
KEPT = (
    *("method", "k", "x", "recall", "low", "high", "error", "rank", "directions", "deviation", "skew", "split"),
    *("error_reduction", "lists", "rival", "against_rival"),
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=ROOT / "benchmarks/matrices/wordnet-time.npz")
    parser.add_argument("--queries", type=int, default=40)
    parser.add_argument("--only", default=",".join(EXPERIMENTS), help="experiments to make anew")
    parser.add_argument("--pages", action="store_true")
    options = parser.parse_args()
    if options.pages:
        for paper in PAPERS:
            (ROOT / "docs/papers" / f"{paper}.md").write_text(page(paper), encoding="utf-8")
        return
    arrays = load_arrays(options.data)
    count = options.queries
    world = make_world(
        arrays["test"][:count],
        arrays["train"],
        arrays["vectors"].astype("float32"),
        arrays["query_vectors"][:count].astype("float32"),
        arrays["anchor_query_vectors"].astype("float32"),
    )
    setting = Setting(world, budgets=(50, 100, 200), seeds=1)
    report: dict[str, Any] = {
        "command": f"python benchmarks/papers.py --data benchmarks/matrices/{options.data.name}",
        "data": options.data.stem,
        "items": setting.n,
        "train": len(arrays["train"]),
        "queries": len(world.test),
        "machine": machine(),
        "experiments": results()["experiments"] if RESULTS.is_file() else {},
    }
    for name, experiment in EXPERIMENTS.items():
        if name in (
            "downstream",
            "item-baselines",
            "multi-view",
            "one-query",
        ):  # no judgements, item scores, texts; a plot
            continue
        if name not in options.only.split(","):
            continue
        started = time.process_time()
        records = [{key: one[key] for key in KEPT if key in one} for one in experiment(setting)]
        if name == "rank":  # the curve is the spectrum: its head says enough
            records = records[:20]
        report["experiments"][name] = {"seconds": time.process_time() - started, "records": records}
        print(name, round(time.process_time() - started), flush=True)
        RESULTS.write_text(json.dumps(report) + "\n", "utf-8")


def results() -> dict[str, Any]:
    return dict(json.loads(RESULTS.read_text("utf-8")))


def value(report: dict[str, Any], experiment: str, method: str, k: Any, x: Any, key: str = "recall") -> float:
    """One figure of an experiment; k may be "own", whatever the experiment took, and x "first"."""
    for record in report["experiments"][experiment]["records"]:
        if record["method"] == method and k in ("own", record["k"]) and (x == "first" or abs(record["x"] - x) < 1e-9):
            return float(record[key])
    raise KeyError(f"{experiment}: no record of {method}, k = {k}, x = {x}")


def page(paper: str) -> str:
    """The page of one paper, from the inventory, the texts and the results."""
    import tomllib

    report = results()
    texts = tomllib.loads(TEXTS.read_text("utf-8"))
    lines = [
        f"# {PAPERS[paper].partition(', ')[2]}",
        "",
        f"{PAPERS[paper].partition(', ')[0]}. Every table and figure, the command that makes it, what came out here, on "
        f"{report['data']}: {report['items']:,} items, {report['train']} train and {report['queries']} test queries, one "
        "seed, the cross-encoder in the box alone. It is not the paper's data: orderings are "
        "compared.",
        "",
        *texts["needs"][paper].strip().splitlines(),
        "",
        "| figure | what it shows | command | the paper | here | verdict |",
        "|---|---|---|---|---|---|",
    ]
    for entry in INVENTORY:
        if entry.paper == paper:
            lines.append(row(entry, texts["figures"].get(paper, {}).get(entry.names[0], {}), report))
    if any(str(told.get("file", "")).startswith("at_size") for told in texts["figures"].get(paper, {}).values()):
        lines += ["", *texts["at_size"]["squad-13k"].strip().splitlines()]
    if paper in texts["at_size"]:
        for part in looked_up(texts["at_size"][paper]).strip().split("\n\n"):
            lines += ["", *textwrap.wrap(part, 138, break_long_words=False, break_on_hyphens=False)]
    if paper == "axn":
        lines += ["", *size_table()]
    lines += [
        "",
        "DIR is a BEIR, MS MARCO or ZESHEL folder (`--world yugioh`), or an .npz of scores. `--scorer` and `--encoder` name your "
        "models, `--plan` says what it costs, `--size full` takes the paper's sizes. Methods, models, measures and grids by name: [the "
        "inventory](inventory.md). Nothing was run on a GPU here.",
        "",
        f"Made by `{report['command']}`, then `python benchmarks/papers.py --pages`; raw results in "
        "`benchmarks/results/papers.json`.",
        "",
    ]
    return "\n".join(lines)


def looked_up(text: str) -> str:
    """A text with every {world:n:method:index:k} replaced by the recall that the results at size have.

    The index "factors" is the best of those that `axn` was run on.
    """

    def figure(match: re.Match[str]) -> str:
        world, n, method, index, k = match[1].split(":")
        told = json.loads((ROOT / f"benchmarks/results/at_size-{world}.json").read_text("utf-8"))
        rows = [one for one in told["sizes"][n]["records"] if (one["method"], one["k"]) == (method, int(k))]
        kinds = ("als", "transductive", "inductive") if index == "factors" else ()
        found = max(one["recall"] for one in rows if one["index"] == index or one["kind"] in kinds)
        return f"{found:.3f}".removeprefix("0")

    return re.sub(r"\{([^{}]*:[^{}]*)\}", figure, text)


SIZES_FILE = ROOT / "benchmarks/results/at_size-wordnet-117k.json"
SIZE_CELLS = ((10, 100), (100, 300))
SIZE_ROWS = (  # what it is called, index, method
    ("ADACUR, 5 anchor queries", "CUR, k_q = 5", "adacur"),
    ("ADACUR, 10 anchor queries", "CUR, k_q = 10", "adacur"),
    ("AXN, ALS, 100 near items a query", "als, top, |Q| = 10, k_d = 100", "axn"),
    ("AXN, ALS, 400 near items a query", "als, top, |Q| = 10, k_d = 400", "axn"),
    ("AXN, ALS, 50 near and 50 random", "als, mix, |Q| = 10, k_d = 100", "axn"),
    ("AXN, transductive, 100 near", "transductive, top, |Q| = 10, k_d = 100", "axn"),
    ("AXN, inductive, 100 near", "inductive, top, |Q| = 10, k_d = 100", "axn"),
    ("AXN, transductive, 5 queries an item", "transductive, per-item, |Q| = 10, k_d = 5", "axn"),
    ("AXN, inductive, 5 queries an item", "inductive, per-item, |Q| = 10, k_d = 5", "axn"),
    ("reranking, distilled encoder, 30 near", "distilled, top, |Q| = 10, k_d = 30", "rnr"),
    ("reranking, distilled encoder, 100 near", "distilled, top, |Q| = 10, k_d = 100", "rnr"),
    ("reranking, distilled encoder, 400 near", "distilled, top, |Q| = 10, k_d = 400", "rnr"),
    ("AXN, distilled encoder, 100 near", "distilled, top, |Q| = 10, k_d = 100", "axn"),
    ("crosscut, distilled encoder, 100 near", "distilled, top, |Q| = 10, k_d = 100", "crosscut"),
    ("crosscut, distilled encoder, 400 near", "distilled, top, |Q| = 10, k_d = 400", "crosscut"),
    ("reranking, no index", "no index", "rnr"),
    ("crosscut, no index (the default)", "no index", "crosscut"),
    ("crosscut, 10 anchor queries", "CUR, k_q = 10", "crosscut"),
)


def size_table() -> list[str]:
    """Recall and indexing calls as n grows, and how many times fewer calls reach ADACUR with all anchors."""
    sizes = json.loads(SIZES_FILE.read_text("utf-8"))["sizes"]
    found = {(n, one["index"], one["method"], one["k"]): one for n, size in sizes.items() for one in size["records"]}
    columns = [f"k = {k}, n = {int(n):,}" for k, _ in SIZE_CELLS for n in sizes]
    lines = [f"| | indexing calls | {' | '.join(columns)} |", "|---" * (len(columns) + 2) + "|"]
    for name, index, method in SIZE_ROWS:
        calls = [found[n, index, method, 10]["calls"] for n in sizes if (n, index, method, 10) in found]
        told = f"{calls[0]:,}" if min(calls) == max(calls) else f"{calls[0]:,} … {calls[-1]:,}"
        cells = [found.get((n, index, method, k)) for k, _ in SIZE_CELLS for n in sizes]
        shown = ["–" if one is None else f"{one['recall']:.3f}".removeprefix("0") for one in cells]
        lines.append(f"| {name} | {told} | {' | '.join(shown)} |")
    for way, name in (
        ("axn", "AXN on factors"),
        ("distilled", "reranking, distilled"),
        ("crosscut", "crosscut on factors"),
    ):
        ratios: list[str] = []
        for k, _ in SIZE_CELLS:
            for n in sizes:
                most = next(row for row in sizes[n]["ratios"] if row["k"] == k and row["k_q"] == 10).get(way)
                ratios.append("–" if most is None else f"{most['ratio']:,.1f}".removesuffix(".0"))
        lines.append(f"| times fewer calls than ADACUR with 10, at its recall: {name} | | {' | '.join(ratios)} |")
    return lines


def filled(told: dict[str, Any], name: str, look: Callable[[Any], float], wanted: str) -> str:
    """A sentence of the texts with its figures put in: shares with three places, others whole."""
    text = str(told.get(name, "–"))
    for number, one in enumerate(told.get(wanted, [])):
        found = look(one)
        shown = f"{found:.3f}".removeprefix("0") if abs(found) <= 1.5 else f"{found:,.1f}".removesuffix(".0")
        text = text.replace("{" + str(number) + "}", shown)
    return text


def at(report: Any, path: list[str]) -> float:
    """The figure at the end of a path; of a list, the record that "key=value&key=value" fits."""
    for step in path:
        if isinstance(report, list):
            fits = [pair.split("=", 1) for pair in step.split("&")]
            report = next(one for one in report if all(str(one.get(key)) == wanted for key, wanted in fits))
        else:
            report = report[step]
    return float(report)


def row(entry: Entry, told: dict[str, Any], report: dict[str, Any]) -> str:
    """One line of the table; figures are looked up, never written by hand."""
    here = filled(told, "here", lambda wanted: value(report, str(entry.experiment), *wanted), "values")
    if "file" in told:  # results of another benchmark, at size
        large = json.loads((RESULTS.parent / f"{told['file']}.json").read_text("utf-8"))
        here = "; ".join(
            part for part in (here, filled(told, "large", lambda wanted: at(large, wanted), "paths")) if part != "–"
        )
    command = f"`{entry.command}`" if entry.command else entry.note
    title = entry.title if not entry.note or not entry.command else f"{entry.title} ({entry.note})"
    verdict = told.get("verdict", "not run here")
    cells = [entry.figure.replace(",", ", ").replace("-", " … "), title, command, told.get("paper", "–"), here, verdict]
    return "| " + " | ".join(cell.replace("|", "/") for cell in cells) + " |"  # a bar would end the cell


if __name__ == "__main__":
    main()
