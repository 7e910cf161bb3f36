"""`gar`: adaptive reranking over a corpus graph (MacAvaney et al. 2022, arXiv 2208.08942, alg. 1).

    R₀ the first stage's ranking, R₁ what was scored, F the frontier
    repeat: B = score(the top b of R₀ and of F in turn)
            R₁ += B,  R₀ −= B,  F −= B,  F += neighbours(B) − R₁         a neighbour counts as its best source did

The cluster hypothesis at work: an item near one that scored high may score high. Nothing is fitted.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from crosscut.ann.base import Found
from crosscut.ann.graph import NO_EDGE, Graph, nearest
from crosscut.errors import InputError
from crosscut.methods.base import First, Method, Parts, register
from crosscut.retrievers.first import FirstStage
from crosscut.search.guides import FreeSchedule, QueryBefore
from crosscut.search.loop import Plan
from crosscut.types import Floats, Handles


@register
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
        first = parts.stage(self.first)
        guide = Alternating(nearest(parts.encoder, self.neighbours), first, self.batch)
        return Plan(parts.pool, first, FreeSchedule(self.batch), guide=guide)


@dataclass(frozen=True)
class Alternating:
    """The frontier and the first stage's ranking in turn."""

    graph: Graph
    first: FirstStage
    batch: int

    def next(self, seen: Sequence[QueryBefore]) -> list[Found]:
        found = []
        for one in seen:
            count = min(self.batch, one.request.count)
            turn = self._frontier(one, count) if one.rounds % 2 else None
            if turn is None or not len(turn.handles):
                ranked = self.first.pick([replace(one.request, count=count)])[0]
                turn = Found(ranked, np.full(len(ranked), np.nan))
            found.append(turn)
        return found

    def _frontier(self, one: QueryBefore, count: int) -> Found:
        handles, sources = fresh(self.graph, one)
        values = one.scores[sources]
        order = np.lexsort((handles, -values))
        _, place = np.unique(handles[order], return_index=True)  # the best source of each
        chosen = order[np.sort(place)[:count]]
        return Found(handles[chosen], values[chosen])


def fresh(graph: Graph, one: QueryBefore) -> tuple[Handles, Handles]:
    """Neighbours that may still be scored, and the place of the item that each was reached from."""
    edges = graph[one.handles].astype(np.int64)  # (m × k)
    sources = np.repeat(np.arange(len(edges)), edges.shape[1])
    handles = edges.reshape(-1)
    new = (handles != NO_EDGE) & ~np.isin(handles, one.handles)
    if one.request.within is not None:
        new &= np.isin(handles, one.request.within)
    return handles[new], sources[new]


def best_first(scores: Floats, handles: Handles) -> Handles:
    """Places of scored items, best first; ties go to the lower handle."""
    return np.lexsort((handles, -scores))
