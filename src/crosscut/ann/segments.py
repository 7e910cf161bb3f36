"""Rounds over the segments of an index: by lists where they have some, read whole where they have none."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from typing import ClassVar

import numpy as np

from crosscut.ann.baseline import NOTHING
from crosscut.ann.clustered import Clustered
from crosscut.ann.flat import Flat, rerank
from crosscut.ann.ivf import IVF
from crosscut.ann.topk import Ask, Found, OfRows, TopK
from crosscut.spaces.base import Slot, Space
from crosscut.spaces.home import Home
from crosscut.spaces.rows import Rows
from crosscut.types import Array, Floats, Handles, Positions


class Segmented(Space):
    """The vectors of several segments: `IVF`s that share their centroids, or plain `Vectors`."""

    slot: ClassVar[Slot] = "encoder"
    of_queries: ClassVar[bool] = True

    def __init__(self, segments: Sequence[Space]) -> None:
        self.segments = tuple(segments)
        self._rows = Rows([Predicted(segment) for segment in segments])

    @property
    def n(self) -> int:
        return len(self._rows)

    @property
    def d(self) -> int:
        return self.segments[0].d

    @property
    def topk(self) -> TopK:
        return _TopK(self)

    @property
    def lasting(self) -> Space | None:
        return self.segments[0].lasting

    @cached_property
    def home(self) -> Home | None:
        """The lists of all segments as one."""
        listed = [segment for segment in self.segments if isinstance(segment, IVF)]
        if not listed:
            return None
        parts = []
        for segment in self.segments:
            list_of = np.full(segment.n, -1, np.int32)
            if isinstance(segment, IVF):
                list_of[segment.ids] = np.repeat(np.arange(segment.most, dtype=np.int32), np.diff(segment.starts))
            parts.append(list_of)
        return Home.of(np.concatenate(parts), listed[0].most)

    @property
    def starts(self) -> Positions:
        """(segments + 1) the position at which each begins."""
        return self._rows.starts

    def rows(self, positions: Positions) -> Floats:
        return self._rows[positions]

    def at(self, positions: Positions, vector: Floats) -> Array:
        places = np.asarray(positions, np.int64)
        out = np.empty(len(places), np.float32)
        for segment, chosen, here in self._rows.split(places):
            out[chosen] = self.segments[segment].at(here, vector)
        return out

    def predict(self, queries: Floats) -> Array:
        return np.concatenate([segment.predict(queries) for segment in self.segments], axis=1)


class Predicted:
    """The rows of a space, as a block of `Rows`."""

    dtype = np.dtype(np.float64)

    def __init__(self, space: Space) -> None:
        self._space = space

    @property
    def shape(self) -> tuple[int, ...]:
        return self._space.n, self._space.d

    def __len__(self) -> int:
        return self._space.n

    def __getitem__(self, places: Positions) -> Array:
        return self._space.rows(places)


class _TopK(OfRows):
    exact = False

    def __init__(self, space: Segmented) -> None:
        super().__init__(space)
        self.space = space
        self._topks: list[TopK] = [Clustered(one) if isinstance(one, IVF) else Flat(one) for one in space.segments]
        self._filters: tuple[Handles, list[Handles]] | None = None  # the last filter, cut by segments

    def top(self, asks: Sequence[Ask]) -> list[Found]:
        found = []
        for number, topk in enumerate(self._topks):
            answers = topk.top([self._cut(ask, number) for ask in asks])
            found.append([answer.handles + self.space.starts[number] for answer in answers])
        return [
            rerank(self.space, ask.vector, np.sort(np.concatenate(handles)), NOTHING, ask.count)
            for ask, *handles in zip(asks, *found, strict=True)
        ]

    def _cut(self, ask: Ask, number: int) -> Ask:
        """The same question of one segment, whose items are counted from 0."""
        low, high = self.space.starts[number : number + 2].tolist()

        def own(handles: Handles) -> Handles:
            return np.asarray(handles[(handles >= low) & (handles < high)] - low)

        allowed = None
        if ask.allowed is not None:
            if self._filters is None or self._filters[0] is not ask.allowed:  # rounds of a search have one filter
                edges = np.searchsorted(ask.allowed, self.space.starts).tolist()
                pieces = zip(edges, edges[1:], self.space.starts, strict=False)
                self._filters = ask.allowed, [ask.allowed[one:two] - start for one, two, start in pieces]
            allowed = self._filters[1][number]
        return replace(ask, exclude=own(ask.exclude), allowed=allowed, start=own(ask.start))
