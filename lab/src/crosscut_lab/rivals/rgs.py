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

from crosscut.ann.topk import Found
from crosscut.errors import InputError
from crosscut.methods.base import First, Method, Parts
from crosscut.search.loop import Picker, Plan, Query
from crosscut.search.stages import FirstRound
from crosscut_lab.rivals.gar import FreeSchedule, best_first, fresh
from crosscut_lab.rivals.graph import Graph, proximity


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
        stage = parts.stage(self.first)
        then = Walking(proximity(parts.encoder, self.degree, self.alpha), stage)
        return Plan(FirstRound(stage, parts.pool), FreeSchedule(self.seeds), then)


@dataclass(frozen=True, eq=False)
class Walking(Picker):
    """The neighbours of the best item that has any left to score."""

    graph: Graph
    stage: Picker

    def pick(self, queries: Sequence[Query], counts: Sequence[int]) -> list[Found]:
        return [self._expanded(query, count) for query, count in zip(queries, counts, strict=True)]

    def _expanded(self, query: Query, count: int) -> Found:
        handles, sources = fresh(self.graph, query)
        if not len(handles):
            (found,) = self.stage.pick([query], [count])
            return Found(found.handles[:1], found.expected[:1])
        scores = query.account.scores
        order = best_first(scores, query.scored)
        best = order[np.isin(order, sources)][0]
        chosen = handles[sources == best][:count]
        return Found(chosen, np.full(len(chosen), scores[best]))
