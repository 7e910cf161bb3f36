"""A deterministic scorer of texts that other processes can load: a score is a hash of the pair."""

from __future__ import annotations

import hashlib
import os
import signal
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from crosscut.scorers import TextScorer


def score_of(query: str, item: str) -> float:
    digest = hashlib.blake2b(f"{query}\0{item}".encode(), digest_size=8).digest()
    return float(np.float32(int.from_bytes(digest, "little") / 2**63 - 1))


def expected(queries: Sequence[str], items: Sequence[str]) -> np.ndarray:
    return np.array([[score_of(query, item) for item in items] for query in queries], np.float32)


def make(fingerprint: str = "hash") -> TextScorer:
    return TextScorer(lambda query, items: [score_of(query, item) for item in items], fingerprint=fingerprint)


def make_mortal(folder: str) -> TextScorer:
    """Kills its own process when it has scored for a while; once only."""
    mark = Path(folder) / "died"

    def fn(query: str, items: Sequence[str]) -> list[float]:
        if query == "query 5" and len(items) > 1 and not mark.exists():
            mark.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        time.sleep(0.001)
        return [score_of(query, item) for item in items]

    return TextScorer(fn, fingerprint="hash")


def make_doomed() -> TextScorer:
    """Kills its process with every block."""

    def fn(query: str, items: Sequence[str]) -> list[float]:
        os.kill(os.getpid(), signal.SIGKILL)
        return []

    return TextScorer(fn, fingerprint="hash")
