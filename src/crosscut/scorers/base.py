"""The expensive function, as a protocol.

A *scorer* f(query, item) is costly and a black box. It comes in two forms:

- **unbound**: `score(query, items)` takes items or texts. `bind(items)` fixes where items come from;
- **bound**: `score(query, handles)` takes handles (positions, in memory), `score_many([(query, handles), …])` a batch
  of such requests. Searches speak to the bound form only. What it prepares of an item (tokens, states) it prepares
  when the item is first scored, so that binding is free and items may be added later.

Scores are raw: any real number, higher is better. A fingerprint names what the scores depend on, so that
stored scores are never reused for another model. An item is formatted by the scorer: as title, newline, text
(`plain_text`) by all that have no form of their own.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence, Sized
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias, runtime_checkable

import numpy as np

from crosscut.datasets.records import Item, ItemList, Items
from crosscut.errors import InputError, ScorerError
from crosscut.types import Floats, Handles, Mask

Request: TypeAlias = tuple[Any, Handles]
"""One query and the handles of the items to score it with."""


@dataclass(frozen=True, eq=False)
class Answer:
    """What came of one request of m items: the scores, what was paid for, and what went wrong."""

    scores: Floats  # (m) NaN where there is none
    paid: Mask  # (m) True where the pair was handed to the model: a call, whether it succeeded or not
    error: ScorerError | None = None

    @classmethod
    def of(cls, scores: Floats) -> Answer:
        """All that was asked for."""
        return cls(scores, np.ones(len(scores), np.bool_))

    @classmethod
    def nothing(cls, size: int, error: ScorerError | None = None, *, paid: bool = False) -> Answer:
        """No score of `size` items: they were not handed to the model, or it failed on them (`paid`)."""
        return cls(np.full(size, np.nan), np.full(size, paid), error)


class Spare:
    """Calls that one request may cost beyond one a pair: who sends pairs again takes them from here first."""

    def __init__(self, left: int) -> None:
        self.left: float = left
        self.used = 0

    def take(self, pairs: int) -> bool:
        """Whether so many pairs may be sent again; then they are counted."""
        if pairs > self.left:
            return False
        self.left -= pairs
        self.used += pairs
        return True

    def close(self) -> int:
        """What was used; nothing more may be."""
        self.left = -math.inf
        return self.used


class BoundScorer(ABC):
    """A scorer that knows where its items are. What a class does not say of itself stands here."""

    n_items: int | None = None
    """The size of the corpus, where it is fixed."""
    pairs_at_once: int = 32
    """Pairs that it likes to be handed at a time, when a search has a deadline."""
    in_flight: int = 1
    """Pairs that it answers side by side, each as fast as one alone: the default method makes no smaller rounds."""
    pace: float | None = None
    """Seconds a pair has taken lately, as the meter saw it."""

    knows: bool = False
    """Whether part of every score is known without a call: f = known + costly, and `known` tells it."""

    def known(self, query: Any, handles: Handles | None = None) -> Floats:
        """What is known without a call, of these items, in order; without handles of every one (n).

        Searches always say which: a scorer of one's own need not know how many items there are.
        """
        raise InputError(f"{type(self).__name__} knows nothing of a score without a call")

    def known_of_all(self, queries: Sequence[Any], n: int | None = None) -> list[Floats]:
        """What is known of the first n items, or of every one there is, for every query."""
        every = None if n is None else np.arange(n)
        return [self.known(query, every) for query in queries]

    @abstractmethod
    def score_many(self, requests: Sequence[Request]) -> list[Answer]:
        """An answer to every request, in order; what a model would run as one batch."""

    def score(self, query: Any, handles: Handles) -> Floats:
        """The scores of one query with these items, in order."""
        (answer,) = self.score_many([(query, np.asarray(handles, np.int64))])
        if answer.error is not None:
            raise answer.error
        return answer.scores

    def within(self, seconds: float) -> BoundScorer:
        """The same for the next `seconds`, if it keeps time itself."""
        return self

    def sparing(self, spares: Sequence[Spare]) -> BoundScorer:
        """The same for the next requests, one spare for each, if it ever sends a pair twice."""
        return self

    def preload(self, handles: Handles) -> None:
        """Prepare items now, where it would do so when they are first scored."""
        return


@runtime_checkable
class Scorer(Protocol):
    """A scorer of items."""

    @property
    def fingerprint(self) -> str:
        """A short name that changes whenever the scores may change."""

    def score(self, query: str, items: Sequence[Item | str]) -> Floats:
        """The scores of one query with each item, in order; a text is an item without a title."""
        bound: BoundScorer = self.bind(ItemList(items))
        return bound.score(query, np.arange(len(items)))

    def bind(self, items: Items) -> Any:
        """This scorer over items that it asks for by handle: a `BoundScorer`, or what `as_bound` makes one of."""


def count_of(items: Items) -> int | None:
    """How many there are, if that is known."""
    return len(items) if isinstance(items, Sized) else None
