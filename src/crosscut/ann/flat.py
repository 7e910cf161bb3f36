"""Exact top of V u over all items, or over those allowed.

Predictions for all items are made in the precision of the space (a float32 product reads V once); the few best are
then computed again in float64, so that neither rounding nor the size of the batch decides between near neighbours.
Ties go to the lower position.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt

from crosscut.ann.base import Ask, Found, OfRows, Residuals, Within
from crosscut.ann.known import Known
from crosscut.linalg.products import LARGE, share
from crosscut.linalg.top import best, slack_for
from crosscut.spaces.base import Space, as_space
from crosscut.types import Array, Floats, Handles

T = TypeVar("T")
Base: TypeAlias = Floats | Residuals | float  # of every item (n), of those of which it is known, or one for all
BATCH = 1 << 24  # predictions held at a time: 64 MiB of float32
WILD = 1e15
FEW = 8  # one item in so many allowed, and only those are predicted


class Flat(OfRows):
    """Every item of a space, with an item's base added: base + V u."""

    exact = True

    def __init__(self, space: Space, base: Base = 0.0) -> None:
        assert isinstance(base, np.ndarray | int | float)  # residuals are for what an index or a store finds
        super().__init__(space)
        self.space = space
        self.base = base
        self._rough = base.astype(np.float32) if isinstance(base, np.ndarray) else base  # for predictions, not ranks

    def top(self, asks: Sequence[Ask]) -> list[Found]:
        return self.scan(asks, lambda ask, row: self.best(ask, masked(row, ask.exclude, ask.within)))

    def best(self, ask: Ask, values: Array) -> Found:
        """The best of an ask among predictions (n) of the space's own precision."""
        places = best(values, ask.count, slack_for(ask.count))
        return rerank(self.space, ask.vector, places, self.base, ask.count, ask.known)

    def scan(self, asks: Sequence[Ask], look: Callable[[Ask, Array], T]) -> list[T]:
        """What `look` makes of an ask and the predictions (n) of every item, which it may write to."""

        def based(pair: tuple[Ask, Array]) -> T:
            ask, row = pair
            if isinstance(self._rough, np.ndarray) or self._rough:
                row += self._rough  # in place
            if isinstance(ask.known, np.ndarray):
                row += ask.known
            return look(ask, row)

        looks: list[T] = []
        for rows in self._predicted(asks):  # of bounded size
            pairs = list(zip(asks[len(looks) : len(looks) + len(rows)], rows, strict=True))
            looks += share(based, pairs) if rows.size > LARGE else map(based, pairs)
        return looks

    def _predicted(self, asks: Sequence[Ask]) -> Iterator[Array]:
        """V u, (q × n) of some asks after others; where few items are allowed, −inf elsewhere."""
        n = self.space.n
        if not any(ask.within is not None and len(ask.within) * FEW < n for ask in asks):
            yield from predictions(self.space, [ask.vector for ask in asks])
            return
        for ask in asks:
            if ask.within is None or len(ask.within) * FEW >= n:
                yield from predictions(self.space, [ask.vector])
                continue
            row = np.full((1, n), -np.inf, dtype=np.float32)
            row[0, ask.within] = self.space.rows(ask.within) @ ask.vector
            yield row


def base_of(base: Base, places: Handles) -> Floats | float:
    """The base of some items."""
    return base if isinstance(base, int | float) else base[places]


def masked(values: Array, exclude: Handles, within: Within = None) -> Array:
    """`values` (n) with −inf for what is not allowed or excluded; in place."""
    if within is not None and len(within) < len(values):
        open_values = values[within]
        values[:] = -np.inf
        values[within] = open_values
    values[exclude] = -np.inf
    return values


def rerank(space: Space, u: Floats, places: Handles, base: Base, count: int, known: Known | None = None) -> Found:
    """The best `count` of `places` by base + Vu in float64, best first, ties to the lower position.

    `known` (n) is what is known of items for this query alone."""
    rows = space.rows(places)  # (m × d)
    # einsum sums every row in the same order, so that equal rows get equal predictions to the last bit
    exact = np.einsum("md,d->m", rows, u) + base_of(base, places)
    if known is not None:
        exact += known[places]
    order = np.lexsort((places, -exact))[:count]
    return Found(places[order], exact[order])


def predictions(space: Space, vectors: Sequence[Floats]) -> Iterator[Array]:
    """V u for some query vectors after others, (q × n) of bounded size; they may be written to."""
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
    """The k items closest to each query by inner product, best first; of queries and items swapped, the reverse."""
    asks = [Ask(np.asarray(vector, dtype=np.float64), k) for vector in query_vectors]
    return [found.handles for found in Flat(as_space(vectors)).top(asks)]
