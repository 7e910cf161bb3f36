"""Item–item spaces: items described by the scorer's own scores with anchor *items* (ANNCUR §3.4).

    S (k_ind × n)   row j: the score of anchor item j, taken as a query, with every item
    V = Sᵀ (n × k_ind)

FIXEDITEM embeds the query the same way, by its scores with the same anchor items, and multiplies. ITEMCUR fits the
query by least squares instead, from its scores with a *different* set of items.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np
import numpy.typing as npt

from crosscut.errors import InputError
from crosscut.spaces.base import Slot
from crosscut.spaces.cur import CUR
from crosscut.types import Positions


class ItemScores(CUR):
    """The space of item–item scores.

    Parameters
    ----------
    item_scores
        S (k_ind × n).
    anchors
        (k_ind) positions of the anchor items, in the order of S's rows.
    """

    slot: ClassVar[Slot] = "item_scores"

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
