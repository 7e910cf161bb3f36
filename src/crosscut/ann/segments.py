"""Rounds over a clustered index, and over the items that were added since: few, and read whole."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import ClassVar

import numpy as np

from crosscut.ann.base import Ask, Found, OfRows, TopK
from crosscut.ann.clustered import Clustered
from crosscut.ann.flat import Flat
from crosscut.ann.ivf import IVF
from crosscut.spaces.base import Slot, Space, Vectors
from crosscut.types import Array, Floats, Handles, Positions


class Segments(Space):
    """Items 0 … m − 1 in an `IVF`, those behind them as they are."""

    slot: ClassVar[Slot] = "encoder"
    of_queries: ClassVar[bool] = True

    def __init__(self, first: IVF, more: Array) -> None:
        self.first, self.more = first, Vectors(more)

    @property
    def n(self) -> int:
        return self.first.n + self.more.n

    @property
    def d(self) -> int:
        return self.first.d

    @property
    def topk(self) -> TopK:
        return _TopK(self)

    def rows(self, positions: Positions) -> Floats:
        places = np.asarray(positions, np.int64)
        behind = places >= self.first.n
        out = np.empty((len(places), self.d))
        out[~behind] = self.first.rows(places[~behind])
        out[behind] = self.more.rows(places[behind] - self.first.n)
        return out

    def predict(self, queries: Floats) -> Array:
        return np.concatenate([self.first.predict(queries), self.more.predict(queries)], axis=1)


class _TopK(OfRows):
    exact = False

    def __init__(self, space: Segments) -> None:
        super().__init__(space)
        self.space = space
        self._first, self._more = Clustered(space.first), Flat(space.more)
        self._parted: tuple[Handles, Handles, Handles] | None = None  # a filter, and its two parts

    def top(self, asks: Sequence[Ask]) -> list[Found]:
        start = self.space.first.n
        for ask in asks:
            ask.trail.ids = ask.trail.ids[ask.trail.ids < start]
        first, more = zip(*(self._cut(ask) for ask in asks), strict=True) if asks else ((), ())
        return [
            self._best(ask, one.handles, two.handles + start)
            for ask, one, two in zip(asks, self._first.top(first), self._more.top(more), strict=True)
        ]

    def _cut(self, ask: Ask) -> tuple[Ask, Ask]:
        """The same question of the items in lists, and of those behind them, which are counted from 0."""
        start = self.space.first.n
        behind = ask.exclude >= start
        within = ask.within
        parts: tuple[Handles, Handles] | tuple[None, None] = (None, None)
        if within is not None:
            if self._parted is None or self._parted[0] is not within:  # the rounds of a search ask with one filter
                place = int(np.searchsorted(within, start))
                self._parted = within, within[:place], within[place:] - start
            parts = self._parted[1:]
        first = replace(ask, exclude=ask.exclude[~behind], within=parts[0])
        return first, replace(ask, exclude=ask.exclude[behind] - start, within=parts[1])

    def _best(self, ask: Ask, one: Handles, two: Handles) -> Found:
        handles = np.concatenate([one, two])
        scores = np.einsum("md,d->m", self.rows(handles), ask.vector)
        order = np.lexsort((handles, -scores))[: ask.count]
        return Found(handles[order], scores[order])
