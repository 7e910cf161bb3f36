"""`anncur` (Yadav et al. 2022): CUR with fixed anchor items.

Ŝ = C_test C_anc† R_anc        C_test: the query's scores with k_i anchor items (§2.3–2.4)
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from crosscut.ann.baseline import NOTHING
from crosscut.errors import InputError
from crosscut.methods.base import First, Method, Parts, register
from crosscut.search.fits import Anchors
from crosscut.search.loop import Plan
from crosscut.search.pickers import Linear
from crosscut.search.stages import FirstRound, Fixed
from crosscut.search.stopping import Schedule
from crosscut.spaces.base import Space
from crosscut.types import Positions

HALF = 0.5


@dataclass(frozen=True, repr=False)
class WithSplit(Method):
    """A share `split` of the budget on anchor items (None: half), the rest on the best predictions."""

    split: float | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.split is not None and not 0 < self.split < 1:
            raise InputError(f"split is the share of the budget spent on anchor items, 0 … 1; got {self.split}")

    def grid(self, parts: Parts) -> dict[str, tuple[Any, ...]]:
        return {"split": (0.3, 0.7)}

    def rounds_of(self, budget: int) -> int:
        return 2


def shuffled(parts: Parts) -> Positions:
    """Every item, in an order that the seed decides."""
    return np.random.default_rng(parts.seed).permutation(parts.size)


@register
@dataclass(frozen=True, repr=False)
class ANNCUR(WithSplit):
    """Anchor items are drawn once, from the seed, and their pseudo-inverse is computed once.

    With another first stage (ANNCUR_DE) each query is solved online. The cut-off is ε · max(k_q, k_i): numpy's own for
    `pinv`, 1e-15, is below the rounding of a matrix of this size.
    """

    name: ClassVar[str] = "anncur"
    needs: ClassVar[tuple[str, ...]] = ("anchors",)

    first: First = "auto"  # the fixed anchor items
    rcond: float | None = None

    def plan(self, parts: Parts) -> Plan:
        assert parts.anchors is not None
        return two_rounds(parts, parts.anchors, shuffled(parts), self.split or HALF, self.rcond, self.first)


def two_rounds(
    parts: Parts, space: Space, order: Positions, split: float, rcond: float | None, first: First = "auto"
) -> Plan:
    """Return the plan of anchor items in this order, then the best predictions."""
    anchors = Anchors(space, order, rcond)
    then = Linear(space, parts.topk(space, NOTHING), lambda query, d: anchors.fit())
    stage = FirstRound(parts.stage(first, Fixed(order)), parts.pool)
    return Plan(stage, Schedule(2, first=split), then)
