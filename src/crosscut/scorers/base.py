"""The expensive function, as a protocol.

A *scorer* f(query, item) is a costly black box. It comes in two forms:

- **unbound**: `score(query, items)` takes items or texts; `bind(items)` fixes the corpus;
- **bound**: `score(query, handles)` takes handles (positions, in memory), `score_many([(query, handles), …])` a batch
  of such requests. Searches use the bound form only. Binding is free: an item is prepared (tokenised, encoded) when it
  is first scored, so items may be added later.

Scores are raw: any real number, higher is better. A fingerprint identifies what the scores depend on, so that stored
scores are never reused for another model. A scorer formats items by itself; the default is title, newline, text
(`plain_text`).
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence, Sized
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, runtime_checkable

import numpy as np

from crosscut.datasets.records import Item, ItemList, Items
from crosscut.errors import InputError, ScorerError
from crosscut.types import Array, Floats, Handles, Mask, Progress

if TYPE_CHECKING:
    from crosscut.retrieval.bm25 import BM25

Request: TypeAlias = tuple[Any, Handles]
"""One query and the handles of the items to score it with."""


@dataclass(frozen=True, eq=False)
class ScoreResult:
    """The result of one request of m items."""

    scores: Floats  # (m) NaN where there is none
    attempted: Mask  # (m) True where the pair was handed to the model: a call, whether it succeeded or not
    error: ScorerError | None = None

    @classmethod
    def of(cls, scores: Floats) -> ScoreResult:
        """A complete result."""
        return cls(scores, np.ones(len(scores), np.bool_))

    @classmethod
    def nothing(cls, size: int, error: ScorerError | None = None, *, attempted: bool = False) -> ScoreResult:
        """No score for any of `size` items; `attempted` if they were handed to the model."""
        return cls(np.full(size, np.nan), np.full(size, attempted), error)


class RetryBudget:
    """Calls that one request may cost beyond one a pair, and whether it may still make any at all.

    A scorer that sends pairs again takes them from here first; one that works in steps asks `halted` before each, and
    may count here the pairs that it has handed out for the first time (`attempted`): then an interrupt reports these.
    """

    def __init__(self, left: float = math.inf, halt: Callable[[], str | None] | None = None) -> None:
        self.left = left
        self.used = 0
        self.attempted = 0
        self._halt = halt
        self._closed = False

    @property
    def halted(self) -> bool:
        """Whether the search was cancelled or has ended."""
        return self._closed or (self._halt is not None and self._halt() is not None)

    def take(self, pairs: int) -> bool:
        """Count pairs that are sent again; False if the budget does not allow it."""
        if self._closed or pairs > self.left:
            return False
        self.left -= pairs
        self.used += pairs
        return True

    def give_back(self, pairs: int) -> None:
        """Take back the last `take`: the pairs were not sent."""
        self.left += pairs
        self.used -= pairs

    def close(self) -> int:
        """Refuse every further call and return the number of those that were used."""
        self._closed = True
        return self.used


class BoundScorer(ABC):
    """A scorer bound to a corpus. Base class with default implementations."""

    n_items: int | None = None
    """Size of the corpus, where it is fixed."""
    pairs_per_batch: int | None = 32
    """Pairs of a batch in a search with a deadline; None if the scorer splits its requests itself."""
    concurrency: int = 1
    """Pairs that are scored side by side, each as fast as one alone; the default method makes no smaller rounds."""
    keeps_deadline: bool = False
    """Whether `score_many` returns by its deadline; other scorers run in a thread that can be abandoned."""
    counts_attempts: bool = False
    """Whether it counts what it hands out in `RetryBudget.attempted`."""
    seconds_per_pair: float | None = None
    """A moving average, updated by the meter."""

    has_base_scores: bool = False
    """Whether part of every score is known without a call: f = base + costly."""
    free: bool = False
    """Whether the base scores are the scores: no call is ever made."""

    def note(self, query: Any) -> str | None:
        """Return a sentence for who reads the hits of a query, if there is something to say."""
        return None

    def base_scores(self, query: Any, handles: Handles | None = None) -> Floats:
        """Return what is known of the scores without a call, of these items, in order; of every one (n) without them.

        Searches always say which: a scorer of one's own need not know how many items there are.
        """
        raise InputError(f"{type(self).__name__} has no base scores")

    def base_scores_many(self, queries: Sequence[Any], n: int | None = None) -> list[Floats]:
        """Return the base scores of the first n items, or of every one there is, for every query."""
        every = None if n is None else np.arange(n)
        return [self.base_scores(query, every) for query in queries]

    def extended(self, vectors: Array | None, words: BM25 | None) -> BoundScorer:
        """Return the same over items that have grown, with the vectors and words of all of them."""
        return self

    @abstractmethod
    def score_many(
        self, requests: Sequence[Request], *, deadline: float | None = None, retries: Sequence[RetryBudget] = ()
    ) -> list[ScoreResult]:
        """Return one result a request, in order; what a model would run as one batch.

        Parameters
        ----------
        deadline
            When the results are wanted, on the clock of `time.monotonic`. Scorers that cannot keep it ignore it.
        retries
            One budget a request for pairs that are sent again; without them there is no limit.
        """

    def score(self, query: Any, handles: Handles) -> Floats:
        """Return the scores of one query with these items, in order."""
        (result,) = self.score_many([(query, np.asarray(handles, np.int64))])
        if result.error is not None:
            raise result.error
        return result.scores

    def preload(self, handles: Handles) -> None:
        """Prepare items now instead of when they are first scored."""
        return


@runtime_checkable
class Scorer(Protocol):
    """A scorer of items."""

    @property
    def fingerprint(self) -> str:
        """A short name that changes whenever the scores may change."""

    def score(self, query: str, items: Sequence[Item | str]) -> Floats:
        """Return the scores of one query with each item, in order; a text is an item without a title."""
        bound: BoundScorer = self.bind(ItemList(items))
        return bound.score(query, np.arange(len(items)))

    def bind(self, items: Items) -> Any:
        """Return this scorer over items that it reads by handle: a `BoundScorer`, or anything `as_bound` accepts."""


@runtime_checkable
class CorpusScorer(Scorer, Protocol):
    """A scorer that uses the vectors and the words of a corpus, where it is given them."""

    @property
    def encoder_fingerprint(self) -> str:
        """Of the encoder whose vectors of the items it uses."""

    @property
    def statistics(self) -> Mapping[str, Array]:
        """Statistics of the whole corpus that the scorer uses; an index saves them."""

    def fitted(self, words: BM25) -> CorpusScorer:
        """Return the same with the statistics of this corpus; they stay when items come and go."""

    def with_statistics(self, arrays: Mapping[str, Array]) -> CorpusScorer:
        """Return the same with statistics that were saved; empty: those of no corpus."""

    def precompute(self, items: Sequence[Item], progress: Progress | None = None) -> Array:
        """Return the vectors (n × d) of items by its own encoder."""

    def bind(self, items: Items, vectors: Array | None = None, words: BM25 | None = None) -> BoundScorer:
        """Return this scorer over items, with their vectors and words."""


def count_of(items: Items) -> int | None:
    """Return the number of items, if it is known."""
    return len(items) if isinstance(items, Sized) else None
