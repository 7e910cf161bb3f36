"""The loop: every method of the papers, and ours.

    scored = first stage(query)                      # round one
    repeat: u = fit(V[scored], scores)               # a query vector that explains what was scored
            next = select(V @ u, not yet scored)     # where it predicts high scores
            scores += scorer(query, next)            # the only expensive line
    return the best k of what was scored, by exact score

A method is a `Plan`: a choice of parts. Items are handles, and the loop does not know how many there are: positions in
memory, or what a store has shown so far. All queries of a batch advance together, and the calls of a round go to the
scorer as one batch.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from crosscut.ann.base import Ask, Found, Pool, TopK
from crosscut.ann.flat import Base, Flat, base_of, masked, rerank
from crosscut.ann.known import Known
from crosscut.ann.linear import topk_of
from crosscut.errors import InputError, ScorerError
from crosscut.linalg.blas import one_thread
from crosscut.linalg.least_squares import keeps_to_itself
from crosscut.linalg.products import LARGE, share
from crosscut.retrievers.first import Drawn, FirstStage, Retriever
from crosscut.scorers.meter import Meter
from crosscut.search.estimators import Estimator
from crosscut.search.guides import FreeSchedule, Guide, QueryBefore
from crosscut.search.hits import Round, Seconds
from crosscut.search.prior import RANK
from crosscut.search.query import QueryState
from crosscut.search.selection import Selection, Top
from crosscut.search.stopping import Schedule
from crosscut.spaces.base import Space, WithCoordinate
from crosscut.types import NO_HANDLES, Array, Floats, Handles, Positions

POOL = 2000  # items drawn for a rule that wants to see all predictions, where not all can be had


@dataclass(frozen=True)
class Offset:
    """What a score is regressed against: β (s − b_i), and what is known of the pair without a call taken off too.

    `base` is one background level for all items, one per item (n) or the residuals of some; `scale` is β. With both at
    rest, raw scores.
    """

    base: Base = 0.0
    scale: float = 1.0

    def targets(self, positions: Positions, scores: Floats, known: Known | None = None) -> Floats:
        left = scores - base_of(self.base, positions)
        if known is not None:
            left -= known[positions]
        return left if self.scale == 1.0 else self.scale * left


@dataclass(frozen=True)
class Plan:
    """The parts of a method.

    Without an `estimator` and its `space`, or a `guide`, there is one round. `topk` finds the top of a round; when not
    given, the index or store that the space brings along, or every item is read. `pool` is what chance draws from.
    """

    pool: Pool
    first: FirstStage
    schedule: Schedule | FreeSchedule
    space: Space | None = None
    estimator: Estimator | None = None
    selection: Selection = field(default_factory=Top)
    offset: Offset = field(default_factory=Offset)
    shortlist: int | None = None  # S: every round stays within the first stage's top S
    corrects: bool = False  # what a scorer knows without a call is the base, and only the rest is regressed
    topk: TopK | None = None
    scarce: TopK | None = None  # in place of `topk` where there are fewer than two calls for a result
    guide: Guide | None = None  # says what comes next, in place of a query vector
    explore: float = 0.0  # share of the calls that goes to items drawn at random, from the second round on
    words: Retriever | None = None  # whose score of a pair is one more coordinate, for scorers that know nothing
    telling: float = 1.0  # ω: how far words may explain scores

    def __post_init__(self) -> None:
        if self.topk is None and self.space is not None:
            object.__setattr__(self, "topk", topk_of(self.space, self.offset.base))
        if self.shortlist is not None and self.shortlist < 1:
            raise InputError(f"a shortlist holds at least 1 item; got {self.shortlist}")
        lost = self.guide is None and (self.space is None or self.estimator is None)
        if self.schedule.rounds > 1 and lost:
            raise InputError(f"{self.schedule.rounds} rounds need a space and an estimator; without them there is 1")


def run(plan: Plan, queries: Sequence[QueryState], meter: Meter, k: int, *, trace: bool = False) -> None:
    """Take every query through its rounds, to a stop. With `trace`, each round keeps its predictions of all items."""
    for query in queries:
        _begin(plan, query)
    if plan.shortlist is not None:
        _shorten(plan, plan.shortlist, [query for query in queries if query.stop is None])
    budget = max((query.account.budget for query in queries), default=0)
    if plan.scarce is not None and budget < 2 * k:
        plan = replace(plan, topk=plan.scarce)
    sizes = plan.schedule.sizes(budget, meter.scorer.concurrency)
    for number, size in enumerate(sizes):
        active = [query for query in queries if query.stop is None]
        if not active:
            return
        last = number == len(sizes) - 1
        counts = [query.account.left if last else min(size, query.account.left) for query in active]
        choices = _later_round(plan, active, counts, trace) if number else _first_round(plan, active, counts, last)
        chosen = [(query, choice) for query, choice in zip(active, choices, strict=True) if _goes_on(query, choice, k)]
        if chosen:
            _score(meter, chosen)
        for query, choice in chosen:
            query.stop = _why_stop(query, choice, meter, last)


def _begin(plan: Plan, query: QueryState) -> None:
    if plan.space is not None and plan.estimator is not None:
        space = plan.space
        if plan.words is not None and query.known is None:
            query.words = plan.telling * _share_of_words(plan.words, query.account.query)
            space = WithCoordinate(space, query.words)
        query.fit = plan.estimator.start(space, query.vector)
    query.size = plan.pool.count(query.within)
    if query.size == 0:
        query.stop = "exhausted"


def _share_of_words(words: Retriever, query: Any) -> Floats:
    """φ_i (n) = √(BM25_i / max BM25): how far an item's words are those of the query, 0 … 1.

    The root, since the first shared word says more than the second."""
    scores = np.maximum(words.scores(str(query)), 0.0)
    highest = max(float(scores.max(initial=0.0)), float(np.finfo(np.float32).tiny))
    return np.asarray(np.sqrt(scores / highest), dtype=np.float64)


def _goes_on(query: QueryState, choice: _Choice, k: int) -> bool:
    """Whether a query makes this round, or has enough."""
    if query.watch is not None and query.rounds and query.watch.enough(query.so_far(k, choice.estimates)):
        query.stop = query.reason
    return query.stop is None


def _shorten(plan: Plan, size: int, queries: Sequence[QueryState]) -> None:
    """Let every query score no more than the caller's items and the first stage's, `size` in all, best first."""
    lists = [query.given[:size] for query in queries]
    if plan.first.draws and any(not len(ranking) for ranking in lists):
        raise InputError(
            f"a shortlist of {size} is the top of a first stage, and this one draws at random: "
            "pass first='dense', another first stage, or candidates"
        )
    more = plan.first.pick([q.first(size - len(ranking), ranking) for q, ranking in zip(queries, lists, strict=True)])
    for query, ranking, rest in zip(queries, lists, more, strict=True):
        query.given = np.concatenate([ranking, rest])  # round one need not rank again
        query.within = np.sort(query.given)
        query.size = len(query.given)


@dataclass
class _Choice:
    """What one query wants scored in this round."""

    handles: Handles
    estimates: Floats
    wanted: int
    fit: float = 0.0  # seconds that it took
    select: float = 0.0
    predictions: npt.NDArray[np.float32] | None = None
    chances: Floats | None = None


def _first_round(plan: Plan, queries: Sequence[QueryState], counts: Sequence[int], last: bool) -> list[_Choice]:
    started = time.perf_counter()
    picks = [query.given[:count] for query, count in zip(queries, counts, strict=True)]
    # a stage may run out (fixed anchors that a filter excludes): if no round follows, chance fills up
    for stage in (plan.first, Drawn(plan.pool)) if last else (plan.first,):
        asked = [q.first(count - len(pick), pick) for q, count, pick in zip(queries, counts, picks, strict=True)]
        if any(request.count for request in asked):
            picks = [np.concatenate(pair) for pair in zip(picks, stage.pick(asked), strict=True)]
    spent = (time.perf_counter() - started) / len(queries)
    chosen = zip(queries, picks, counts, strict=True)
    return [
        _Choice(pick, np.full(len(pick), np.nan) if query.known is None else query.known[pick], count, select=spent)
        for query, pick, count in chosen
    ]


def _later_round(plan: Plan, queries: Sequence[QueryState], counts: Sequence[int], trace: bool) -> list[_Choice]:
    started = time.perf_counter()
    if plan.guide is not None:
        return _guided(plan.guide, queries, counts, trace)
    assert plan.space is not None
    assert plan.topk is not None
    size = len(queries[0].account.positions)
    new, d = size - queries[0].fitted, plan.space.d
    each = share if new * size * d > LARGE // 8 else map  # below, threads get in each other's way
    with _limit(plan.estimator, new, d):
        vectors = list(each(partial(_fit, plan), queries))
    fitted = time.perf_counter()
    drawn = _drawn_of(plan.explore, queries, counts)
    asks = [query.ask(u, n - m) for query, u, n, m in zip(queries, vectors, counts, drawn, strict=True)]
    if plan.selection.whole or plan.shortlist is not None or trace:
        choices = _looked_over(plan, plan.space, queries, asks, trace)
    else:
        choices = [_Choice(*found, ask.count) for found, ask in zip(plan.topk.top(asks), asks, strict=True)]
    for query, choice, count in zip(queries, choices, drawn, strict=True):
        if count:
            _explore(plan.pool, query, choice, count)
    selected = time.perf_counter()
    for choice in choices:
        choice.fit, choice.select = (fitted - started) / len(queries), (selected - fitted) / len(queries)
    return choices


def _limit(estimator: Estimator | None, new: int, d: int) -> AbstractContextManager[None]:
    """One thread for BLAS, which takes products as small as those of a usual round on one thread by itself.

    To tell it so costs 50 µs where a store has just read all its vectors, and nothing is in the cache."""
    small = estimator is not None and estimator.small
    return nullcontext() if small and keeps_to_itself(new, d, RANK) else one_thread()


def _drawn_of(explore: float, queries: Sequence[QueryState], counts: Sequence[int]) -> list[int]:
    """How many of a round's calls explore, so that the share holds for the whole search, small rounds or large."""
    if not explore:
        return [0] * len(counts)
    before = [len(query.account.positions) for query in queries]
    return [
        min(n, math.floor(explore * (m + n)) - math.floor(explore * m)) for m, n in zip(before, counts, strict=True)
    ]


def _explore(pool: Pool, query: QueryState, choice: _Choice, count: int) -> None:
    """Let items that are drawn at random join a round, each with the chance it had."""
    gone = np.concatenate([query.account.positions, choice.handles])
    more = pool.sample(count, query.rng, gone, query.within)
    left = math.nan if query.size is None else max(1, query.size - len(gone))
    choice.chances = np.concatenate(
        [np.ones(len(choice.handles)), np.full(len(more), np.minimum(1.0, len(more) / left))]
    )
    choice.handles = np.concatenate([choice.handles, more])
    choice.estimates = np.concatenate([choice.estimates, np.full(len(more), np.nan)])
    choice.wanted += count


def _guided(guide: Guide, queries: Sequence[QueryState], counts: Sequence[int], trace: bool) -> list[_Choice]:
    """What a rule of its own names; a round is as large as it says."""
    if trace:
        raise InputError("a trace keeps predictions of every item, and this method follows a rule that makes none")
    started = time.perf_counter()
    found = guide.next(
        [
            QueryBefore(
                query.account.positions, query.account.scores, len(query.rounds), query.first(count, NO_HANDLES)
            )
            for query, count in zip(queries, counts, strict=True)
        ]
    )
    spent = (time.perf_counter() - started) / len(queries)
    return [_Choice(one.handles, one.scores, max(1, len(one.handles)), select=spent) for one in found]


def _looked_over(
    plan: Plan, space: Space, queries: Sequence[QueryState], asks: Sequence[Ask], trace: bool
) -> list[_Choice]:
    """What the selection rule picks from the predictions of all items; over a store, of some that were drawn."""
    if not space.readable:
        if trace:
            raise InputError("a trace keeps the predictions of every item, and these vectors stay in their store")
        return [_drawn(plan, query, ask) for query, ask in zip(queries, asks, strict=True)]
    base = plan.offset.base
    flat = Flat(space, base)
    generators = {id(ask): query.rng for query, ask in zip(queries, asks, strict=True)}

    def look(ask: Ask, row: Array) -> _Choice:
        kept = row.astype(np.float32) if trace else None
        values = masked(row, ask.exclude, ask.within)

        def exact(places: Positions, count: int) -> Found:
            return rerank(space, ask.vector, places, base, count, ask.known)

        found = plan.selection.pick(values, ask.count, generators[id(ask)], exact)
        return _Choice(*found, ask.count, predictions=kept)

    return flat.scan(asks, look)


def _drawn(plan: Plan, query: QueryState, ask: Ask) -> _Choice:
    """A selection rule over a sample of the store and the top of it."""
    assert plan.topk is not None
    top = plan.topk.top([ask])[0].handles
    pool = np.union1d(plan.topk.sample(POOL, query.rng, ask.exclude, ask.within), top)
    predicted = np.einsum("md,d->m", plan.topk.rows(pool), ask.vector) + base_of(plan.offset.base, pool)

    def exact(places: Positions, count: int) -> Found:
        order = np.lexsort((places, -predicted[places]))[:count]
        return Found(places[order], predicted[places[order]])

    places, estimates = plan.selection.pick(predicted.copy(), ask.count, query.rng, exact)
    return _Choice(pool[places], estimates, ask.count)


def _fit(plan: Plan, query: QueryState) -> Floats:
    """u of one query, after taking in what was scored since the last round; what words tell by now is kept beside."""
    assert query.fit is not None
    account = query.account
    positions, scores = account.positions[query.fitted :], account.scores[query.fitted :]
    try:
        if len(positions):
            query.fit.add(positions, plan.offset.targets(positions, scores, query.known))
            query.fitted = len(account.positions)
        u = query.fit.solve()
    except np.linalg.LinAlgError as error:  # what was scored is kept
        raise ScorerError(f"the scores so far, or the vectors, are too large to go on with ({error})") from error
    if plan.offset.scale != 1.0:
        u = u / plan.offset.scale
    if query.words is None:
        return u
    query.told = u[-1] * query.words
    return u[:-1]


def _score(meter: Meter, chosen: Sequence[tuple[QueryState, _Choice]]) -> None:
    """Buy the scores of a round and write it to the trace, as far as it came."""
    before = [(len(query.account.positions), query.account.calls, query.account.cached) for query, _ in chosen]
    spent = meter.seconds
    try:
        meter.score_each([query.account for query, _ in chosen], [choice.handles for _, choice in chosen])
    finally:
        scorer = (meter.seconds - spent) / len(chosen)
        for (query, choice), (size, calls, cached) in zip(chosen, before, strict=True):
            account = query.account
            bought = account.positions[size:]
            place: Positions | slice = slice(None)
            if bought.tolist() != choice.handles.tolist():  # some were known, or are not paid for yet
                order = np.argsort(choice.handles)
                place = order[np.searchsorted(choice.handles, bought, sorter=order)]
            query.rounds.append(
                Round(
                    positions=bought,
                    scores=account.scores[size:],
                    estimates=choice.estimates[place],
                    calls=account.calls - calls,
                    cached=account.cached - cached,
                    seconds=Seconds(scorer, choice.fit, choice.select),
                    predictions=choice.predictions,
                    chances=None if choice.chances is None else choice.chances[place],
                )
            )


def _why_stop(query: QueryState, choice: _Choice, meter: Meter, last: bool) -> str | None:
    if query.account.error is not None:
        return "scorer failed"
    short = len(query.rounds) > 1 and len(choice.handles) < choice.wanted  # the index had no more to give
    if short or query.size == len(query.account.positions):
        return "exhausted"
    if query.account.left <= 0:
        return "budget"
    if (reason := query.account.halted) is not None:
        return reason
    if meter.late:
        return "deadline"
    return "rounds" if last else None
