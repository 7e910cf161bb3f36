"""`tour` (Sung et al. 2023), as AXN's appendix runs it: a gradient step on the query vector per round."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from crosscut.ann.linear import topk_of
from crosscut.methods.base import Parts, register
from crosscut.methods.rounds import InRounds
from crosscut.retrievers.first import Dense
from crosscut.search.estimators import GradientStep
from crosscut.search.loop import Offset, Plan


@register
@dataclass(frozen=True, repr=False)
class TOUR(InRounds):
    """`loss` is KL or MSE, `rate` its learning rate (0.1 and 1e-3)."""

    name: ClassVar[str] = "tour"
    needs: ClassVar[tuple[str, ...]] = ("encoder",)
    tried: ClassVar[bool] = False

    loss: Literal["kl", "mse"] = "kl"
    rate: float | None = None
    alpha: float = 0.0
    beta: float = 1.0

    def grid(self, parts: Parts) -> dict[str, tuple[Any, ...]]:
        return {**super().grid(parts), "loss": ("mse",)}

    def plan(self, parts: Parts) -> Plan:
        assert parts.encoder is not None
        first = parts.stage(self.first, Dense(topk_of(parts.encoder)))
        offset = Offset(self.alpha, self.beta)
        return self.in_rounds(parts, first, parts.encoder, GradientStep(self.loss, self.rate), offset)
