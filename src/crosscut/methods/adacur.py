"""`adacur` (Yadav et al. 2023, alg. 1): least squares on the anchor scores of what was scored, R rounds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from crosscut.ann.baseline import NOTHING
from crosscut.methods.base import InRounds, Parts, register
from crosscut.search.fits import LeastSquaresFit
from crosscut.search.loop import Plan
from crosscut.search.pickers import Linear
from crosscut.search.stages import Random


@register
@dataclass(frozen=True, repr=False)
class ADACUR(InRounds):
    """u = (V_A)† a with V = R_ancᵀ; round one is drawn at random, unless another first stage is named."""

    name: ClassVar[str] = "adacur"
    needs: ClassVar[tuple[str, ...]] = ("anchors",)
    draws: ClassVar[bool] = True

    rcond: float | None = None

    def plan(self, parts: Parts) -> Plan:
        space = parts.anchors
        assert space is not None
        then = Linear(space, parts.topk(space, NOTHING), lambda query, d: LeastSquaresFit(d, rcond=self.rcond))
        return self.in_rounds(parts, parts.stage(self.first, Random(parts.pool)), then)
