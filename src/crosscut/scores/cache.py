"""A score store as the cache of a search (`crosscut.scorers.meter.ScoreCache`): known pairs are free."""

from __future__ import annotations

import logging
import threading
import time
import weakref
from typing import TYPE_CHECKING, Any

import numpy as np

from crosscut.errors import StoreError
from crosscut.latest import Latest
from crosscut.linalg.arrays import looked_up
from crosscut.scores.keys import Contents, Keys, text_hash
from crosscut.storage import Since
from crosscut.types import Floats, Positions

if TYPE_CHECKING:
    from crosscut.scores.store import ScoreStore

logger = logging.getLogger("crosscut.scores")
REMEMBERED = 64


class StoreCache:
    """Scores of a store by query text and item position.

    What a search buys is known to this process at once and written in batches: when `flush_pairs` are waiting, when
    a score is put `flush_seconds` after the last write, by `flush` or at the end of a `with` block, and when the cache
    or the process comes to its end. Scores come back as the store keeps them, in float32.
    """

    def __init__(
        self,
        store: ScoreStore,
        items: Keys,
        *,
        flush_pairs: int = 4096,
        flush_seconds: float = 10.0,
        since: Since | None = None,
    ) -> None:
        self.store = store
        self.items = items
        self.flush_pairs = flush_pairs
        self.flush_seconds = flush_seconds
        self._rows: Latest[tuple[Positions, Floats]] = Latest(REMEMBERED)
        self._batch = Batch(store, items, since or store.since)
        self._refused = False
        self._written = time.monotonic()
        self._lock = threading.Lock()
        weakref.finalize(self, self._batch.write_or_warn)

    def over(self, items: Contents) -> StoreCache:
        """The same over other items, of which those that have been forgotten since this one was made are not kept."""
        self.flush()
        return StoreCache(
            self.store,
            Keys.of(items),
            flush_pairs=self.flush_pairs,
            flush_seconds=self.flush_seconds,
            since=self._batch.since,
        )

    def get(self, query: Any, positions: Positions) -> Floats:
        """The known scores, NaN where there is none."""
        with self._lock:
            name = text_hash(query)
            known, values = self._rows.get(name, lambda: self._known(name))
            positions = np.asarray(positions, np.int64)
            scores = looked_up(positions, known, values, np.nan)
            waiting = self._batch.scores.get(query)
            if waiting:
                for place, position in enumerate(positions.tolist()):
                    scores[place] = waiting.get(position, scores[place])
            return scores

    def put(self, query: Any, positions: Positions, scores: Floats) -> None:
        """Keep these scores; a disk that refuses them is a warning, because the search has them all the same."""
        text_hash(query)  # refuses what is not a text
        with self._lock:
            self._batch.add(query, positions, scores)
            late = time.monotonic() - self._written > self.flush_seconds
            if late or (self._batch.count >= self.flush_pairs and not self._refused):
                try:
                    self._flush()
                except StoreError as error:
                    logger.warning("%d scores of searches wait to be kept: %s", self._batch.count, error)
                    self._refused, self._written = True, time.monotonic()  # tried again after flush_seconds

    def flush(self) -> None:
        """Commit what is waiting."""
        with self._lock:
            self._flush()

    def _flush(self) -> None:
        queries = list(self._batch.scores)
        self._batch.write()
        for query in queries:
            self._rows.pop(text_hash(query))
        self._refused, self._written = False, time.monotonic()

    def _known(self, query: bytes) -> tuple[Positions, Floats]:
        """Positions, ascending, and scores of what the store knows of a query."""
        row = self.store.get(query, self.items)
        known = np.flatnonzero(~np.isnan(row))
        return known, row[known].astype(np.float64)

    def __enter__(self) -> StoreCache:
        return self

    def __exit__(self, *_: object) -> None:
        self.flush()


class Batch:
    """Scores that wait to be written: query → position → score."""

    def __init__(self, store: ScoreStore, items: Keys, since: Since | None) -> None:
        self.store = store
        self.items = items
        self.since = since
        self.scores: dict[str, dict[int, float]] = {}
        self.count = 0

    def add(self, query: str, positions: Positions, scores: Floats) -> None:
        waiting = self.scores.setdefault(query, {})
        before = len(waiting)
        waiting.update(zip(positions.tolist(), np.asarray(scores, np.float32).tolist(), strict=True))
        self.count += len(waiting) - before

    def write(self) -> None:
        """Commit as one block; what cannot be written goes on waiting."""
        if self.count:
            rows = np.repeat(np.arange(len(self.scores)), [len(pairs) for pairs in self.scores.values()])
            columns = [position for pairs in self.scores.values() for position in pairs]
            scores = [score for pairs in self.scores.values() for score in pairs.values()]
            self.store.put_pairs(list(self.scores), self.items, rows, columns, scores, since=self.since)
        self.scores, self.count = {}, 0

    def write_or_warn(self) -> None:
        """At the end, when nobody is left to be told."""
        try:
            self.write()
        except StoreError as error:
            logger.warning("%d scores of a search were not kept: %s", self.count, error)
