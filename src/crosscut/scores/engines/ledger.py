"""Where bought scores are written down, and looked up before anything is bought: a score store, or memory."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from crosscut.scorers.caching import ScoreCache
from crosscut.scores.engines.tasks import Scored
from crosscut.scores.keys import Contents, Keys
from crosscut.scores.records import Damage
from crosscut.scores.store import ScoreStore
from crosscut.types import Array, Positions


class Ledger(Protocol):
    """Scores by the row of a query and the positions of items."""

    @property
    def folder(self) -> Path | None:
        """The folder of a store that workers can write to by themselves."""

    @property
    def damaged(self) -> list[Damage]:
        """What was found damaged and counts as unknown."""

    def known(self, row: int, positions: Positions) -> Array:
        """The known scores, NaN where there is none."""

    def record(self, scored: Scored) -> None:
        """Write down what a task brought; as one act, durable if the ledger is."""

    def refresh(self) -> None:
        """See what others have written meanwhile."""

    def set_aside_damaged(self) -> object:
        """Move what is damaged out of the way, so that it is reported once."""


class StoreLedger:
    """A score store, open for these queries and items."""

    def __init__(self, store: ScoreStore, queries: Contents, items: Contents) -> None:
        self.store, self.queries, self.items = store, Keys.of(queries), Keys.of(items)
        self.folder = store.path
        self.refresh, self.set_aside_damaged = store.refresh, store.set_aside_damaged

    @property
    def damaged(self) -> list[Damage]:
        return list(self.store.damaged)

    def known(self, row: int, positions: Positions) -> Array:
        return self.store.get(self.queries.names[row], self.items, positions)

    def record(self, scored: Scored) -> None:
        task = scored.task
        if isinstance(task.columns, range) and scored.error is None:
            asked = Keys("", len(task.rows), hashes=self.queries.hashes[list(task.rows)])
            block = np.stack(scored.scores)
            self.store.put_block(asked, self.items, block, start=task.columns.start, seconds=scored.seconds)
            return
        rows = np.repeat(np.asarray(task.rows, np.int64), [len(positions) for positions in scored.positions])
        columns, scores = np.concatenate(scored.positions), np.concatenate(scored.scores)
        self.store.put_pairs(self.queries, self.items, rows, columns, scores, seconds=scored.seconds)


class MemoryLedger:
    """Memory for the pairs that are wanted; what a cache knows of them is taken from it, the rest is put there too."""

    def __init__(
        self,
        queries: Sequence[Any],
        wanted: Sequence[tuple[int, Positions]],
        dtype: npt.DTypeLike,
        cache: ScoreCache | None = None,
    ) -> None:
        self.folder: Path | None = None
        self.damaged: list[Damage] = []
        self._queries, self._cache = queries, cache
        self._lock = threading.Lock()
        self._rows = {row: (positions, np.full(len(positions), np.nan, dtype)) for row, positions in wanted}
        if cache is not None:
            for row, (positions, scores) in self._rows.items():
                scores[:] = cache.get(queries[row], positions)

    def known(self, row: int, positions: Positions) -> Array:
        held, scores = self._rows[row]
        return scores if positions is held else scores[np.searchsorted(held, positions)]

    def record(self, scored: Scored) -> None:
        with self._lock:
            for row, positions, values in zip(scored.task.rows, scored.positions, scored.scores, strict=False):
                held, scores = self._rows[row]
                scores[np.searchsorted(held, positions)] = values
                if self._cache is not None and len(positions):
                    self._cache.put(self._queries[row], positions, values)

    def refresh(self) -> None:
        """Nobody else writes here."""

    def set_aside_damaged(self) -> None:
        """Memory is whole."""
