"""Anchor scores of items that were never scored, from their vectors.

    R_anc[:, new] ≈ m + W (v_new − v̄)      W: ridge regression of anchor scores on item vectors

An item added to an index has an encoder's vector at once and no anchor scores. With these estimates it has a place in
the CUR space, and searches find it; its real scores can be bought later. How far they are off is known from measured
items that are held out: a search has to know it, or measured items crowd the others out.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from crosscut.spaces.rows import Rows
from crosscut.types import Floats

SAMPLE = 20_000
RIDGES = (0.01, 0.1, 1.0, 10.0)


def extended_scores(
    anchors: npt.NDArray[Any],
    vectors: npt.NDArray[Any] | Rows | None,
    new: npt.NDArray[Any] | None,
    measured: npt.NDArray[np.bool_],
    count: int,
) -> Floats:
    """Estimated scores (k_q × count) of the anchor queries with new items.

    Parameters
    ----------
    anchors
        R_anc (k_q × n); `measured` (n) says which columns are real.
    vectors, new
        Item vectors (n × d) and those of the new items (count × d); without them every new item gets the mean column.
    """
    known = np.flatnonzero(measured)
    if not len(known):
        return np.zeros((len(anchors), count))
    if vectors is None or new is None or len(known) < 16:
        return np.repeat(anchors[:, known].astype(np.float64).mean(axis=1)[:, None], count, axis=1)
    known, ridge, _ = _chosen(anchors, vectors, known)
    return _predict(anchors, vectors, known, new, ridge)


def extension_error(
    anchors: npt.NDArray[Any], vectors: npt.NDArray[Any] | Rows | None, measured: npt.NDArray[np.bool_]
) -> float:
    """Return the root mean square error of such estimates on measured items that are held out."""
    known = np.flatnonzero(measured)
    if not len(known):
        return 0.0
    if vectors is None or len(known) < 16:
        return float(anchors[:, known].astype(np.float64).std(axis=1).mean())
    return _chosen(anchors, vectors, known)[2]


def _chosen(
    anchors: npt.NDArray[Any], vectors: npt.NDArray[Any] | Rows, known: npt.NDArray[np.int64]
) -> tuple[npt.NDArray[np.int64], float, float]:
    """The items to fit on, the ridge that is best for a tenth of them, held out, and its error there."""
    known = np.random.default_rng(0).permutation(known)[:SAMPLE]
    held, rest = known[: max(1, len(known) // 10)], known[max(1, len(known) // 10) :]
    errors = [
        float(np.mean((_predict(anchors, vectors, rest, vectors[held], ridge) - anchors[:, held]) ** 2))
        for ridge in RIDGES
    ]
    best = int(np.argmin(errors))
    return known, RIDGES[best], float(np.sqrt(errors[best]))


def _predict(
    anchors: npt.NDArray[Any],
    vectors: npt.NDArray[Any] | Rows,
    known: npt.NDArray[np.int64],
    new: npt.NDArray[Any],
    ridge: float,
) -> Floats:
    x = vectors[known].astype(np.float64)  # (m × d)
    y = anchors[:, known].T.astype(np.float64)  # (m × k_q)
    mean_x, mean_y = x.mean(axis=0), y.mean(axis=0)
    x -= mean_x
    gram = x.T @ x  # (d × d)
    gram[np.diag_indices_from(gram)] += ridge * max(np.trace(gram) / len(gram), 1e-12)
    weights = np.linalg.solve(gram, x.T @ (y - mean_y))  # Wᵀ (d × k_q)
    return np.asarray(mean_y[:, None] + ((new.astype(np.float64) - mean_x) @ weights).T)
