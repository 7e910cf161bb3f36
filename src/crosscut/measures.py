"""Measures of a search against the truth, and how sure they are."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from crosscut.errors import InputError
from crosscut.types import Floats, Positions


def recall(scores: npt.NDArray[np.floating], scored: Positions, k: int) -> float:
    """Top-k-Recall: the share of a query's k nearest neighbours among the items that were scored.

    Items tied at the k-th place are interchangeable.

    Parameters
    ----------
    scores
        (n) exact scores of all items.
    scored
        Positions of what the search scored.
    """
    k = min(k, len(scores))
    if k < 1:
        raise InputError("recall needs at least one item and k of at least 1")
    threshold = np.partition(scores, len(scores) - k)[len(scores) - k]
    found = scores[scored]
    above = int(np.sum(scores > threshold))
    return (int(np.sum(found > threshold)) + min(int(np.sum(found == threshold)), k - above)) / k


def undecided(scores: npt.NDArray[np.floating], k: int) -> npt.NDArray[np.bool_]:
    """Queries (q) of a matrix (q × n) for which at least half of the items tie at the k-th place.

    Recall says nothing of them: tied items are interchangeable, so any search finds "the" top k.
    """
    k = min(k, scores.shape[1])
    if k < 1:
        raise InputError("recall needs at least one item and k of at least 1")
    found = np.empty(len(scores), np.bool_)
    for row, values in enumerate(scores):
        threshold = np.partition(values, len(values) - k)[len(values) - k]
        tied, needed = int(np.sum(values == threshold)), k - int(np.sum(values > threshold))
        found[row] = tied > needed and 2 * tied >= len(values)
    return found


def interval(values: Floats, *, resamples: int = 2000, seed: int = 0) -> tuple[float, float]:
    """The 95 % bootstrap interval of a mean over queries."""
    if len(values) < 2:
        mean = float(values.mean()) if len(values) else float("nan")
        return mean, mean
    rng = np.random.default_rng(seed)
    counts = rng.multinomial(len(values), np.full(len(values), 1 / len(values)), size=resamples)
    means = counts @ values / len(values)  # (resamples)
    low, high = np.quantile(means, [0.025, 0.975])
    return float(low), float(high)


def paired_interval(ours: Floats, theirs: Floats, *, seed: int = 0) -> tuple[float, float, float]:
    """Mean difference over the same queries, with its 95 % bootstrap interval."""
    if ours.shape != theirs.shape:
        raise InputError(f"paired values need the same queries: {ours.shape} against {theirs.shape}")
    low, high = interval(ours - theirs, seed=seed)
    return float((ours - theirs).mean()), low, high
