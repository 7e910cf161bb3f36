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

Where there are words, the square root of an item's BM25 with the query stands beside v_i, one coordinate more. It is of
the pair, so it cannot be asked of an index: u asks, and what words add orders what comes back.

A scorer may know part of its score without a call, f = g + costly. Then g is an exact base per query: round one takes
the items of highest g, and u explains only what the calls add to it.

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

from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from crosscut.ann.base import TopK
from crosscut.ann.clustered import SMALL
from crosscut.ann.linear import SeenItems, topk_of
from crosscut.errors import InputError
from crosscut.methods.base import Parts, register
from crosscut.methods.rounds import InRounds
from crosscut.methods.weights import FREE, beside, learned, some_rows, spread_of
from crosscut.retrievers.first import Dense, FirstStage, FixedOrder, MostKnown
from crosscut.search.estimators import Estimator, Expecting, Stretched
from crosscut.search.loop import Offset, Plan
from crosscut.search.prior import CAUTION, LEVEL, Prior
from crosscut.search.stopping import Schedule
from crosscut.spaces.base import Constant, Space, Stacked
from crosscut.spaces.cur import CUR
from crosscut.types import Floats

HOPE = 0.5  # h
ALONE = 0.35  # μ against the variance of the encoder block, without anchor scores


@register
@dataclass(frozen=True, repr=False)
class Crosscut(InRounds):
    """The default: stacked spaces, a base per item, ridge, ten rounds.

    `rank` limits the CUR block, `stretch` is how much easier the ridge is on the encoder's direction, `ridge`
    multiplies the noise that is assumed; with `learned`, past searches count where an index learned from them.
    `explore` is a share of the calls that goes to items drawn at random, so that a log of searches also shows what a
    search would not have looked at; each is logged with the chance it had. With `fill`, rounds fill what the scorer
    answers side by side: for a judge that takes eight requests at once, 20 calls are 3 rounds. `words` is how far the
    words that an item shares with the query may explain its score, against its vector; 0: not at all.
    """

    name: ClassVar[str] = "crosscut"
    prepared: ClassVar[tuple[str, ...]] = ("rank",)

    rounds: int = 10
    rank: int = 256
    stretch: float = 3.0
    ridge: float = 1.0
    learned: bool = True
    explore: float = 0.0
    fill: bool = True
    words: float = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.stretch >= 1:
            raise InputError(
                f"stretch is how much easier the ridge is on the encoder's direction, 1 or more; got {self.stretch}"
            )
        if not self.ridge > 0:
            raise InputError(f"ridge multiplies the noise that is assumed, above 0; got {self.ridge}")
        if not self.words >= 0:
            raise InputError(f"words is how far shared words may explain a score, 0 or more; got {self.words}")
        if not 0 <= self.explore < 1:
            raise InputError(f"explore is a share of the calls, 0 … 1 and less than all; got {self.explore}")

    def missing(self, parts: Parts) -> str | None:
        return parts.lacks("encoder", "anchors", "factors")

    def grid(self, parts: Parts) -> dict[str, tuple[Any, ...]]:
        words: dict[str, tuple[Any, ...]] = {} if parts.words is None else {"words": (0.0, 3.0)}
        return {**super().grid(parts), "rounds": (5, 20), "ridge": (0.3, 3.0), "stretch": (1.0, 10.0), **words}

    def schedule(self) -> Schedule:
        return Schedule(self.rounds, self.first_share, self.fill)

    def plan(self, parts: Parts) -> Plan:
        plan = self._plan(parts)
        return replace(plan, explore=self.explore) if self.explore else plan

    def _plan(self, parts: Parts) -> Plan:
        prior = parts.prior if self.learned and parts.factors is None else None
        if prior is not None and parts.encoder is not None:
            space = beside(parts.encoder, parts.anchors, prior.weight)
            if space.d == prior.d:
                return self._expecting(parts, space, prior)
        return self._without(parts) if parts.anchors is None else self._with_anchors(parts, parts.anchors)

    def _with_anchors(self, parts: Parts, cur: CUR) -> Plan:
        rank = self.rank if cur.rank is None else min(self.rank, cur.rank)
        base, block, weights = learned(cur, parts.encoder, rank, parts.seed)
        blocks: list[Space] = [block, *([] if parts.encoder is None else [parts.encoder])]
        constant = Constant(parts.n)
        space = Stacked([*blocks, constant], [*[1.0, weights.encoder][: len(blocks)], FREE * weights.spread])
        noise = self.ridge * weights.noise
        stretch = self.stretch if parts.encoder is not None else 1.0
        plan = self._over(parts, cur, base, space, Stretched(noise, stretch, block.d, _trust(cur, noise)))
        return self._worded(parts, plan, weights.spread)

    def _expecting(self, parts: Parts, own: Space, prior: Prior) -> Plan:
        cur = parts.anchors
        noise = self.ridge * CAUTION * prior.noise
        blocks, weights, _ = zip(*own.blocks, strict=True)
        space = Stacked([*blocks, Constant(parts.n)], [*weights, (LEVEL * noise) ** 0.5])
        estimator = Expecting(prior, noise, None if cur is None else _trust(cur, noise))
        spread = 0.0 if parts.words is None else prior.spread(some_rows(own, parts.seed))
        if cur is not None:
            return self._worded(parts, self._over(parts, cur, prior.base(parts.size), space, estimator), spread)
        residuals = parts.residuals
        if residuals is None and parts.n is not None:
            residuals = SeenItems(prior.seen, prior.residuals)
        offset = Offset((residuals or 0.0) if parts.n is None else prior.base(parts.n))
        topk = None if own.topk is None or residuals is None else topk_of(space, residuals)
        plan = self._correcting(parts, parts.stage("auto"), space, estimator, offset, topk)
        return self._worded(parts, plan, spread)

    def _over(self, parts: Parts, cur: CUR, base: Floats, space: Space, estimator: Estimator) -> Plan:
        """With a base per item; items whose scores are estimates are hoped for."""
        # by query vector; without one, the items of highest base
        popular = FixedOrder(np.lexsort((np.arange(len(base)), -base)))
        by_vector = popular if parts.encoder is None else Dense(topk_of(parts.encoder), otherwise=popular)
        unsure = _unsure(cur)
        hopes = [] if unsure is None else [topk_of(space, base + h * unsure) for h in (HOPE, HOPE / 2)]
        topk, scarce = hopes or (None, None)
        return self._correcting(parts, by_vector, space, estimator, Offset(base), topk, scarce)

    def _without(self, parts: Parts) -> Plan:
        blocks = [block for block in dict.fromkeys((parts.factors, parts.encoder)) if block is not None]
        weights = [1 / spread_of(block, parts.seed) for block in blocks]  # every block gets the same variance
        space = Stacked([*blocks, Constant(parts.n)], [*weights, 10 * FREE])
        at = sum(block.d for block in blocks) - blocks[-1].d
        stretch = self.stretch if parts.encoder is not None else 1.0
        estimator = Stretched(self.ridge * ALONE * len(blocks), stretch, at)
        return self._worded(parts, self._correcting(parts, parts.stage("auto"), space, estimator), 1.0)

    def _correcting(
        self,
        parts: Parts,
        own: FirstStage,
        space: Space,
        estimator: Estimator,
        offset: Offset | None = None,
        topk: TopK | None = None,
        scarce: TopK | None = None,
    ) -> Plan:
        """The plan over a space, in which what the scorer knows without a call is the base."""
        first = self._stage(parts, own)
        return self.in_rounds(parts, first, space, estimator, offset, corrects=True, topk=topk, scarce=scarce)

    def _worded(self, parts: Parts, plan: Plan, spread: float) -> Plan:
        """With words as one more coordinate, where every item is read; `spread` is that of the scores.

        Past 200,000 items words only help to choose round one."""
        if not self.words or parts.words is None or parts.n is None or parts.n > SMALL:
            return plan
        return replace(plan, words=parts.words, telling=self.words * spread)

    def _stage(self, parts: Parts, own: FirstStage) -> FirstStage:
        """What the scorer knows without a call; else vectors and words in turn, or what there is."""
        return parts.stage(self.first, MostKnown(own if parts.words is None else parts.stage("union")))


def _unsure(cur: CUR) -> Floats | None:
    """How far each item's anchor scores may be off; None: all were measured."""
    return None if cur.errors is None or not cur.errors.any() else cur.errors


def _trust(cur: CUR, noise: float) -> Floats | None:
    """σ / σ_i of items whose anchor scores are estimates."""
    unsure = _unsure(cur)
    return None if unsure is None else np.asarray(np.sqrt(noise / (noise + unsure**2)))
