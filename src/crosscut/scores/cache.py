"""A score store as the cache of a search (`crosscut.scorers.meter.ScoreCache`): known pairs are free."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from types import TracebackType
from typing import TYPE_CHECKING, Any

import numpy as np

from crosscut.scorers.base import Floats, Positions
from crosscut.scores.keys import Keys, text_hash

if TYPE_CHECKING:
    from crosscut.scores.store import ScoreStore

REMEMBERED = 64


class StoreCache:
    """Scores of a store by query text and item position.

    What a search buys is known to this process at once and written in batches: when `flush_pairs` are waiting, when
    a score is put `flush_seconds` after the last write, and by `flush` or at the end of a `with` block. Scores come
    back as the store keeps them, in float32.
    """

    def __init__(self, store: ScoreStore, items: Keys, *, flush_pairs: int = 4096, flush_seconds: float = 10.0) -> None:
        self.store = store
        self.items = items
        self.flush_pairs = flush_pairs
        self.flush_seconds = flush_seconds
        self._rows: OrderedDict[bytes, tuple[Positions, Floats]] = OrderedDict()
        self._waiting: dict[str, dict[int, float]] = {}
        self._count = 0
        self._written = time.monotonic()
        self._lock = threading.Lock()

    def get(self, query: Any, positions: Positions) -> Floats:
        """The known scores, NaN where there is none."""
        with self._lock:
            known, values = self._known(text_hash(query))
            positions = np.asarray(positions, np.int64)
            scores = np.full(len(positions), np.nan)
            if len(known):
                places = np.minimum(np.searchsorted(known, positions), len(known) - 1)
                hits = known[places] == positions
                scores[hits] = values[places[hits]]
            for place, position in enumerate(positions.tolist()):
                if position in self._waiting.get(query, ()):
                    scores[place] = self._waiting[query][position]
            return scores

    def put(self, query: Any, positions: Positions, scores: Floats) -> None:
        """Keep these scores."""
        text_hash(query)  # refuses what is not a text
        with self._lock:
            waiting = self._waiting.setdefault(query, {})
            before = len(waiting)
            waiting.update(zip(positions.tolist(), np.asarray(scores, np.float32).tolist(), strict=True))
            self._count += len(waiting) - before
            late = time.monotonic() - self._written > self.flush_seconds
            if self._count >= self.flush_pairs or late:
                self._flush()

    def flush(self) -> None:
        """Commit what is waiting."""
        with self._lock:
            self._flush()

    def _flush(self) -> None:
        if self._count:
            queries = list(self._waiting)
            counts = [len(pairs) for pairs in self._waiting.values()]
            columns = [position for pairs in self._waiting.values() for position in pairs]
            scores = [score for pairs in self._waiting.values() for score in pairs.values()]
            self.store.put_pairs(queries, self.items, np.repeat(np.arange(len(queries)), counts), columns, scores)
            for query in queries:
                self._rows.pop(text_hash(query), None)
        self._waiting, self._count, self._written = {}, 0, time.monotonic()

    def _known(self, query: bytes) -> tuple[Positions, Floats]:
        """Positions, ascending, and scores of what the store knows of a query."""
        if query not in self._rows:
            row = self.store.get(query, self.items)
            known = np.flatnonzero(~np.isnan(row))
            self._rows[query] = (known, row[known].astype(np.float64))
            if len(self._rows) > REMEMBERED:
                self._rows.popitem(last=False)
        self._rows.move_to_end(query)
        return self._rows[query]

    def __enter__(self) -> StoreCache:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.flush()
