"""Scores that are known already: the cache protocol, a cache in memory, and a scorer that caches what it scores."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np

from crosscut.errors import InputError
from crosscut.scorers.base import BoundScorer, Request, RetryBudget, ScoreResult
from crosscut.scorers.validation import validate_scores
from crosscut.types import Floats, Handles, Positions

LOGGER = logging.getLogger("crosscut.score_store")


class ScoreCache(Protocol):
    """Scores that are known and therefore free."""

    def get(self, query: Any, positions: Positions) -> Floats:
        """Return the known scores, NaN where there is none."""

    def put(self, query: Any, positions: Positions, scores: Floats) -> None:
        """Store these scores."""


def cache_within(cache: ScoreCache | None, deadline: float | None) -> ScoreCache | None:
    """Return a cache for a search with a deadline; one that may have to wait has a method `within(seconds)`."""
    within = None if deadline is None else getattr(cache, "within", None)
    return cache if within is None else within(deadline)


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


def read_cache(cache: ScoreCache, query: Any, positions: Positions) -> Floats:
    """Return what a cache knows, one number per item; one that fails knows nothing, which is a warning."""
    try:
        scores = np.array(cache.get(query, positions.copy()), dtype=np.float64)
        if scores.shape != positions.shape:
            raise ValueError(f"it returned {scores.shape} scores for {len(positions)} items")
    except InputError:  # the query has no place in this cache
        raise
    except Exception as error:
        LOGGER.warning("known scores are not used: the cache raised %s", type(error).__name__)
        return np.full(len(positions), np.nan)
    return scores


def write_cache(cache: ScoreCache, query: Any, positions: Positions, scores: Floats) -> None:
    """Store scores in a cache; a failure is a warning, since the search has them anyway."""
    try:
        cache.put(query, positions, scores)
    except InputError:
        raise
    except Exception as error:
        LOGGER.warning("%d scores of a search were not kept: the cache raised %s", len(scores), type(error).__name__)


class CachingScorer(BoundScorer):
    """A bound scorer that scores each pair only once, over many searches: for trials on the same queries.

    Searches count a cached pair as a call; `calls` are those that were made. `cache` is read first and receives new
    scores. Pairs may be sent again without limit, since trials need all scores; or, if `bounded`, within the retry
    budgets of the search.
    """

    def __init__(self, inner: BoundScorer, cache: ScoreCache | None = None, *, bounded: bool = False) -> None:
        self.inner, self.cache, self.bounded = inner, cache, bounded
        self.n_items = inner.n_items
        self.has_base_scores, self.free = inner.has_base_scores, inner.free
        self.pairs_per_batch, self.concurrency = inner.pairs_per_batch, inner.concurrency
        self.keeps_deadline = inner.keeps_deadline
        self.scores: dict[str, dict[int, float]] = {}
        self.calls = 0

    def base_scores(self, query: Any, handles: Handles | None = None) -> Floats:
        return self.inner.base_scores(query, handles)

    def base_scores_many(self, queries: Sequence[Any], n: int | None = None) -> list[Floats]:
        return self.inner.base_scores_many(queries, n)

    def preload(self, handles: Handles) -> None:
        self.inner.preload(handles)

    def score_many(
        self, requests: Sequence[Request], *, deadline: float | None = None, retries: Sequence[RetryBudget] = ()
    ) -> list[ScoreResult]:
        new = [self._unknown(query, handles) for query, handles in requests]
        places = [place for place, handles in enumerate(new) if len(handles)]
        budgets = [retries[place] if self.bounded and retries else RetryBudget() for place in places]
        used = sum(budget.used for budget in budgets)
        asked = [(requests[place][0], new[place]) for place in places]
        results = self.inner.score_many(asked, deadline=deadline, retries=budgets) if asked else []
        self.calls += sum(budget.used for budget in budgets) - used
        given: list[Any] = [None] * len(requests)
        for place, result in zip(places, results, strict=True):
            given[place] = result
        return [
            self._complete(query, handles, some, result)
            for (query, handles), some, result in zip(requests, new, given, strict=True)
        ]

    def _unknown(self, query: Any, handles: Handles) -> Handles:
        """Return the items that neither memory nor cache has scores for."""
        known = self.scores.setdefault(query, {})
        new = np.array([handle for handle in handles.tolist() if handle not in known], dtype=np.int64)
        if self.cache is None or not len(new):
            return new
        found = read_cache(self.cache, query, new)
        there = np.isfinite(found)
        known.update(zip(new[there].tolist(), found[there].tolist(), strict=True))
        return new[~there]

    def _complete(self, query: Any, handles: Handles, new: Handles, given: Any) -> ScoreResult:
        """Store new scores and return all that were asked for."""
        known = self.scores[query]
        result = validate_scores(given, query, new) if len(new) else ScoreResult.nothing(0)
        good = np.isfinite(result.scores)
        known.update(zip(new[good].tolist(), result.scores[good].tolist(), strict=True))
        if self.cache is not None and good.any():
            write_cache(self.cache, query, new[good], result.scores[good])
        self.calls += int(result.attempted.sum())
        scores = np.array([known.get(handle, np.nan) for handle in handles.tolist()], np.float64)
        return ScoreResult(scores, ~np.isin(handles, new[~result.attempted]), result.error)
