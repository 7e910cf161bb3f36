"""Rounds over a clustered index, and over the items that were added since: few, and read whole."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import ClassVar

import numpy as np

from crosscut.ann.base import Ask, Everything, Found, TopK
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


class _TopK(Everything):
    exact = False

    def __init__(self, space: Segments) -> None:
        super().__init__(space.n)
        self.space = space
        self._first, self._more = Clustered(space.first), Flat(space.more)

    @property
    def d(self) -> int:
        return self.space.d

    def rows(self, handles: Handles) -> Floats:
        return self.space.rows(handles)

    def top(self, asks: Sequence[Ask]) -> list[Found]:
        start = self.space.first.n
        for ask in asks:
            ask.trail.ids = ask.trail.ids[ask.trail.ids < start]
        first = self._first.top([_cut(ask, 0, start) for ask in asks])
        more = self._more.top([_cut(ask, start, self.n) for ask in asks])
        return [
            self._best(ask, one.handles, two.handles + start) for ask, one, two in zip(asks, first, more, strict=True)
        ]

    def _best(self, ask: Ask, one: Handles, two: Handles) -> Found:
        handles = np.concatenate([one, two])
        scores = np.einsum("md,d->m", self.rows(handles), ask.vector)
        order = np.lexsort((handles, -scores))[: ask.count]
        return Found(handles[order], scores[order])


def _cut(ask: Ask, low: int, high: int) -> Ask:
    """The same question of the items from `low` to `high`, which are counted from 0."""
    exclude = ask.exclude[(ask.exclude >= low) & (ask.exclude < high)] - low
    within = ask.within
    if within is not None:
        within = within[np.searchsorted(within, low) : np.searchsorted(within, high)]
        within = within - low if low else within
    return replace(ask, exclude=exclude, within=within)
