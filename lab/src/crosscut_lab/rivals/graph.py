"""Graphs over the items of a space: an edge leads to an item whose vector is near.

| graph | edges of an item | used by |
|---|---|---|
| `nearest` | its k nearest by inner product | GAR's corpus graph (MacAvaney et al. 2022, §3) |
| `proximity` | at most R, in different directions | DiskANN (Subramanya et al. 2019, alg. 2), which RGS walks |

Both take n searches of the space, once; searchers that share a space share its graphs.
"""

from __future__ import annotations

from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
import numpy.typing as npt

from crosscut.ann.linear import topk_of
from crosscut.ann.topk import Ask
from crosscut.spaces.base import Space
from crosscut.types import Floats, Handles

NO_EDGE = -1
TOGETHER = 256  # items whose neighbours are asked for at once
MORE = 4  # candidates, against the edges that are kept of them

Graph = npt.NDArray[np.int32]
"""(n × k) neighbours, nearest first; −1 where there are fewer."""

_MADE: WeakKeyDictionary[Space, dict[Any, Graph]] = WeakKeyDictionary()


def nearest(space: Space, k: int) -> Graph:
    """The k nearest of every item by inner product, without itself."""
    made = _MADE.setdefault(space, {})
    k = min(k, max(space.n - 1, 1))
    if ("nearest", k) not in made:
        topk = topk_of(space)
        graph: Graph = np.full((space.n, k), NO_EDGE, dtype=np.int32)
        for start in range(0, space.n, TOGETHER):
            items = np.arange(start, min(start + TOGETHER, space.n))
            asks = [Ask(row, k, np.array([j])) for j, row in zip(items, space.rows(items), strict=True)]
            for j, found in zip(items, topk.top(asks), strict=True):
                graph[j, : len(found.handles)] = found.handles
        made["nearest", k] = graph
    return made["nearest", k]


def proximity(space: Space, degree: int, alpha: float) -> Graph:
    """At most `degree` edges an item: candidates are its nearest and those it is among the nearest of; from the nearest
    on, a candidate stays unless one that stayed is α times nearer to it than the item is."""
    made = _MADE.setdefault(space, {})
    if (degree, alpha) not in made:
        near = nearest(space, min(MORE * degree, max(space.n - 1, 1)))
        forth: Graph = np.full((space.n, degree), NO_EDGE, dtype=np.int32)
        for j in range(space.n):
            kept = _apart(space, j, near[j][near[j] != NO_EDGE].astype(np.int64), degree, alpha)
            forth[j, : len(kept)] = kept
        graph = np.full_like(forth, NO_EDGE)
        for j, back in enumerate(_reversed(forth)):
            own = forth[j][forth[j] != NO_EDGE].astype(np.int64)
            kept = _apart(space, j, np.union1d(own, back), degree, alpha)
            graph[j, : len(kept)] = kept
        made[degree, alpha] = graph
    return made[degree, alpha]


def _reversed(graph: Graph) -> list[Handles]:
    """Return the items with an edge to each item."""
    sources, places = np.nonzero(graph != NO_EDGE)
    targets = graph[sources, places]
    order = np.argsort(targets, kind="stable")
    return np.split(sources[order], np.searchsorted(targets[order], np.arange(1, len(graph))))


def _apart(space: Space, item: int, candidates: Handles, degree: int, alpha: float) -> Handles:
    """Candidates that stay: robust pruning."""
    rows = space.rows(np.append(candidates, item))  # (c + 1 × d)
    products = rows @ rows.T
    squares = np.diagonal(products)
    distances: Floats = np.sqrt(np.maximum(squares[:, None] + squares - 2 * products, 0.0))
    own, among = distances[-1, :-1], distances[:-1, :-1]
    left = np.lexsort((candidates, own))
    kept: list[int] = []
    while len(left) and len(kept) < degree:
        first, rest = int(left[0]), left[1:]
        kept.append(first)
        left = rest[alpha * among[first, rest] > own[rest]]
    return candidates[kept]
