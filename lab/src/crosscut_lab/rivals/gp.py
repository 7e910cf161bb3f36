"""`gp`: a Gaussian process over the encoder's vectors, and what it would gain most to score (Bayesian optimisation).

ReBOL (Korikov and Sanner 2026, arXiv 2603.20513) and BAGEL (Kim et al. 2026, arXiv 2604.17906): a process of a query's
own, f ~ GP(0, k) on standardised scores, k(v, v′) = exp(−‖v − v′‖² / 2ℓ²). With A the scored items, K = k(A, A) + σ² I:

    mean(v) = k(v, A) K⁻¹ y           var(v) = 1 − k(v, A) K⁻¹ k(A, v)
    ucb     mean + κ √var             ei     E max(f(v) − best, 0) = √var (z Φ(z) + φ(z)),  z = (mean − best) / √var

The query's own vector counts as an item that scores as high as the best does (ReBOL's initial point). A round takes the
items of highest acquisition. Query reformulation by a language model is no part of it here: it would be calls.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
from scipy.linalg import cho_factor, solve_triangular
from scipy.special import ndtr

from crosscut.ann.baseline import masked
from crosscut.ann.topk import Found
from crosscut.errors import InputError
from crosscut.linalg.top import ranked
from crosscut.methods.base import First, Method, Parts
from crosscut.methods.weights import spread_of
from crosscut.search.loop import Picker, Plan, Query
from crosscut.search.stages import FirstRound
from crosscut.search.stopping import Schedule
from crosscut.spaces.base import Space
from crosscut.types import Floats


@dataclass(frozen=True, repr=False)
class GP(Method):
    """`acquisition` is UCB with weight `kappa`, or expected improvement; `width` is ℓ against the spread of the items,
    `noise` is σ² against the variance of the scores; `query` is the query's own point."""

    name: ClassVar[str] = "gp"
    needs: ClassVar[tuple[str, ...]] = ("encoder", "n")
    tried: ClassVar[bool] = False
    prepares: ClassVar[bool] = True

    rounds: int = 10
    acquisition: Literal["ucb", "ei"] = "ucb"
    kappa: float = 1.0
    width: float = 1.0
    noise: float = 0.1
    query: bool = True
    first: First = "auto"

    def __post_init__(self) -> None:
        super().__post_init__()
        if not (self.width > 0 and self.noise > 0 and self.kappa >= 0):
            raise InputError(
                f"gp needs a width and a noise above 0 and a kappa of 0 or more; got {self.width}, {self.noise}, "
                f"{self.kappa}"
            )

    def grid(self, parts: Parts) -> dict[str, tuple[Any, ...]]:
        return {"width": (0.5, 2.0), "kappa": (0.0, 0.3), "noise": (0.03, 0.3), "acquisition": ("ei",)}

    def rounds_of(self, budget: int) -> int:
        return min(self.rounds, budget)

    def plan(self, parts: Parts) -> Plan:
        assert parts.encoder is not None
        then = Acquiring(self, parts.encoder, self.width * spread_of(parts.encoder, parts.seed))
        return Plan(FirstRound(parts.stage(self.first), parts.pool), Schedule(self.rounds), then)


class Acquiring(Picker):
    """The items of highest acquisition. A query in a round takes room for its scored items × n numbers."""

    def __init__(self, how: GP, space: Space, width: float) -> None:
        self.how, self.space, self.width = how, space, width
        steps = [np.arange(start, min(start + 4096, space.n)) for start in range(0, space.n, 4096)]
        squares = [np.einsum("nd,nd->n", rows, rows) for rows in map(space.rows, steps)]
        self.squares: Floats = np.concatenate([np.empty(0), *squares]).astype(np.float32)  # ‖v‖² (n)

    def pick(self, queries: Sequence[Query], counts: Sequence[int]) -> list[Found]:
        found = []
        for query, count in zip(queries, counts, strict=True):
            means, deviations, best = self.posterior(query)
            places = ranked(masked(self._acquisition(means, deviations, best), query.scored, query.allowed), count)
            spread, level = _scale(query.account.scores)
            found.append(Found(places, spread * means[places] + level))
        return found

    def posterior(self, query: Query) -> tuple[Floats, Floats, float]:
        """Return mean and standard deviation of every item (n), on standardised scores, and the best of those."""
        spread, level = _scale(query.account.scores)
        targets = (query.account.scores - level) / spread
        rows = self.space.rows(query.scored)  # (m × d)
        best = float(targets.max())
        if self.how.query and query.vector is not None:
            rows, targets = np.concatenate([rows, query.vector[None]]), np.append(targets, best)
        squares = np.einsum("md,md->m", rows, rows)
        gram = self._kernel(rows @ rows.T, squares, squares)
        gram[np.diag_indices_from(gram)] += self.how.noise
        triangle = np.tril(cho_factor(gram, lower=True)[0])
        across = self._kernel(self.space.predict(rows), squares, self.squares)  # (m × n)
        half = solve_triangular(triangle.astype(np.float32), across, lower=True, check_finite=False)  # L⁻¹ k(A, ·)
        means = solve_triangular(triangle, targets, lower=True) @ half
        return means, np.sqrt(np.maximum(1 - np.einsum("mn,mn->n", half, half), 1e-9)), best

    def _kernel(self, products: Floats, ours: Floats, theirs: Floats) -> Floats:
        distances = np.maximum(ours[:, None].astype(products.dtype) + theirs - 2 * products, 0)
        return np.asarray(np.exp(distances / np.asarray(-2 * self.width**2, dtype=products.dtype)))

    def _acquisition(self, means: Floats, deviations: Floats, best: float) -> Floats:
        if self.how.acquisition == "ucb":
            return means + self.how.kappa * deviations
        z = (means - best) / deviations
        return np.asarray(deviations * (z * ndtr(z) + np.exp(-0.5 * z**2) / np.sqrt(2 * np.pi)))


def _scale(scores: Floats) -> tuple[float, float]:
    """Standard deviation and mean, for standardising."""
    return float(scores.std()) or 1.0, float(scores.mean())
