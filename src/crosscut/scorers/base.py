"""The expensive function, as a protocol.

A *scorer* f(query, item) is costly and a black box. It comes in two forms:

- **unbound**: `score(query, items)` takes texts. `bind(items)` fixes the corpus (and may tokenise it once);
- **bound**: `score(query, positions)` takes positions in that corpus, `score_many([(query, positions), …])`
  a batch of such requests. Searches speak to the bound form only.

Scores are raw: any real number, higher is better. A fingerprint names what the scores depend on, so that
stored scores are never reused for another model.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol, TypeAlias, runtime_checkable

from crosscut.types import Floats, Positions

Request: TypeAlias = tuple[Any, Positions]
"""One query and the positions of the items to score it with."""


@runtime_checkable
class BoundScorer(Protocol):
    """A scorer that knows its corpus: items are positions 0 … n − 1."""

    def score(self, query: Any, positions: Positions) -> Floats:
        """The scores of one query with the items at `positions`, in that order."""
        ...

    def score_many(self, requests: Sequence[Request]) -> list[Floats]:
        """The scores of every request, in order; what a model would run as one batch."""
        ...


@runtime_checkable
class Scorer(Protocol):
    """A scorer of texts."""

    @property
    def fingerprint(self) -> str:
        """A short name that changes whenever the scores may change."""
        ...

    def score(self, query: str, items: Sequence[str]) -> Floats:
        """The scores of one query with each item text, in order."""
        ...

    def bind(self, items: Sequence[str]) -> BoundScorer:
        """This scorer over a fixed corpus, addressed by position."""
        ...
