"""In which order hits are returned: by the scorer alone, or by all the evidence there is.

A search finds what the scorer likes. On ground that the scorer does not know, words and vectors may know better, and
both are free of everything that was scored. `fused` orders by

    F(i) = a · z(scorer) + b · z(dense) + c · z(words)

z over what the search has scored for the query. F is a score like any other: calibrated (`scorers/calibration.py`) it
is the posterior probability of relevance given all three. The usual weights were chosen on train queries of many
collections for scorers good and bad alike; judgements give better ones (`index.tune`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar, TypeAlias

import numpy as np

from crosscut.errors import InputError
from crosscut.names import Named, Registry
from crosscut.search.hits import Hits, Scored
from crosscut.types import Floats

Evidence: TypeAlias = Mapping[str, Floats]
"""`dense` and `words` of everything that was scored, in the order of buying, where they are known."""

_ORDERS: Registry[Order] = Registry("order", "fused@scorer=2")


@dataclass(frozen=True, repr=False)
class Order(Named, ABC):
    """An order of what was scored."""

    needs: ClassVar[bool] = False  # evidence beside the scores

    @abstractmethod
    def values(self, scores: Floats, evidence: Evidence) -> Floats:
        """Return the values (m) that hits are ordered by, highest first."""


@_ORDERS.register
@dataclass(frozen=True, repr=False)
class ByScorer(Order):
    """Order by the scores."""

    name: ClassVar[str] = "scorer"

    def values(self, scores: Floats, evidence: Evidence) -> Floats:
        return scores


@_ORDERS.register
@dataclass(frozen=True, repr=False)
class Fused(Order):
    """Scorer, dual encoder and words together; a weight of 0 leaves one out."""

    name: ClassVar[str] = "fused"
    needs: ClassVar[bool] = True

    scorer: float = 0.5
    dense: float = 1.0
    words: float = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if min(self.scorer, self.dense, self.words) < 0 or not self.scorer + self.dense + self.words > 0:
            raise InputError(
                f"weights of fused are 0 or more, and not all 0; got scorer={self.scorer}, dense={self.dense}, "
                f"words={self.words}"
            )

    def values(self, scores: Floats, evidence: Evidence) -> Floats:
        total = self.scorer * standard(scores)
        for name, weight in (("dense", self.dense), ("words", self.words)):
            if name in evidence:
                total = total + weight * standard(evidence[name])
        return total


def parse_order(order: str | Order) -> Order:
    """An order by name, `"fused@scorer=2"`; an order is itself."""
    return _ORDERS.parse(order)


def standard(values: Floats) -> Floats:
    """z over all of them; 0 where they do not differ."""
    if not len(values):
        return values
    return np.asarray((values - values.mean()) / max(float(values.std()), 1e-9))


def ordered(hits: Hits, order: Order, evidence: Evidence, k: int) -> Hits:
    """The best k of everything that was scored, by another order; ties go to the lower position."""
    scored = Scored.of(hits.trace)
    if not len(scored.scores):
        return hits
    values = order.values(scored.scores, evidence)
    best = np.lexsort((scored.positions, -values))[:k]
    return replace(hits, items=tuple(scored.hits(best)), ranking=values)
