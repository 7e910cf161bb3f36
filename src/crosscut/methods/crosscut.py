"""`crosscut`, the default method: every space there is, stacked, under one ridge.

A score is taken to be

    f(q, i) = b_i + c_q + v_i · u,       u ~ N(0, I),  noise of variance μ

    b_i   the item's base: its mean score over the anchor queries
    c_q   the query's level: a constant coordinate that is hardly penalised, so that a shift of all scores
          changes nothing
    v_i   [ CUR, centred on the base, scaled by its spectrum  ‖  w × encoder ]

and u is its posterior mean: the ridge of `least_squares.py`. The CUR block knows what anchor queries have shown of an
item, the encoder block what its text says; w and μ are chosen on the anchor queries themselves, each held out in turn,
as those that best predict the high scores of a query from a few dozen others. It stays one linear space, so it stays
one loop.

Scores are expected to rise with the encoder's: u has the encoder's query vector for mean (`ExpectedSlope`), by γ times
the scale of the scores; beside anchor scores whose query vectors are known, by the slope that those queries have.

Where there are words, the square root of an item's BM25 with the query is one more coordinate of v_i. It is of
the pair, so it cannot be asked of an index: u asks, and what words add orders what comes back.

A scorer may know part of its score without a call, f = g + costly. Then g is an exact base per query: round one takes
the items of highest g, and u explains only what the calls add to it; what they add need not rise with the encoder's
scores, and the ridge is only easier on its direction (`stretched`).

Anchor scores of an item may be estimates that are off by e_i (items added since). Then its score has variance μ + e_i²
in the ridge, and it is picked as if it scored h e_i higher than expected: what is unsure varies less in expectation
than in truth, and would be crowded out by what is sure. With fewer than two calls for a result, half of that: there,
what is likely to be among the best pays more than what could be the very best.

Without anchor scores: no base, the encoder block alone. Without an encoder: the CUR block alone, and round one takes
the items of highest base. With neither, what is left is to score the given ids, and random items after them.

With a `Prior` that past searches have taught (`search/prior.py`): u ~ N(u₀(q), Σ) instead, of the encoder's space, or
beside anchor scores of the stacked one, and b_i is what those searches left over of the item. Where an index or a store
finds the top, the question stays one vector: b orders a wider answer, and the items of highest b join it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from crosscut.ann.baseline import NOTHING, Baseline, OfSome, PerItem
from crosscut.ann.clustered import SMALL
from crosscut.errors import InputError
from crosscut.methods.base import InRounds, Parts, register
from crosscut.methods.weights import FREE, beside, learned, slopes_of, some_rows, spread_of
from crosscut.search import fits
from crosscut.search.fits import Fit
from crosscut.search.loop import Picker, Plan, Query
from crosscut.search.pickers import Linear
from crosscut.search.prior import CAUTION, LEVEL, Prior
from crosscut.search.stages import Dense, Fixed, HighestBase, Retriever
from crosscut.search.stopping import Schedule
from crosscut.spaces.base import Constant, Space, Stacked
from crosscut.spaces.cur import CUR
from crosscut.types import Floats

HOPE = 0.5  # h
STRETCH = 3.0  # how much easier the ridge is on the encoder's direction, where no slope is expected
ALONE = 0.35  # μ against the variance of the encoder block, without anchor scores


@register
@dataclass(frozen=True, repr=False)
class Crosscut(InRounds):
    """The default: stacked spaces, a base per item, ridge, ten rounds.

    `rank` limits the CUR block; `slope` is how fast scores are expected to rise with the encoder's, in units of what
    the encoder does not explain (γ; its standard deviation is ¾ of it); `ridge` multiplies the noise that is assumed;
    with `learned`, past searches count where an index learned from them. `explore` is a share of the calls that goes to
    items drawn at random, so that a log of searches also shows what a search would not have looked at; each is logged
    with the chance it had. With `fill`, rounds fill what the scorer answers side by side: for a judge that takes eight
    requests at once, 20 calls are 3 rounds. `words` is how far the words that an item shares with the query may explain
    its score, against its vector; 0: not at all.
    """

    name: ClassVar[str] = "crosscut"
    prepared: ClassVar[tuple[str, ...]] = ("rank",)
    takes_base: ClassVar[bool] = True

    rounds: int = 10
    rank: int = 256
    slope: float = fits.SLOPE
    ridge: float = 1.0
    learned: bool = True
    fill: bool = True
    words: float = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.slope >= 0:
            raise InputError(f"slope is how fast scores rise with the encoder's, 0 or more; got {self.slope}")
        if not self.ridge > 0:
            raise InputError(f"ridge multiplies the noise that is assumed, above 0; got {self.ridge}")
        if not self.words >= 0:
            raise InputError(f"words is how far shared words may explain a score, 0 or more; got {self.words}")

    def missing(self, parts: Parts) -> str | None:
        return parts.lacks("encoder", "anchors", "factors")

    def grid(self, parts: Parts) -> dict[str, tuple[Any, ...]]:
        words: dict[str, tuple[Any, ...]] = {} if parts.words is None else {"words": (0.0, 3.0)}
        return {**super().grid(parts), "rounds": (5, 20), "ridge": (0.3, 3.0), "slope": (3.0, 20.0), **words}

    def schedule(self) -> Schedule:
        return Schedule(self.rounds, self.first_share, self.fill, even=True)

    def plan(self, parts: Parts) -> Plan:
        prior = parts.prior if self.learned and parts.factors is None else None
        if prior is not None and parts.encoder is not None:
            space = beside(parts.encoder, parts.anchors, prior.weight)
            if space.d == prior.d:
                return self._with_prior(parts, space, prior)
        return self._without(parts) if parts.anchors is None else self._with_anchors(parts, parts.anchors)

    def _with_anchors(self, parts: Parts, cur: CUR) -> Plan:
        rank = self.rank if cur.rank is None else min(self.rank, cur.rank)
        base, block, weights = learned(cur, parts.encoder, rank, parts.seed)
        blocks: list[Space] = [block, *([] if parts.encoder is None else [parts.encoder])]
        scales = [*[1.0, weights.encoder][: len(blocks)], FREE * weights.spread]
        space = Stacked([*blocks, Constant(parts.n)], scales)
        noise, trust = self.ridge * weights.noise, _trust(cur, self.ridge * weights.noise)
        slopes = None if parts.encoder is None else slopes_of(cur, parts.encoder, base)

        def fit(query: Query, d: int) -> Fit:
            if slopes is None or query.vector is None or query.base is not None:
                return fits.stretched(d, noise, query.vector, STRETCH, block.d, trust)
            return fits.sloped(d, noise, query.vector, slopes, weights.encoder, block.d, trust)

        return self._plan(parts, space, fit, PerItem(base), weights.spread, cur)

    def _with_prior(self, parts: Parts, held: Space, prior: Prior) -> Plan:
        cur = parts.anchors
        noise = self.ridge * CAUTION * prior.noise
        blocks, weights, _ = zip(*held.blocks, strict=True)
        space = Stacked([*blocks, Constant(parts.n)], [*weights, (LEVEL * noise) ** 0.5])
        spread = 0.0 if parts.words is None else prior.spread(some_rows(held, parts.seed))
        trust = None if cur is None else _trust(cur, noise)

        def fit(query: Query, d: int) -> Fit:
            return fits.learned(d, noise, prior, query.vector, trust)

        if cur is not None:
            return self._plan(parts, space, fit, PerItem(prior.base(parts.size)), spread, cur)
        residuals = parts.residuals
        if residuals is None and parts.n is not None:
            residuals = OfSome(prior.seen, prior.residuals, parts.n)
        return self._plan(parts, space, fit, residuals or NOTHING, spread)

    def _without(self, parts: Parts) -> Plan:
        blocks = [block for block in dict.fromkeys((parts.factors, parts.encoder)) if block is not None]
        weights = [1 / spread_of(block, parts.seed) for block in blocks]  # every block gets the same variance
        space = Stacked([*blocks, Constant(parts.n)], [*weights, 10 * FREE])
        at = sum(block.d for block in blocks) - blocks[-1].d
        noise = self.ridge * ALONE * len(blocks)

        def fit(query: Query, d: int) -> Fit:
            if query.vector is None or query.base is not None or not query.vector.any():
                return fits.stretched(d, noise, query.vector, STRETCH, at)
            return fits.ExpectedSlope(d, noise, query.vector, at, self.slope)

        return self._plan(parts, space, fit, NOTHING, 1.0)

    def _plan(
        self,
        parts: Parts,
        space: Space,
        fit: Callable[[Query, int], Fit],
        base: Baseline,
        spread: float,
        cur: CUR | None = None,
    ) -> Plan:
        """Return the plan over a space; `spread` is that of the scores, `cur` has the anchor scores."""
        topk, unsure = parts.topk(space, base), None if cur is None else _unsure(cur)
        hope = None if unsure is None else _Hope(unsure)
        then = Linear(space, topk, fit, base, hope, self._feature(parts, spread))
        if parts.words is not None:
            stage = parts.stage("union")
        elif cur is not None:
            stage = _popular(parts, base)
        else:
            stage = parts.stage("auto")
        return self.in_rounds(parts, parts.stage(self.first, HighestBase(stage)), then)

    def _feature(self, parts: Parts, spread: float) -> Callable[[Query], Floats | None] | None:
        """Return words as one more coordinate, where every item is read.

        Past 200,000 items words only help to choose round one."""
        if not self.words or parts.words is None or parts.n is None or parts.n > SMALL:
            return None
        return _SharedWords(parts.words, self.words * spread)


@dataclass(frozen=True)
class _SharedWords:
    """φ_i (n) = ω √(BM25_i / max BM25): how far an item's words are those of the query, 0 … ω.

    The root, since the first shared word says more than the second. Not for scorers that have base scores.
    """

    words: Retriever
    weight: float  # ω

    def __call__(self, query: Query) -> Floats | None:
        if query.base is not None:
            return None
        scores = np.maximum(self.words.scores(str(query.account.query)), 0.0)
        highest = max(float(scores.max(initial=0.0)), float(np.finfo(np.float32).tiny))
        return np.asarray(self.weight * np.asarray(np.sqrt(scores / highest), dtype=np.float64))


class _Hope:
    """Return the bonus of items whose anchor scores are estimates."""

    def __init__(self, unsure: Floats) -> None:
        self._more, self._less = PerItem(HOPE * unsure), PerItem(HOPE / 2 * unsure)

    def __call__(self, query: Query) -> Baseline:
        return self._less if query.account.budget < 2 * query.k else self._more


def _popular(parts: Parts, base: Baseline) -> Picker:
    """Return a first stage by query vector; without one, the items of highest base."""
    levels = np.asarray(base.everywhere())
    highest = Fixed(np.lexsort((np.arange(len(levels)), -levels)))
    return highest if parts.encoder is None else Dense(parts.topk(parts.encoder, NOTHING), otherwise=highest)


def _unsure(cur: CUR) -> Floats | None:
    """Return the expected error of the anchor scores of each item; None: all were measured."""
    return None if cur.errors is None or not cur.errors.any() else cur.errors


def _trust(cur: CUR, noise: float) -> Floats | None:
    """σ / σ_i of items whose anchor scores are estimates."""
    unsure = _unsure(cur)
    return None if unsure is None else np.asarray(np.sqrt(noise / (noise + unsure**2)))
