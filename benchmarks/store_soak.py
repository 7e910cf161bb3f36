"""Kill -9 at random moments while several processes fill one score store; then look for what was lost or torn.

    python benchmarks/store_soak.py [--kills 50] [--model-kills 10] [--json benchmarks/results/store_soak.json]

Every round starts the writers on the store that the last round left, waits until they commit, and kills all of them at
a random moment. A writer notes every block in a file of its own once the store has said that it is durable, and one of
them consolidates all the time, so kills also hit merging and deleting. After every kill:

    nothing lost      every block that was noted is in the store
    nothing torn      every score in the store is the right one, bit for bit; every checksum fits
    still a store     it opens, and the next round goes on with it

At the end the store is completed and its matrix compared with one that was never interrupted: bit for bit with a
deterministic scorer, within 1e-5 with the cross-encoder in the box. A store that is full before the kills are used up
is compared, and a new one begun.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from crosscut.datasets.bundled import load_world
from crosscut.datasets.records import Item
from crosscut.evaluation.report import machine
from crosscut.scorers import TextScorer
from crosscut.scorers.base import Scorer
from crosscut.scores import Keys, ScoreStore
from crosscut.scores.buy import buy_matrix
from crosscut.scores.engines.worker import load_named

Scores = npt.NDArray[np.float32]


def score_of(query: str, item: str) -> float:
    digest = hashlib.blake2b(f"{query}\0{item}".encode(), digest_size=8).digest()
    return float(np.float32(int.from_bytes(digest, "little") / 2**63 - 1))


def _slow(query: str, items: Sequence[str]) -> list[float]:
    time.sleep(1e-4 * len(items))
    return [score_of(query, item) for item in items]


def setting(kind: str) -> tuple[Scorer, list[str], list[Item | str], int]:
    """Scorer, queries, items and pairs a block."""
    if kind == "hash":
        scorer: Scorer = TextScorer(_slow, fingerprint="hash")
        return scorer, [f"query {n}" for n in range(60)], [f"item {n}" for n in range(2500)], 250
    world = load_world()
    queries = [query.text for query in world.queries[:12]]
    return load_named("default", 1), queries, list(world.items[:400]), 100


def write(kind: str, path: Path, log: Path, consolidates: bool) -> None:
    """One writer: scores what is missing, and notes what the store has acknowledged."""
    scorer, queries, items, block_pairs = setting(kind)
    store = ScoreStore(path, scorer_fingerprint=scorer.fingerprint)
    put = ScoreStore.put_block

    with log.open("a") as notes:

        def noted(self: ScoreStore, asked: Keys, corpus: Keys, scores: Scores, *, start: int, seconds: float) -> None:
            put(self, asked, corpus, scores, start=start, seconds=seconds)
            for name in asked.names:
                notes.write(f"{name.hex()} {start} {start + scores.shape[1]}\n")
            notes.flush()

        ScoreStore.put_block = noted  # type: ignore[assignment,method-assign]

        def progress(what: str, done: int, total: int) -> None:
            if consolidates:
                store.consolidate()

        buy_matrix(
            scorer,
            queries,
            items,
            store=store,
            block_pairs=block_pairs,
            probe=False,
            progress=progress,
            consolidate=False,
        )


def soak(kind: str, kills: int, writers: int, folder: Path, rng: random.Random) -> dict[str, Any]:
    scorer, queries, items, _ = setting(kind)
    query_keys, item_keys = Keys.of(queries), Keys.of(items)
    rows = {name.hex(): row for row, name in enumerate(query_keys.names)}
    whole = folder / f"{kind}-uninterrupted"
    buy_matrix(_quick(kind, scorer), queries, items, store=whole)
    truth = ScoreStore.open(whole).matrix(queries, items)
    tolerance = 0.0 if kind == "hash" else 1e-5
    facts: dict[str, Any] = {"scorer": kind, "queries": len(queries), "items": len(items), "writers": writers}
    counts = dict.fromkeys(("kills", "kills_while_writing", "acknowledged_blocks", "lost_scores", "wrong_scores"), 0)
    counts |= dict.fromkeys(("damaged_files", "temporary_files_left", "fills_completed"), 0)
    worst, number = 0.0, 0
    started = time.perf_counter()
    while counts["kills"] < kills:
        path = folder / f"{kind}-{number}"
        path.mkdir(exist_ok=True)
        logs = [path / f"log-{counts['kills']}-{writer}" for writer in range(writers)]
        running = [
            subprocess.Popen([sys.executable, __file__, "--write", kind, str(path / "store"), str(log), str(place)])
            for place, log in enumerate(logs)
        ]
        while not any(log.exists() and log.stat().st_size for log in logs):
            if all(process.poll() is not None for process in running):
                break
            time.sleep(0.005)
        time.sleep(rng.uniform(0.0, 0.8))
        counts["kills_while_writing"] += any(process.poll() is None for process in running)
        for process in running:
            process.kill()
        for process in running:
            process.wait()
        counts["kills"] += 1
        counts["temporary_files_left"] = len(list(folder.rglob("*.tmp")))  # swept after an hour
        store = ScoreStore(path / "store", scorer_fingerprint=scorer.fingerprint)
        counts["damaged_files"] += len(store.verify())
        found = store.matrix(query_keys, item_keys, partial=True)
        known = ~np.isnan(found)
        for log in path.glob("log-*"):  # of this kill and of all before it
            for line in log.read_text().splitlines():
                name, start, stop = line.split()
                counts["acknowledged_blocks"] += log in logs
                counts["lost_scores"] += int((~known[rows[name], int(start) : int(stop)]).sum())
        gap = np.abs(found[known] - truth[known])
        worst = max(worst, float(gap.max(initial=0.0)))
        counts["wrong_scores"] += int((gap > tolerance).sum())
        print(f"{kind}: kill {counts['kills']}, {known.mean():.0%} known, {counts}", file=sys.stderr)
        if known.all():
            counts["fills_completed"] += 1
            number += 1
    path = folder / f"{kind}-{number}"
    buy_matrix(_quick(kind, scorer), queries, items, store=path / "store")
    matrix = ScoreStore.open(path / "store").matrix(queries, items)
    worst = max(worst, float(np.abs(matrix - truth).max()))
    return {
        **facts,
        **counts,
        "resumed_matrix_is_a_memory_map": isinstance(matrix, np.memmap),
        "bit_for_bit": bool((matrix == truth).all()),
        "largest_difference": worst,
        "tolerance": tolerance,
        "seconds": time.perf_counter() - started,
    }


def _quick(kind: str, scorer: Scorer) -> Scorer:
    """The same scores without the waiting."""
    if kind != "hash":
        return scorer
    return TextScorer(lambda query, items: list(map(partial(score_of, query), items)), fingerprint="hash")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--model-kills", type=int, default=10)
    parser.add_argument("--writers", type=int, default=3)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--write", nargs=4, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.write:
        kind, path, log, place = arguments.write
        write(kind, Path(path), Path(log), place == "0")
        return
    rng = random.Random(arguments.seed)
    with tempfile.TemporaryDirectory() as folder:
        results = [soak("hash", arguments.kills, arguments.writers, Path(folder), rng)]
        if arguments.model_kills:
            results.append(soak("default", arguments.model_kills, 2, Path(folder), rng))
    report = {
        "benchmark": "score store under kill -9",
        "machine": machine(),
        "seed": arguments.seed,
        "results": results,
    }
    print(json.dumps(report, indent=1))
    if arguments.json:
        arguments.json.write_text(json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    main()
