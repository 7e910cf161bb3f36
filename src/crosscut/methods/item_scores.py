"""`fixed-item` and `item-cur`: items described by their scores with anchor items (ANNCUR §3.4)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from crosscut.ann.baseline import NOTHING
from crosscut.methods.anncur import HALF, WithSplit, shuffled, two_rounds
from crosscut.methods.base import Parts, register
from crosscut.search.fits import Fit
from crosscut.search.loop import Plan
from crosscut.search.pickers import Linear
from crosscut.search.stages import FirstRound, Fixed
from crosscut.search.stopping import Schedule
from crosscut.types import Floats, Positions


@register
@dataclass(frozen=True, repr=False)
class FixedItem(WithSplit):
    """FIXEDITEM: query and items are their scores with the same anchor items."""

    name: ClassVar[str] = "fixed-item"
    needs: ClassVar[tuple[str, ...]] = ("item_scores",)
    tried: ClassVar[bool] = False

    def plan(self, parts: Parts) -> Plan:
        space = parts.item_scores
        assert space is not None
        first = FirstRound(Fixed(space.anchors), parts.pool)
        then = Linear(space, parts.topk(space, NOTHING), lambda query, d: OwnScores(space.anchors))
        return Plan(first, Schedule(2, first=self.split or HALF), then)


class OwnScores(Fit):
    """FIXEDITEM: the query's scores with the anchor items are its vector."""

    def __init__(self, anchors: Positions) -> None:
        self._coordinate = {int(position): j for j, position in enumerate(anchors)}
        self._u = np.zeros(len(anchors))

    def add(self, handles: Positions, rows: Floats, targets: Floats) -> None:
        for position, target in zip(handles.tolist(), targets.tolist(), strict=True):
            if position in self._coordinate:
                self._u[self._coordinate[position]] = target

    def solve(self) -> Floats:
        return self._u


@register
@dataclass(frozen=True, repr=False)
class ItemCUR(WithSplit):
    """ITEMCUR: CUR of item–item scores; the query is scored with a different set of items."""

    name: ClassVar[str] = "item-cur"
    needs: ClassVar[tuple[str, ...]] = ("item_scores",)
    tried: ClassVar[bool] = False

    rcond: float | None = None

    def plan(self, parts: Parts) -> Plan:
        assert parts.item_scores is not None
        order = shuffled(parts)
        order = order[~np.isin(order, parts.item_scores.anchors)]
        return two_rounds(parts, parts.item_scores, order, self.split or HALF, self.rcond)
