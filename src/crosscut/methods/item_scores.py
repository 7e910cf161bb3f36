"""`fixed-item` and `item-cur`: items described by their scores with anchor items (ANNCUR §3.4)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from crosscut.methods.anncur import HALF, WithSplit, shuffled, two_rounds
from crosscut.methods.base import Parts, register
from crosscut.retrievers.first import FixedOrder
from crosscut.search.estimators import OwnScores
from crosscut.search.loop import Plan
from crosscut.search.stopping import Schedule


@register
@dataclass(frozen=True, repr=False)
class FixedItem(WithSplit):
    """FIXEDITEM: query and items are their scores with the same anchor items."""

    name: ClassVar[str] = "fixed-item"
    needs: ClassVar[tuple[str, ...]] = ("item_scores",)
    tried: ClassVar[bool] = False

    def plan(self, parts: Parts) -> Plan:
        assert parts.item_scores is not None
        anchors = parts.item_scores.anchors
        schedule = Schedule(2, first=self.split or HALF)
        return Plan(parts.pool, FixedOrder(anchors), schedule, parts.item_scores, OwnScores(anchors))


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
