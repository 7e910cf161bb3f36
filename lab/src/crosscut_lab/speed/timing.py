"""Clocks for comparisons: what is compared runs in turns, and medians count."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from crosscut.types import Array


def in_turns(
    work: Mapping[str, Callable[[], Any]], repeats: int, clock: Callable[[], float] = time.perf_counter
) -> dict[str, float]:
    """Return the median seconds of each, after a first run that does not count."""
    seconds: dict[str, list[float]] = {name: [] for name in work}
    for repeat in range(repeats + 1):
        for name, one in work.items():
            started = clock()
            one()
            if repeat:
                seconds[name].append(clock() - started)
    return {name: float(np.median(values)) for name, values in seconds.items()}


def clumps(n: int, d: int, seed: int = 0, centres: int = 0) -> Array:
    """Return unit vectors in noisy clusters (n × d) float32: hard for a clustered index, as sentences are."""
    shared = np.random.default_rng(99)
    middles = shared.standard_normal((centres or max(8, n // 100), d), dtype=np.float32)
    rng = np.random.default_rng(seed)
    rows = middles[rng.integers(len(middles), size=n)] + rng.standard_normal((n, d), dtype=np.float32)
    return np.asarray(rows / np.linalg.norm(rows, axis=1, keepdims=True), np.float32)
