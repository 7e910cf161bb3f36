"""`qdrant-feedback`: Qdrant's relevance-feedback query (≥ 1.17, the `naive` strategy), without Qdrant.

    score(v) = a · v·q + Σ c · (s_p − s_n)ᵇ · (v·p − v·n)        over pairs of feedback p, n with s_p > s_n

q is the query's vector, p and n items with scores s of a dearer model. It is linear in v: with w_i = Σ_j ±|s_i − s_j|ᵇ
the question is v·u, u = a q + c Σ_i w_i v_i. The first few items of the encoder's ranking are the feedback, a second
question is asked with u, and what it finds is scored. Qdrant says to train a, b and c on each collection: `tune` does.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from crosscut.ann.linear import topk_of
from crosscut.errors import InputError
from crosscut.methods.base import First, Method, Parts, register
from crosscut.retrievers.first import Dense
from crosscut.search.estimators import Feedback
from crosscut.search.loop import Plan
from crosscut.search.stopping import Schedule


@register
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
        assert parts.encoder is not None
        return Plan(
            parts.pool,
            parts.stage(self.first, Dense(topk_of(parts.encoder))),
            Schedule(self.rounds, self.feedback),
            parts.encoder,
            Feedback(self.a, self.b, self.c),
        )
