"""Writers of the score store and the search log, killed at random moments: nothing committed is lost, nothing forgotten
is left in any file."""

from __future__ import annotations

import multiprocessing
import os
import random
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from crosscut.index.log import Logged, SearchLog, query_hash
from crosscut.score_store import ScoreStore
from crosscut.score_store.keys import text_hash

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
ITEMS = [f"item {j}" for j in range(300)]
PRIVATE = [f"private {j}." for j in range(20)]


def killed(writers: list[Callable[[], Any]], rng: random.Random) -> None:
    """Run writers in processes of their own, and kill each at a moment of its own."""
    context = multiprocessing.get_context("fork")
    processes = [context.Process(target=write, daemon=True) for write in writers]
    for process in processes:
        process.start()
    for process in rng.sample(processes, len(processes)):
        time.sleep(rng.uniform(0.05, 0.3))
        os.kill(process.pid or 0, signal.SIGKILL)
    for process in processes:
        process.join(60)


def write_rows(folder: Path, seed: int) -> None:
    """Commit rows for ever, and note each that was committed."""
    store, number = ScoreStore(folder / "scores", scorer_fingerprint="f"), 0
    with (folder / f"{seed}.notes").open("a") as notes:
        while True:
            query = f"{seed} {number}"
            if number % 2:
                store.put_block([query], ITEMS, np.full((1, 300), number))
            else:
                store.put_pairs([query], ITEMS, [0] * 5, [7, 30, 31, 60, 299], [float(number)] * 5)
            notes.write(f"{query}\n")
            notes.flush()
            number += 1


def test_nothing_committed_is_lost_by_eight_killed_writers(tmp_path: Path) -> None:
    rng = random.Random(0)
    acknowledged = 0
    for turn in range(5):
        folder = tmp_path / str(turn)
        folder.mkdir()
        killed([lambda seed=seed, folder=folder: write_rows(folder, seed) for seed in range(8)], rng)  # type: ignore[misc]
        store = ScoreStore(folder / "scores", scorer_fingerprint="f")
        assert not store.verify()
        for path in folder.glob("*.notes"):
            for query in path.read_text().splitlines():
                number = int(query.split()[1])
                row = store.get(query, ITEMS)
                assert int((row == number).sum()) == (300 if number % 2 else 5), query
                acknowledged += 1
    assert acknowledged > 100


def write_private(folder: Path, seed: int) -> None:
    """Score and log private items for ever, in transactions large enough to be killed inside."""
    rng = np.random.default_rng(seed)
    store, log = ScoreStore(folder / "scores", scorer_fingerprint="f"), SearchLog(folder / "log", limit=1 << 17)
    texts = [*ITEMS, *PRIVATE]
    with store.cache(texts, flush_pairs=2000) as cache:
        while True:
            query = f"query {rng.integers(1 << 30)}"
            picks = rng.choice(len(texts), 200, replace=False)
            cache.put(query, picks, rng.standard_normal(200))
            store.put_block([query], texts, rng.standard_normal((1, len(texts))))
            ids = [texts[j] for j in picks.tolist()]
            vector, scores = rng.standard_normal(16).astype(np.float32), rng.standard_normal(200).astype(np.float32)
            log.append([Logged(query_hash(query), "models", time.time(), ids, vector, scores)] * 20)


@pytest.mark.parametrize("seed", range(4))
def test_nothing_forgotten_is_left_by_killed_writers(tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    killed([lambda n=n: write_private(tmp_path, 10 * seed + n) for n in range(4)], rng)  # type: ignore[misc]

    def held(texts: list[str]) -> list[str]:
        everything = b"\0".join(path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())
        return [text for text in texts if text.encode() in everything or text_hash(text) in everything]

    assert set(held(PRIVATE)) == set(PRIVATE)
    for gone in (PRIVATE[:12], PRIVATE[12:]):
        assert ScoreStore(tmp_path / "scores", scorer_fingerprint="f").forget(gone)
        assert SearchLog(tmp_path / "log").forget(ids=gone)
        assert held(gone) == []
    assert held(ITEMS) == ITEMS
    assert not ScoreStore(tmp_path / "scores", scorer_fingerprint="f").verify()
    left = SearchLog(tmp_path / "log").read()
    assert left
    assert all(len(search.ids) == len(search.scores) > 100 for search in left)
