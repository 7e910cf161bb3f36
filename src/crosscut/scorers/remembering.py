"""A scorer that is paid once for a pair, whatever the number of searches: for trials on the same queries."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import numpy as np

from crosscut.scorers.base import Answer, BoundScorer, Request, Spare
from crosscut.scorers.meter import ScoreCache
from crosscut.types import Floats, Handles


class Remembering(BoundScorer):
    """A bound scorer with a memory. Searches count a remembered pair as a call; `calls` are those that were made.

    What a `cache` knows is remembered too, and it is told what is new.
    """

    def __init__(self, inner: BoundScorer, cache: ScoreCache | None = None) -> None:
        self.inner, self.cache = inner, cache
        self.n_items, self.pairs_at_once, self.knows = inner.n_items, inner.pairs_at_once, inner.knows
        self.in_flight = inner.in_flight
        self.scores: dict[str, dict[int, float]] = {}
        self.calls = 0

    def known(self, query: Any, handles: Handles | None = None) -> Floats:
        return self.inner.known(query, handles)

    def preload(self, handles: Handles) -> None:
        self.inner.preload(handles)

    def score_many(self, requests: Sequence[Request]) -> list[Answer]:
        asked = [(query, new) for query, handles in requests if len(new := self._unknown(query, handles))]
        spares = [Spare(sys.maxsize) for _ in asked]
        answers = self.inner.sparing(spares).score_many(asked) if asked else []
        self.calls += sum(spare.close() for spare in spares) + sum(int(answer.paid.sum()) for answer in answers)
        for (query, handles), answer in zip(asked, answers, strict=True):
            good = np.isfinite(answer.scores)
            self.scores[query].update(zip(handles[good].tolist(), answer.scores[good].tolist(), strict=True))
            if self.cache is not None and good.any():
                self.cache.put(query, handles[good], answer.scores[good])
        for answer in answers:
            if answer.error is not None:
                raise answer.error
        return [
            Answer.of(np.array([self.scores[query].get(handle, np.nan) for handle in handles.tolist()]))
            for query, handles in requests
        ]

    def _unknown(self, query: Any, handles: Handles) -> Handles:
        """Those of the items that neither memory nor cache knows."""
        known = self.scores.setdefault(query, {})
        new = np.array([handle for handle in handles.tolist() if handle not in known], dtype=np.int64)
        if self.cache is None or not len(new):
            return new
        found = np.asarray(self.cache.get(query, new), np.float64)
        there = np.isfinite(found)
        known.update(zip(new[there].tolist(), found[there].tolist(), strict=True))
        return new[~there]
