"""A rule of its own for later rounds, for methods that no query vector can express: a walk over a graph, a Gaussian
process with its uncertainty.

A guide is told what a query has scored so far and names what comes next. It remembers nothing: what it says follows
from what was scored.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from crosscut.ann.base import Found
from crosscut.retrievers.first import FirstRequest
from crosscut.types import Floats, Handles


@dataclass(frozen=True, slots=True)
class QueryBefore:
    """One query before a round: what was scored in order, in how many rounds, and what a first stage would be told."""

    handles: Handles  # (m)
    scores: Floats  # (m)
    rounds: int
    request: FirstRequest  # count: how many may come next; exclude: what was scored


class Guide(Protocol):
    """A rule for later rounds."""

    def next(self, seen: Sequence[QueryBefore]) -> list[Found]:
        """For each query at most `request.count` items, and what is expected of them (NaN: nothing).

        Fewer is a round of its own size; none means that there is no more.
        """


@dataclass(frozen=True)
class FreeSchedule:
    """A schedule for guides that choose the size of their rounds: a first round, then as many as it takes."""

    first: int
    rounds: int = 2  # or more

    def sizes(self, budget: int, in_flight: int = 1) -> list[int]:
        """Bounds for every round, the whole budget but for the first."""
        return [min(self.first, budget), *[budget] * (budget - min(self.first, budget))]
