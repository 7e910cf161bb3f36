"""Setup of the blocks of docs/guides/score-store.md: queries, items, a scorer, and a cluster of Ray (local workers)."""

from collections.abc import Callable
from typing import Any

import numpy as np

import crosscut
from crosscut.score_store import engines

queries = ["a river", "a bank", "a crane"]
items = [f"what number {j} is about" for j in range(6000)]
scorer = crosscut.TextScorer(lambda query, texts: [len(query) - len(text) for text in texts], fingerprint="lengths")
V = np.random.default_rng(0).normal(size=(len(items), 8))
rows, columns = np.array([0, 1, 2]), np.array([5, 6, 7])
scores = np.zeros(3, np.float32)
block, part = np.zeros((2, len(items)), np.float32), np.zeros((1, 1000), np.float32)


def make_scorer() -> crosscut.TextScorer:
    return scorer


def local(workers: int, address: str) -> engines.LocalEngine:
    return engines.LocalEngine(workers=2, mode="threads")


stand_in: Callable[..., Any] = local
engines.RayEngine = stand_in  # type: ignore[assignment]
