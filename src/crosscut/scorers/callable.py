"""What a user has as a scorer: any Python callable, sync or async, or an object that scores batches."""

from __future__ import annotations

import hashlib
import inspect
from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeAlias

import numpy as np

from crosscut.datasets.records import Item, Items, items_of, plain_text
from crosscut.errors import InputError, ScoreCountError
from crosscut.scorers.answers import checked
from crosscut.scorers.base import Answer, BoundScorer, Request, Scorer, count_of
from crosscut.threads import run_async
from crosscut.types import Floats, Handles


class ScoresMany(Protocol):
    """A bound scorer of one's own: numbers for every request, in any form that numpy reads."""

    def score_many(self, requests: Sequence[Request]) -> Sequence[Any]: ...


AnyBound: TypeAlias = BoundScorer | ScoresMany | Callable[[Any, Handles], Any]
"""What `as_bound` takes."""


class CallableScorer(BoundScorer):
    """A bound scorer made of `fn(query, handles) -> scores`, or with `items` of `fn(query, texts) -> scores`.

    `fn` may be a plain function, an `async def`, or anything that returns an awaitable; the requests of one
    round of an async scorer run concurrently. After a request that failed the others are not made.
    """

    items: Items | None = None

    def __init__(self, fn: Callable[[Any, Any], Any], items: Items | None = None) -> None:
        if not callable(fn):
            raise InputError(f"a scorer must be callable as f(query, positions), and {fn!r} is not")
        self.fn = fn
        self.items = items
        self.n_items = None if items is None else count_of(items)

    def _ask(self, query: Any, given: Any) -> Any:
        return self.fn(query, given)

    def score_many(self, requests: Sequence[Request]) -> list[Answer]:
        given: list[Any] = []
        for query, handles in requests:
            try:
                texts = handles if self.items is None else [plain_text(item) for item in self.items.get(handles)]
            except Exception as error:
                failed = checked(error, query, handles)
                given.append(Answer.nothing(len(handles), failed.error))
                break
            try:
                one = self._ask(query, texts)  # looked at now: the next request may fill the same array
                given.append(one if inspect.isawaitable(one) else checked(one, query, handles))
            except Exception as error:
                given.append(error)
                break
        if any(inspect.isawaitable(one) for one in given):
            given = run_async(_gather(given, requests))
        answers = [
            one if isinstance(one, Answer) else checked(one, *request)
            for one, request in zip(given, requests, strict=False)
        ]
        return answers + [Answer.nothing(len(handles)) for _, handles in requests[len(given) :]]


class TextScorer(Scorer):
    """An unbound scorer made of `fn(query, texts) -> scores`, sync or async; a text is title, newline, text of an item.

    `fingerprint` names what the scores depend on; by default the function's own name, which is right as long
    as the function does not change behind it.
    """

    def __init__(self, fn: Callable[[Any, Sequence[str]], Any], *, fingerprint: str | None = None) -> None:
        name = f"{getattr(fn, '__module__', '')}.{getattr(fn, '__qualname__', type(fn).__qualname__)}"
        self._fingerprint = fingerprint or hashlib.sha256(name.encode()).hexdigest()[:16]
        self.fn = fn

    @property
    def fingerprint(self) -> str:
        return self._fingerprint

    def bind(self, items: Items | Sequence[Item | str]) -> BoundScorer:
        return CallableScorer(self.fn, items_of(items))


class UserScorer(BoundScorer):
    """A user's own object with `score_many`: what it lacks is supplied, what it answers is checked."""

    def __init__(self, scorer: Any) -> None:
        self.scorer = scorer
        self.n_items = getattr(scorer, "n_items", None)
        self.pairs_at_once = int(getattr(scorer, "pairs_at_once", BoundScorer.pairs_at_once))
        self.in_flight = int(getattr(scorer, "in_flight", BoundScorer.in_flight))
        self.knows = bool(getattr(scorer, "knows", False))

    def known(self, query: Any, handles: Handles | None = None) -> Floats:
        return np.asarray(self.scorer.known(query, handles), np.float64)

    def known_of_all(self, queries: Sequence[Any], n: int | None = None) -> list[Floats]:
        if hasattr(self.scorer, "known_of_all"):
            return [np.asarray(known, np.float64) for known in self.scorer.known_of_all(queries, n)]
        return super().known_of_all(queries, n)

    def score_many(self, requests: Sequence[Request]) -> list[Answer]:
        answers: list[Answer] = []
        for one in self.scorer.score_many(requests):  # each is looked at before the next: they may share an array
            if len(answers) == len(requests):
                raise ScoreCountError(f"the scorer answered more than {len(requests)} queries in a batch of so many")
            answers.append(checked(one, *requests[len(answers)]))
        if len(answers) < len(requests):
            raise ScoreCountError(f"the scorer answered {len(answers)} of {len(requests)} queries in a batch")
        return answers

    def within(self, seconds: float) -> BoundScorer:
        return as_bound(self.scorer.within(seconds)) if hasattr(self.scorer, "within") else self

    def preload(self, handles: Handles) -> None:
        if hasattr(self.scorer, "preload"):
            self.scorer.preload(handles)


def as_bound(scorer: AnyBound) -> BoundScorer:
    """A bound scorer from what the user brought: an object with `score_many`, or a callable."""
    if isinstance(scorer, BoundScorer):
        return scorer
    if hasattr(scorer, "score_many"):
        return UserScorer(scorer)
    if hasattr(scorer, "bind"):
        raise InputError(
            f"{type(scorer).__name__} scores texts and has not been bound to a corpus: pass scorer.bind(items)"
        )
    return CallableScorer(scorer)


async def _gather(given: Sequence[Any], requests: Sequence[Request]) -> list[Any]:
    import asyncio

    async def value(one: Any, request: Request) -> Any:
        return checked(await one, *request) if inspect.isawaitable(one) else one

    each = (value(one, request) for one, request in zip(given, requests, strict=False))
    return list(await asyncio.gather(*each, return_exceptions=True))
