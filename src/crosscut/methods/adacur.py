"""`adacur` (Yadav et al. 2023, alg. 1): least squares on the anchor scores of what was scored, R rounds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from crosscut.methods.base import Parts, register
from crosscut.methods.rounds import InRounds
from crosscut.retrievers.first import Drawn
from crosscut.search.estimators import Regression
from crosscut.search.loop import Plan


@register
@dataclass(frozen=True, repr=False)
class ADACUR(InRounds):
    """u = (V_A)† a with V = R_ancᵀ; round one is drawn at random, unless another first stage is named."""

    name: ClassVar[str] = "adacur"
    needs: ClassVar[tuple[str, ...]] = ("anchors",)
    draws: ClassVar[bool] = True

    rcond: float | None = None

    def plan(self, parts: Parts) -> Plan:
        first = parts.stage(self.first, Drawn(parts.pool))
        return self.in_rounds(parts, first, parts.anchors, Regression(rcond=self.rcond))
