"""A score store as the cache of searches (`crosscut.scorers.meter.ScoreCache`): known pairs are free."""

from __future__ import annotations

import logging
import time
import weakref
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from crosscut.errors import CrosscutError
from crosscut.latest import Latest
from crosscut.score_store.keys import Contents, Keys, text_hash
from crosscut.threads import ForkLock
from crosscut.types import Floats, Positions

if TYPE_CHECKING:
    from crosscut.score_store.store import Known, ScoreStore

LOGGER = logging.getLogger("crosscut.score_store")
REMEMBERED = 64
PATIENCE = 1.0
"""Seconds that a search waits for a store that another process has locked, at most; then the pair is not known."""


class StoreCache:
    """Scores of a store by query text and item position.

    New scores are known to this process at once and written in batches: when `flush_pairs` are waiting, when a score is
    put `flush_seconds` after the last write, by `flush` or at the end of a `with` block, and when the cache or the
    process comes to its end. Scores come back as the store has them, in float32; one that float32 cannot hold is not
    stored. A store that fails or is locked is a warning, never an error of the search. Once items were forgotten,
    nothing more is written: this process may know them still.
    """

    def __init__(
        self,
        store: ScoreStore,
        items: Keys,
        *,
        flush_pairs: int = 4096,
        flush_seconds: float = 10.0,
        epoch: int | None = None,
    ) -> None:
        self.store, self.items = store, items
        self.flush_pairs, self.flush_seconds = flush_pairs, flush_seconds
        self._rows: Latest[list[Known]] = Latest(REMEMBERED)
        self._waiting = Waiting(store, store.epoch if epoch is None else epoch)
        self._warned: set[str] = set()
        self._retry = 0.0  # when a store that failed is asked again
        self._written = time.monotonic()
        self._lock = ForkLock()
        weakref.finalize(self, self._waiting.write_or_warn)

    def over(self, items: Contents, *, forgotten: bool = False) -> StoreCache:
        """Return the same over other items; after this process itself has `forgotten` some, which it has no more."""
        with self._lock:
            self._try_flush(PATIENCE)
        size, seconds, epoch = self.flush_pairs, self.flush_seconds, self._waiting.epoch + forgotten
        return StoreCache(self.store, Keys.of(items), flush_pairs=size, flush_seconds=seconds, epoch=epoch)

    def within(self, seconds: float) -> TimedCache:
        """Return the same for a search with a deadline, of which it waits a quarter for a locked store at most."""
        return TimedCache(self, min(seconds / 4, PATIENCE))

    def get(self, query: Any, positions: Positions, *, wait: float = PATIENCE) -> Floats:
        """Return the known scores, NaN where there is none."""
        name = text_hash(query)
        positions = np.asarray(positions, np.int64)
        scores = np.full(len(positions), np.nan)
        with self._lock:
            rows = self._known(name, wait)
            waiting = self._waiting.scores.get(name)
            if not rows and not waiting:
                return scores
            names = self.items.at(positions)
            for row in rows:
                stored = self.store.scores_at(row, names)
                scores = np.where(np.isnan(stored), scores, stored)
            for place, item in enumerate(names if waiting else ()):
                scores[place] = waiting.get(item, scores[place]) if waiting else np.nan
            return scores

    def _known(self, name: bytes, wait: float) -> list[Known]:
        if time.monotonic() < self._retry:
            return []
        try:
            return self._rows.get(name, lambda: self.store.known(name, wait=wait))
        except CrosscutError as error:
            self._retry = time.monotonic() + self.flush_seconds
            self._warn(f"stored scores are not used: {error}")
            return []

    def put(self, query: Any, positions: Positions, scores: Floats, *, wait: float = PATIENCE) -> None:
        """Store these scores; a disk that refuses them is a warning, because the search has them all the same."""
        name = text_hash(query)
        with np.errstate(over="ignore"):
            values = np.asarray(scores, np.float32)
        if not (fine := np.isfinite(values)).all():
            self._warn("scores that float32 cannot hold are used as they are, and not stored")
            positions, values = positions[fine], values[fine]
        with self._lock:
            if self._waiting.stale:
                return
            self._waiting.add(name, self.items.at(positions), values)
            now = time.monotonic()
            late = now - self._written > self.flush_seconds
            if late or (self._waiting.count >= self.flush_pairs and now >= self._retry):
                self._try_flush(wait)

    def flush(self) -> None:
        """Commit what is waiting."""
        with self._lock:
            self._flush(PATIENCE)

    def _try_flush(self, wait: float) -> None:
        try:
            self._flush(wait)
        except CrosscutError as error:
            self._retry = self._written = time.monotonic() + self.flush_seconds
            LOGGER.warning("%d scores of searches wait to be stored: %s", self._waiting.count, error)

    def _flush(self, wait: float) -> None:
        names = list(self._waiting.scores)
        self._waiting.write(wait)
        for name in names:
            self._rows.pop(name)
        self._retry, self._written = 0.0, time.monotonic()

    def _warn(self, text: str) -> None:
        if text not in self._warned:
            self._warned.add(text)
            LOGGER.warning("%s", text)

    def __enter__(self) -> StoreCache:
        return self

    def __exit__(self, *_: object) -> None:
        self.flush()


class TimedCache:
    """A cache that waits at most so many seconds for its store."""

    def __init__(self, cache: StoreCache, wait: float) -> None:
        self.cache, self.wait = cache, wait

    def get(self, query: Any, positions: Positions) -> Floats:
        return self.cache.get(query, positions, wait=self.wait)

    def put(self, query: Any, positions: Positions, scores: Floats) -> None:
        self.cache.put(query, positions, scores, wait=self.wait)


class Waiting:
    """Scores that wait to be written: query → item → score, by their hashes."""

    def __init__(self, store: ScoreStore, epoch: int) -> None:
        self.store, self.epoch = store, epoch
        self.scores: dict[bytes, dict[bytes, float]] = {}
        self.count = 0
        self.stale = False

    def add(self, query: bytes, items: list[bytes], scores: npt.NDArray[np.float32]) -> None:
        waiting = self.scores.setdefault(query, {})
        before = len(waiting)
        waiting.update(zip(items, scores.tolist(), strict=True))
        self.count += len(waiting) - before

    def write(self, wait: float = PATIENCE) -> None:
        """Commit in one transaction; what cannot be written goes on waiting."""
        from crosscut.score_store.store import Block

        if self.count:
            blocks = [
                Block(query, np.fromiter(found.values(), np.float32, len(found)), hashes=b"".join(found))
                for query, found in self.scores.items()
            ]
            if not self.store.write(blocks, epoch=self.epoch, wait=wait):
                self.stale = True
                LOGGER.warning(
                    "items were forgotten in %r after this process had read them: its scores are not stored any more; "
                    "load the index again",
                    str(self.store.path),
                )
        self.scores, self.count = {}, 0

    def write_or_warn(self) -> None:
        """Write at the end, when no caller is left."""
        try:
            self.write()
        except CrosscutError as error:
            LOGGER.warning("%d scores of a search were not stored: %s", self.count, error)
