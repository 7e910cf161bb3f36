"""The meter: the one gate through which every call of the expensive function passes.

No code path can spend a call that is not counted here, and no search can overspend. What has been paid for is
written to the query's `Account` at once, so that a scorer that fails later loses nothing.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeAlias

import numpy as np

from crosscut.errors import (
    BudgetError,
    CrosscutError,
    ScoreCountError,
    ScorerError,
    ScorerTimeout,
    StoreUnavailable,
)
from crosscut.scorers.answers import all_finite, checked
from crosscut.scorers.base import Answer, Request, Spare
from crosscut.scorers.callable import AnyBound, as_bound
from crosscut.threads import in_thread
from crosscut.types import NO_HANDLES, NO_SCORES, Floats, Positions

LOGGER = logging.getLogger("crosscut.scores")
Halt: TypeAlias = Callable[[], str | None]
"""Why one query must stop now ("cancelled", say), or None; asked from the thread that searches."""


class ScoreCache(Protocol):
    """Scores that are already known, and therefore free."""

    def get(self, query: Any, positions: Positions) -> Floats:
        """The known scores, NaN where there is none."""

    def put(self, query: Any, positions: Positions, scores: Floats) -> None:
        """Keep these scores."""


class MemoryCache:
    """A score cache in a dictionary, for one process."""

    def __init__(self) -> None:
        self._scores: dict[Any, dict[int, float]] = {}

    @staticmethod
    def _key(query: Any) -> Any:
        return query.tobytes() if isinstance(query, np.ndarray) else query

    def get(self, query: Any, positions: Positions) -> Floats:
        known = self._scores.get(self._key(query), {})
        return np.array([known.get(int(position), np.nan) for position in positions], dtype=np.float64)

    def put(self, query: Any, positions: Positions, scores: Floats) -> None:
        self._scores.setdefault(self._key(query), {}).update(zip(positions.tolist(), scores.tolist(), strict=True))


@dataclass(slots=True)
class Account:
    """What one query has bought: positions and exact scores, in the order of buying.

    `halt` is asked before every batch of calls: once it gives a reason, nothing more is bought on this account.
    """

    query: Any
    budget: int
    calls: int = 0
    cached: int = 0
    positions: Positions = field(default_factory=lambda: NO_HANDLES)
    scores: Floats = field(default_factory=lambda: NO_SCORES)
    held: set[int] = field(default_factory=set)
    halt: Halt | None = None
    rounds: int = 0  # of buying that went well

    @property
    def halted(self) -> str | None:
        """Why nothing more is bought on this account, if so."""
        return None if self.halt is None else self.halt()

    @property
    def left(self) -> int:
        return self.budget - self.calls

    def record(self, positions: Positions, scores: Floats) -> None:
        self.positions = np.concatenate([self.positions, positions])  # a copy, also the first time
        self.scores = np.concatenate([self.scores, scores])
        self.held.update(positions.tolist())


class Meter:
    """Counts, checks and batches the calls of one search.

    Parameters
    ----------
    scorer
        The bound scorer, or what `as_bound` makes one of. The handles it is given are a copy that it cannot change.
    cache
        Known scores; a pair found there is free.
    deadline
        Seconds from now at which no further batch is handed out, for all queries of the search. With a deadline, calls
        go out in batches from a helper thread: `batch_size` pairs (by default what the scorer likes), or as many as it
        has lately done in a twentieth of the deadline. A batch that has not come back after twice the deadline (and one
        second at least) raises `ScorerTimeout`. A scorer that keeps time is told how long it has (`within`).

    A scorer that sends pairs again is told how many calls the budget has to spare (`sparing`): each is a call. Where
    they do not suffice, its error is raised in a search's first round; a later one goes on with what it has.
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
        self.cache = cache
        self.deadline = deadline
        self.batch_size = batch_size or self.scorer.pairs_at_once
        self.calls = 0
        self.seconds = 0.0
        self._started = time.perf_counter()

    @property
    def late(self) -> bool:
        """Whether the deadline has passed."""
        return self.deadline is not None and time.perf_counter() - self._started >= self.deadline

    def buy(self, accounts: Sequence[Account], picks: Sequence[Positions]) -> None:
        """Score `picks[j]` for `accounts[j]` and record the scores there.

        Picks that the account already holds are dropped, cached ones are free. When the deadline passes, what
        has not been handed out is not scored.
        """
        started = time.perf_counter()
        try:
            self._buy(accounts, picks)
        finally:
            self.seconds += time.perf_counter() - started
        for account in accounts:
            account.rounds += 1

    def _buy(self, accounts: Sequence[Account], picks: Sequence[Positions]) -> None:
        orders: list[tuple[Account, Positions]] = []
        for account, pick in zip(accounts, picks, strict=True):
            wanted = dict.fromkeys(pick.tolist())  # each once, in order
            new = [position for position in wanted if position not in account.held]
            fresh = self._take_cached(account, np.array(new, dtype=np.int64))
            if len(fresh) > account.left:
                raise BudgetError(
                    f"{len(fresh)} calls were asked for with {account.left} of {account.budget} left; "
                    "raise the budget or ask for fewer"
                )
            if len(fresh) and not account.halted:
                orders.append((account, fresh))
        if self.deadline is None:
            self._call(orders)
            return
        for batch in _batches(orders, self._at_once(self.deadline)):
            if self.late:
                return
            self._call([order for order in batch if not order[0].halted])

    def _at_once(self, deadline: float) -> int:
        """Pairs of a batch: a scorer works best on many, and the clock is looked at only between batches."""
        left = self._started + deadline - time.perf_counter()
        pace = self.scorer.pace
        return max(self.batch_size, int(min(deadline / 20, left) / pace) if pace else 0)

    def _take_cached(self, account: Account, positions: Positions) -> Positions:
        if self.cache is None or not len(positions):
            return positions
        scores = looked_up(self.cache, account.query, positions)
        known = np.isfinite(scores)
        account.cached += int(known.sum())
        account.record(positions[known], scores[known])
        return positions[~known]

    def _call(self, orders: Sequence[tuple[Account, Positions]]) -> None:
        if not orders:
            return
        answers = self._handed_out(orders)
        bought: list[tuple[Any, Positions, Floats]] = []
        faults: list[ScorerError] = []  # raised below: the good scores of the same batch are kept
        missing = 0
        for (account, positions), given in zip(orders, answers, strict=True):
            answer = checked(given, account.query, positions)
            scores = answer.scores
            if not all_finite(scores):  # whatever has a score was paid for
                self._count(account, -int((~answer.paid).sum()))
                positions, scores = positions[good := np.isfinite(scores)], scores[good]
            account.record(positions, scores)
            bought.append((account.query, positions, scores))
            if answer.error is None:
                missing += len(answer.scores) - len(scores)
            elif not (answer.error.spent and account.rounds):  # then what could not be sent again is given up
                faults.append(answer.error)
        for entry in bought:
            if self.cache is not None and len(entry[1]):
                kept(self.cache, *entry)
        if faults:
            raise faults[0]
        if missing:
            raise ScorerError(f"the scorer left out {missing} pairs of a batch and did not say why")

    def _handed_out(self, orders: Sequence[tuple[Account, Positions]]) -> list[Answer]:
        """What the scorer answers to one batch; what it sends again meanwhile is counted as well."""
        for account, positions in orders:  # counted before the call: a call that fails was still made
            self._count(account, len(positions))
        spares = [Spare(account.left) for account, _ in orders]
        began = time.perf_counter()
        try:
            answers = self._ask([(account.query, _read_only(positions)) for account, positions in orders], spares)
        finally:
            for (account, _), spare in zip(orders, spares, strict=True):
                self._count(account, spare.close())
        self._learn(sum(len(positions) for _, positions in orders), time.perf_counter() - began)
        if len(answers) != len(orders):
            raise ScoreCountError(f"the scorer answered {len(answers)} of {len(orders)} queries in a batch")
        return answers

    def _count(self, account: Account, pairs: int) -> None:
        account.calls += pairs
        self.calls += pairs

    def _learn(self, pairs: int, seconds: float) -> None:
        pace, last = seconds / max(pairs, 1), self.scorer.pace
        self.scorer.pace = pace if last is None else last + 0.3 * (pace - last)

    def _ask(self, requests: list[Request], spares: Sequence[Spare]) -> list[Answer]:
        try:
            scorer = self.scorer.sparing(spares)
            if self.deadline is None:
                return list(scorer.score_many(requests))
            limit = max(2 * self.deadline, self.deadline + 1.0)
            left = max(self._started + limit - time.perf_counter(), 0.0)
            told = scorer.within(left)
            grace = 0.5 if told is not scorer else 0.0  # one that keeps time itself may bring what it has
            try:
                return in_thread(lambda: list(told.score_many(requests)), left + grace)
            except TimeoutError as error:
                raise ScorerTimeout(
                    f"the scorer did not answer within {limit:.3g} s of a search whose deadline is "
                    f"{self.deadline:.3g} s"
                ) from error
        except ScorerError:
            raise
        except Exception as error:
            pairs = sum(len(positions) for _, positions in requests)
            raise ScorerError(
                f"the scorer failed on a batch of {pairs} pairs: {type(error).__name__}: {error}"
            ) from error


def looked_up(cache: ScoreCache, query: Any, positions: Positions) -> Floats:
    """What a cache knows, one number per item; a cache that fails ends the search, which keeps what it has."""
    try:
        scores = np.array(cache.get(query, positions.copy()), dtype=np.float64)
        if scores.shape != positions.shape:
            raise ValueError(f"it told {scores.shape} scores of {len(positions)} items")
    except CrosscutError:
        raise
    except Exception as error:
        raise StoreUnavailable(
            f"the cache of scores failed: {type(error).__name__}: {error}; repair it, or search without it"
        ) from error
    return scores


def kept(cache: ScoreCache, query: Any, positions: Positions, scores: Floats) -> None:
    """Tell a cache what was bought; one that refuses it is a warning, because the search has it all the same."""
    try:
        cache.put(query, positions, scores)
    except CrosscutError:
        raise
    except Exception as error:
        LOGGER.warning("%d scores of a search were not kept: the cache raised %s", len(scores), type(error).__name__)


def _batches(orders: Sequence[tuple[Account, Positions]], size: int) -> list[list[tuple[Account, Positions]]]:
    """Cut orders into batches of at most `size` pairs, one slice of every query in turn; they are of about one size,
    because a scorer is slow on the few that would be left over."""
    total = sum(len(positions) for _, positions in orders)
    whole = min(size, max((len(positions) for _, positions in orders), default=1))  # slices are not cut further
    even = -(-total // max(-(-total // size), 1))
    size = min(size, -(-even // whole) * whole)
    slices = [
        (start, account, positions[start : start + size])
        for account, positions in orders
        for start in range(0, len(positions), size)
    ]
    slices.sort(key=lambda entry: entry[0])
    batches: list[list[tuple[Account, Positions]]] = []
    room = 0
    for _, account, positions in slices:
        if len(positions) > room:
            batches.append([])
            room = size
        batches[-1].append((account, positions))
        room -= len(positions)
    return batches


def _read_only(positions: Positions) -> Positions:
    """A copy: whatever a scorer does with it, the search goes on with its own."""
    copy = positions.copy()
    copy.setflags(write=False)
    return copy
