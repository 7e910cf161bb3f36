"""Rounds over a clustered index, and over the items that were added since.

Once there are some thousands of those, they stand in lists of their own; the latest are few, and read whole.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import ClassVar

import numpy as np

from crosscut.ann.baseline import NOTHING
from crosscut.ann.clustered import Clustered
from crosscut.ann.flat import Flat, rerank
from crosscut.ann.ivf import IVF
from crosscut.ann.topk import Ask, Found, OfRows, TopK
from crosscut.spaces.base import Slot, Space, Vectors
from crosscut.spaces.home import Home
from crosscut.types import Array, Floats, Handles, Positions


class Segments(Space):
    """Items 0 … m − 1 in an `IVF`, the next in another (`behind`), the last as they are."""

    slot: ClassVar[Slot] = "encoder"
    of_queries: ClassVar[bool] = True

    def __init__(self, first: IVF, more: Array, behind: IVF | None = None) -> None:
        self.first, self.behind = first, behind
        last = Vectors(more if behind is None else more[behind.n :])
        self.parts: tuple[Space, ...] = (first, last) if behind is None else (first, behind, last)
        self.starts = np.cumsum([0, *(part.n for part in self.parts)])

    @property
    def n(self) -> int:
        return int(self.starts[-1])

    @property
    def d(self) -> int:
        return self.first.d

    @property
    def topk(self) -> TopK:
        return _TopK(self)

    @property
    def lasting(self) -> IVF:
        return self.first

    @property
    def home(self) -> Home | None:
        lists = self.first.home
        if lists is None or self.behind is None:
            return lists
        starts = np.append(lists.starts, self.behind.starts[1:] + lists.listed)
        return replace(lists, starts=starts, order=np.append(lists.order, self.behind.ids + self.first.n))

    def rows(self, positions: Positions) -> Floats:
        places = np.asarray(positions, np.int64)
        out = np.empty((len(places), self.d))
        for part, chosen, here in self._shared(places):
            out[chosen] = part.rows(here)
        return out

    def at(self, positions: Positions, vector: Floats) -> Array:
        places = np.asarray(positions, np.int64)
        out = np.empty(len(places), np.float32)
        for part, chosen, here in self._shared(places):
            out[chosen] = part.at(here, vector)
        return out

    def _shared(self, places: Positions) -> list[tuple[Space, Positions, Positions]]:
        """Which of some places are in which part, and where."""
        of = np.searchsorted(self.starts[1:], places, side="right")
        told = []
        for j, part in enumerate(self.parts):
            chosen = np.flatnonzero(of == j)
            if len(chosen):
                told.append((part, chosen, places[chosen] - self.starts[j]))
        return told

    def predict(self, queries: Floats) -> Array:
        return np.concatenate([part.predict(queries) for part in self.parts], axis=1)


class _TopK(OfRows):
    exact = False

    def __init__(self, space: Segments) -> None:
        super().__init__(space)
        self.space = space
        self._parts: list[TopK] = [Clustered(part) if isinstance(part, IVF) else Flat(part) for part in space.parts]
        self._parted: tuple[Handles, list[Handles]] | None = None  # a filter, and its parts

    def top(self, asks: Sequence[Ask]) -> list[Found]:
        found = []
        for number, part in enumerate(self._parts):
            start = int(self.space.starts[number])
            answers = part.top([self._cut(ask, number) for ask in asks])
            found.append([answer.handles + start for answer in answers])
        return [
            rerank(self.space, ask.vector, np.concatenate(handles), NOTHING, ask.count)
            for ask, *handles in zip(asks, *found, strict=True)
        ]

    def _cut(self, ask: Ask, number: int) -> Ask:
        """The same question of the items of one part, which are counted from 0."""
        low, high = self.space.starts[number : number + 2].tolist()

        def own(handles: Handles) -> Handles:
            return np.asarray(handles[(handles >= low) & (handles < high)] - low)

        allowed = None
        if ask.allowed is not None:
            if self._parted is None or self._parted[0] is not ask.allowed:  # the rounds of a search ask with one filter
                edges = np.searchsorted(ask.allowed, self.space.starts).tolist()
                pieces = zip(edges, edges[1:], self.space.starts, strict=False)
                parts = [ask.allowed[one:two] - start if start else ask.allowed[:two] for one, two, start in pieces]
                self._parted = ask.allowed, parts  # the first, the large one, is no copy
            allowed = self._parted[1][number]
        return replace(ask, exclude=own(ask.exclude), allowed=allowed, start=own(ask.start))
