"""What an index costs and what it brings: recall against indexing calls and time (AXN fig. 1, 2, 9, 10 and table 3).

    python benchmarks/indexing.py --data scores.npz --name wordnet-cognition

writes `benchmarks/results/indexing-NAME.json` and plots; `--report` writes `docs/lab/indexing.md` from all
results there. The .npz holds `test`, `train`, `vectors`, `query_vectors` and `anchor_query_vectors`.

Factors are trained on what the train queries' scores show through a sparse G alone; test queries are only searched. A
seed decides which train queries are used, which pairs are drawn and how a solver starts. Two processes share the work,
one thread each; training times are CPU seconds.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from crosscut.evaluation.report import machine

import crosscut
from crosscut.ann.flat import top_items
from crosscut.measures import interval, paired_interval, recall
from crosscut.spaces.factorization import Factors, Solver, factorize
from crosscut.spaces.factorization.inductive import InductiveFactors
from crosscut.spaces.sparse import Pairs, SparseScores, items_per_query, queries_per_item
from crosscut.storage import write_json

CELLS = ((1, 100), (10, 100), (100, 300))
SOLVERS: tuple[Solver, ...] = ("als", "transductive", "inductive")
NAMES = ("test", "train", "vectors", "query_vectors", "anchor_query_vectors")
data: dict[str, npt.NDArray[Any]] = {}


@dataclass(frozen=True)
class Task:
    """One index and one seed."""

    kind: str  # none, cur, or a solver of factors
    strategy: str = ""  # top, mix, random, pool: items per query; per-item: queries per item
    queries: int = 0
    k_d: int = 0
    seed: int = 0

    @property
    def label(self) -> str:
        if self.kind == "none":
            return "no index"
        if self.kind == "cur":
            return f"CUR, k_q = {self.queries}"
        return f"{self.kind}, {self.strategy}, |Q| = {self.queries}, k_d = {self.k_d}"


def tasks(train: int, seeds: int) -> Iterator[Task]:
    """Everything that is run on a world with so many train queries: CUR, and factors over a grid of (|Q|, k_d)."""
    quarter = train // 4
    every = [("top", train, 100), ("top", quarter, 25), ("pool", train, 100), ("per-item", train, 5)]
    every += [("top", quarter, 400), ("top", train, 25)]
    more = [("mix", train, 100), ("per-item", train, 2), ("top", quarter, 100), ("mix", train, 400)]
    more += [("top", train, 400), ("per-item", train, 20)]
    yield Task("none")
    for seed in range(seeds):
        # what matters most comes first: a study may be cut short
        for count in dict.fromkeys(min(size, train) for size in (train, 40, 10, 20, 80)):
            if count < train or not seed:  # all train queries are the same for every seed
                yield Task("cur", "", count, 0, seed)
        for solvers, settings in ((("als", "inductive"), every), (("transductive",), every), (("als",), more)):
            for strategy, size, k_d in settings:
                for solver in solvers:
                    yield Task(solver, strategy, size, k_d, seed)


def chosen_pairs(task: Task, vectors: npt.NDArray[Any], queries: npt.NDArray[Any], n: int) -> Pairs:
    shape = (len(queries), n)
    if task.strategy == "per-item":
        return queries_per_item(task.k_d, shape, seed=task.seed)
    if task.strategy == "random":
        return items_per_query(task.k_d, shape, seed=task.seed)
    if task.strategy == "pool":  # a tenth of the items is all that is ever scored: a corpus too large for its calls
        pool = np.sort(np.random.default_rng(task.seed).choice(n, n // 10, replace=False))
        ranked = [pool[row] for row in top_items(task.k_d, vectors[pool], queries)]
        return items_per_query(task.k_d, shape, ranked=ranked)
    ranked = top_items(task.k_d, vectors, queries)
    return items_per_query(
        task.k_d, shape, ranked=ranked, random=0.5 if task.strategy == "mix" else 0.0, seed=task.seed
    )


def start(path: str, queries: int | None) -> None:
    """A worker's copy of the data."""
    with np.load(path, allow_pickle=False) as archive:
        data.update({name: archive[name].astype(np.float32) for name in NAMES})
    for name in ("test", "query_vectors"):
        data[name] = data[name][:queries]


def run(task: Task) -> list[dict[str, Any]]:
    """Build one index and search it; a record per method and cell."""
    test, vectors = data["test"], data["vectors"]
    n = test.shape[1]
    order = np.random.default_rng(task.seed).permutation(len(data["train"]))[: task.queries]
    told: dict[str, Any] = {"index": task.label, **asdict(task), "calls": 0, "training_seconds": 0.0}
    space: Any = None
    if task.kind == "cur":
        space = crosscut.CUR(data["train"][order])
        told["calls"] = len(order) * n
    elif task.kind != "none":
        queries = data["anchor_query_vectors"][order]
        pairs = chosen_pairs(task, vectors, queries, n)
        scores = SparseScores.from_scorer(crosscut.MatrixScorer(data["train"][order]), range(len(order)), pairs)
        solver: Any = task.kind
        started = time.process_time()  # not the wall clock: the machine may have other work
        space = factorize(scores, vectors, queries, solver=solver, seed=task.seed)
        training = time.process_time() - started
        fitting = space.fitting
        counts = np.bincount(pairs.items, minlength=n)
        told |= {
            "calls": scores.calls,
            "training_seconds": training,
            "epochs": fitting.best,
            "held_out": [fitting.held_out[0], fitting.held_out[fitting.best]],
            "items_scored": float(np.mean(counts > 0)),
            "median_scores_per_item": float(np.median(counts)),
        }
    return searched(told, methods_of(task, space), space)


def searched(
    told: dict[str, Any],
    methods: Sequence[str],
    space: Any = None,
    vectors: npt.NDArray[Any] | None = None,
    queries: npt.NDArray[Any] | None = None,
) -> list[dict[str, Any]]:
    """A record per method and cell; `vectors` and `queries` take the place of the world's own."""
    test = data["test"]
    records = []
    for method in methods:
        searcher, query_vectors = searcher_of(method, space, vectors, queries)
        for budget in dict.fromkeys(budget for _, budget in CELLS):
            hits = searcher.search_many(
                range(len(test)), max(k for k, b in CELLS if b == budget), budget, query_vectors=query_vectors
            )
            seconds = {
                part: float(np.mean([getattr(found.seconds, part) for found in hits])) for part in ("fit", "select")
            }
            for k in (k for k, b in CELLS if b == budget):
                values = [recall(test[row], found.scored, k) for row, found in enumerate(hits)]
                records.append({**told, "method": method, "k": k, "budget": budget, "query": seconds, "values": values})
    return records


def methods_of(task: Task, space: Any) -> tuple[str, ...]:
    return ("adacur", "crosscut") if task.kind == "cur" else ("rnr", "axn", "crosscut")


def searcher_of(
    method: str, space: Any, vectors: npt.NDArray[Any] | None, queries: npt.NDArray[Any] | None
) -> tuple[crosscut.Searcher, npt.NDArray[Any]]:
    scorer = crosscut.MatrixScorer(data["test"])
    vectors = data["vectors"] if vectors is None else vectors
    queries = data["query_vectors"] if queries is None else queries
    if method == "rnr" and isinstance(space, Factors):  # transductive factors take the encoder's query vector
        queries = space.embed_queries(queries) if isinstance(space, InductiveFactors) else queries
        return crosscut.Searcher(scorer, vectors=space, method="rnr"), queries
    chosen = "adacur@first=dense" if method == "adacur" else method
    return crosscut.Searcher(scorer, vectors=vectors, space=space, method=chosen), queries


def summarised(found: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Mean over seeds, intervals over queries, and the paired difference to the same method without an index."""
    groups: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    for record in found:
        groups.setdefault((record["index"], record["method"], record["k"], record["budget"]), []).append(record)
    out = []
    for (label, method, k, budget), same in groups.items():
        values = np.mean([record["values"] for record in same], axis=0)
        low, high = interval(values)
        plain = groups["no index", "axn" if method == "adacur" else method, k, budget][0]["values"]
        kept = {name: value for name, value in same[0].items() if name not in ("values", "seed", "query")}
        kept |= {
            "index": label,
            "seeds": len(same),
            "training_seconds": float(np.mean([record["training_seconds"] for record in same])),
            "recall": float(values.mean()),
            "low": low,
            "high": high,
            "over_seeds": [float(np.mean(record["values"])) for record in same],
            "against_no_index": paired_interval(values, np.asarray(plain)),
            "query_seconds": {
                part: float(np.mean([record["query"][part] for record in same])) for part in ("fit", "select")
            },
        }
        if method == "axn" and label != "no index":
            rnr = np.mean([record["values"] for record in groups[label, "rnr", k, budget]], axis=0)
            kept["against_rnr"] = paired_interval(values, rnr)
        out.append(kept)
    return out


def ratios(records: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """For ADACUR with each k_q, the cheapest index on which axn, or crosscut, reaches its recall.

    "distilled" is the cheapest distilled encoder with which reranking does, where there is one.
    """
    rows = []
    for k, budget in CELLS:
        cell = [record for record in records if (record["k"], record["budget"]) == (k, budget)]
        for rival in (record for record in cell if record["method"] == "adacur"):
            row: dict[str, Any] = {"k": k, "budget": budget, "k_q": rival["queries"], "calls": rival["calls"]}
            row["recall"] = rival["recall"]
            ways = {"axn": ("axn", SOLVERS), "crosscut": ("crosscut", SOLVERS), "distilled": ("rnr", ("distilled",))}
            if not any(r["kind"] == "distilled" for r in cell):
                del ways["distilled"]
            for name, (method, kinds) in ways.items():
                good = [
                    r for r in cell if r["method"] == method and r["kind"] in kinds and r["recall"] >= rival["recall"]
                ]
                best = min(good, key=lambda r: (r["calls"], -r["recall"]), default=None)
                row[name] = (
                    None
                    if best is None
                    else {
                        **{key: best[key] for key in ("index", "calls", "recall")},
                        "ratio": rival["calls"] / best["calls"],
                    }
                )
            rows.append(row)
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path)
    parser.add_argument("--name")
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--queries", type=int, default=None, help="use only the first test queries")
    parser.add_argument("--milliseconds", type=float, default=2.0, help="price of a call, for times")
    parser.add_argument("--model", default="", help="which scorer made the matrix, for the report")
    parser.add_argument("--results", type=Path, default=Path("benchmarks/results"))
    parser.add_argument("--docs", type=Path, default=Path("docs"))
    parser.add_argument("--report", action="store_true", help="write docs/lab/indexing.md from the results")
    options = parser.parse_args()
    if options.report:
        from indexing_report import write_report

        write_report(options.results, options.docs)
        return
    if options.data is None or not options.name:
        parser.error("give --data and --name, or --report")
    start(str(options.data), options.queries)
    work = list(tasks(len(data["train"]), options.seeds))
    found: list[dict[str, Any]] = []
    started = time.perf_counter()
    os.environ |= {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
    with multiprocessing.get_context("spawn").Pool(
        2, initializer=start, initargs=(str(options.data), options.queries)
    ) as pool:
        for number, records in enumerate(pool.imap(run, work), 1):
            found += records
            print(f"{number}/{len(work)} {records[0]['index']} {time.perf_counter() - started:.0f} s", file=sys.stderr)
            summary = summarised(found)  # written after every task: a study that is cut short is still a study
            write_json(
                options.results / f"indexing-{options.name}.json",
                {
                    "command": f"python benchmarks/indexing.py --data {options.data.name} --name {options.name}"
                    + (f" --queries {options.queries}" if options.queries else ""),
                    "machine": machine(),
                    "model": options.model,
                    "timing": "training_seconds: CPU seconds of one thread; query_seconds: per query in a batch, "
                    "without the scorer; a call is priced at `milliseconds`",
                    "milliseconds": options.milliseconds,
                    "items": data["test"].shape[1],
                    "test_queries": len(data["test"]),
                    "train_queries": len(data["train"]),
                    "seeds": options.seeds,
                    "tasks": [number, len(work)],
                    "records": summary,
                    "ratios": ratios(summary),
                },
            )


if __name__ == "__main__":
    main()
