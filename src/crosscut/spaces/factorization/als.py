"""Ridge ALS: transductive factors in closed form, ridged towards the encoder's vectors. No torch.

AXN's objective (eq. 3) with a ridge that pulls every vector to where the encoder put it, or a few observations per item
would wash the initialisation out:

    Σ_{(q,i) ∈ P} (G_qi − u_q · v_i)²  +  μ Σ_q ‖u_q − u_q⁰‖²  +  μ Σ_i ‖v_i − v_i⁰‖²

    μ            ridge: the variance of what no factor explains over that of an encoder coordinate's error
    X (m × d)    the factors on the other side of a row's m observations, g (m) their scores
    r = g − X v⁰ what the encoder's vector leaves unexplained

Alternately for all queries and all items, each row apart:

    v = v⁰ + Xᵀ (X Xᵀ + μ I)⁻¹ r       m < d: a system of m unknowns (the dual, or Woodbury, form)
    v = v⁰ + (Xᵀ X + μ I)⁻¹ Xᵀ r       m ≥ d: one of d

Rows with the same number of observations are solved as one stack of small systems.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from crosscut.errors import InputError
from crosscut.linalg.blas import one_thread
from crosscut.linalg.products import share
from crosscut.spaces.base import Space
from crosscut.spaces.factorization.factors import FactorProblem, Factors, Matrix, SolverProgress, problem
from crosscut.spaces.sparse import Normalisation, SparseScores

RIDGES = (0.1, 0.3, 1.0, 3.0, 10.0)
STACK = 1 << 20  # numbers in a stack of X: 4 MiB of float32


def als(
    scores: SparseScores,
    vectors: Space | npt.ArrayLike,
    query_vectors: npt.ArrayLike,
    *,
    ridge: float | Sequence[float] = RIDGES,
    epochs: int = 20,
    patience: int = 2,
    tolerance: float = 1e-3,
    validation: float = 0.1,
    normalise: bool | Normalisation = True,
    seed: int = 0,
) -> Factors:
    """Transductive factors by ridge ALS.

    Parameters
    ----------
    scores
        G, raw.
    vectors, query_vectors
        V⁰ (n × d) and U⁰ (|Q| × d) of the encoder.
    ridge
        μ over the mean squared length of the encoder's vectors (1 for unit vectors); of several, the one with the
        lowest held-out loss.
    epochs, patience, tolerance
        At most so many; fewer once the held-out loss has not fallen for `patience` of them, or a pass changes the
        training loss by less than a share `tolerance`.
    validation
        Share of the observed pairs held out. Once μ and the number of epochs are chosen, all pairs are used.
    """
    started = time.perf_counter()
    ridges = [float(ridge)] if isinstance(ridge, int | float) else [float(value) for value in ridge]
    if not ridges or min(ridges) <= 0:
        raise InputError(f"the ridge of ALS must be above 0, or rows with few scores have no answer; got {ridge}")
    if len(ridges) > 1 and not validation:
        raise InputError("of several ridges the best is chosen on held-out scores: set validation, or give one ridge")
    made = problem(
        scores, vectors, query_vectors, normalise=normalise, validation=validation, by_query=False, seed=seed
    )
    unit = float(np.mean(np.sum(made.queries**2, axis=1)) + np.mean(np.sum(made.items**2, axis=1))) / 2 or 1.0
    chosen: tuple[float, SolverProgress, tuple[Matrix, Matrix]] | None = None
    for value in sorted(ridges, reverse=True):  # from the most cautious: worse twice, and the rest need no trial
        progress, factors = _fit(made, value * unit, epochs, patience, tolerance, started)
        if chosen is None or progress.held_out[progress.best] < chosen[1].held_out[chosen[1].best]:
            chosen = value, progress, factors
        elif value < chosen[0] / 5:
            break
    assert chosen is not None
    value, progress, (queries, items) = chosen
    if len(made.held) and progress.best:
        everything = replace(made, train=made.whole, held=made.whole.take(np.zeros(len(made.whole), dtype=bool)))
        queries, items = _fit(everything, value * unit, progress.best, epochs, 0.0, started)[1]
    settings: dict[str, Any] = {"ridge": value, "epochs": epochs, "validation": validation, "seed": seed}
    fitting = progress.fitting(scores, settings)
    return Factors(made.spread(items, lambda rows: rows), queries, made.whole.normalisation, fitting)


def _fit(
    made: FactorProblem, ridge: float, epochs: int, patience: int, tolerance: float, started: float
) -> tuple[SolverProgress, tuple[Matrix, Matrix]]:
    """Alternate from the encoder's vectors; the best U and V."""
    by_query, by_item = SideScores.of(made.train), SideScores.of(made.train, transposed=True)
    queries, items = made.queries, made.items
    progress = SolverProgress("als", patience, "raise the ridge", started)
    progress.note(made.loss(made.train, queries, items), made.loss(made.held, queries, items))
    best = queries, items
    for _ in range(epochs):
        queries = by_query.solve(items, made.queries, ridge)
        items = by_item.solve(queries, made.items, ridge)
        if progress.note(made.loss(made.train, queries, items), made.loss(made.held, queries, items)):
            best = queries, items
        before, after = progress.trained[-2:]
        if progress.settled or abs(before - after) < tolerance * before:
            break
    return progress, best


class SideScores:
    """The observations of one side, row by row: of each query its items, or of each item its queries."""

    def __init__(self, rows: Any, others: Any, values: Any, count: int) -> None:
        """`rows` must be sorted."""
        self.others, self.values = others, values.astype(np.float32)
        self.starts = np.searchsorted(rows, np.arange(count + 1))
        sizes = np.diff(self.starts)
        # rows of one size after the other: [(m, rows with m observations), …]
        self.groups = [(int(m), np.flatnonzero(sizes == m)) for m in np.unique(sizes) if m]

    @classmethod
    def of(cls, scores: SparseScores, *, transposed: bool = False) -> SideScores:
        queries, items = scores.pairs.queries, scores.pairs.items
        if not transposed:
            return cls(queries, items, scores.scores, scores.shape[0])
        order = np.argsort(items, kind="stable")
        return cls(items[order], queries[order], scores.scores[order], scores.shape[1])

    def solve(self, other: Matrix, start: Matrix, ridge: float) -> Matrix:
        """Every row's ridge solution around `start`, given the other side's factors; unobserved rows stay there."""
        out = start.copy()
        d = start.shape[1]
        stacks = [
            (m, rows[first : first + step])
            for m, rows in self.groups
            for step in [max(1, STACK // (m * d))]
            for first in range(0, len(rows), step)
        ]

        def work(stack: tuple[int, npt.NDArray[np.int64]]) -> None:
            m, rows = stack
            places = self.starts[rows][:, None] + np.arange(m)  # (b × m)
            x = other[self.others[places]]  # (b × m × d)
            r = self.values[places][:, :, None] - x @ start[rows][:, :, None]  # (b × m × 1)
            turned = x.transpose(0, 2, 1)  # (b × d × m)
            gram = x @ turned if m < d else turned @ x  # (b × m × m) or (b × d × d)
            size = min(m, d)
            gram[:, np.arange(size), np.arange(size)] += ridge
            change = turned @ np.linalg.solve(gram, r) if m < d else np.linalg.solve(gram, turned @ r)
            out[rows] += change[:, :, 0]

        # the systems are small: one thread of BLAS each, and as many stacks at a time as there are cores
        with one_thread():
            share(work, stacks)
        return out
