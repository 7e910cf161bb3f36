"""Exact top of base + V u over all items, or over those allowed.

Predictions for all items are made in the precision of the space (a float32 product reads V once); the few best are
then computed again in float64, so that neither rounding nor the size of the batch decides between near neighbours.
Ties go to the lower position.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from crosscut.ann.baseline import Baseline, masked
from crosscut.ann.topk import Ask, Found, OfRows
from crosscut.linalg.products import LARGE, share
from crosscut.linalg.top import best, slack_for
from crosscut.spaces.base import Space, as_space
from crosscut.types import Array, Floats, Handles

T = TypeVar("T")
BATCH = 1 << 24  # predictions held at a time: 64 MiB of float32
WILD = 1e15
FEW = 8  # one item in so many allowed, and only those are predicted


class Flat(OfRows):
    """Every item of a space."""

    exact = True

    def __init__(self, space: Space) -> None:
        super().__init__(space)
        self.space = space

    def top(self, asks: Sequence[Ask]) -> list[Found]:
        return self.scan(asks, self.best, levels=False)

    def best(self, ask: Ask, row: Array) -> Found:
        """Return the best of an ask among predictions (n), which are overwritten."""
        places = best(masked(row, ask.exclude, ask.allowed), ask.count, slack_for(ask.count))
        return rerank(self.space, ask.vector, places, ask.base, ask.count)

    def scan(self, asks: Sequence[Ask], look: Callable[[Ask, Array], T], *, levels: bool = True) -> list[T]:
        """Return what `look` makes of each ask and the predictions (n) of every item, which it may write to.

        Without `levels`, what all items have in common is left out: it changes no order, and would cost precision."""

        def based(pair: tuple[Ask, Array]) -> T:
            ask, row = pair
            base = ask.base.everywhere()
            if isinstance(base, np.ndarray) or (levels and base):
                row += base  # in place
            return look(ask, row)

        looks: list[T] = []
        for rows in self._predicted(asks):  # of bounded size
            pairs = list(zip(asks[len(looks) : len(looks) + len(rows)], rows, strict=True))
            looks += share(based, pairs) if rows.size > LARGE else map(based, pairs)
        return looks

    def _predicted(self, asks: Sequence[Ask]) -> Iterator[Array]:
        """Yield V u (q × n) of some asks after others; where few items are allowed, −inf elsewhere."""
        n = self.space.n
        if not any(ask.allowed is not None and len(ask.allowed) * FEW < n for ask in asks):
            yield from predictions(self.space, [ask.vector for ask in asks])
            return
        for ask in asks:
            if ask.allowed is None or len(ask.allowed) * FEW >= n:
                yield from predictions(self.space, [ask.vector])
                continue
            row = np.full((1, n), -np.inf, dtype=np.float32)
            row[0, ask.allowed] = self.space.rows(ask.allowed) @ ask.vector
            yield row


def rerank(space: Space, u: Floats, places: Handles, base: Baseline, count: int) -> Found:
    """Return the best `count` of `places` by base + V u in float64, best first, ties to the lower position."""
    rows = space.rows(places)  # (m × d)
    # einsum sums every row in the same order, so that equal rows get equal predictions to the last bit
    exact = np.einsum("md,d->m", rows, u) + base.at(places)
    order = np.lexsort((places, -exact))
    return Found(places[order[:count]], exact[order[:count]], rest=places[order[count:]])


def predictions(space: Space, vectors: Sequence[Floats]) -> Iterator[Array]:
    """Yield V u for some query vectors after others, (q × n) of bounded size; they may be written to."""
    step = max(1, BATCH // max(space.n, 1))
    for start in range(0, len(vectors), step):
        chunk = np.stack(vectors[start : start + step])  # (q × d)
        # a wild u must not overflow the space's precision
        largest = np.abs(chunk).max(axis=1, initial=0.0)
        scales = np.where(largest > WILD, largest, 1.0)
        rows = space.predict(chunk / scales[:, None])
        rows = rows if rows.flags.writeable else rows.copy()
        for wild in np.flatnonzero(scales != 1.0):
            rows[wild] *= rows.dtype.type(scales[wild])
        yield rows


def top_items(k: int, vectors: Space | npt.ArrayLike, query_vectors: Array) -> list[Handles]:
    """Return the k items closest to each query by inner product, best first; of queries and items swapped, the
    reverse."""
    asks = [Ask(np.asarray(vector, dtype=np.float64), k) for vector in query_vectors]
    return [found.handles for found in Flat(as_space(vectors)).top(asks)]
