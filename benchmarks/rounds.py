"""Rounds over a clustered index whose query vector moves, against the flat array: recall, lists read, time.

    python benchmarks/rounds.py --vectors vectors/wordnet-static --teacher vectors/wordnet-lsa --json …

Searches run in the first space, and the scorer is the sum of the inner products in both (as in `benchmarks/stores.py`),
so that the query vector of the last round lies far from that of the first. B = 100, R = 10, k = 10. Every case is a
patience, with lists that are *passed by* once they were visited (as it was before) or read again when the query has
turned (`crosscut.ann.trail`). Train queries choose, test queries report: they are disjoint parts of the collection's
train queries. Milliseconds are processor time of a search outside the scorer, on one thread, all cases in turn.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import time
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from threadpoolctl import threadpool_limits

import crosscut
from crosscut.ann import clustered, trail
from crosscut.ann.ivf import IVF
from crosscut.ann.ivf.rules import Patience
from crosscut.measures import recall
from crosscut.spaces.base import Vectors

K, BUDGET, ROUNDS = 10, 100, 10
METHOD = f"crosscut@rounds={ROUNDS}"
PATIENCE = (7, 14, 28, 40)
PASSED_BY = -1.0  # no query turns so far that a list is read again
NOW = trail.ALIKE


def read(stem: Path, kind: str) -> npt.NDArray[np.float32]:
    return np.asarray(np.load(f"{stem}-{kind}.npy"), np.float32)


class Counted(clustered.Clustered):
    """Rounds that count the lists they read."""

    read: list[int] = []  # noqa: RUF012  (of all searches of a case)

    def _search(self, queries: Any, asks: Any, rule: Any = None) -> Any:
        found = super()._search(queries, asks, rule)
        Counted.read += [ask.trail.probed for ask in asks]
        return found


class Rounds(Vectors):
    """The vectors of an index, searched through it however few they are."""

    def __init__(self, index: IVF, array: npt.NDArray[np.float32]) -> None:
        super().__init__(array)
        self.index = index

    @property
    def topk(self) -> Counted:
        return Counted(self.index)


def searched(
    vectors: Any, queries: npt.NDArray[np.float32], truth: npt.NDArray[np.float32], rows: range
) -> tuple[list[float], list[float]]:
    """Recall and milliseconds of every search."""
    searcher = crosscut.Searcher(crosscut.MatrixScorer(truth), vectors=vectors, method=METHOD)
    shares, spent = [], []
    for row in rows:
        started = time.process_time()
        hits = searcher.search(row, K, BUDGET, query_vector=queries[row])
        spent.append(1e3 * (time.process_time() - started - hits.seconds.scorer))
        shares.append(recall(truth[row], hits.scored, K))
    return shares, spent


def cases(options: argparse.Namespace, index: IVF, items: npt.NDArray[np.float32], part: str) -> list[dict[str, Any]]:
    """Every case over one part of the queries."""
    low = 0 if part == "train" else options.queries
    asked = np.random.default_rng(1).permutation(len(read(options.vectors, "train")))[low : low + options.queries]
    queries = read(options.vectors, "train")[asked]
    truth = queries @ items.T + read(options.teacher, "train")[asked] @ read(options.teacher, "items").T
    kinds: list[tuple[str, int | None, float]] = [("flat", None, NOW)]
    kinds += [("passed by", patience, PASSED_BY) for patience in PATIENCE]
    kinds += [("read again", patience, NOW) for patience in PATIENCE]
    told: dict[Any, tuple[list[float], list[float], list[int]]] = {kind: ([], [], []) for kind in kinds}
    for start in range(0, len(queries), 20):  # in turn
        rows = range(start, min(start + 20, len(queries)))
        for kind in kinds:
            visited, patience, trail.ALIKE = kind
            if patience is not None:
                index.rule = Patience(patience, 0.0)
            Counted.read = []
            found = searched(items if visited == "flat" else Rounds(index, items), queries, truth, rows)
            for kept, more in zip(told[kind], (*found, Counted.read), strict=True):
                kept += more  # type: ignore[operator]
    flat = np.array(told[kinds[0]][0])
    records = []
    for kind in kinds:
        shares, spent, lists = told[kind]
        apart = np.array(shares) - flat
        means = apart[np.random.default_rng(0).integers(0, len(apart), (2000, len(apart)))].mean(axis=1)
        records.append(
            {
                "queries": part,
                "visited_lists": kind[0],
                "patience": kind[1],
                "recall": float(np.mean(shares)),
                "against_flat": float(apart.mean()),
                "interval": [float(value) for value in np.quantile(means, [0.025, 0.975])],
                "lists_read": float(np.mean(lists)) / index.most if lists else 1.0,
                "ms": float(np.median(spent)),
            }
        )
        print(records[-1], flush=True)
    return records


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--vectors", type=Path, required=True)
    parser.add_argument("--teacher", type=Path, required=True)
    parser.add_argument("--index", type=Path, help="the clustered index; built and kept there if there is none")
    parser.add_argument("--queries", type=int, default=300, help="train queries, and as many test queries")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    items = read(options.vectors, "items")
    if options.index is not None and options.index.exists():
        index = IVF.load(options.index, memory_map=False)
    else:
        index = IVF.build(items.astype(np.float16))
        if options.index is not None:
            index.save(options.index)
    with threadpool_limits(1):
        records = cases(options, index, items, "train") + cases(options, index, items, "test")
    if options.json is not None:
        about = {
            "world": f"{options.vectors.name} scored by {options.vectors.name} + {options.teacher.name}",
            "items": index.n,
            "lists": index.most,
            "queries": options.queries,
            "k": K,
            "budget": BUDGET,
            "rounds": ROUNDS,
            "chosen": {"patience": clustered.CAREFUL.rounds, "alike": NOW},
            "machine": {"cores": os.cpu_count(), "python": platform.python_version()},
        }
        options.json.write_text(json.dumps({**about, "records": records}, indent=1) + "\n")


if __name__ == "__main__":
    main()
