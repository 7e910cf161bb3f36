"""A scorer that is paid once for a pair, whatever the number of searches: for trials on the same queries."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import numpy as np

from crosscut.scorers.answers import checked
from crosscut.scorers.base import Answer, BoundScorer, Request, Spare
from crosscut.scorers.meter import ScoreCache, kept, looked_up
from crosscut.types import Floats, Handles


class Remembering(BoundScorer):
    """A bound scorer with a memory. Searches count a remembered pair as a call; `calls` are those that were made.

    What a `cache` knows is remembered too, and it is told what is new. Pairs may be sent again without limit, for the
    truth of trials must be whole; or, `bounded`, as far as the budget of the search goes.
    """

    def __init__(self, inner: BoundScorer, cache: ScoreCache | None = None, *, bounded: bool = False) -> None:
        self.inner, self.cache, self.bounded = inner, cache, bounded
        self.n_items, self.pairs_at_once, self.knows = inner.n_items, inner.pairs_at_once, inner.knows
        self.in_flight = inner.in_flight
        self.scores: dict[str, dict[int, float]] = {}
        self.calls = 0
        self._spares: Sequence[Spare] | None = None  # of the requests that come next

    def known(self, query: Any, handles: Handles | None = None) -> Floats:
        return self.inner.known(query, handles)

    def known_of_all(self, queries: Sequence[Any], n: int | None = None) -> list[Floats]:
        return self.inner.known_of_all(queries, n)

    def preload(self, handles: Handles) -> None:
        self.inner.preload(handles)

    def sparing(self, spares: Sequence[Spare]) -> BoundScorer:
        self._spares = spares if self.bounded else None
        return self

    def score_many(self, requests: Sequence[Request]) -> list[Answer]:
        new = [self._unknown(query, handles) for query, handles in requests]
        asked = [(query, some) for (query, _), some in zip(requests, new, strict=True) if len(some)]
        given = self._spares or [Spare(sys.maxsize) for _ in requests]
        spares = [spare for spare, some in zip(given, new, strict=True) if len(some)]
        answers = iter(self.inner.sparing(spares).score_many(asked) if asked else [])
        told = [
            self._told(query, handles, some, next(answers) if len(some) else None)
            for (query, handles), some in zip(requests, new, strict=True)
        ]
        self.calls += sum(spare.used for spare in spares)
        return told

    def _unknown(self, query: Any, handles: Handles) -> Handles:
        """Those of the items that neither memory nor cache knows."""
        known = self.scores.setdefault(query, {})
        new = np.array([handle for handle in handles.tolist() if handle not in known], dtype=np.int64)
        if self.cache is None or not len(new):
            return new
        found = looked_up(self.cache, query, new)
        there = np.isfinite(found)
        known.update(zip(new[there].tolist(), found[there].tolist(), strict=True))
        return new[~there]

    def _told(self, query: Any, handles: Handles, new: Handles, given: Any) -> Answer:
        """All that was asked for, after what is new was taken in."""
        known = self.scores[query]
        answer = checked(given, query, new) if len(new) else Answer.nothing(0)
        good = np.isfinite(answer.scores)
        known.update(zip(new[good].tolist(), answer.scores[good].tolist(), strict=True))
        if self.cache is not None and good.any():
            kept(self.cache, query, new[good], answer.scores[good])
        self.calls += int(answer.paid.sum())
        scores = np.array([known.get(handle, np.nan) for handle in handles.tolist()], np.float64)
        return Answer(scores, ~np.isin(handles, new[~answer.paid]), answer.error)
