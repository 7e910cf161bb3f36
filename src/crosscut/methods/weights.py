"""The weights of `crosscut`'s blocks, chosen on the anchor queries themselves, each held out in turn."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

from crosscut.spaces.base import Space, Stacked, Vectors
from crosscut.spaces.cur import CUR, background, reduced
from crosscut.types import Array, Floats, Positions

SAMPLE = 4000  # items that the choice of weights looks at
SHARES = (0.05, 0.1, 0.2, 0.4, 0.8)  # encoder block: standard deviation against that of the residual scores
NOISES = (0.003, 0.01, 0.03, 0.1, 0.3)  # μ against the variance of the residual scores
SHARE, NOISE = 0.4, 0.03  # where anchor queries are too few to choose on
FREE = 10.0  # constant coordinate: standard deviation against that of the residual scores


KEPT = 4  # of one space: a block is as large as so many of its columns
_LEARNED: WeakKeyDictionary[CUR, dict[Any, tuple[Floats, Vectors, Weights]]] = WeakKeyDictionary()


def learned(cur: CUR, encoder: Space | None, rank: int, seed: int) -> tuple[Floats, Vectors, Weights]:
    """Base, CUR block and weights of a space: made once, however many searchers share it."""
    known = _LEARNED.setdefault(cur, {})
    key = (encoder, rank, seed)
    if key not in known:
        scores = cur.anchor_scores
        base = background(scores)
        measured = None if cur.errors is None else np.flatnonzero(cur.errors == 0)
        weights = choose_weights(scores, encoder, rank, seed, measured)
        known[key] = base, Vectors(reduced(scores, rank, base)), weights
    made = known[key]
    while len(known) > KEPT:
        known.pop(next(iter(known)), None)
    return made


_ROWS: WeakKeyDictionary[CUR, Vectors] = WeakKeyDictionary()


def beside(encoder: Space, cur: CUR | None, weight: float) -> Space:
    """The space of a `Prior`: the encoder's, or [w × encoder ‖ anchor scores less each query's mean, over √k_q].

    No base is subtracted: how much an item's mean score predicts is in the mean of u, and learned. Nor are the scores
    projected on their leading directions: those change when items come and go, and the prior has to outlive that.
    """
    if cur is None:
        return encoder
    if cur not in _ROWS:
        scores = cur.anchor_scores
        rows = np.empty(scores.shape[::-1], np.float32)  # (n × k_q)
        for j, row in enumerate(scores):
            rows[:, j] = (row - row.mean(dtype=np.float64)) / np.sqrt(len(scores))
        _ROWS[cur] = Vectors(rows)
    return Stacked([encoder, _ROWS[cur]], [weight, 1.0])


@dataclass(frozen=True)
class Weights:
    """Of the encoder block; the noise variance μ; the standard deviation of scores less their base."""

    encoder: float
    noise: float
    spread: float


def choose_weights(
    scores: Array, encoder: Space | None, rank: int, seed: int = 0, measured: Positions | None = None
) -> Weights:
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
    measured
        The items whose scores are no estimates; None, or none: all.
    """
    rng = np.random.default_rng(seed)
    size, n = scores.shape
    pool = np.arange(n) if measured is None or not len(measured) else measured
    items = np.sort(rng.choice(pool, min(len(pool), SAMPLE), replace=False))
    sample = scores[:, items].astype(np.float64)  # (k_q × s)
    spread = float(np.sqrt(np.mean((sample - sample.mean(axis=0)) ** 2))) or 1.0
    vectors = None if encoder is None else encoder.rows(items)  # (s × d)
    scale = 1.0 if encoder is None else spread / spread_of(encoder, seed)
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
        try:
            dual = np.linalg.solve(gram, self.given)
        except np.linalg.LinAlgError:  # vectors that are all the same, and large: not with this noise
            return np.inf
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


NEAR = 0.1  # of the items, those nearest an anchor query
_SLOPES: WeakKeyDictionary[CUR, tuple[Space, tuple[float, float]]] = WeakKeyDictionary()


def slopes_of(cur: CUR, encoder: Space, base: Floats) -> tuple[float, float] | None:
    """Return mean and deviation, over the anchor queries, of the slope of scores less their base on v · q̂.

    Of each query, over the tenth of the items that are nearest: over all of them it is flatter. None where the query
    vectors are not known.
    """
    if cur.query_vectors is None or not encoder.readable or cur.query_vectors.shape[1] != encoder.d:
        return None
    if cur in _SLOPES and _SLOPES[cur][0] is encoder:
        return _SLOPES[cur][1]
    count, slopes = max(2, round(NEAR * encoder.n)), []
    for scores, vector in zip(cur.anchor_scores, cur.query_vectors, strict=True):
        if not (length := np.linalg.norm(vector)):
            continue
        rises = encoder.predict((vector / length)[None])[0].astype(np.float64)  # e (n)
        near = np.argpartition(-rises, count - 1)[:count]
        apart, left = rises[near] - rises[near].mean(), (scores[near] - base[near]).astype(np.float64)
        if varied := float(apart @ apart):
            slopes.append(float(apart @ left) / varied)
    found = (float(np.mean(slopes)), float(np.std(slopes))) if len(slopes) > 1 else None
    if found is not None:
        _SLOPES[cur] = encoder, found
    return found


_DRAWN: WeakKeyDictionary[Space, dict[int, Floats]] = WeakKeyDictionary()


def spread_of(space: Space, seed: int) -> float:
    """Root mean square distance of item vectors from their mean, on a sample; a store knows its own."""
    if space.topk is not None and space.topk.spread is not None:
        return space.topk.spread
    rows = some_rows(space, seed)
    return float(np.sqrt(np.mean(np.sum((rows - rows.mean(axis=0)) ** 2, axis=1)))) or 1.0


def some_rows(space: Space, seed: int) -> Floats:
    """Vectors of a thousand items or fewer, drawn at random.

    Of a large index they are of the items in lists, whatever is added behind them, and kept: to draw them from its
    files takes longer than a search.
    """
    if space.lasting is None:
        return _drawn(space, seed)
    kept = _DRAWN.setdefault(space.lasting, {})
    if seed not in kept:
        kept[seed] = _drawn(space.lasting, seed)
    return kept[seed]


def _drawn(space: Space, seed: int) -> Floats:
    rng = np.random.default_rng(seed)
    if space.topk is not None:
        items = space.topk.sample(1000, rng)
    else:
        items = rng.choice(space.n, min(space.n, 1000), replace=False)
    return space.rows(np.sort(items)) if len(items) else np.zeros((1, space.d))
