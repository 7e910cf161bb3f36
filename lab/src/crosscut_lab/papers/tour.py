"""`tour` (Sung et al. 2023), as AXN's appendix runs it: a gradient step on the query vector per round."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
from scipy.special import softmax

from crosscut.ann.baseline import Level
from crosscut.errors import InputError
from crosscut.methods.base import InRounds, Parts
from crosscut.search.fits import Fit
from crosscut.search.loop import Plan, Query
from crosscut.search.pickers import Linear
from crosscut.search.stages import Dense
from crosscut.types import Floats, Positions


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
        space, base = parts.encoder, Level(self.alpha)
        assert space is not None
        topk = parts.topk(space, base)
        return self.in_rounds(
            parts, parts.stage(self.first, Dense(topk)), Linear(space, topk, self._fit, base, scale=self.beta)
        )

    def _fit(self, query: Query, d: int) -> Fit:
        rate = self.rate if self.rate is not None else {"kl": 0.1, "mse": 1e-3}[self.loss]
        return GradientStep(query_vector("tour", query, d), self.loss, rate)


class GradientStep(Fit):
    """One gradient step on the items of each round, from the encoder's query vector."""

    def __init__(self, vector: Floats, loss: Literal["kl", "mse"], rate: float) -> None:
        self._u, self._loss, self._rate = vector.astype(np.float64), loss, rate

    def add(self, handles: Positions, rows: Floats, targets: Floats) -> None:
        predicted = rows @ self._u  # (k)
        if self._loss == "kl":  # ∇ KL(softmax a ‖ softmax V u) = Vᵀ (softmax V u − softmax a)
            slope = rows.T @ (softmax(predicted) - softmax(targets))
        else:  # ∇ mean (V u − a)²
            slope = rows.T @ (predicted - targets) * (2 / len(targets))
        self._u = self._u - self._rate * slope

    def solve(self) -> Floats:
        return self._u


def query_vector(what: str, query: Query, d: int) -> Floats:
    """Return the query vector that a method moves."""
    if query.vector is None or len(query.vector) != d:
        raise InputError(
            f"{what} moves a query vector of {d} dimensions and got "
            f"{'none' if query.vector is None else len(query.vector)}: pass query_vector, or use axn"
        )
    return query.vector
