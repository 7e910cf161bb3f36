"""How a query vector u is estimated from what has been scored.

| estimator | u | paper |
|---|---|---|
| `Regression` | (V_A)† a, or ridge; mixed with the encoder's vector by λ | ADACUR alg. 1, AXN eq. 4 and 7 |
| `Stretched` | ridge that is easy on the encoder's own direction | ours |
| `Expecting` | ridge towards what past searches lead to expect | ours |
| `FixedAnchors` | C_anc† precomputed for a fixed set of anchor items | ANNCUR §2.3–2.4 |
| `GradientStep` | one step per round on KL or MSE, from the encoder's vector | TOUR, as in AXN app. B.2 |
| `Feedback` | moved from worse items towards better ones | Qdrant's relevance feedback |
| `OwnScores` | the scores with the anchor items themselves | FIXEDITEM, ANNCUR §3.4 |

An estimator makes one `Fit` per query; a fit takes in the items scored in each round.
"""

from __future__ import annotations

import threading
from abc import abstractmethod
from dataclasses import dataclass, field
from typing import ClassVar, Literal, Protocol

import numpy as np
from scipy.special import softmax

from crosscut.errors import InputError
from crosscut.latest import Latest
from crosscut.linalg.least_squares import LeastSquares
from crosscut.search.prior import Prior, padded
from crosscut.spaces.base import Space
from crosscut.types import Floats, Positions


class Fit(Protocol):
    """The estimate of one query's vector, round by round."""

    def add(self, positions: Positions, targets: Floats) -> None:
        """Take in the items scored in the last round and what is to be explained of their scores."""

    def solve(self) -> Floats:
        """u (d)."""


class Estimator(Protocol):
    """A way to estimate query vectors in a space. One of your own inherits from it."""

    small: ClassVar[bool] = False
    """Whether the products of a fit are no larger than those of a ridge with a prior of `RANK` directions."""

    @abstractmethod
    def start(self, space: Space, query_vector: Floats | None) -> Fit:
        """A fresh fit for one query; `query_vector` is the encoder's, if the query has one."""


@dataclass(frozen=True)
class Regression(Estimator):
    """Least squares or ridge on all that was scored.

    Parameters
    ----------
    ridge, rcond
        See `LeastSquares`.
    mix
        λ of AXN eq. 7: u = (1 − λ) u_regression + λ u_encoder. Needs a query vector of this space.
    """

    ridge: float = 0.0
    rcond: float | None = None
    mix: float = 0.0

    def start(self, space: Space, query_vector: Floats | None) -> Fit:
        if self.mix and (query_vector is None or len(query_vector) != space.d):
            got = "no query vector was given" if query_vector is None else f"it has {len(query_vector)}"
            raise InputError(
                f"λ = {self.mix} mixes in a query vector of {space.d} dimensions, and {got}: "
                "pass query_vector in the space that is searched, or use mix=0"
            )
        return _RegressionFit(self, space, query_vector)


class _RegressionFit:
    def __init__(self, how: Regression, space: Space, query_vector: Floats | None) -> None:
        self._squares = LeastSquares(space.d, ridge=how.ridge, rcond=how.rcond)
        self._space = space
        self._mix = how.mix
        self._encoder = query_vector

    def add(self, positions: Positions, targets: Floats) -> None:
        self._squares.add(self._space.rows(positions), targets)

    def solve(self) -> Floats:
        u = self._squares.solve()
        if self._mix and self._encoder is not None:
            u = (1 - self._mix) * u + self._mix * self._encoder
        return u


@dataclass(frozen=True)
class Stretched(Estimator):
    """Ridge that is easy on one direction: the encoder's query vector q.

    The prior variance of u along q̂ = q / ‖q‖ is g² times that of any other direction, so that "more of what the
    encoder said" is the first explanation tried, at whatever slope the scores turn out to have.

    Parameters
    ----------
    ridge
        μ.
    stretch
        g ≥ 1; 1 is a plain ridge, and so is a query without a vector.
    at
        Where the encoder's coordinates begin in the space.
    trust
        (n) σ / σ_i for items whose own noise σ_i is larger than that of the rest; None: the same for all.
    """

    small: ClassVar[bool] = True

    ridge: float
    stretch: float = 1.0
    at: int = 0
    trust: Floats | None = field(default=None, compare=False)

    def start(self, space: Space, query_vector: Floats | None) -> Fit:
        return _StretchedFit(self, space, query_vector)


class _StretchedFit:
    def __init__(self, how: Stretched, space: Space, query_vector: Floats | None) -> None:
        self._space, self._trust = space, how.trust
        self._squares = LeastSquares(space.d, ridge=how.ridge)
        self._direction = np.zeros(space.d)  # q̂, zero for a plain ridge
        self._more = how.stretch**2 - 1
        if self._more and query_vector is not None and (length := np.linalg.norm(query_vector)):
            self._direction[how.at : how.at + len(query_vector)] = query_vector / length

    def add(self, positions: Positions, targets: Floats) -> None:
        rows = self._space.rows(positions)  # (k × d);  Σ = I + (g² − 1) q̂ q̂ᵀ
        if self._trust is not None:
            rows, targets = rows * self._trust[positions, None], targets * self._trust[positions]
        images = (self._more * (rows @ self._direction))[:, None] * self._direction
        images += rows
        self._squares.add(rows, targets, images)

    def solve(self) -> Floats:
        return self._squares.solve()


@dataclass(frozen=True)
class Expecting(Estimator):
    """Ridge towards what past searches lead to expect: u ~ N(u₀(q), Σ), noise μ.

    The encoder's coordinates come first in the space; those that stand behind them, a constant and what words tell, are
    estimated beside them, with variance 1. `trust` is that of `Stretched`.
    """

    small: ClassVar[bool] = True

    prior: Prior
    ridge: float
    trust: Floats | None = field(default=None, compare=False)

    def start(self, space: Space, query_vector: Floats | None) -> Fit:
        if not 1 <= space.d - self.prior.d <= 2:
            raise InputError(
                f"the prior has {self.prior.d} dimensions and the space {space.d - 1} and a constant: learn it again"
            )
        return _ExpectingFit(self, space, query_vector)


class _ExpectingFit:
    def __init__(self, how: Expecting, space: Space, query_vector: Floats | None) -> None:
        self._space, self._how = space, how
        self._squares = LeastSquares(space.d, ridge=how.ridge)
        self._expected = padded(how.prior.at(query_vector), space.d)  # u₀ (d + 1, or 2 with words)

    def add(self, positions: Positions, targets: Floats) -> None:
        rows, how = self._space.rows(positions), self._how
        left = targets - rows @ self._expected
        if how.trust is not None:
            rows, left = rows * how.trust[positions, None], left * how.trust[positions]
        images, own = rows.copy(), slice(how.prior.d)  # Σ = floor I + Dᵀ D, and I of what stands behind
        images[:, own] = how.prior.floor * rows[:, own] + (rows[:, own] @ how.prior.directions.T) @ how.prior.directions
        self._squares.add(rows, left, images)

    def solve(self) -> Floats:
        return self._expected + self._squares.solve()


@dataclass(frozen=True)
class FixedAnchors(Estimator):
    """ANNCUR: U = C_anc†, once for all queries that are scored with the same anchor items.

    `anchors` is the fixed order in which anchor items are taken; a query scored with other items (a retriever's,
    those that a filter leaves) is solved online, by the same least squares.
    """

    anchors: Positions
    rcond: float | None = None
    _inverses: Latest[Floats] = field(default_factory=lambda: Latest(8), repr=False, compare=False)  # one a budget
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False, compare=False)

    def start(self, space: Space, query_vector: Floats | None) -> Fit:
        return _FixedFit(self, space)

    def inverse(self, space: Space, anchors: Positions) -> Floats:
        """C_anc† of anchor items, as (d × k_i): u = C_anc† a."""

        def make() -> Floats:
            rows = space.rows(anchors)  # (k_i × d) = C_ancᵀ
            cut = np.finfo(np.float64).eps * max(rows.shape) if self.rcond is None else self.rcond
            return np.asarray(np.linalg.pinv(rows, rcond=cut), dtype=np.float64)

        with self._lock:  # the queries of a batch are fitted side by side: one of them computes it
            return self._inverses.get(len(anchors), make)


class _FixedFit:
    def __init__(self, how: FixedAnchors, space: Space) -> None:
        self._how, self._space = how, space
        self._u = np.zeros(space.d)
        self._done = False

    def add(self, positions: Positions, targets: Floats) -> None:
        if self._done:  # the second round is for ranking, it teaches nothing
            return
        self._done = True
        if np.array_equal(positions, self._how.anchors[: len(positions)]):
            self._u = self._how.inverse(self._space, positions) @ targets
        else:
            squares = LeastSquares(self._space.d, rcond=self._how.rcond)
            squares.add(self._space.rows(positions), targets)
            self._u = squares.solve()

    def solve(self) -> Floats:
        return self._u


def _moved(what: str, space: Space, query_vector: Floats | None) -> Floats:
    """The query vector that an estimator begins with, of the space it moves in."""
    if query_vector is None or len(query_vector) != space.d:
        raise InputError(
            f"{what} moves a query vector of {space.d} dimensions and got "
            f"{'none' if query_vector is None else len(query_vector)}: pass query_vector, or use axn"
        )
    return query_vector


@dataclass(frozen=True)
class GradientStep(Estimator):
    """TOUR: one gradient step on the items of each round, starting at the encoder's query vector."""

    loss: Literal["kl", "mse"] = "kl"
    rate: float | None = None  # 0.1 for KL, 1e-3 for MSE

    def __post_init__(self) -> None:
        if self.loss not in ("kl", "mse"):
            raise InputError(f"the loss of a gradient step is 'kl' or 'mse'; got {self.loss!r}")

    def start(self, space: Space, query_vector: Floats | None) -> Fit:
        return _GradientFit(self, space, _moved("tour", space, query_vector))


class _GradientFit:
    def __init__(self, how: GradientStep, space: Space, query_vector: Floats) -> None:
        self._how, self._space = how, space
        self._u = query_vector.astype(np.float64)
        self._rate = how.rate if how.rate is not None else {"kl": 0.1, "mse": 1e-3}[how.loss]

    def add(self, positions: Positions, targets: Floats) -> None:
        rows = self._space.rows(positions)  # (k_s × d)
        predicted = rows @ self._u
        if self._how.loss == "kl":  # ∇ KL(softmax a ‖ softmax V u) = Vᵀ (softmax V u − softmax a)
            slope = rows.T @ (softmax(predicted) - softmax(targets))
        else:  # ∇ mean (V u − a)²
            slope = rows.T @ (predicted - targets) * (2 / len(targets))
        self._u = self._u - self._rate * slope

    def solve(self) -> Floats:
        return self._u


@dataclass(frozen=True)
class Feedback(Estimator):
    """Qdrant's naive relevance feedback: u = a q + c Σ (s_p − s_n)ᵇ (p − n), over pairs with s_p > s_n."""

    a: float
    b: float
    c: float

    def start(self, space: Space, query_vector: Floats | None) -> Fit:
        return _FeedbackFit(self, space, _moved("relevance feedback", space, query_vector))


class _FeedbackFit:
    def __init__(self, how: Feedback, space: Space, query_vector: Floats) -> None:
        self._how, self._space, self._query = how, space, query_vector
        self._positions: list[Positions] = []
        self._targets: list[Floats] = []

    def add(self, positions: Positions, targets: Floats) -> None:
        self._positions.append(positions)
        self._targets.append(targets)

    def solve(self) -> Floats:
        how, scores = self._how, np.concatenate(self._targets)
        apart = scores[:, None] - scores  # (m × m)
        weights = (np.sign(apart) * np.abs(apart) ** how.b).sum(axis=1)  # of each item in all its pairs
        return np.asarray(how.a * self._query + how.c * weights @ self._space.rows(np.concatenate(self._positions)))


@dataclass(frozen=True)
class OwnScores(Estimator):
    """FIXEDITEM: the query's scores with the anchor items are its vector."""

    anchors: Positions

    def start(self, space: Space, query_vector: Floats | None) -> Fit:
        return _OwnFit(self.anchors)


class _OwnFit:
    def __init__(self, anchors: Positions) -> None:
        self._coordinate = {int(position): j for j, position in enumerate(anchors)}
        self._u = np.zeros(len(anchors))

    def add(self, positions: Positions, targets: Floats) -> None:
        for position, target in zip(positions.tolist(), targets.tolist(), strict=True):
            if position in self._coordinate:
                self._u[self._coordinate[position]] = target

    def solve(self) -> Floats:
        return self._u
