"""`qdrant-feedback`: Qdrant's relevance-feedback query (≥ 1.17, the `naive` strategy), without Qdrant.

    score(v) = a · v·q + Σ c · (s_p − s_n)ᵇ · (v·p − v·n)        over pairs of feedback p, n with s_p > s_n

q is the query's vector, p and n items with scores s of a dearer model. It is linear in v: with w_i = Σ_j ±|s_i − s_j|ᵇ
the question is v·u, u = a q + c Σ_i w_i v_i. The first few items of the encoder's ranking are the feedback, a second
question is asked with u, and what it finds is scored. Qdrant says to train a, b and c on each collection: `tune` does.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from crosscut.ann.baseline import NOTHING
from crosscut.errors import InputError
from crosscut.methods.base import First, Method, Parts
from crosscut.search.fits import Fit
from crosscut.search.loop import Plan, Query
from crosscut.search.pickers import Linear
from crosscut.search.stages import Dense, FirstRound
from crosscut.search.stopping import Schedule
from crosscut.types import Floats, Positions
from crosscut_lab.papers.tour import query_vector


@dataclass(frozen=True, repr=False)
class QdrantFeedback(Method):
    """`a`, `b` and `c` of the formula; `feedback` items are scored first (below 1: a share of the calls)."""

    name: ClassVar[str] = "qdrant-feedback"
    needs: ClassVar[tuple[str, ...]] = ("encoder",)
    tried: ClassVar[bool] = False

    a: float = 1.0
    b: float = 0.5
    c: float = 0.03
    feedback: float = 5.0
    rounds: int = 2
    first: First = "auto"

    def __post_init__(self) -> None:
        super().__post_init__()
        if not (self.b >= 0 and self.feedback > 0 and self.rounds >= 1):
            raise InputError(
                "qdrant-feedback takes b of 0 or more, feedback above 0 and 1 round or more; "
                f"got {self.b}, {self.feedback}, {self.rounds}"
            )

    def grid(self, parts: Parts) -> dict[str, tuple[Any, ...]]:
        return {"feedback": (10.0, 0.2, 0.5), "c": (0.0003, 0.001, 0.003, 0.01, 0.1), "b": (0.0, 1.0)}

    def rounds_of(self, budget: int) -> int:
        return min(self.rounds, budget)

    def plan(self, parts: Parts) -> Plan:
        space = parts.encoder
        assert space is not None
        topk = parts.topk(space, NOTHING)
        first = FirstRound(parts.stage(self.first, Dense(topk)), parts.pool)
        return Plan(first, Schedule(self.rounds, self.feedback), Linear(space, topk, self._fit))

    def _fit(self, query: Query, d: int) -> Fit:
        return Feedback(self, query_vector("relevance feedback", query, d))


class Feedback(Fit):
    """u = a q + c Σ (s_p − s_n)ᵇ (p − n), over pairs with s_p > s_n."""

    def __init__(self, how: QdrantFeedback, vector: Floats) -> None:
        self._how, self._query = how, vector
        self._rows: list[Floats] = []
        self._targets: list[Floats] = []

    def add(self, handles: Positions, rows: Floats, targets: Floats) -> None:
        self._rows.append(rows)
        self._targets.append(targets)

    def solve(self) -> Floats:
        how, scores = self._how, np.concatenate(self._targets)
        apart = scores[:, None] - scores  # (m × m)
        weights = (np.sign(apart) * np.abs(apart) ** how.b).sum(axis=1)  # of each item in all its pairs
        return np.asarray(how.a * self._query + how.c * weights @ np.concatenate(self._rows))
