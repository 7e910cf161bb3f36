"""Documents that the caller has, ordered by a scorer: under a budget of calls, and with a cache by text.

This is plain reranking: it cannot find what is not among the documents. `Index` and `Searcher` can.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from crosscut.datasets.records import Item, ItemList
from crosscut.errors import InputError, ScorerError
from crosscut.score_store.keys import Keys, text_hash
from crosscut.score_store.store import ScoreStore
from crosscut.scorers.caching import ScoreCache
from crosscut.scorers.calibration import Calibration, relevance
from crosscut.scorers.loading import load_scorer
from crosscut.scorers.meter import Halt, Meter, QueryLedger
from crosscut.types import Floats, Positions

REMEMBERED = 100_000
"""Pairs whose scores are kept in memory."""


@dataclass(frozen=True, eq=False)
class Ranking:
    """Documents by their place in the request, best first, and what it cost to order them."""

    order: Positions  # those that were scored, and passed the threshold
    scores: Floats  # (documents) NaN where there was no call left
    relevance: Floats  # (documents) 0 … 1, what the scores mean (`crosscut.scorers.calibration`)
    calls: int
    cached: int
    calibrated: bool = False  # whether relevance is a probability


class Reranker:
    """Orders documents by a scorer.

    Parameters
    ----------
    scorer
        What `Index.build` takes: `"default"`, a folder, a hub id, an address, a model, a function.
    budget
        Calls for one request at most; documents beyond it, in the order given, are left out. None: all are scored.
    store
        The folder of a score store. Without one, the scores of the last 100,000 pairs are kept in memory.
    calibration
        What the scores mean, such as `index.calibration` of an index with this scorer.
    """

    def __init__(
        self,
        scorer: Any = "default",
        *,
        budget: int | None = None,
        store: str | Path | None = None,
        calibration: Calibration | None = None,
    ) -> None:
        if budget is not None and budget < 1:
            raise InputError(f"a budget is 1 call or more; got {budget}")
        self.scorer = load_scorer(scorer)
        self.budget = budget
        if calibration is not None:
            calibration.check(self.scorer.fingerprint)
        self.calibration = calibration
        self._store = None if store is None else ScoreStore(store, scorer_fingerprint=self.scorer.fingerprint)
        self._known: OrderedDict[tuple[bytes, bytes], float] = OrderedDict()
        self._lock = threading.Lock()

    def rank(
        self,
        query: str,
        documents: Sequence[Item | str],
        *,
        threshold: float | None = None,
        deadline: float | None = None,
        halt: Halt | None = None,
    ) -> Ranking:
        """The documents that the budget and the deadline allow, best first; of equal ones, the earlier.

        With a threshold, 0 … 1, only those of at least that relevance.
        """
        if threshold is not None and not 0 <= threshold <= 1:
            raise InputError(f"a threshold is a relevance, 0 … 1; got {threshold!r}")
        keys = Keys.of(documents)
        cache: ScoreCache = _Remembered(self, keys) if self._store is None else self._store.cache(keys)
        known = ~np.isnan(cache.get(query, np.arange(len(documents))))
        budget = len(documents) if self.budget is None else self.budget
        affordable = np.flatnonzero(known | (np.cumsum(~known) <= budget))
        account = QueryLedger(query, budget, halt=halt)
        try:
            meter = Meter(self.scorer.bind(ItemList(documents)), cache=cache, deadline=deadline)
            meter.score([account], [affordable])
        except ScorerError as error:
            error.calls = account.calls
            raise
        scores = np.full(len(documents), np.nan)
        scores[account.positions] = account.scores
        scored = np.sort(account.positions)
        means = np.full(len(documents), np.nan)
        means[scored] = relevance(self.scorer, scores[scored], self.calibration)
        order = scored[np.argsort(-scores[scored], kind="stable")]
        kept = order if threshold is None else order[means[order] >= threshold]
        return Ranking(kept, scores, means, account.calls, account.cached, self.calibration is not None)


class _Remembered:
    """The scores of a reranker's memory, by text, for the documents of one request."""

    def __init__(self, owner: Reranker, keys: Keys) -> None:
        self.owner, self.names = owner, keys.names

    def get(self, query: str, positions: Positions) -> Floats:
        asked = text_hash(query)
        with self.owner._lock:
            known = [self.owner._known.get((asked, self.names[place]), np.nan) for place in positions.tolist()]
        return np.array(known, np.float64)

    def put(self, query: str, positions: Positions, scores: Floats) -> None:
        asked, known = text_hash(query), self.owner._known
        with self.owner._lock:
            for place, score in zip(positions.tolist(), scores.tolist(), strict=True):
                known[asked, self.names[place]] = score
            while len(known) > REMEMBERED:
                known.popitem(last=False)
