"""The score store, in turns with another version of the library.

    python -m crosscut_lab.speed.score_store --old OTHER/src --json lab/results/score_store.json

200 commits of 100,000 scores, 500 searches × 100 pairs through the cache, the matrix of both, and forgetting ten items.
Each run is a process of its own; processor time (and wall time, which syncing the disk takes) are medians of the turns.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

QUERIES, ITEMS, SEARCHES, PAIRS = 200, 100_000, 500, 100


def measure(folder: Path) -> dict[str, list[float]]:
    """Return processor and wall seconds of each step, with whatever version is imported."""
    try:
        from crosscut.score_store import Keys, ScoreStore
    except ImportError:
        from crosscut.scores import Keys, ScoreStore  # type: ignore[import-not-found, no-redef]

    rng = np.random.default_rng(0)
    queries, items = [f"query {n}" for n in range(QUERIES)], [f"item {n}" for n in range(ITEMS)]
    truth = rng.standard_normal((QUERIES, ITEMS), np.float32)
    picks = [np.sort(rng.choice(ITEMS, PAIRS, replace=False)) for _ in range(SEARCHES)]
    asked = [f"search {n}" for n in range(SEARCHES)]
    found: dict[str, list[float]] = {}

    def timed(name: str, work: Callable[[], Any]) -> Any:
        begun = time.process_time(), time.perf_counter()
        result = work()
        found[name] = [time.process_time() - begun[0], time.perf_counter() - begun[1]]
        return result

    def opened(name: str) -> Any:
        return ScoreStore(folder / name, scorer_fingerprint="f")

    def commit() -> None:
        store, keys = opened("dense"), Keys.of(items)
        for number, query in enumerate(queries):
            store.put_block([query], keys, truth[number : number + 1])

    def search() -> None:
        with opened("sparse").cache(items) as cache:
            for query, pick in zip(asked, picks, strict=True):
                assert np.isnan(cache.get(query, pick)).all()
                cache.put(query, pick, truth[0, pick].astype(np.float64))

    def again() -> None:
        cache = opened("sparse").cache(items)
        for query, pick in zip(asked, picks, strict=True):
            assert not np.isnan(cache.get(query, pick)).any()

    timed("200 commits of 100,000 scores", commit)
    matrix = timed("their matrix", lambda: np.array(opened("dense").matrix(queries, items)))
    assert np.array_equal(matrix, truth)
    timed("500 searches × 100 pairs", search)
    timed("the same, known", again)
    timed("matrix of 200 × 100", lambda: opened("dense").matrix(queries, items[:100]))
    timed("forgetting 10 items (dense)", lambda: opened("dense").forget(items[:10]))
    timed("forgetting 10 items (searches)", lambda: opened("sparse").forget([items[pick[0]] for pick in picks[:10]]))
    for name in ("dense", "sparse"):
        found[f"bytes ({name})"] = [float(sum(f.stat().st_size for f in (folder / name).rglob("*") if f.is_file()))] * 2
    return found


def main(
    old: Annotated[Path | None, typer.Option(help="The src folder of another version.")] = None,
    turns: int = 5,
    output: Annotated[Path | None, typer.Option("--json")] = None,
    worker: Annotated[Path | None, typer.Option(hidden=True)] = None,
) -> None:
    if worker is not None:
        print(json.dumps(measure(worker)))
        return
    runs: dict[str, list[dict[str, list[float]]]] = {"new": []}
    if old is not None:
        runs["old"] = []
    for _ in range(turns):
        for name, seen in runs.items():
            path = os.pathsep.join([str(old)] if name == "old" else [*filter(None, [os.environ.get("PYTHONPATH")])])
            with tempfile.TemporaryDirectory() as folder:
                command = [sys.executable, __file__, "--worker", folder]
                done = subprocess.run(
                    command, env={**os.environ, "PYTHONPATH": path}, stdout=subprocess.PIPE, check=True
                )
            seen.append(json.loads(done.stdout))
    table = {
        step: {
            name: {
                kind: statistics.median(run[step][place] for run in seen) for place, kind in enumerate(("cpu", "wall"))
            }
            for name, seen in runs.items()
        }
        for step in runs["new"][0]
    }
    for step, values in table.items():
        print(f"{step:34}", "  ".join(f"{name} {v['cpu']:.4g} ({v['wall']:.4g})" for name, v in values.items()))
    if output is not None:
        output.write_text(json.dumps({"turns": turns, "seconds": table}, indent=1) + "\n")


if __name__ == "__main__":
    typer.run(main)
