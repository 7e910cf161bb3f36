"""An index over part of what a space predicts with.

A round wants the best few of base + V u. Coordinates that are the same for every item (`Constant`) do not change their
order; a base per item is one more coordinate, whose weight in the query is 1. What is left is one inner product with
the vectors of an index or a store. The few it finds are predicted again in float64, as in a flat round. Where only some
items have a base of their own (`Residuals`), it is asked for more of them, and those whose base is highest join.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from crosscut.ann import clustered
from crosscut.ann.base import Ask, Found, TopK, Within
from crosscut.ann.clustered import Clustered
from crosscut.ann.flat import Base, Flat, masked, rerank
from crosscut.ann.ivf import IVF
from crosscut.ann.ivf.rules import Rule
from crosscut.ann.known import WIDER, KnownOfCandidates
from crosscut.ann.lists import Lists
from crosscut.linalg.arrays import looked_up, without
from crosscut.linalg.top import ranked, slack_for
from crosscut.spaces.base import Space
from crosscut.types import NO_HANDLES, Floats, Handles, Positions

JOIN = 256  # items of which most is known that join what an index finds
RESIDUALS = 4  # times as many are asked for where residuals order them


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
    base: Base = 0.0
    level: float = 0.0

    precise: ClassVar[bool] = True
    spread: ClassVar[None] = None

    @property
    def d(self) -> int:
        return self.space.d

    @property
    def exact(self) -> bool:
        return self.inner.exact

    def count(self, within: Within = None) -> int | None:
        return self.inner.count(within)

    def sample(
        self, count: int, rng: np.random.Generator, exclude: Handles = NO_HANDLES, within: Within = None
    ) -> Handles:
        return self.inner.sample(count, rng, exclude, within)

    def rows(self, handles: Handles) -> Floats:
        return self.space.rows(handles)

    def top(self, asks: Sequence[Ask]) -> list[Found]:
        wider = [self._wider(ask, self._times(ask) * ask.count + self._more(ask)) for ask in asks]
        answers = []
        for ask, found in zip(asks, self.inner.top(wider), strict=True):
            answer = self._again(ask, found.handles)
            ask.trail.ids = np.sort(without(found.handles, answer.handles))
            answers.append(answer)
        return answers

    def _times(self, ask: Ask) -> int:
        if isinstance(ask.known, KnownOfCandidates):
            return WIDER
        return 1 if isinstance(self.base, np.ndarray | int | float) else RESIDUALS

    def _more(self, ask: Ask) -> int:
        return 0 if self.inner.precise else slack_for(ask.count)

    def _wider(self, ask: Ask, count: int) -> Ask:
        held = ask.vector[self.columns] * self.weights
        if isinstance(ask.known, KnownOfCandidates):
            held += ask.known.direction
        asked = held if len(held) == self.inner.d else np.append(held, self.level)
        return Ask(asked, count, ask.exclude, ask.within, ask.trail)

    def _again(self, ask: Ask, pool: Handles) -> Found:
        """The best of a pool in float64. What is known of single items, or for one query alone, is not linear in the
        vectors: it orders the pool, and the items of which most is known join it."""
        if isinstance(ask.known, np.ndarray):
            most = ranked(masked(ask.known.copy(), ask.exclude, ask.within), max(JOIN, len(pool)))
            pool = np.union1d(pool, most)
        if not isinstance(self.base, np.ndarray | int | float):
            pool = np.union1d(pool, self.base.highest(ask.exclude, ask.within))
        return rerank(self.space, ask.vector, pool, self.base, ask.count, ask.known)


@dataclass(frozen=True)
class OneBlock(Projected):
    """An index or store that is `precise`, of the only coordinates in which items differ: no second look is taken.

    `alike` are the other coordinates, each with the value that all items have there.
    """

    base: float = 0.0
    alike: tuple[tuple[int, float], ...] = ()

    def top(self, asks: Sequence[Ask]) -> list[Found]:
        if any(ask.known is not None for ask in asks):
            return super().top(asks)
        answers = []
        for ask, found in zip(asks, self.inner.top([self._wider(ask, ask.count) for ask in asks]), strict=True):
            same = sum((value * ask.vector.item(place) for place, value in self.alike), start=self.base)
            answers.append(Found(found.handles, found.scores + same))
        return answers


class SeenItems:
    """Residuals of some of the items 0 … n − 1, in rising order."""

    def __init__(self, seen: Handles, values: Floats) -> None:
        self.seen, self.values = seen, values
        self._order = seen[np.argsort(-values, kind="stable")]

    def __getitem__(self, handles: Handles) -> Floats:
        return looked_up(handles, self.seen, self.values)

    def highest(self, exclude: Handles, within: Within) -> Handles:
        some = self._order[: JOIN + len(exclude)]
        some = without(some, exclude)
        return some if within is None else some[np.isin(some, within)]


def topk_of(space: Space, base: Base = 0.0) -> TopK:
    """How the top of a space is found: by the index that one of its blocks brings along; of many items, by the lists
    they lie in; otherwise by reading every item."""
    moving = [block for block in space.blocks if not block.space.constant]
    own = moving[0].space.topk if len(moving) == 1 and not isinstance(base, np.ndarray) else None
    if own is not None:
        _, weight, columns = moving[0]
        if not (own.precise and isinstance(base, int | float)):
            return Projected(own, space, columns, weight, base)
        alike = [one for part, row in space.alike for one in enumerate(row[0].tolist(), part.start)]
        return OneBlock(own, space, columns, weight, float(base), alike=tuple(alike))
    if space.home is not None and space.readable and space.n >= clustered.SMALL:
        assert isinstance(base, np.ndarray | int | float)  # residuals are for what an index or a store finds
        return Lists(space, base, space.home)
    return Flat(space, base)


def cluster(
    space: Space, base: Base = 0.0, *, lists: int | None = None, rule: Rule | int | None = None, seed: int = 0
) -> Projected:
    """An index over a space as it stands, whatever its blocks, in float16: n × d numbers more."""
    parts = [block.part for block in space.blocks if not block.space.constant]
    columns = np.concatenate([np.arange(part.start, part.stop) for part in parts])
    based = isinstance(base, np.ndarray)
    rows: npt.NDArray[np.float16] = np.empty((space.n, len(columns) + based), dtype=np.float16)
    for start in range(0, space.n, 1 << 14):
        places = np.arange(start, min(start + (1 << 14), space.n))
        rows[places, : len(columns)] = space.rows(places)[:, columns]
        if isinstance(base, np.ndarray):
            rows[places, -1] = base[places]
    index = Clustered(IVF.build(rows, lists=lists, rule=rule, seed=seed))
    return Projected(index, space, columns, np.ones(len(columns)), base, 1.0 if based else 0.0)


def block_of(found: Projected, block: Space) -> Projected | None:
    """The same index asked for one block of its coordinates alone, if it holds it: the encoder's, for round one."""
    assert isinstance(found.columns, np.ndarray)
    for own, weight, part in found.space.blocks:
        if own is block and weight:
            inside = (found.columns >= part.start) & (found.columns < part.stop)
            columns = np.where(inside, found.columns - part.start, 0)
            return Projected(found.inner, block, columns, np.where(inside, found.weights / weight, 0.0))
    return None
