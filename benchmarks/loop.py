"""Time outside the scorer: crosscut's loop against a plain numpy transcription of the papers.

    python benchmarks/loop.py --json benchmarks/results/loop.json

Both search the same random vectors with a scorer that costs nothing; what a real scorer would take is then
budget × milliseconds a call. Runs are interleaved and repeated; medians and ranges are reported. `read` is the time to
read V once, measured in the same run: a compiled sum of its numbers, on all cores.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import numba
import numpy as np
import numpy.typing as npt
from crosscut.evaluation.report import machine

import crosscut
from crosscut.storage import write_json
from transcription import adaptive, ranking
from turns import in_turns, spread

MILLISECONDS = (7.0, 2.0)  # a call: BERT-base on a 2080 Ti, MiniLM on an RTX 8000 (ADACUR B.5)


class Free:
    """A scorer that costs nothing: noise around a hidden inner product, computed beforehand."""

    def __init__(self, scores: npt.NDArray[np.float32]) -> None:
        self.scores = scores

    @property
    def n_items(self) -> int:
        return int(self.scores.shape[1])

    def score(self, query: Any, positions: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
        return np.asarray(self.scores[query, positions], dtype=np.float64)

    def score_many(self, requests: Any) -> list[npt.NDArray[np.float64]]:
        return [self.score(query, positions) for query, positions in requests]


def setting(n: int, d: int, queries: int) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.float64], Free]:
    rng = np.random.default_rng(0)
    vectors = rng.standard_normal((n, d), dtype=np.float32) / np.float32(np.sqrt(d))
    wanted = rng.standard_normal((queries, d), dtype=np.float32)
    noise = np.random.default_rng(1)
    scores = np.stack([vectors @ u + 0.3 * noise.standard_normal(n, dtype=np.float32) for u in wanted])
    return vectors, (wanted + rng.standard_normal(wanted.shape, dtype=np.float32)).astype(np.float64), Free(scores)


@numba.njit(nogil=True, fastmath=True, cache=True)
def total(values: npt.NDArray[np.float32]) -> np.float32:
    result = np.float32(0)
    for j in range(values.size):
        result += values[j]
    return result


pool = ThreadPoolExecutor(os.cpu_count())


Times = dict[str, list[float]]


def measure(n: int, d: int, budget: int, rounds: int, batch: int, repeats: int) -> Times:
    """Seconds of reading V once and of every method; of the transcription too, for single queries."""
    vectors, queries, scorer = setting(n, d, batch)
    searchers = {
        name: crosscut.Searcher(scorer, vectors=vectors, method=f"{name}@rounds={rounds}")
        for name in ("axn", "crosscut")
    }

    def searched(searcher: crosscut.Searcher) -> Any:
        return lambda: searcher.search_many(range(batch), 10, budget, query_vectors=queries[:batch])

    def read() -> None:
        pieces = np.array_split(vectors.reshape(-1), 4 * (os.cpu_count() or 1))
        list(pool.map(total, pieces))

    work: dict[str, Any] = {"read": read, **{name: searched(searcher) for name, searcher in searchers.items()}}

    def transcribed() -> None:
        for row in range(batch):
            first = ranking(vectors @ queries[row].astype(np.float32))
            adaptive(vectors, partial(scorer.score, row), first, budget, rounds)

    if batch == 1:
        work["transcription"] = transcribed
    seconds: dict[str, list[float]] = in_turns(
        work, repeats, fewer={"transcription": max(1, repeats // 3)}, warm=repeats > 1
    )
    return seconds


def report(times: Times, n: int, d: int, budget: int, rounds: int, batch: int) -> list[dict[str, Any]]:
    """One row per method."""
    once = float(np.median(times["read"]))
    rows: list[dict[str, Any]] = []
    for name in times:
        if name == "read":
            continue
        seconds = spread([value / batch for value in times[name]])
        rows.append(
            {
                "method": name,
                "n": n,
                "d": d,
                "budget": budget,
                "rounds": rounds,
                "batch": batch,
                "seconds_outside_scorer_per_query": seconds,
                "share_of_scorer_time": {f"{ms:g} ms": seconds["median"] / (budget * ms / 1000) for ms in MILLISECONDS},
                "read_V_once_seconds": once,
                "read_GB_per_second": 4 * n * d / once / 1e9,
                "against_reading_V_once_a_round": seconds["median"] / (once * rounds),
            }
        )
    if "transcription" in times:
        slow = rows[-1]["seconds_outside_scorer_per_query"]["median"]
        for row in rows[:-1]:
            row["transcription_takes_times_longer"] = slow / row["seconds_outside_scorer_per_query"]["median"]
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--items", type=int, nargs="+", default=[10_000, 100_000, 1_000_000])
    parser.add_argument("--dimensions", type=int, nargs="+", default=[128, 384, 500])
    parser.add_argument("--budgets", type=int, nargs="+", default=[100, 500])
    parser.add_argument("--rounds", type=int, nargs="+", default=[5, 10, 100])
    parser.add_argument("--batches", type=int, nargs="+", default=[1, 64])
    parser.add_argument("--passes", type=int, default=1, help="over the grid: machines drift by the minute")
    options = parser.parse_args()
    results: list[dict[str, Any]] = []
    if options.json and options.json.exists():  # cases that are run again replace the old ones
        results = json.loads(options.json.read_text())["cases"]
    pooled: dict[tuple[int, ...], Times] = {}
    grid = [options.items, options.dimensions, options.budgets, options.rounds, options.batches]
    for n, d, budget, rounds, batch in list(itertools.product(*grid)) * options.passes:
        if batch > 1 and rounds > 10 and n > 10_000:
            continue  # many minutes each, and they say nothing that R = 10 and single queries do not
        repeats = 1 if n >= 1_000_000 and (batch > 1 or rounds > 10) else options.repeats
        times = pooled.setdefault((n, d, budget, rounds, batch), {})
        for name, seconds in measure(n, d, budget, rounds, batch, repeats).items():
            times.setdefault(name, []).extend(seconds)
        rows = report(times, n, d, budget, rounds, batch)
        for row in rows:
            share = row["share_of_scorer_time"]
            print(
                f"n={n:>9,} d={d} B={budget} R={rounds:>3} batch={batch:>2} {row['method']:<13} "
                f"{1000 * row['seconds_outside_scorer_per_query']['median']:>9.1f} ms/query  "
                f"{100 * share['7 ms']:>6.2f} % of 7 ms  {100 * share['2 ms']:>6.2f} % of 2 ms  "
                f"{row['against_reading_V_once_a_round']:>5.2f}× reads",
                flush=True,
            )
        same = {"n": n, "d": d, "budget": budget, "rounds": rounds, "batch": batch}
        results = [old for old in results if {name: old[name] for name in same} != same] + rows
        if options.json:
            write_json(
                options.json,
                {
                    "command": "python benchmarks/loop.py --json benchmarks/results/loop.json",
                    "includes": "everything but the scorer: first stage, fits, predictions, selection, bookkeeping",
                    "machine": machine(),
                    "cases": results,
                },
            )


if __name__ == "__main__":
    main()
