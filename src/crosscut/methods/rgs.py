"""`rgs`: reranker-guided search, a greedy walk over a proximity graph (Xu et al. 2025, arXiv 2509.07163).

    A = [the item closest to the query's vector], scored;  U = ∅, what was expanded
    repeat: v = the best of A that is not in U;  U += v
            A += neighbours(v), scored;  A in order of score
    until the calls are spent

The graph is DiskANN's (`ann/graph.py`). The paper sorts A by a listwise reranker; with a score for every pair the order
is that of the scores. Where the walk has nowhere to go it starts again at the closest item that was not scored.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from crosscut.ann.base import Found
from crosscut.ann.graph import Graph, proximity
from crosscut.errors import InputError
from crosscut.methods.base import First, Method, Parts, register
from crosscut.methods.gar import best_first, fresh
from crosscut.retrievers.first import FirstStage
from crosscut.search.guides import FreeSchedule, QueryBefore
from crosscut.search.loop import Plan


@register
@dataclass(frozen=True, repr=False)
class RGS(Method):
    """`degree` edges an item at most, pruned with `alpha`; `seeds` items are scored before the walk begins."""

    name: ClassVar[str] = "rgs"
    needs: ClassVar[tuple[str, ...]] = ("encoder", "n")
    tried: ClassVar[bool] = False
    prepares: ClassVar[bool] = True

    degree: int = 16
    alpha: float = 1.2
    seeds: int = 1
    first: First = "auto"

    def __post_init__(self) -> None:
        super().__post_init__()
        if min(self.degree, self.seeds) < 1 or self.alpha < 1:
            raise InputError(
                f"rgs needs 1 edge, 1 seed and α = 1 at least; got {self.degree}, {self.seeds} and {self.alpha}"
            )

    def grid(self, parts: Parts) -> dict[str, tuple[Any, ...]]:
        return {"seeds": (10, 20), "degree": (8, 32)}

    def plan(self, parts: Parts) -> Plan:
        assert parts.encoder is not None
        first = parts.stage(self.first)
        guide = Walking(proximity(parts.encoder, self.degree, self.alpha), first)
        return Plan(parts.pool, first, FreeSchedule(self.seeds), guide=guide)


@dataclass(frozen=True)
class Walking:
    """The neighbours of the best item that has any left to score."""

    graph: Graph
    first: FirstStage

    def next(self, seen: Sequence[QueryBefore]) -> list[Found]:
        return [self._expanded(one) for one in seen]

    def _expanded(self, one: QueryBefore) -> Found:
        handles, sources = fresh(self.graph, one)
        if not len(handles):
            handles = self.first.pick([one.request])[0][:1]
            return Found(handles, np.full(len(handles), np.nan))
        order = best_first(one.scores, one.handles)
        best = order[np.isin(order, sources)][0]
        chosen = handles[sources == best][: one.request.count]
        return Found(chosen, np.full(len(chosen), one.scores[best]))
