"""`fixed-item` and `item-cur`: items described by the scorer's own scores with anchor *items* (ANNCUR §3.4).

    S (k_ind × n)   row j: the score of anchor item j, taken as a query, with every item
    V = Sᵀ (n × k_ind)

FIXEDITEM embeds the query the same way, by its scores with the same anchor items, and multiplies. ITEMCUR fits the
query by least squares instead, from its scores with a *different* set of items.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from crosscut.ann.baseline import NOTHING
from crosscut.errors import InputError
from crosscut.methods.anncur import HALF, WithSplit, shuffled, two_rounds
from crosscut.methods.base import Parts
from crosscut.search.fits import Fit
from crosscut.search.loop import Plan
from crosscut.search.pickers import Linear
from crosscut.search.stages import FirstRound, Fixed
from crosscut.search.stopping import Schedule
from crosscut.spaces.cur import CUR
from crosscut.types import Floats, Positions


class ItemScores(CUR):
    """The space of item–item scores.

    Parameters
    ----------
    item_scores
        S (k_ind × n).
    anchors
        (k_ind) positions of the anchor items, in the order of S's rows.
    """

    slot: ClassVar[str] = "item_scores"

    def __init__(self, item_scores: npt.ArrayLike, anchors: npt.ArrayLike) -> None:
        super().__init__(item_scores)
        self.anchors: Positions = np.asarray(anchors, dtype=np.int64).reshape(-1)
        if len(self.anchors) != self.d:
            raise InputError(f"{len(self.anchors)} anchor positions for {self.d} rows of item–item scores")
        if len(np.unique(self.anchors)) != self.d:
            raise InputError("the anchor items of an item–item space must be distinct")
        if self.d and not (self.anchors.min() >= 0 and self.anchors.max() < self.n):
            raise InputError(
                f"anchor positions must lie in 0 … {self.n - 1}; got {self.anchors.min()} … {self.anchors.max()}"
            )

    @classmethod
    def of(cls, parts: Parts) -> ItemScores:
        """Return the space among what the caller brought: itself, or (scores, anchors) of a replay."""
        given = parts.own["item_scores"]
        return given if isinstance(given, cls) else cls(*given)


class OfItems(WithSplit):
    """A method over item–item scores."""

    tried: ClassVar[bool] = False

    def missing(self, parts: Parts) -> str | None:
        if parts.own.get("item_scores") is not None:
            return None
        return "needs item–item scores and has none: pass space=ItemScores(scores, anchors) of crosscut_lab"


@dataclass(frozen=True, repr=False)
class FixedItem(OfItems):
    """FIXEDITEM: query and items are their scores with the same anchor items."""

    name: ClassVar[str] = "fixed-item"

    def plan(self, parts: Parts) -> Plan:
        space = ItemScores.of(parts)
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


@dataclass(frozen=True, repr=False)
class ItemCUR(OfItems):
    """ITEMCUR: CUR of item–item scores; the query is scored with a different set of items."""

    name: ClassVar[str] = "item-cur"

    rcond: float | None = None

    def plan(self, parts: Parts) -> Plan:
        space = ItemScores.of(parts)
        order = shuffled(parts)
        order = order[~np.isin(order, space.anchors)]
        return two_rounds(parts, space, order, self.split or HALF, self.rcond)
