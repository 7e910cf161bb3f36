"""Item vectors from a sparse score matrix: transductive (ridge ALS, AdamW) and inductive."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, TypedDict, Unpack

import numpy.typing as npt

from crosscut.errors import InputError
from crosscut.spaces.base import Space
from crosscut.spaces.factorization.factors import Factors, Fitting
from crosscut.spaces.sparse import Normalisation, SparseScores

__all__ = ["Factors", "Fitting", "factorize"]

Solver = Literal["als", "transductive", "inductive"]


class SolverSettings(TypedDict, total=False):
    """Of the solvers; one that a solver does not have is a TypeError."""

    ridge: float | Sequence[float]
    rate: float
    epochs: int
    batch: int
    decay: float
    gate: float | None
    patience: int
    tolerance: float
    validation: float
    normalise: bool | Normalisation
    device: str | None
    dtype: str
    seed: int


def factorize(
    scores: SparseScores,
    vectors: Space | npt.ArrayLike,
    query_vectors: npt.ArrayLike,
    *,
    solver: Solver = "als",
    **settings: Unpack[SolverSettings],
) -> Factors:
    """Factorise a sparse score matrix (AXN §2.1).

    Parameters
    ----------
    scores
        G: raw scores of train queries with some items.
    vectors, query_vectors
        (n × d) item vectors and (|Q| × d) train-query vectors of the encoder: where the factors start.
    solver
        `als` (closed form, no torch), `transductive` (AdamW, the paper's) or `inductive` (networks over the encoder's
        vectors: items that were never scored, and new ones, get a vector too).
    settings
        The solver's own: `ridge`, `rate`, `epochs`, `validation`, …
    """
    how: dict[str, Any] = {**settings}
    if solver == "als":
        from crosscut.spaces.factorization.als import als

        return als(scores, vectors, query_vectors, **how)
    if solver == "transductive":
        from crosscut.spaces.factorization.transductive import transductive

        return transductive(scores, vectors, query_vectors, **how)
    if solver == "inductive":
        from crosscut.spaces.factorization.inductive import inductive

        return inductive(scores, vectors, query_vectors, **how)
    raise InputError(f"unknown solver {solver!r}: choose als, transductive or inductive")
