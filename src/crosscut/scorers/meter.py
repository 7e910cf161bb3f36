"""The meter: the one gate through which every call of the expensive function passes.

No code path can spend a call that is not counted here, and no search can overspend. Scores are written to the query's
`QueryLedger` as soon as they arrive, so that a scorer that fails later loses nothing.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np

from crosscut.errors import BudgetError, ScoreCountError, ScorerError, ScorerTimeout
from crosscut.scorers.adapters import AnyBound, accepted_keywords, as_bound
from crosscut.scorers.base import Request, RetryBudget, ScoreResult
from crosscut.scorers.caching import ScoreCache, cache_within, read_cache, write_cache
from crosscut.scorers.validation import all_finite, validate_scores
from crosscut.threads import in_thread
from crosscut.types import NO_HANDLES, NO_SCORES, Floats, Positions

Halt: TypeAlias = Callable[[], str | None]
"""Why one query must stop now ("cancelled", say), or None."""
FIRST_BATCH = 4
"""Pairs of the first batch under a deadline, when the scorer's speed is not known."""
SHORTEST_GRACE, LONGEST_GRACE = 0.1, 1.0
"""Seconds after the deadline in which a batch may still come back; between them, as many as the deadline itself."""


@dataclass(slots=True)
class QueryLedger:
    """Positions and exact scores that one query has paid for, in order.

    `halt` is asked before every batch of calls: once it gives a reason, no more calls are made for this query.
    """

    query: Any
    budget: int
    calls: int = 0
    cached: int = 0
    positions: Positions = field(default_factory=lambda: NO_HANDLES)
    scores: Floats = field(default_factory=lambda: NO_SCORES)
    held: set[int] = field(default_factory=set)
    halt: Halt | None = None
    rounds: int = 0  # without an error
    error: ScorerError | None = None  # of the last round
    reserved: int = 0  # calls of this round that are not made yet

    @property
    def halted(self) -> str | None:
        """Why no more calls are made for this query, if so."""
        return None if self.halt is None else self.halt()

    @property
    def left(self) -> int:
        return self.budget - self.calls

    def record(self, positions: Positions, scores: Floats) -> None:
        self.positions = np.concatenate([self.positions, positions])  # a copy, also the first time
        self.scores = np.concatenate([self.scores, scores])
        self.held.update(positions.tolist())


Order: TypeAlias = tuple[QueryLedger, Positions]


class Meter:
    """Counts, checks and batches the calls of one search.

    Parameters
    ----------
    scorer
        The bound scorer, or anything `as_bound` accepts. It is given copies of the handles.
    cache
        Known scores; a pair found there is free.
    deadline
        Seconds from now after which no further batch is handed out, for all queries of the search. With a deadline,
        calls go out in batches: `batch_size` pairs (by default what the scorer prefers), or as many as it lately did in
        a twentieth of the deadline, and no more than fit into the rest of it. A batch that has not come back some time
        after the deadline (`SHORTEST_GRACE`, `LONGEST_GRACE`) is a `ScorerTimeout`.

    Pairs that a scorer sends again are calls: it gets a `RetryBudget` for each query. Where the budget does not suffice
    in a search's first round, the scorer's error stands; a later round goes on with what it has.
    """

    def __init__(
        self,
        scorer: AnyBound,
        *,
        cache: ScoreCache | None = None,
        deadline: float | None = None,
        batch_size: int | None = None,
    ) -> None:
        self.scorer = as_bound(scorer)
        self.cache = cache_within(cache, deadline)
        self.deadline = deadline
        self.batch_size = batch_size or self.scorer.pairs_per_batch
        self.calls = 0
        self.seconds = 0.0
        self._started = time.monotonic()

    @property
    def late(self) -> bool:
        """Whether the deadline has passed."""
        return self.deadline is not None and time.monotonic() - self._started >= self.deadline

    def score(self, ledgers: Sequence[QueryLedger], picks: Sequence[Positions]) -> None:
        """Score `picks[j]` for `ledgers[j]`; raise the first error after all that went well is recorded."""
        self.score_each(ledgers, picks)
        for ledger in ledgers:
            if ledger.error is not None:
                raise ledger.error

    def score_each(self, ledgers: Sequence[QueryLedger], picks: Sequence[Positions]) -> None:
        """Score `picks[j]` for `ledgers[j]`; a failure is left in the `error` of its own ledger.

        Picks that the ledger already holds are dropped, cached ones are free. After the deadline, what has not been
        handed out is not scored.
        """
        started = time.perf_counter()
        orders: list[Order] = []
        try:
            for ledger, pick in zip(ledgers, picks, strict=True):
                ledger.error = None
                fresh = self._not_held(ledger, pick)
                if len(fresh) > ledger.left:
                    raise BudgetError(
                        f"{len(fresh)} calls were asked for with {ledger.left} of {ledger.budget} left; "
                        "raise the budget or ask for fewer"
                    )
                if len(fresh):
                    orders.append((ledger, fresh))
            for ledger, fresh in orders:
                ledger.reserved = len(fresh)
            for batch in self._batches(orders):
                now = [order for order in batch if order[0].error is None and not order[0].halted]
                if now:
                    self._score_batch(now)
        finally:
            for ledger, _ in orders:
                ledger.reserved = 0
            self.seconds += time.perf_counter() - started
        for ledger in ledgers:
            ledger.rounds += ledger.error is None

    def _not_held(self, ledger: QueryLedger, pick: Positions) -> Positions:
        """Return the picks that must be paid for, each once, after recording those that take no call."""
        new = [position for position in dict.fromkeys(pick.tolist()) if position not in ledger.held]
        positions = np.array(new, dtype=np.int64)
        if self.scorer.free and len(positions):
            ledger.record(positions, self.scorer.base_scores(ledger.query, positions))
            return NO_HANDLES
        if self.cache is None or not len(positions):
            return positions
        scores = read_cache(self.cache, ledger.query, positions)
        known = np.isfinite(scores)
        ledger.cached += int(known.sum())
        ledger.record(positions[known], scores[known])
        return positions[~known]

    def _batches(self, orders: list[Order]) -> Iterator[list[Order]]:
        if self.deadline is None or self.batch_size is None:
            yield orders
            return
        while orders and not self.late:
            batch, orders = cut(orders, self._pairs_now(self.batch_size))
            yield batch

    def _pairs_now(self, preferred: int) -> int:
        """Return the size of the next batch: a scorer works best on many, and the clock is read only in between."""
        assert self.deadline is not None
        pace = self.scorer.seconds_per_pair
        if pace is None:
            return min(preferred, FIRST_BATCH)
        left = max(self._started + self.deadline - time.monotonic(), 0.0)
        return max(1, min(max(preferred, int(self.deadline / 20 / pace)), int(left / pace))) if pace else preferred

    def _score_batch(self, orders: Sequence[Order]) -> None:
        """Hand out one batch, count it, and record the scores and errors."""
        before = [ledger.calls for ledger, _ in orders]
        total = self.calls
        budgets: list[RetryBudget] = []
        began = time.perf_counter()
        try:
            for ledger, positions in orders:  # counted before the call: a call that fails was still made
                ledger.reserved -= len(positions)
                self._count(ledger, len(positions))
            budgets += [RetryBudget(ledger.left - ledger.reserved, ledger.halt) for ledger, _ in orders]
            requests = [(ledger.query, _read_only(positions)) for ledger, positions in orders]
            try:
                given: Sequence[Any] = self._call(requests, budgets)
            except Exception as error:
                given = [_batch_error(error, orders)] * len(orders)
            else:
                self._learn(sum(len(positions) for _, positions in orders), time.perf_counter() - began)
            for (ledger, _), budget in zip(orders, budgets, strict=True):
                self._count(ledger, budget.close())
            for (ledger, positions), result in zip(orders, given, strict=True):
                self._record(ledger, positions, validate_scores(result, ledger.query, positions))
        except BaseException as interrupt:  # Ctrl-C, at any of these lines
            for (ledger, _), calls, budget in zip(orders, before, budgets, strict=False):
                budget.close()
                if self.scorer.counts_attempts:
                    ledger.calls = calls + budget.attempted + budget.used
            if self.scorer.counts_attempts:
                self.calls = total + sum(ledger.calls for ledger, _ in orders) - sum(before)
            results = vars(interrupt).pop("results", ())
            for (ledger, positions), result in zip(orders, results, strict=False):
                new = np.isfinite(result.scores) & ~np.isin(positions, ledger.positions)
                ledger.record(positions[new], result.scores[new])
            raise

    def _record(self, ledger: QueryLedger, positions: Positions, result: ScoreResult) -> None:
        scores, error = result.scores, result.error
        if not all_finite(scores):
            self._count(ledger, -int((~result.attempted).sum()))
            good = np.isfinite(scores)
            if error is None and not ledger.halted and not self.late:
                error = ScorerError(f"the scorer left out {int((~good).sum())} pairs of a batch and did not say why")
            positions, scores = positions[good], scores[good]
        ledger.record(positions, scores)
        if self.cache is not None and len(positions):
            write_cache(self.cache, ledger.query, positions, scores)
        if error is not None and not (error.budget_ended and ledger.rounds):
            ledger.error = error

    def _count(self, ledger: QueryLedger, pairs: int) -> None:
        ledger.calls += pairs
        self.calls += pairs

    def _learn(self, pairs: int, seconds: float) -> None:
        now, before = seconds / max(pairs, 1), self.scorer.seconds_per_pair
        self.scorer.seconds_per_pair = now if before is None else before + 0.3 * (now - before)

    def _call(self, requests: list[Request], budgets: Sequence[RetryBudget]) -> list[ScoreResult]:
        count = len(requests)
        if self.deadline is None:
            results = self._score_many(requests, None, budgets)
        else:
            limit = self.deadline + min(max(self.deadline, SHORTEST_GRACE), LONGEST_GRACE)
            end = self._started + limit
            if self.scorer.keeps_deadline:
                results = self._score_many(requests, end, budgets)
            else:
                try:
                    results = in_thread(
                        lambda: self._score_many(requests, end, budgets),
                        end - time.monotonic(),
                        owner=self.scorer,
                    )
                except TimeoutError as error:
                    raise ScorerTimeout(
                        f"the scorer did not answer within {limit:.3g} s of a search whose deadline is "
                        f"{self.deadline:.3g} s"
                    ) from error
        if len(results) != count:
            raise ScoreCountError(f"the scorer answered {len(results)} of {count} queries in a batch")
        return results

    def _score_many(
        self, requests: list[Request], end: float | None, budgets: Sequence[RetryBudget]
    ) -> list[ScoreResult]:
        keywords: dict[str, Any] = {"deadline": end, "retries": budgets}
        accepted = {name: keywords[name] for name in accepted_keywords(type(self.scorer))}
        return list(self.scorer.score_many(requests, **accepted))


def _batch_error(error: Exception, orders: Sequence[Order]) -> ScorerError:
    """Return the error of a scorer that raised for a batch as one."""
    if isinstance(error, ScorerError):
        return error
    pairs = sum(len(positions) for _, positions in orders)
    wrapped = ScorerError(f"the scorer failed on a batch of {pairs} pairs: {type(error).__name__}: {error}")
    wrapped.__cause__ = error
    return wrapped


def cut(orders: Sequence[Order], size: int) -> tuple[list[Order], list[Order]]:
    """Return a batch of at most `size` pairs, and the rest: first the queries that are not in the batch.

    Batches are of about one size: a scorer is slow on the few pairs that would be left over.
    """
    total = sum(len(positions) for _, positions in orders)
    room = -(-total // max(-(-total // size), 1))
    batch: list[Order] = []
    untouched: list[Order] = []
    remainder: list[Order] = []
    for ledger, positions in orders:
        share = min(len(positions), room)
        room -= share
        if not share:
            untouched.append((ledger, positions))
            continue
        batch.append((ledger, positions[:share]))
        if share < len(positions):
            remainder.append((ledger, positions[share:]))
    return batch, untouched + remainder


def _read_only(positions: Positions) -> Positions:
    """Return a copy: whatever a scorer does with it, the search goes on with its own."""
    copy = positions.copy()
    copy.setflags(write=False)
    return copy
