"""The loop: every method of the papers, and ours.

    found = first.pick(queries)                      # round one
    repeat: scores += scorer(query, found)           # the only expensive line
            u = fit(V[scored], scores)               # a query vector that explains what was scored
            found = top of V u, not yet scored       # where it predicts high scores
    return the best k of what was scored, by exact score

A method is a `Plan`: who picks the items of round one (`first`), how many calls each round makes (`schedule`) and who
picks the items of the later rounds (`then`). The loop knows no space, no fit and no words: these belong to pickers
(`search/pickers.py`, `retrieval/stages.py`). Items are handles: positions in memory, or what a store has shown so far.
All queries of a batch advance together, and the calls of a round go to the scorer as one batch.
"""

from __future__ import annotations

import copy
import hashlib
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, ClassVar, Protocol, runtime_checkable

import numpy as np

from crosscut.ann.baseline import Baseline
from crosscut.ann.topk import Allowed, Found
from crosscut.errors import InputError
from crosscut.scorers.meter import Meter, QueryLedger
from crosscut.search.hits import Hit, Hits, Round, Scored, Seconds
from crosscut.search.stopping import SoFar, Watch
from crosscut.spaces.base import Space
from crosscut.types import NO_HANDLES, WILD, Floats, Handles, Positions


@dataclass(eq=False)
class Query:
    """One query on its way: what it brought, what it has bought, and what pickers remember of it."""

    account: QueryLedger
    k: int = 10
    seed: int = 0
    vector: Floats | None = None  # the encoder's query vector
    candidates: Handles = field(default_factory=lambda: NO_HANDLES)  # what the caller wants in round one
    base: Baseline | None = None  # what the scorer knows of items without a call; None: nothing
    columns: Floats | None = None  # (n × m) further coordinates of every item, for this query alone
    allowed: Allowed = None  # None: all items
    size: int | None = None  # how many items may be scored, if that is known
    watch: Watch | None = None  # of a stopping rule
    reason: str = ""  # that it gives
    trace: bool = False  # keep the predictions of every item
    fitting: float = 0.0  # seconds that fits took, of all rounds
    rounds: list[Round] = field(default_factory=list)
    unscored: list[Hit] | None = None  # the answer, where the deadline came before the first call
    stop: str | None = None
    memory: dict[Any, Any] = field(default_factory=dict)  # of each picker, by itself
    picked: Handles = field(default_factory=lambda: NO_HANDLES)  # for this round, by another picker
    parent: Query | None = None  # of which this is a view

    @cached_property
    def rng(self) -> np.random.Generator:
        """Of this query's random draws: made with the first of them."""
        return generator(self.seed, self.account.query) if self.parent is None else self.parent.rng

    @property
    def scored(self) -> Handles:
        """Handles of the scored items, in order."""
        return self.account.positions

    @property
    def targets(self) -> Floats:
        """The scores of what was scored, for fits: one too large to be a score counts as the lowest (or highest) of
        the others."""
        scores = self.account.scores
        wild = ~(np.abs(scores) < WILD)
        if not wild.any():
            return scores
        others = scores[~wild] if not wild.all() else np.zeros(1)
        return np.where(wild, np.where(scores > 0, others.max(), others.min()), scores)

    @property
    def exclude(self) -> Handles:
        """Handles that must not be picked."""
        return np.concatenate([self.picked, self.scored]) if len(self.picked) else self.scored

    def without(self, handles: Handles) -> Query:
        """Return the same query for a picker that must not name these items either."""
        view = copy.copy(self)
        view.picked, view.parent = np.concatenate([self.picked, handles]), self
        return view

    def top(self) -> Positions:
        """Return the places, in the account, of the best k by exact score; ties go to the lower position."""
        return np.lexsort((self.account.positions, -self.account.scores))[: self.k]

    def enough(self, expected: Floats) -> bool:
        """Whether the stopping rule ends the search, given what is expected of the next items."""
        if self.watch is None or not self.rounds:
            return False
        top = self.top()
        found = SoFar(self.k, self.account.positions[top], self.account.scores[top], self.rounds, expected)
        return self.watch.enough(found)

    def hits(self, ids: Any = None, texts: Any = None) -> Hits:
        """Return the result so far."""
        items = Scored.of(self.rounds).hits(self.top()) if self.unscored is None else self.unscored
        if ids is not None:
            items = [replace(hit, id=ids[hit.position]) for hit in items]
        if texts is not None:
            items = [replace(hit, text=texts[hit.position]) for hit in items]
        return Hits(
            query=self.account.query,
            items=tuple(items),
            calls=self.account.calls,
            cached=self.account.cached,
            budget=self.account.budget,
            stop_reason=self.stop or "running",
            trace=tuple(self.rounds),
        )


@runtime_checkable
class Picker(Protocol):
    """Choose the items that are scored next. Subclass it to write your own.

    What it remembers of a query is in `query.memory[self]`, and ends with the search.
    """

    draws: ClassVar[bool] = False
    """Whether it draws at random, so that it has no best items."""

    def predicts_in(self) -> Space | None:
        """Return the space in which it predicts scores, if it does."""
        return None

    def start(self, query: Query) -> None:
        """Prepare for a query, before anything is paid for; refuse what cannot work."""
        return

    def pick(self, queries: Sequence[Query], counts: Sequence[int]) -> list[Found]:
        """Return at most `counts[j]` items for each query, best first, none of them scored or not allowed."""


class Sizes(Protocol):
    """The number of calls that each round may make. `free`: a round may be smaller, and others follow."""

    @property
    def free(self) -> bool: ...

    def sizes(self, budget: int, in_flight: int = 1) -> list[int]:
        """Return the calls of every round; `in_flight` are the pairs that take as long as one."""


@dataclass(frozen=True)
class Plan:
    """The parts of a method. Without `then` there is one round."""

    first: Picker
    schedule: Sizes
    then: Picker | None = None


def run(plan: Plan, queries: Sequence[Query], meter: Meter) -> None:
    """Take every query through its rounds, to a stop."""
    for query in queries:
        start(plan, query)
    sizes = plan.schedule.sizes(max((query.account.budget for query in queries), default=0), meter.scorer.concurrency)
    for number, size in enumerate(sizes):
        last = number == len(sizes) - 1
        active = [query for query in queries if query.stop is None]
        if not active:
            return
        counts = [query.account.left if last else min(size, query.account.left) for query in active]
        began, fitted = time.perf_counter(), [query.fitting for query in active]
        picker = plan.then if number and plan.then else plan.first
        found = picker.pick(active, counts)
        share = (time.perf_counter() - began) / len(active)
        going = []
        for query, one, count, before in zip(active, found, counts, fitted, strict=True):
            if query.enough(one.expected):
                query.stop = query.reason
                continue
            fit = query.fitting - before
            wanted = 1 if plan.schedule.free else count
            going.append((query, one, number > 0 and len(one.handles) < wanted, Seconds(0.0, fit, share - fit)))
        buy(meter, [(query, one, seconds) for query, one, _, seconds in going])
        for query, _, short, _ in going:
            query.stop = why_stop(query, short, meter, last)
            if query.stop == "deadline" and not len(query.scored):
                answer_without_calls(plan, query)


def start(plan: Plan, query: Query) -> None:
    """Let the pickers prepare for a query."""
    if query.size == 0:
        query.stop = "exhausted"
    if query.trace and plan.then is not None:
        space = plan.then.predicts_in()
        if space is None:
            raise InputError("a trace keeps predictions of every item, and this method makes none")
        query.trace = space.readable  # of a store: the rounds without predictions
    for picker in (plan.first, plan.then):
        if picker is not None:
            picker.start(query)


def buy(meter: Meter, going: Sequence[tuple[Query, Found, Seconds]]) -> None:
    """Buy the scores of a round and write it to the trace, as far as it came."""
    if not going:
        return
    before = [(len(query.scored), query.account.calls, query.account.cached) for query, *_ in going]
    spent = meter.seconds
    try:
        meter.score_each([query.account for query, *_ in going], [found.handles for _, found, _ in going])
    finally:
        scorer = (meter.seconds - spent) / len(going)
        for (query, found, seconds), (size, calls, cached) in zip(going, before, strict=True):
            account = query.account
            bought = account.positions[size:]
            place: Positions | slice = slice(None)
            if bought.tolist() != found.handles.tolist():  # some were known, or are not paid for yet
                order = np.argsort(found.handles)
                place = order[np.searchsorted(found.handles, bought, sorter=order)]
            query.rounds.append(
                Round(
                    positions=bought,
                    scores=account.scores[size:],
                    estimates=found.expected[place],
                    calls=account.calls - calls,
                    cached=account.cached - cached,
                    seconds=seconds + Seconds(scorer),
                    predictions=found.predictions,
                    chances=None if found.chances is None else found.chances[place],
                )
            )


def answer_without_calls(plan: Plan, query: Query) -> None:
    """Let the first stage's best items be the answer of a query whose deadline came before its first call."""
    (found,) = plan.first.pick([query], [query.k])
    pairs = zip(found.handles.tolist(), found.expected.tolist(), strict=True)
    query.unscored = [Hit(handle, expected, 0, expected, handle) for handle, expected in pairs]


def why_stop(query: Query, short: bool, meter: Meter, last: bool) -> str | None:
    """Return the reason why a query ends after a round; None: it goes on. `short`: there was no more to pick."""
    if query.account.error is not None:
        return "scorer failed"
    if short or query.size == len(query.scored):
        return "exhausted"
    if query.account.left <= 0:
        return "budget"
    if (reason := query.account.halted) is not None:
        return reason
    if meter.late:
        return "deadline"
    return "rounds" if last else None


def generator(seed: int, query: Any) -> np.random.Generator:
    """Return random draws that depend on the seed and the query alone, not on its place in a batch.

    A query is its text, number or array; of any other object, its `repr`.
    """
    if isinstance(query, np.ndarray):
        text = query.tobytes()
    elif isinstance(query, int | np.integer):
        text = str(int(query)).encode()
    else:
        text = (query if isinstance(query, str) else repr(query)).encode(errors="surrogatepass")
    digest = hashlib.blake2b(text, digest_size=8).digest()
    return np.random.default_rng([seed, int.from_bytes(digest, "little")])
