"""Fits of a query vector u to the scores so far.

| fit | u | paper |
|---|---|---|
| `LeastSquaresFit` | (V_A)† a, mixed with the encoder's vector by λ | ADACUR alg. 1, AXN eq. 4 and 7 |
| `Ridge` | posterior mean under u ~ N(mean, Σ), noise μ | ours |
| `ExpectedSlope` | the same, with the encoder's vector for mean and the scale of the scores fitted | ours |
| `AnchorFit` | C_anc† precomputed for a fixed set of anchor items | ANNCUR §2.3–2.4 |
"""

from __future__ import annotations

import math
import threading
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from crosscut.errors import InputError
from crosscut.latest import Latest
from crosscut.linalg.least_squares import LeastSquares
from crosscut.search.prior import Prior, padded
from crosscut.spaces.base import Space
from crosscut.types import Floats, Positions


class Fit(Protocol):
    """The estimate of one query's vector, round by round."""

    def add(self, handles: Positions, rows: Floats, targets: Floats) -> None:
        """Take in the items scored in the last round: their vectors (k × d), what their scores are to be."""

    def solve(self) -> Floats:
        """Return u (d)."""

    @property
    def level(self) -> float:
        """The constant that predictions add to V u."""
        return 0.0


class LeastSquaresFit(Fit):
    """u = (1 − λ) (V_A)† a + λ u_encoder; the minimum-norm solution."""

    def __init__(self, d: int, *, rcond: float | None = None, mix: float = 0.0, vector: Floats | None = None) -> None:
        if mix and (vector is None or len(vector) != d):
            got = "no query vector was given" if vector is None else f"it has {len(vector)}"
            raise InputError(
                f"λ = {mix} mixes in a query vector of {d} dimensions, and {got}: "
                "pass query_vector in the space that is searched, or use mix=0"
            )
        self._squares = LeastSquares(d, rcond=rcond)
        self._mix, self._vector = mix, vector

    def add(self, handles: Positions, rows: Floats, targets: Floats) -> None:
        self._squares.add(rows, targets)

    def solve(self) -> Floats:
        u = self._squares.solve()
        return (1 - self._mix) * u + self._mix * self._vector if self._mix and self._vector is not None else u


class Ridge(Fit):
    """The posterior mean of u ~ N(mean, Σ) with Σ = diag(floor) + Dᵀ D, under noise of variance μ.

    Parameters
    ----------
    noise
        μ.
    mean
        (d) what is expected of u; None: 0.
    floor
        (d) or a number: the variance of every coordinate.
    directions
        D (r × d): along these u varies more; None: along none.
    trust
        (n) σ / σ_i for items whose own noise σ_i is larger than that of the rest; None: the same for all.
    """

    def __init__(
        self,
        d: int,
        noise: float,
        *,
        mean: Floats | None = None,
        floor: Floats | float = 1.0,
        directions: Floats | None = None,
        trust: Floats | None = None,
    ) -> None:
        self._squares = LeastSquares(d, ridge=noise)
        self._mean, self._floor, self._directions, self._trust = mean, floor, directions, trust

    def add(self, handles: Positions, rows: Floats, targets: Floats) -> None:
        left = targets if self._mean is None else targets - rows @ self._mean
        if self._trust is not None:
            rows, left = rows * self._trust[handles, None], left * self._trust[handles]
        images = self._floor * rows  # X Σ
        if self._directions is not None:
            images = images + (rows @ self._directions.T) @ self._directions
        self._squares.add(rows, left, images)

    def solve(self) -> Floats:
        u = self._squares.solve()
        return u if self._mean is None else self._mean + u


def stretched(
    d: int, noise: float, vector: Floats | None, stretch: float = 1.0, at: int = 0, trust: Floats | None = None
) -> Ridge:
    """Return a ridge that is easy on one direction: the encoder's query vector q.

    The prior variance of u along q̂ = q / ‖q‖ is g² times that of any other direction (Σ = I + (g² − 1) q̂ q̂ᵀ), so that
    "more of what the encoder said" is the first explanation tried, at whatever slope the scores turn out to have.
    `stretch` is g ≥ 1; 1 is a plain ridge, and so is a query without a vector. The encoder's coordinates begin at `at`.
    """
    directions = None
    if stretch > 1 and vector is not None and (length := np.linalg.norm(vector)):
        directions = np.zeros((1, d))
        directions[0, at : at + len(vector)] = np.sqrt(stretch**2 - 1) * vector / length
    return Ridge(d, noise, directions=directions, trust=trust)


def sloped(
    d: int,
    noise: float,
    vector: Floats,
    slopes: tuple[float, float],
    weight: float,
    at: int,
    trust: Floats | None = None,
) -> Ridge:
    """Return a ridge that expects a slope, known in the units of the scores: s ~ N(mean, deviation²) on v · q̂.

    `weight` is what the encoder's coordinates, which begin at `at`, are multiplied with."""
    direction = np.zeros(d)
    if weight and (length := np.linalg.norm(vector)):
        direction[at : at + len(vector)] = vector / length
    mean, deviation = slopes[0] / (weight or 1.0), slopes[1] / (weight or 1.0)
    more = math.sqrt(max(deviation**2 - 1, 0.0))  # Σ = I + more² q̂ q̂ᵀ
    return Ridge(d, noise, mean=mean * direction, directions=more * direction[None], trust=trust)


SLOPE = 8.0  # γ
DEVIATION = 0.75  # h / γ


class ExpectedSlope(Fit):
    """A ridge that expects scores to rise with the encoder's, by a slope in units of the scores' own scale.

        score(i) = level + τ (s e_i + v_i · r + noise),    e_i = v_i · q̂
        s ~ N(γ, h²),   r ~ N(0, I),   noise ~ N(0, μ)

    With Σ = I + h² q̂ q̂ᵀ and K = V Σ Vᵀ + μ I the posterior mean of τ (s q̂ + r) is

        u = τγ q̂ + Σ Vᵀ K⁻¹ (y − τγ e),      τ = (−b + √(b² + 4 (m − 1) a)) / (2 (m − 1)),  a = yᵀK⁻¹y,  b = γ yᵀK⁻¹e

    where τ has the highest likelihood, so that neither the unit nor the zero of scores matters. y are the scores less
    their mean in round one. One score, or scores that are all alike, say nothing of τ: u = q̂, the encoder's order.

    Parameters
    ----------
    noise
        μ.
    vector, at
        q, and where the encoder's coordinates begin; they have unit spread.
    slope
        γ.
    """

    def __init__(self, d: int, noise: float, vector: Floats, at: int = 0, slope: float = SLOPE) -> None:
        self._squares = LeastSquares(d, ridge=noise, sides=2)
        self._slope, self._deviation = slope, DEVIATION * slope
        self._direction = np.zeros(d)  # q̂
        self._direction[at : at + len(vector)] = vector / np.linalg.norm(vector)
        self._level: float | None = None
        self._count = 0

    @property
    def level(self) -> float:
        return self._level or 0.0

    def add(self, handles: Positions, rows: Floats, targets: Floats) -> None:
        if self._level is None:
            self._level = float(targets.mean())
        y, e = targets - self._level, rows @ self._direction
        y[np.abs(y) <= 1e-12 * abs(self._level)] = 0.0  # rounding
        self._squares.add(rows, np.column_stack([y, e]), rows + self._deviation**2 * np.outer(e, self._direction))
        self._count += len(rows)

    def solve(self) -> Floats:
        (a, b), _ = self._squares.products.tolist()
        m, b = self._count - 1, self._slope * b
        if m < 1 or not a > 0:
            return self._direction
        tau = (-b + math.sqrt(b * b + 4 * m * a)) / (2 * m)
        ours, expected = self._squares.solve()
        return np.asarray(ours + tau * self._slope * (self._direction - expected))


def learned(d: int, noise: float, prior: Prior, vector: Floats | None, trust: Floats | None = None) -> Ridge:
    """Return a ridge towards what past searches lead to expect: u ~ N(u₀(q), Σ).

    The prior's coordinates come first in the space; those behind them, a constant and words, have variance 1.
    """
    if not 1 <= d - prior.d <= 2:
        raise InputError(f"the prior has {prior.d} dimensions and the space {d - 1} and a constant: learn it again")
    floor = np.ones(d)
    floor[: prior.d] = prior.floor
    directions = np.pad(prior.directions, ((0, 0), (0, d - prior.d)))
    return Ridge(d, noise, mean=padded(prior.at(vector), d), floor=floor, directions=directions, trust=trust)


@dataclass(frozen=True, eq=False)
class Anchors:
    """ANNCUR: U = C_anc†, once for all queries that are scored with the same anchor items.

    `order` is the fixed order in which anchor items are taken; a query scored with other items (a retriever's, those
    that a filter leaves) is solved online, by the same least squares.
    """

    space: Space
    order: Positions
    rcond: float | None = None
    _inverses: Latest[Floats] = field(default_factory=lambda: Latest(8), repr=False)  # one a budget
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)

    def fit(self) -> Fit:
        """Return a fresh fit for one query."""
        return _AnchorFit(self)

    def inverse(self, count: int) -> Floats:
        """Return C_anc† of the first anchor items, as (d × k_i): u = C_anc† a."""

        def compute() -> Floats:
            rows = self.space.rows(self.order[:count])  # (k_i × d) = C_ancᵀ
            cut = np.finfo(np.float64).eps * max(rows.shape) if self.rcond is None else self.rcond
            return np.asarray(np.linalg.pinv(rows, rcond=cut), dtype=np.float64)

        with self._lock:  # the queries of a batch are fitted side by side: one of them computes it
            return self._inverses.get(count, compute)


class _AnchorFit(Fit):
    def __init__(self, anchors: Anchors) -> None:
        self._anchors = anchors
        self._u: Floats | None = None

    def add(self, handles: Positions, rows: Floats, targets: Floats) -> None:
        if self._u is not None:  # the second round is for ranking, it teaches nothing
            return
        anchors = self._anchors
        if np.array_equal(handles, anchors.order[: len(handles)]):
            self._u = anchors.inverse(len(handles)) @ targets
        else:
            squares = LeastSquares(anchors.space.d, rcond=anchors.rcond)
            squares.add(rows, targets)
            self._u = squares.solve()

    def solve(self) -> Floats:
        return np.zeros(self._anchors.space.d) if self._u is None else self._u
