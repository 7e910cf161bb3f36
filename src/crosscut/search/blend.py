"""`crosscut`, the default method: every space there is, stacked, under one ridge.

A score is taken to be

    f(q, i) = b_i + c_q + v_i · u,       u ~ N(0, I),  noise of variance μ

    b_i   the item's base: its mean score over the anchor queries
    c_q   the query's level: a constant coordinate that is hardly penalised, so that a shift of all scores
          changes nothing
    v_i   [ CUR, centred on the base, scaled by its spectrum  ‖  w × encoder ]

and u is its posterior mean: the ridge of `least_squares.py`. The CUR block knows what anchor queries have shown of an
item, the encoder block what its text says; w and μ are chosen on the anchor queries themselves, each held out in turn,
as those that best predict the high scores of a query from a few dozen others. The ridge is easy on the encoder's own
query direction (`Stretched`). It stays one linear space, so it stays one loop.

Without anchor scores: no base, the encoder block alone. Without an encoder: the CUR block alone, and round one takes
the items of highest base. With neither, what is left is to score the given ids, and random items after them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

from crosscut.errors import InputError
from crosscut.search.estimators import Stretched
from crosscut.search.first import Dense, Fixed
from crosscut.search.loop import Offset, Plan
from crosscut.search.methods import FirstName, Materials, first_stage
from crosscut.search.selection import Selection, as_selection
from crosscut.search.stopping import Schedule
from crosscut.spaces.base import Array, Constant, Space, Stacked, Vectors
from crosscut.spaces.cur import CUR, background, reduced
from crosscut.spaces.items import ItemScores
from crosscut.types import Floats

SAMPLE = 4000  # items that the choice of weights looks at
SHARES = (0.05, 0.1, 0.2, 0.4, 0.8)  # encoder block: standard deviation against that of the residual scores
NOISES = (0.003, 0.01, 0.03, 0.1, 0.3)  # μ against the variance of the residual scores
SHARE, NOISE = 0.4, 0.03  # where anchor queries are too few to choose on
ALONE = 0.35  # μ against the variance of the encoder block, without anchor scores
FREE = 10.0  # constant coordinate: standard deviation against that of the residual scores


def crosscut(
    m: Materials,
    *,
    rounds: int = 10,
    rank: int = 256,
    stretch: float = 3.0,
    ridge: float = 1.0,
    first: FirstName = "auto",
    select: str | Selection = "top",
    epsilon: float = 0.0,
    first_share: float | None = None,
) -> Plan:
    """The default: stacked spaces, a base per item, ridge, ten rounds."""
    if not stretch >= 1:
        raise InputError(
            f"stretch is how much easier the ridge is on the encoder's direction, 1 or more; got {stretch}"
        )
    if not ridge > 0:
        raise InputError(f"ridge multiplies the noise that is assumed, above 0; got {ridge}")
    schedule = Schedule(rounds, first_share)
    chooser = as_selection(select, epsilon)
    constant = Constant(m.n)
    if isinstance(m.space, CUR) and not isinstance(m.space, ItemScores):
        rank = rank if m.space.rank is None else min(rank, m.space.rank)
        base, block, weights = _learned(m.space, m.encoder, rank, m.seed)
        blocks: list[Space] = [block]
        if m.encoder is not None:
            blocks.append(m.encoder)
        space = Stacked([*blocks, constant], [*[1.0, weights.encoder][: len(blocks)], FREE * weights.spread])
        estimator = Stretched(ridge * weights.noise, stretch if m.encoder is not None else 1.0, blocks[0].d)
        stage = first_stage(m, first)
        if first == "auto":  # by query vector; without one, the items of highest base
            popular = Fixed(np.lexsort((np.arange(m.n), -base)))
            stage = popular if m.encoder is None else Dense(m.encoder, otherwise=popular)
        return Plan(m.n, stage, schedule, space, estimator, chooser, Offset(base))
    blocks = [block for block in dict.fromkeys((m.space, m.encoder)) if block is not None]
    if not blocks:
        return Plan(m.n, first_stage(m, first), Schedule(1))
    spreads = [_spread(block, m.seed) for block in blocks]  # every block gets the same variance
    space = Stacked([*blocks, constant], [*(1 / spread for spread in spreads), 10 * FREE])
    at = sum(block.d for block in blocks) - blocks[-1].d
    estimator = Stretched(ridge * ALONE * len(blocks), stretch if m.encoder is not None else 1.0, at)
    return Plan(m.n, first_stage(m, first), schedule, space, estimator, chooser)


_LEARNED: WeakKeyDictionary[CUR, dict[Any, tuple[Floats, Vectors, Weights]]] = WeakKeyDictionary()


def _learned(cur: CUR, encoder: Space | None, rank: int, seed: int) -> tuple[Floats, Vectors, Weights]:
    """Base, CUR block and weights of a space: made once, however many searchers share it."""
    known = _LEARNED.setdefault(cur, {})
    key = (encoder, rank, seed)
    if key not in known:
        scores = cur.anchor_scores
        base = background(scores)
        known[key] = base, Vectors(reduced(scores, rank, base)), choose_weights(scores, encoder, rank, seed)
    return known[key]


@dataclass(frozen=True)
class Weights:
    """Of the encoder block; the noise variance μ; the standard deviation of scores less their base."""

    encoder: float
    noise: float
    spread: float


def choose_weights(scores: Array, encoder: Space | None, rank: int, seed: int = 0) -> Weights:
    """Weights that best predict the high scores of anchor queries held out in turn.

    For each held-out query, scores of some forty items (half of them among its best) are given, and those of its other
    high items and of random ones are predicted; the squared error on both decides. The blocks enter only through small
    Gram matrices, so that the whole grid costs less than a second.

    Parameters
    ----------
    scores
        R_anc (k_q × n).
    encoder
        The encoder's space, or None.
    """
    rng = np.random.default_rng(seed)
    size, n = scores.shape
    items = np.sort(rng.choice(n, min(n, SAMPLE), replace=False))
    sample = scores[:, items].astype(np.float64)  # (k_q × s)
    spread = float(np.sqrt(np.mean((sample - sample.mean(axis=0)) ** 2))) or 1.0
    vectors = None if encoder is None else encoder.rows(items)  # (s × d)
    scale = 1.0 if encoder is None else spread / _spread(encoder, seed)
    shares = SHARES if encoder is not None else (0.0,)
    best = (SHARE * scale, NOISE * spread**2)
    if size >= 8 and len(items) >= 16:
        trials = _trials(sample, vectors, rank, rng)
        grid = [(share * scale, noise * spread**2) for share in shares for noise in NOISES]
        level = (FREE * spread) ** 2
        errors = np.array([np.mean([trial.error(w, noise, level) for trial in trials]) for w, noise in grid])
        # the error is flat around its minimum: of the settings within 2 % of it, the most cautious
        near = [j for j in range(len(grid)) if errors[j] <= 1.02 * errors.min()]
        best = grid[max(near, key=lambda j: (grid[j][1], -errors[j]))]
    return Weights(best[0], best[1], spread)


@dataclass(frozen=True)
class _Trial:
    """One held-out query: Gram matrices of both blocks, among the given items and from targets to given."""

    cur: Floats  # (g × g)
    encoder: Floats  # (g × g)
    cur_targets: Floats  # (t × g)
    encoder_targets: Floats  # (t × g)
    given: Floats  # (g) residual scores
    targets: Floats  # (t)

    def error(self, weight: float, noise: float, level: float) -> float:
        """Mean squared error of the ridge predictions of the targets."""
        gram = self.cur + weight**2 * self.encoder + level
        gram[np.diag_indices_from(gram)] += noise
        dual = np.linalg.solve(gram, self.given)
        predicted = (self.cur_targets + weight**2 * self.encoder_targets + level) @ dual
        return float(np.mean((predicted - self.targets) ** 2))


def _trials(
    sample: Floats,
    vectors: Floats | None,
    rank: int,
    rng: np.random.Generator,
    folds: int = 4,
    most: int = 128,
) -> list[_Trial]:
    size, n = sample.shape
    trials = []
    order = rng.permutation(size)
    for fold in range(folds):
        held = order[fold::folds]
        rest = np.setdiff1d(order, held)
        base = background(sample[rest])
        cur = reduced(sample[rest], rank, base).astype(np.float64)
        for query in held[: max(1, most // folds)]:
            ranked = np.argsort(-sample[query], kind="stable")
            high = ranked[: max(8, min(300, n // 4))]
            given = np.union1d(rng.choice(high, min(20, len(high) // 2), False), rng.choice(n, min(20, n // 4), False))
            asked = np.concatenate([high[:200], rng.choice(n, min(200, n // 2), False)])
            asked = asked[~np.isin(asked, given)]
            residual = sample[query] - base
            none = np.zeros((n, 1))
            other = none if vectors is None else vectors
            trials.append(
                _Trial(
                    cur[given] @ cur[given].T,
                    other[given] @ other[given].T,
                    cur[asked] @ cur[given].T,
                    other[asked] @ other[given].T,
                    residual[given],
                    residual[asked],
                )
            )
    return trials


def _spread(space: Space, seed: int) -> float:
    """Root mean square distance of item vectors from their mean, on a sample."""
    items = np.random.default_rng(seed).choice(space.n, min(space.n, 1000), replace=False)
    rows = space.rows(np.sort(items)) if space.n else np.zeros((1, space.d))
    return float(np.sqrt(np.mean(np.sum((rows - rows.mean(axis=0)) ** 2, axis=1)))) or 1.0
