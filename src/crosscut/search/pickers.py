"""Pickers choose the items of later rounds.

| picker | what it picks |
|---|---|
| `Linear` | the highest base + V u, with u fitted to what was scored: every method of the papers, and ours |
| `Sampling` | the same predictions, picked from by softmax or at random (ADACUR alg. 2) |
| `Explore` | of another picker's calls, a share drawn at random |
| `Shortlist` | round one of another picker; every round stays within its best S |
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from crosscut.ann.baseline import NOTHING, Baseline, Level, PerItem, Sum, masked
from crosscut.ann.flat import Flat
from crosscut.ann.topk import Ask, Found, Pool, TopK
from crosscut.errors import InputError, ScorerError
from crosscut.linalg.blas import one_thread
from crosscut.linalg.products import LARGE, share
from crosscut.linalg.top import ranked
from crosscut.search.fits import Fit
from crosscut.search.loop import Picker, Query
from crosscut.spaces.base import Space
from crosscut.types import NO_HANDLES, Array, Floats, Handles

POOL = 2000  # items drawn for a rule that looks at all predictions, where not all can be had


@dataclass
class _State:
    """State of `Linear` for one query."""

    fit: Fit
    base: Baseline  # of every round
    columns: Floats | None  # φ (n × m)
    fitted: int = 0  # how many of the scored items the fit has
    start: Handles = field(default_factory=lambda: NO_HANDLES)  # what else the last round looked at


@dataclass(frozen=True, eq=False)
class Linear(Picker):
    """The highest base + V u, where u explains what was scored: scale (score − base) ≈ V u.

    Parameters
    ----------
    space, topk
        V, and what finds the top of it.
    fit
        A fresh fit of a query in so many dimensions.
    base
        Of every query alike; what the scorer knows without a call is added.
    hope
        How much more is hoped for of items that are unsure: it counts when items are picked, not when u is fitted.
    feature
        φ (n), one more coordinate, of this query alone: how far the words of items are those of the query. None where
        the query has none.
    """

    space: Space
    topk: TopK
    fit: Callable[[Query, int], Fit]
    base: Baseline = NOTHING
    hope: Callable[[Query], Baseline] | None = None
    feature: Callable[[Query], Floats | None] | None = None
    scale: float = 1.0

    def predicts_in(self) -> Space:
        return self.space

    def start(self, query: Query) -> None:
        several = [query.columns, None if self.feature is None else self.feature(query)]
        columns = [column for column in several if column is not None]
        phi = np.column_stack(columns) if columns else None
        base = self.base if query.base is None else Sum(self.base, query.base)
        query.memory[self] = _State(self.fit(query, self.space.d + (0 if phi is None else phi.shape[1])), base, phi)

    def pick(self, queries: Sequence[Query], counts: Sequence[int]) -> list[Found]:
        asks = self.asks(queries, counts)
        traced = any(query.trace for query in queries)
        found = self._traced(asks) if traced else self.topk.top(asks)
        for query, one in zip(queries, found, strict=True):
            query.memory[self].start = one.rest
        return found

    def asks(self, queries: Sequence[Query], counts: Sequence[int]) -> list[Ask]:
        """Return what the index is asked for each query: u, and the baseline."""
        began = time.perf_counter()
        new = sum(len(query.scored) - query.memory[self].fitted for query in queries)
        each = share if new * self.space.d > LARGE // 8 else map  # below, threads get in each other's way
        with one_thread():
            asks = list(each(self._ask, list(zip(queries, counts, strict=True))))
        spent = (time.perf_counter() - began) / len(queries)
        for query in queries:
            query.fitting += spent
        return asks

    def _ask(self, pair: tuple[Query, int]) -> Ask:
        query, count = pair
        state: _State = query.memory[self]
        handles, scores = query.scored[state.fitted :], query.targets[state.fitted :]
        try:
            if len(handles):
                rows = self.space.rows(handles)
                rows = rows if state.columns is None else np.column_stack([rows, state.columns[handles]])
                left = scores - state.base.at(handles)
                state.fit.add(handles, rows, left if self.scale == 1.0 else self.scale * left)
                state.fitted = len(query.scored)
            u = state.fit.solve()
        except np.linalg.LinAlgError as error:  # what was scored is kept
            raise ScorerError(f"the scores so far, or the vectors, are too large to go on with ({error})") from error
        u = u if self.scale == 1.0 else u / self.scale
        parts = [state.base]
        if state.fit.level:
            parts.append(Level(state.fit.level))
        if state.columns is not None:
            u, weights = u[: self.space.d], u[self.space.d :]
            parts.append(PerItem(state.columns @ weights))
        if self.hope is not None:
            parts.append(self.hope(query))
        base = parts[0] if len(parts) == 1 else Sum(*parts)
        return Ask(u, count, query.scored, query.allowed, base, state.start)

    def _traced(self, asks: Sequence[Ask]) -> list[Found]:
        """Return the top of every item, with the predictions."""
        flat = Flat(self.space)

        def look(ask: Ask, row: Array) -> Found:
            kept = row.astype(np.float32)
            return flat.best(ask, row)._replace(predictions=kept)

        return flat.scan(asks, look)


@dataclass(frozen=True, eq=False)
class Sampling(Picker):
    """Items drawn from the predictions of `linear`, without replacement.

    `softmax`: with probabilities ∝ exp(prediction); else all alike. Where not every item can be
    predicted, some are drawn from `pool`, and the top joins them.
    """

    linear: Linear
    softmax: bool

    def predicts_in(self) -> Space:
        return self.linear.space

    def start(self, query: Query) -> None:
        self.linear.start(query)

    def pick(self, queries: Sequence[Query], counts: Sequence[int]) -> list[Found]:
        asks = self.linear.asks(queries, counts)
        if not self.linear.space.readable:
            return [self._of_some(query, ask) for query, ask in zip(queries, asks, strict=True)]
        of = {id(ask): query for query, ask in zip(queries, asks, strict=True)}

        def look(ask: Ask, row: Array) -> Found:
            query = of[id(ask)]
            kept = row.astype(np.float32) if query.trace else None
            places = self._drawn(masked(row, ask.exclude, ask.allowed), ask.count, query.rng)
            return Found(places, row[places].astype(np.float64), predictions=kept)

        return Flat(self.linear.space).scan(asks, look)

    def _of_some(self, query: Query, ask: Ask) -> Found:
        topk = self.linear.topk
        drawn = topk.sample(POOL, query.rng, ask.exclude, ask.allowed)
        pool = np.union1d(drawn, topk.top([ask])[0].handles)
        predicted = np.einsum("md,d->m", topk.rows(pool), ask.vector) + ask.base.at(pool)
        places = self._drawn(predicted, ask.count, query.rng)
        return Found(pool[places], predicted[places])

    def _drawn(self, predicted: Array, count: int, rng: np.random.Generator) -> Handles:
        if self.softmax:  # Gumbel noise turns the top of noisy logits into such a sample
            keys = predicted + rng.gumbel(size=len(predicted))
        else:
            keys = np.where(predicted > -np.inf, rng.random(len(predicted)), -np.inf)
        return ranked(keys, count)


@dataclass(frozen=True, eq=False)
class Explore(Picker):
    """A share of another picker's calls goes to items drawn at random, each with the chance it had (ADACUR C.2)."""

    inner: Picker
    pool: Pool
    share: float

    def predicts_in(self) -> Space | None:
        return self.inner.predicts_in()

    def start(self, query: Query) -> None:
        self.inner.start(query)

    def pick(self, queries: Sequence[Query], counts: Sequence[int]) -> list[Found]:
        drawn = [self._drawn(len(query.scored), count) for query, count in zip(queries, counts, strict=True)]
        found = self.inner.pick(queries, [count - m for count, m in zip(counts, drawn, strict=True)])
        return [self._with(query, one, m) if m else one for query, one, m in zip(queries, found, drawn, strict=True)]

    def _drawn(self, before: int, count: int) -> int:
        """Return how many calls of a round explore, so that the share holds for the whole search."""
        return min(count, math.floor(self.share * (before + count)) - math.floor(self.share * before))

    def _with(self, query: Query, found: Found, count: int) -> Found:
        gone = np.concatenate([query.scored, found.handles])
        more = self.pool.sample(count, query.rng, gone, query.allowed)
        left = math.nan if query.size is None else max(1, query.size - len(gone))
        chances = [np.ones(len(found.handles)), np.full(len(more), np.minimum(1.0, len(more) / left))]
        return found._replace(
            handles=np.concatenate([found.handles, more]),
            expected=np.concatenate([found.expected, np.full(len(more), np.nan)]),
            chances=np.concatenate(chances),
        )


@dataclass(frozen=True, eq=False)
class Shortlist(Picker):
    """Round one, and then no item outside the best `size` of the caller's candidates and a first stage."""

    first: Picker
    stage: Picker
    size: int

    def start(self, query: Query) -> None:
        if self.size < 1:
            raise InputError(f"a shortlist holds at least 1 item; got {self.size}")
        if self.stage.draws and not len(query.candidates):
            raise InputError(
                f"a shortlist of {self.size} is the top of a first stage, and this one draws at random: "
                "pass first='dense', another first stage, or candidates"
            )
        self.first.start(query)

    def pick(self, queries: Sequence[Query], counts: Sequence[int]) -> list[Found]:
        asked = []
        for query in queries:
            query.candidates = query.candidates[: self.size]
            asked.append(query.without(query.candidates))
        more = self.stage.pick(asked, [self.size - len(query.candidates) for query in queries])
        for query, rest in zip(queries, more, strict=True):
            query.candidates = np.concatenate([query.candidates, rest.handles])  # round one need not rank again
            query.allowed = np.sort(query.candidates)
            query.size = len(query.candidates)
        return self.first.pick(queries, counts)
