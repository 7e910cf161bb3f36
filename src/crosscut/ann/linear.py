"""An index over part of what a space predicts with.

A round wants the best few of base + V u. Coordinates that are the same for every item (`Constant`) do not change their
order; a base per item may be one more coordinate, whose weight in the query is 1. What is left is one inner product
with the vectors of an index or a store. The few it finds are predicted again in float64, as in a flat round; where a
baseline orders them, more are asked for, and the items of highest baseline join.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from crosscut.ann import clustered
from crosscut.ann.baseline import JOIN, NOTHING, Baseline
from crosscut.ann.clustered import Clustered
from crosscut.ann.flat import Flat, rerank
from crosscut.ann.ivf import IVF
from crosscut.ann.ivf.rules import Rule
from crosscut.ann.lists import Lists
from crosscut.ann.topk import Allowed, Ask, Found, TopK
from crosscut.linalg.arrays import without
from crosscut.linalg.top import slack_for
from crosscut.spaces.base import Space
from crosscut.types import NO_HANDLES, Floats, Handles, Positions


@dataclass(frozen=True)
class Projected:
    """`inner`, asked for the top of a space that it holds part of.

    `columns` are the coordinates of u that the index holds (a slice, where they stand side by side), `weights` what
    they are multiplied with, `level` the weight of the index's last coordinate, an item's base (0: it holds none).
    """

    inner: TopK
    space: Space
    columns: Positions | slice
    weights: Floats | float
    level: float = 0.0

    precise: ClassVar[bool] = True
    spread: ClassVar[None] = None

    @property
    def d(self) -> int:
        return self.space.d

    @property
    def exact(self) -> bool:
        return self.inner.exact

    def count(self, allowed: Allowed = None) -> int | None:
        return self.inner.count(allowed)

    def sample(
        self, count: int, rng: np.random.Generator, exclude: Handles = NO_HANDLES, allowed: Allowed = None
    ) -> Handles:
        return self.inner.sample(count, rng, exclude, allowed)

    def rows(self, handles: Handles) -> Floats:
        return self.space.rows(handles)

    def top(self, asks: Sequence[Ask]) -> list[Found]:
        found = self.inner.top([self._asked(ask) for ask in asks])
        return [self._again(ask, one.handles) for ask, one in zip(asks, found, strict=True)]

    def _asked(self, ask: Ask) -> Ask:
        held = ask.vector[self.columns] * self.weights + ask.base.direction
        count = ask.base.wider * ask.count + (0 if self.inner.precise else slack_for(ask.count))
        vector = held if len(held) == self.inner.d else np.append(held, self.level)
        return replace(ask, vector=vector, count=count, base=NOTHING)

    def _again(self, ask: Ask, pool: Handles) -> Found:
        """Return the best of a pool, and of the items of highest baseline, in float64."""
        most = ask.base.tops(max(JOIN, len(pool)), ask.exclude, ask.allowed)
        found = rerank(self.space, ask.vector, np.union1d(pool, most) if len(most) else pool, ask.base, ask.count)
        return found._replace(rest=np.sort(without(pool, found.handles)))


@dataclass(frozen=True)
class OneBlock(Projected):
    """An index or store that is `precise`, of the only coordinates in which items differ: no second look is taken.

    `same` are coordinates that all items have in common, and their values.
    """

    same: tuple[tuple[int, float], ...] = ()

    def top(self, asks: Sequence[Ask]) -> list[Found]:
        if any(ask.base.wider > 1 or isinstance(ask.base.everywhere(), np.ndarray) for ask in asks):
            return super().top(asks)
        answers = []
        for ask, found in zip(asks, self.inner.top([self._asked(ask) for ask in asks]), strict=True):
            level = sum((value * ask.vector.item(place) for place, value in self.same), start=ask.base.everywhere())
            answers.append(Found(found.handles, found.expected + level))
        return answers


def topk_of(space: Space, base: Baseline = NOTHING) -> TopK:
    """Return what finds the top of a space: the index that one of its blocks brings along; of many items, the lists
    they lie in; otherwise a pass over every item. `base` is what all queries have in common."""
    moving = [block for block in space.blocks if not block.space.constant]
    held = moving[0].space.topk if len(moving) == 1 else None
    if held is not None:
        _, weight, columns = moving[0]
        if not held.precise:
            return Projected(held, space, columns, weight)
        same = [one for part, row in space.alike for one in enumerate(row[0].tolist(), part.start)]
        return OneBlock(held, space, columns, weight, same=tuple(same))
    if space.home is not None and space.readable and space.n >= clustered.SMALL:
        return Lists(space, base, space.home)
    return Flat(space)


class Clustering:
    """An index over the space that is searched, as it stands, whatever its blocks, in float16: n × d numbers more.

    Called as `topk_of`. A space that the index holds as one of its blocks (the encoder's, for round one) is searched by
    the same index.
    """

    def __init__(self, lists: int | None = None, rule: Rule | int | None = None, seed: int = 0) -> None:
        self._settings: dict[str, Any] = {"lists": lists, "rule": rule, "seed": seed}
        self._index: Projected | None = None

    def __call__(self, space: Space, base: Baseline = NOTHING) -> TopK:
        if self._index is None:
            self._index = self._built(space, base)
            return self._index
        return self._block(self._index, space) or topk_of(space, base)

    def _built(self, space: Space, base: Baseline) -> Projected:
        parts = [block.part for block in space.blocks if not block.space.constant]
        columns = np.concatenate([np.arange(part.start, part.stop) for part in parts])
        based = isinstance(base.everywhere(), np.ndarray)
        rows: npt.NDArray[np.float16] = np.empty((space.n, len(columns) + based), dtype=np.float16)
        for start in range(0, space.n, 1 << 14):
            places = np.arange(start, min(start + (1 << 14), space.n))
            rows[places, : len(columns)] = space.rows(places)[:, columns]
            if based:
                rows[places, -1] = base.at(places)
        index = Clustered(IVF.build(rows, **self._settings))
        return Projected(index, space, columns, np.ones(len(columns)), 1.0 if based else 0.0)

    def _block(self, found: Projected, wanted: Space) -> Projected | None:
        assert isinstance(found.columns, np.ndarray)
        for space, weight, part in found.space.blocks:
            if space is wanted and weight:
                inside = (found.columns >= part.start) & (found.columns < part.stop)
                columns = np.where(inside, found.columns - part.start, 0)
                return Projected(found.inner, wanted, columns, np.where(inside, found.weights / weight, 0.0))
        return None
