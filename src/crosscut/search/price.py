"""What calls cost in money."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import isfinite

from crosscut.datasets.records import Item, plain_text
from crosscut.errors import InputError
from crosscut.search.hits import Hits

CHARACTERS = 4
"""Of a token, about: what a provider counts is on its bill."""


@dataclass(frozen=True)
class Price:
    """What a scorer costs: by calls, by tokens, or by both. Tokens are estimated, four characters each.

    >>> index.price = crosscut.Price(per_thousand_calls=2.0)
    >>> index.search("how do vaccines work").cost
    """

    per_thousand_calls: float = 0.0
    per_million_tokens: float = 0.0
    currency: str = "USD"

    def __post_init__(self) -> None:
        for name in ("per_thousand_calls", "per_million_tokens"):
            if not (isfinite(getattr(self, name)) and getattr(self, name) >= 0):
                raise InputError(f"{name} is a price of 0 or more; got {getattr(self, name)}")

    def of(self, query: str, items: Sequence[Item | str], calls: int) -> float:
        """Of `calls` pairs of a query with items like these."""
        length = sum(len(query) + len(plain_text(item)) for item in items) / CHARACTERS / max(len(items), 1)
        return calls * (self.per_thousand_calls / 1e3 + length * self.per_million_tokens / 1e6)

    def on(self, hits: Hits, items: Sequence[Item | str]) -> Hits:
        """Hits with their cost; `items` are all that were scored."""
        return replace(hits, cost=self.of(str(hits.query), items, hits.calls))
