"""Planted vectors, and what of them is nearest to a query."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt


def clumps(n: int = 600, d: int = 12, seed: int = 0) -> npt.NDArray[np.float32]:
    rng = np.random.default_rng(seed)
    centres = rng.standard_normal((20, d))
    return (centres[rng.integers(20, size=n)] + 0.4 * rng.standard_normal((n, d))).astype(np.float32)


def brute(vectors: Any, query: Any, k: int, metric: str, among: Any = None) -> list[int]:
    values = np.asarray(vectors, dtype=np.float64)
    # einsum sums every row in the same order: equal rows tie to the last bit, as a product of BLAS may not have them
    scores = np.einsum("nd,d->n", values, query) if metric == "ip" else -((values - query) ** 2).sum(axis=1)
    if among is not None:
        mask = np.full(len(values), -np.inf)
        mask[among] = 0
        scores = scores + mask
    order = np.lexsort((np.arange(len(values)), -scores))
    return [int(j) for j in order[:k] if scores[j] > -np.inf]
