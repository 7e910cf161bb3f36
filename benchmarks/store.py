"""What the score store costs: time beside the scorer, bytes a score, milliseconds to open a large matrix.

    python benchmarks/store.py [--json benchmarks/results/store.json]

**Overhead.** The cross-encoder in the box scores queries of the bundled world with all its items through `buy_matrix`.
Everything that is not inside the scorer (hashing the texts, planning, checking, writing, syncing, consolidating) is the
store's. Loading the model and tokenising the corpus are the scorer's own and counted for neither.

**Bytes and opening.** A 500 × 100,000 matrix of random scores, committed row by row and consolidated. Opening is
`ScoreStore.open(...).matrix(queries, items)` in a process that has just started: once with the texts, which must be
digested to know that they are the same, and once with `Keys` made beforehand.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from crosscut.evaluation.report import machine

from crosscut.bundled.base_scores import BaseScorer
from crosscut.datasets.bundled import load_world
from crosscut.datasets.records import Item, ItemList, Items
from crosscut.scorers.base import BoundScorer, Request, ScoreResult
from crosscut.scores import Keys, ScoreStore
from crosscut.scores.buy import buy_matrix
from crosscut.types import Floats


class Timed:
    """A scorer with a watch: seconds in calls, and seconds to bind."""

    def __init__(self) -> None:
        self.model = BaseScorer.load()
        self.fingerprint = self.model.fingerprint
        self.scoring = self.binding = 0.0

    def score(self, query: str, items: Sequence[Item | str]) -> Floats:
        return self.bind(ItemList(items)).score(query, np.arange(len(items)))

    def bind(self, items: Items) -> BoundScorer:
        started = time.perf_counter()
        bound = self.model.bind(items)
        self.binding += time.perf_counter() - started
        return TimedBound(self, bound)


class TimedBound(BoundScorer):
    def __init__(self, owner: Timed, bound: BoundScorer) -> None:
        self.owner, self.bound = owner, bound

    def score_many(self, requests: Sequence[Request]) -> list[ScoreResult]:
        started = time.perf_counter()
        try:
            return self.bound.score_many(requests)
        finally:
            self.owner.scoring += time.perf_counter() - started


def overhead(queries: int, block_pairs: int | None) -> dict[str, Any]:
    world = load_world()
    texts = [query.text for query in world.queries[:queries]], world.items
    scorer = Timed()
    with tempfile.TemporaryDirectory() as folder:
        started = time.perf_counter()
        outcome = buy_matrix(scorer, *texts, store=folder, block_pairs=block_pairs)
        total = time.perf_counter() - started - scorer.binding
        coverage = ScoreStore.open(folder).coverage()
    return {
        "pairs": outcome.calls,
        "block_pairs": block_pairs or "chosen by the probe",
        "seconds": total,
        "scorer_seconds": scorer.scoring,
        "overhead": total / scorer.scoring - 1,
        "pairs_per_second": outcome.calls / total,
        "bytes_per_score": coverage.bytes / coverage.scores,
    }


OPEN = """
import json, sys, time
from crosscut.scores import Keys, ScoreStore
queries, items = ([f"{kind} {n}" for n in range(count)] for kind, count in (("query", 500), ("item", 100_000)))
keys = Keys.of(queries), Keys.of(items)
times = []
for texts in (keys, (queries, items)):
    started = time.perf_counter()
    matrix = ScoreStore.open(sys.argv[1]).matrix(*texts)
    times.append(time.perf_counter() - started)
assert matrix.shape == (500, 100_000) and type(matrix).__name__ == "memmap"
print(json.dumps(times))
"""


def opening(repeats: int) -> dict[str, Any]:
    queries, items = [f"query {n}" for n in range(500)], [f"item {n}" for n in range(100_000)]
    query_keys, item_keys = Keys.of(queries), Keys.of(items)
    rng = np.random.default_rng(0)
    with tempfile.TemporaryDirectory() as folder:
        store = ScoreStore.create(folder, "random")
        started = time.perf_counter()
        for row in range(500):
            asked = Keys("", 1, hashes=query_keys.hashes[row : row + 1])
            store.put_block(asked, item_keys, rng.standard_normal((1, 100_000), np.float32))
        written = time.perf_counter() - started
        blocks = store.coverage()
        started = time.perf_counter()
        store.consolidate(query_keys, item_keys)
        consolidated = time.perf_counter() - started
        coverage = store.coverage()
        started = time.perf_counter()
        assert not ScoreStore.open(folder).verify()
        verified = time.perf_counter() - started
        times = []
        for _ in range(repeats):
            done = subprocess.run([sys.executable, "-c", OPEN, folder], capture_output=True, text=True, check=True)
            times.append(json.loads(done.stdout))
    with_keys, with_texts = zip(*times, strict=True)
    pairs = sparse()
    return {
        "queries": 500,
        "items": 100_000,
        "bytes_per_score_in_blocks": blocks.bytes / blocks.scores,
        "bytes_per_score_consolidated": coverage.bytes / coverage.scores,
        "bytes_per_sparse_pair": pairs,
        "open_with_keys_ms": _milliseconds(with_keys),
        "open_with_texts_ms": _milliseconds(with_texts),
        "write_500_blocks_seconds": written,
        "consolidate_seconds": consolidated,
        "verify_all_seconds": verified,
    }


def sparse() -> float:
    """Bytes a pair of 1,000 queries with 100 of 25,000 items each, in one block."""
    queries, items = [f"query {n}" for n in range(1000)], [f"item {n}" for n in range(25_000)]
    rows = np.repeat(np.arange(1000), 100)
    rng = np.random.default_rng(0)
    columns = np.concatenate([rng.choice(25_000, 100, replace=False) for _ in range(1000)])
    with tempfile.TemporaryDirectory() as folder:
        store = ScoreStore.create(folder, "random")
        store.put_pairs(queries, items, rows, columns, rng.standard_normal(len(rows)))
        return store.coverage().bytes / len(rows)


def _milliseconds(times: Sequence[float]) -> dict[str, float]:
    return {"median": 1000 * statistics.median(times), "largest": 1000 * max(times), "runs": len(times)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--queries", type=int, default=12)
    parser.add_argument("--repeats", type=int, default=9)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    report = {
        "benchmark": "score store",
        "machine": {**machine(), "cores": os.cpu_count(), "load_before": os.getloadavg()[0]},
        "timing": "wall clock; opening in fresh processes, imports not included, file cache warm",
        "opening": opening(arguments.repeats),
        "overhead": [overhead(arguments.queries, None), overhead(arguments.queries, 512)],
    }
    print(json.dumps(report, indent=1))
    if arguments.json:
        arguments.json.write_text(json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    main()
