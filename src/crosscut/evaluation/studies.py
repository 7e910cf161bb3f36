"""Studies of a score matrix: its rank, and how well CUR approximates it.

M (q × n)      exact scores of test queries
C (q × k_i)    its columns at the anchor items, R (k_q × n) anchor queries' scores
M̃ = C U R      with U = (R[:, A])† (ANNCUR §2.2), or the best of all U = C† M R† (the oracle's)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from crosscut.types import Array, Floats


@dataclass(frozen=True)
class Spectrum:
    """Singular values and what they say of a matrix's rank (ANNCUR §3.3, table 3b)."""

    singular_values: list[float]
    rank: int  # numerical: above ε · max(shape) · σ₁
    directions: dict[str, int]  # how many hold 90, 95, 99 % of the energy
    centred: dict[str, int]  # the same, after each item's mean is removed

    def json(self) -> dict[str, Any]:
        return asdict(self)


def spectrum(matrix: Array) -> Spectrum:
    """The singular spectrum of a score matrix."""
    values = np.asarray(matrix, dtype=np.float64)
    singular = np.linalg.svd(values, compute_uv=False)
    # scores stored in half precision have rank only down to its rounding
    eps = float(np.finfo(matrix.dtype if np.issubdtype(matrix.dtype, np.floating) else np.float64).eps)
    rank = int(np.sum(singular > singular[0] * max(values.shape) * eps)) if singular[0] > 0 else 0
    without = np.linalg.svd(values - values.mean(axis=0), compute_uv=False)
    return Spectrum([float(s) for s in singular], rank, _directions(singular), _directions(without))


def _directions(singular: Array) -> dict[str, int]:
    energy = np.cumsum(singular**2)
    if not energy[-1]:
        return dict.fromkeys(("90%", "95%", "99%"), 0)
    return {f"{p}%": int(np.searchsorted(energy, p / 100 * energy[-1]) + 1) for p in (90, 95, 99)}


@dataclass(frozen=True)
class Approximation:
    """Relative error ‖M − M̃‖_F / ‖M‖_F, over all items and over each query's top k."""

    anchors: int
    u: str
    error: float
    top_error: dict[int, float]

    def json(self) -> dict[str, Any]:
        return asdict(self)


def approximation(
    test: Array, anchors: Array, sizes: Sequence[int], k: Sequence[int] = (1, 10, 100), seed: int = 0
) -> list[Approximation]:
    """CUR's error with random anchor items, for U = (R[:, A])† and for the oracle's U = C† M R†."""
    exact = np.asarray(test, dtype=np.float64)
    known = np.asarray(anchors, dtype=np.float64)
    order = np.random.default_rng(seed).permutation(exact.shape[1])
    right = np.linalg.pinv(known)  # (n × k_q)
    results = []
    for size in sizes:
        chosen = order[:size]
        columns = exact[:, chosen]  # (q × k_i)
        middle = {
            "pseudo-inverse": np.linalg.pinv(known[:, chosen]),  # (k_i × k_q)
            "oracle": np.linalg.pinv(columns) @ exact @ right,
        }
        for name, u in middle.items():
            wrong = exact - columns @ u @ known
            results.append(Approximation(size, name, _relative(wrong, exact), _on_top(wrong, exact, k)))
    return results


def _relative(wrong: Floats, exact: Floats) -> float:
    return float(np.linalg.norm(wrong) / max(float(np.linalg.norm(exact)), 1e-300))


def _on_top(wrong: Floats, exact: Floats, k: Sequence[int]) -> dict[int, float]:
    order = np.argsort(-exact, axis=1, kind="stable")
    return {
        size: _relative(np.take_along_axis(wrong, order[:, :size], 1), np.take_along_axis(exact, order[:, :size], 1))
        for size in k
        if size <= exact.shape[1]
    }
