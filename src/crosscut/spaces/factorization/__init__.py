"""Item vectors from a sparse score matrix: transductive (ridge ALS, AdamW) and inductive."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from typing import Literal, TypedDict, Unpack, get_args

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
    if solver not in get_args(Solver):
        raise InputError(f"unknown solver {solver!r}: choose als, transductive or inductive")
    fit = getattr(import_module(f"crosscut.spaces.factorization.{solver}"), solver)  # some of them need torch
    made: Factors = fit(scores, vectors, query_vectors, **settings)
    return made
