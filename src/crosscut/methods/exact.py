"""`exact`: score everything."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from crosscut.errors import BudgetError
from crosscut.methods.base import Method, Parts, register
from crosscut.search.loop import Plan
from crosscut.search.stages import Fixed


@register
@dataclass(frozen=True, repr=False)
class Exact(Method):
    """Every item, in one round."""

    name: ClassVar[str] = "exact"
    needs: ClassVar[tuple[str, ...]] = ("n",)
    tried: ClassVar[bool] = False

    def plan(self, parts: Parts) -> Plan:
        return parts.one_round(Fixed(np.arange(parts.size)))

    def budget(self, asked: int | None, size: int | None) -> int:
        if asked is not None and size is not None and asked < size:
            raise BudgetError(
                f"exact scores all {size} items and the budget is {asked}: raise it, or use another method"
            )
        return asked or size or 1
