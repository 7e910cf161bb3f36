"""`gar`: adaptive reranking over a corpus graph (MacAvaney et al. 2022, arXiv 2208.08942, alg. 1).

    R₀ the first stage's ranking, R₁ what was scored, F the frontier
    repeat: B = score(the top b of R₀ and of F in turn)
            R₁ += B,  R₀ −= B,  F −= B,  F += neighbours(B) − R₁         a neighbour counts as its best source did

The cluster hypothesis at work: an item near one that scored high may score high. Nothing is fitted.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from crosscut.ann.topk import Found
from crosscut.errors import InputError
from crosscut.methods.base import First, Method, Parts
from crosscut.search.loop import Picker, Plan, Query
from crosscut.search.stages import FirstRound
from crosscut.types import Floats, Handles
from crosscut_lab.rivals.graph import NO_EDGE, Graph, nearest


@dataclass(frozen=True, repr=False)
class GAR(Method):
    """`neighbours` of an item in the graph of its encoder's vectors, `batch` items a round, as in the paper."""

    name: ClassVar[str] = "gar"
    needs: ClassVar[tuple[str, ...]] = ("encoder", "n")
    tried: ClassVar[bool] = False
    prepares: ClassVar[bool] = True

    neighbours: int = 16
    batch: int = 16
    first: First = "auto"

    def __post_init__(self) -> None:
        super().__post_init__()
        if min(self.neighbours, self.batch) < 1:
            raise InputError(f"gar needs 1 neighbour and 1 item a round at least; got {self.neighbours}, {self.batch}")

    def grid(self, parts: Parts) -> dict[str, tuple[Any, ...]]:
        return {"neighbours": (8, 32), "batch": (4, 8)}

    def plan(self, parts: Parts) -> Plan:
        assert parts.encoder is not None
        stage = parts.stage(self.first)
        then = Alternating(nearest(parts.encoder, self.neighbours), stage, self.batch)
        return Plan(FirstRound(stage, parts.pool), FreeSchedule(self.batch), then)


@dataclass(frozen=True)
class FreeSchedule:
    """A schedule for pickers that choose the size of their rounds: a first round, then as many as it takes."""

    free: ClassVar[bool] = True

    first: int

    def sizes(self, budget: int, in_flight: int = 1) -> list[int]:
        """Return bounds for every round, the whole budget but for the first."""
        return [min(self.first, budget), *[budget] * (budget - min(self.first, budget))]


@dataclass(frozen=True, eq=False)
class Alternating(Picker):
    """The frontier and the first stage's ranking in turn."""

    graph: Graph
    stage: Picker
    batch: int

    def pick(self, queries: Sequence[Query], counts: Sequence[int]) -> list[Found]:
        found = []
        for query, most in zip(queries, counts, strict=True):
            count = min(self.batch, most)
            turn = self._frontier(query, count) if len(query.rounds) % 2 else None
            if turn is None or not len(turn.handles):
                (turn,) = self.stage.pick([query], [count])
            found.append(turn)
        return found

    def _frontier(self, query: Query, count: int) -> Found:
        handles, sources = fresh(self.graph, query)
        values = query.account.scores[sources]
        order = np.lexsort((handles, -values))
        _, place = np.unique(handles[order], return_index=True)  # the best source of each
        chosen = order[np.sort(place)[:count]]
        return Found(handles[chosen], values[chosen])


def fresh(graph: Graph, query: Query) -> tuple[Handles, Handles]:
    """Return neighbours that may still be scored, and the place of the item that each was reached from."""
    edges = graph[query.scored].astype(np.int64)  # (m × k)
    sources = np.repeat(np.arange(len(edges)), edges.shape[1])
    handles = edges.reshape(-1)
    new = (handles != NO_EDGE) & ~np.isin(handles, query.scored)
    if query.allowed is not None:
        new &= np.isin(handles, query.allowed)
    return handles[new], sources[new]


def best_first(scores: Floats, handles: Handles) -> Handles:
    """Return places of scored items, best first; ties go to the lower handle."""
    return np.lexsort((handles, -scores))
