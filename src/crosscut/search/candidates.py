"""Where the best predictions are, without predicting every item: rounds over a clustered index.

A round wants the best few of base + V u. Coordinates that are the same for every item (`Constant`) do not change their
order; a base per item is one more coordinate, whose weight in the query is 1. What is left is one inner product with
the vectors of an `IVF`, which visits the lists that u points at, leaves out what was scored, and stops when its exit
rule is content. The few it finds are predicted again in float64, as in a flat round; the fit stays in the loop.

Below `SMALL` items a flat round is exact and as fast, so an index is not asked.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from crosscut.ann.early_exit import USUAL, Rule
from crosscut.ann.faiss import Faiss
from crosscut.ann.ivf import IVF
from crosscut.ann.patience import Patience
from crosscut.ann.trail import Trail
from crosscut.errors import InputError
from crosscut.spaces.base import Constant, Space, Stacked
from crosscut.types import NO_HANDLES, Floats, Positions

SMALL = 200_000
"""Items up to which every round reads them all."""
CAREFUL = Patience(7, 0.0)
"""The exit rule of rounds over an index that was not tuned: beside a fit, a few more lists cost little."""


@dataclass(frozen=True)
class Candidates:
    """An index over what a space predicts with.

    `columns` are the coordinates of u that the index holds, `weights` what they are multiplied with, `level` the
    weight of the index's last coordinate, an item's base (0: it holds none).
    """

    index: IVF | Faiss
    columns: Positions
    weights: Floats
    level: float = 0.0

    def top(
        self,
        vectors: Sequence[Floats],
        counts: Sequence[int],
        gone: Sequence[Positions],
        allowed: Positions | None,
        trails: Sequence[Trail] | None = None,
    ) -> list[Positions]:
        """For every query vector u some `count` places of high predictions, none of them `gone`, all `allowed`."""
        queries = np.zeros((len(vectors), self.index.d))
        for row, u in zip(queries, vectors, strict=True):
            row[: len(self.columns)] = u[self.columns] * self.weights
            row[len(self.columns) :] = self.level
        # the order does not depend on the length of u, and float32 does
        queries /= np.maximum(np.linalg.norm(queries, axis=1, keepdims=True), 1e-30)
        places: list[Positions] = [NO_HANDLES] * len(queries)
        for count in set(counts):  # mostly one: how many are asked for is what an exit rule watches
            rows = [j for j, own in enumerate(counts) if own == count]
            own = [trails[j] for j in rows] if trails is not None else None
            for j, found in zip(
                rows, self._search(queries[rows], count, [gone[j] for j in rows], allowed, None, own), strict=True
            ):
                places[j] = found
        for j, (count, found) in enumerate(zip(counts, places, strict=True)):
            size = self.index.n if allowed is None else len(allowed)
            if len(found) < min(count, size - len(gone[j])):  # the rule was content with less than is asked for
                places[j] = self._search(queries[j : j + 1], count, [gone[j]], allowed, self.index.most)[0]
        return places

    def _search(
        self,
        queries: Floats,
        k: int,
        gone: Sequence[Positions],
        allowed: Positions | None,
        rule: Rule | int | None,
        trails: Sequence[Trail] | None = None,
    ) -> list[Positions]:
        if isinstance(self.index, IVF):
            rule = CAREFUL if rule is None and self.index.rule is USUAL else rule
            found = self.index.search_many(queries, k, rule=rule, exclude=gone, allow=allowed, trails=trails)
        else:
            found = self.index.search_many(queries, k, rule=rule, exclude=gone, allow=allowed)
        return [ids[ids >= 0] for ids in found.ids]


def candidates(space: Space, base: Floats | float = 0.0) -> Candidates | None:
    """What a space's own index can answer: None if it has none, is small, or lacks a coordinate for the base."""
    if isinstance(base, np.ndarray):
        return None
    blocks, weights = (space.blocks, space.weights) if isinstance(space, Stacked) else ([space], [1.0])
    moving = [j for j, block in enumerate(blocks) if not isinstance(block, Constant)]
    if len(moving) != 1 or not isinstance(index := blocks[moving[0]], IVF | Faiss):
        return None
    if index.metric != "ip":
        raise InputError("rounds look for high inner products; this index ranks by distance: build it with metric='ip'")
    if index.n < SMALL:
        return None
    start = sum(block.d for block in blocks[: moving[0]])
    return Candidates(index, np.arange(start, start + index.d), np.full(index.d, weights[moving[0]]))


def cluster(
    space: Space, base: Floats | float = 0.0, *, lists: int | None = None, rule: Rule | int | None = None, seed: int = 0
) -> Candidates:
    """An index over a space as it stands, whatever its blocks, in float16: n × d numbers more."""
    blocks = space.blocks if isinstance(space, Stacked) else [space]
    starts = np.cumsum([0, *(block.d for block in blocks)])
    parts = [np.arange(starts[j], starts[j + 1]) for j, block in enumerate(blocks) if not isinstance(block, Constant)]
    columns = np.concatenate(parts)
    based = isinstance(base, np.ndarray)
    rows: npt.NDArray[np.float16] = np.empty((space.n, len(columns) + based), dtype=np.float16)
    for start in range(0, space.n, 1 << 14):
        places = np.arange(start, min(start + (1 << 14), space.n))
        rows[places, : len(columns)] = space.rows(places)[:, columns]
        if isinstance(base, np.ndarray):
            rows[places, -1] = base[places]
    index = IVF.build(rows, lists=lists, rule=rule, seed=seed)
    return Candidates(index, columns, np.ones(len(columns)), 1.0 if based else 0.0)


def of_block(found: Candidates, start: int, width: int, weight: float) -> Candidates:
    """The same index asked for one block of its coordinates alone: the encoder's, for a first stage."""
    inside = (found.columns >= start) & (found.columns < start + width)
    columns = np.where(inside, found.columns - start, 0)
    return Candidates(found.index, columns, np.where(inside, found.weights / weight, 0.0))
