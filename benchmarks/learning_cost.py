"""What learning costs: seconds and memory to learn from a million logged pairs, and a search with and without it.

    python -m benchmarks.learning_cost --json benchmarks/results/cost_of_learning.json

Planted data: queries differ along twenty directions. Learning is timed in seconds of the processor and by the clock,
with the peak of memory before (vectors and log) and after. A search is timed outside the scorer, single queries, with
and without what was learned in turn, query by query; of every query the fastest run counts, so that what else the
machine does is left out. `--before` is a revision of this repository, the first version by default: the same queries
are searched by it, in a process of its own after every run.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from benchmarks.turns import FIRST_VERSION, checked_out
from crosscut.evaluation.report import machine

from crosscut.methods import Parts
from crosscut.methods.learning import learn
from crosscut.scorers.adapters import MatrixScorer
from crosscut.search.prior import Past, Prior, fit_prior
from crosscut.searcher import Searcher
from crosscut.spaces.base import Vectors
from crosscut.storage import write_json
from crosscut.types import Array

CALLS = 100
DIRECTIONS = 20


class Planted:
    """Items, and queries whose vectors differ along a few directions."""

    def __init__(self, n: int, d: int, seed: int = 0) -> None:
        self.rng = np.random.default_rng(seed)
        self.items = self.rng.standard_normal((n, d), dtype=np.float32) / np.float32(np.sqrt(d))
        self.directions = self.rng.standard_normal((DIRECTIONS, d), dtype=np.float32)

    def query(self) -> tuple[Array, Array]:
        """The encoder's vector, and the one that the scores follow."""
        encoded: Array = self.rng.standard_normal(self.items.shape[1:], dtype=np.float32)
        return encoded, encoded + self.rng.standard_normal(DIRECTIONS, dtype=np.float32) @ self.directions

    def past(self) -> Past:
        encoded, wanted = self.query()
        handles = self.rng.choice(len(self.items), CALLS, replace=False)
        scores = self.items[handles] @ wanted + 0.3 * self.rng.standard_normal(CALLS)
        return Past(encoded.astype(np.float64), handles, scores.astype(np.float64))


def gigabytes() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6


def learning(n: int, d: int, searches: int) -> dict[str, Any]:
    """From so many searches of a hundred calls."""
    world = Planted(n, d)
    log = [world.past() for _ in range(searches)]
    before, clock, spent = gigabytes(), time.perf_counter(), time.process_time()
    got = learn(log, Vectors(world.items), n=n)
    return {
        "items": n,
        "d": d,
        "pairs": searches * CALLS,
        "cpu_seconds": time.process_time() - spent,
        "seconds": time.perf_counter() - clock,
        "gigabytes_before": before,
        "gigabytes_after": gigabytes(),
        "why": got.why,
    }


def searched_before(source: Path, planted: Path) -> Array:
    """Seconds of each query (q) by the package in `source`."""
    command = [sys.executable, str(Path(__file__).with_name("plain_searches.py")), str(planted)]
    world = os.environ | {"PYTHONPATH": str(source)}
    told = subprocess.run(command, check=True, capture_output=True, text=True, env=world).stdout
    return np.asarray(json.loads(told.splitlines()[-1]))


def searching(n: int, d: int, queries: int, repeats: int, before: str) -> dict[str, Any]:
    """Milliseconds of one search, with and without, and before there was such a thing; and their ratios."""
    world = Planted(n, d)
    prior: Prior = fit_prior([world.past() for _ in range(60)], Vectors(world.items).rows, rounds=2)
    asked = [world.query() for _ in range(queries)]
    encoded = np.stack([vector for vector, _ in asked])
    scores = np.stack([world.items @ wanted for _, wanted in asked])
    parts = Parts(encoder=Vectors(world.items), n=n)
    both = [Searcher(MatrixScorer(scores), parts=made) for made in (parts, replace(parts, prior=prior))]
    times = np.empty((3, repeats + 1, queries))
    with tempfile.TemporaryDirectory() as temporary:
        planted, source = Path(temporary) / "planted.npz", checked_out(before, Path(temporary))
        np.savez(planted, items=world.items, encoded=encoded, scores=scores)
        for repeat in range(repeats + 1):
            for row in range(queries):
                for which in (0, 1) if (repeat + row) % 2 else (1, 0):
                    started = time.thread_time()
                    both[which].search(row, 10, CALLS, query_vector=encoded[row])
                    times[which, repeat, row] = time.thread_time() - started
            times[2, repeat] = searched_before(source, planted)
    without, with_it, earlier = times[:, 1:].min(axis=1).sum(axis=1)
    medians = np.median(times[:, 1:], axis=(1, 2))
    return {
        "items": n,
        "d": d,
        "budget": CALLS,
        "queries": queries,
        "runs": repeats,
        "milliseconds_without": 1e3 * without / queries,
        "milliseconds_with": 1e3 * with_it / queries,
        "milliseconds_before": 1e3 * earlier / queries,
        "ratio": with_it / without,
        "ratio_of_medians": medians[1] / medians[0],
        "ratio_to_before": with_it / earlier,
        "revision_before": before,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--searches", type=int, default=10_000)
    parser.add_argument("--before", default=FIRST_VERSION, help="a revision of this repository")
    parser.add_argument("--json", type=Path, required=True)
    options = parser.parse_args()
    facts: dict[str, Any] = {"command": "python -m benchmarks.learning_cost", "machine": machine()}
    facts["searching"] = [searching(n, 384, 40, 12, options.before) for n in (2_500, 20_000)]
    facts["learning"] = learning(100_000, 384, options.searches)
    write_json(options.json, facts)
    print(facts)


if __name__ == "__main__":
    main()
