"""CUR: items described by their scores with anchor queries.

ANNCUR (Yadav et al. 2022, §2.3) and ADACUR (Yadav et al. 2023, §2.1):

    R_anc (k_q × n)     scores of k_q anchor queries with every item
    V = R_ancᵀ (n × k_q)   an item's vector is its column of R_anc
    C_anc = R_anc[:, A]    the anchor items' columns;  Ŝ = C_test · C_anc† · R_anc = V u with u = (V_A)† a

so that the pseudo-inverse of the papers is a least squares in this space, and ADACUR is AXN with V = R_ancᵀ.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from crosscut.errors import InputError
from crosscut.spaces.base import Slot, Vectors
from crosscut.types import Array, Floats, whole


class CUR(Vectors):
    """The space of anchor-query scores, as they are (the papers) or rank-reduced.

    Parameters
    ----------
    anchor_scores
        R_anc (k_q × n), any float type, in memory or memory-mapped; used in place.
    rank
        None keeps all k_q coordinates. A number keeps the leading directions of the singular value
        decomposition, each scaled by its singular value over √k_q: V Vᵀ is then the best rank-r
        approximation of the items' second-moment matrix over queries.
    errors
        (n) how far an item's scores may be off, if they are estimates (`extension_error`); 0: they were measured.
    query_vectors
        (k_q × d) the encoder's vectors of the anchor queries: they give the slope of the scores over the encoder's.
    """

    slot: ClassVar[Slot] = "anchors"
    of_queries: ClassVar[bool] = False

    def __init__(
        self,
        anchor_scores: npt.ArrayLike,
        rank: int | None = None,
        errors: npt.ArrayLike | None = None,
        query_vectors: npt.ArrayLike | None = None,
    ) -> None:
        scores = anchor_scores if isinstance(anchor_scores, np.ndarray) else np.asarray(anchor_scores, dtype=np.float64)
        if scores.ndim != 2 or not scores.shape[0]:
            raise InputError(
                f"anchor scores need two dimensions (anchor queries × items) and one anchor query at least; "
                f"got shape {scores.shape}"
            )
        if not all(np.isfinite(row).all() for row in scores):
            raise InputError("anchor scores contain NaN or infinities: score those pairs again, or drop the query")
        self.anchor_scores: Array = scores
        self.rank = rank
        self.query_vectors = None if query_vectors is None else np.asarray(query_vectors, dtype=np.float64)
        if self.query_vectors is not None and len(self.query_vectors) != len(scores):
            raise InputError(f"{len(self.query_vectors)} query vectors for {len(scores)} anchor queries")
        self.errors = None if errors is None else np.asarray(errors, dtype=np.float64)
        if self.errors is not None and self.errors.shape != scores.shape[1:]:
            raise InputError(f"{len(self.errors)} errors for {scores.shape[1]} items: give one for each")
        super().__init__(scores.T if rank is None else reduced(scores, rank))


def background(scores: Array) -> Floats:
    """Each item's mean score over the anchor queries (n)."""
    return np.concatenate([block.mean(axis=0) for _, block in _blocks(scores)])


def reduced(scores: Array, rank: int, base: Floats | float = 0.0) -> npt.NDArray[np.float32]:
    """Items of a (k_q × n) matrix, less a base (n), in its leading directions: W_r Σ_r / √k_q (n × r).

    Two passes over blocks of items; the matrix is never copied whole.
    """
    whole("the rank of a space", rank, 1)
    size = len(scores)
    level = np.broadcast_to(base, scores.shape[1])
    gram = np.zeros((size, size))  # X Xᵀ = L Σ² Lᵀ
    for items, block in _blocks(scores):
        block -= level[items]
        gram += block @ block.T
    energy, left = np.linalg.eigh(gram)  # ascending
    keep = [j for j in range(size - 1, -1, -1) if energy[j] > energy[-1] * 1e-10][:rank]
    out = np.zeros((scores.shape[1], max(len(keep), 1)), dtype=np.float32)
    if keep:
        for items, block in _blocks(scores):
            out[items] = (block - level[items]).T @ left[:, keep] / np.sqrt(size)  # Xᵀ L = W Σ
    return out


def _blocks(scores: Array) -> Iterator[tuple[slice, Floats]]:
    """Columns of a (k_q × n) matrix in float64, a few megabytes at a time."""
    step = max(1, (1 << 20) // len(scores))
    for start in range(0, scores.shape[1], step):
        items = slice(start, min(start + step, scores.shape[1]))
        yield items, scores[:, items].astype(np.float64)
