"""Vectors of items that stay where they are: a file's, and those that came later behind them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from crosscut.storage import Touched
from crosscut.types import Array, Positions


class FiledVectors:
    """(n × d) vectors: `first`, of a file or in memory, and `more` behind them. Never changed; `grown` makes a longer
    one, at the price of what was added so far."""

    def __init__(self, first: Touched, more: Array | None = None) -> None:
        self.first = first
        self.more: Array = np.empty((0, first.array.shape[1]), first.array.dtype) if more is None else more

    @property
    def shape(self) -> tuple[int, int]:
        return len(self), int(self.first.array.shape[1])

    @property
    def dtype(self) -> np.dtype[Any]:
        return self.first.array.dtype

    def __len__(self) -> int:
        return len(self.first) + len(self.more)

    def grown(self, vectors: Array) -> FiledVectors:
        """With more behind them."""
        return FiledVectors(self.first, np.concatenate([self.more, vectors.astype(self.dtype)]))

    def __getitem__(self, positions: Positions) -> Array:
        """Some rows, of places in any order."""
        places = np.asarray(positions, np.int64)
        n = len(self.first)
        behind = places >= n
        if not behind.any():
            return self.first.take(places)
        out = np.empty((len(places), self.shape[1]), self.dtype)
        out[~behind] = self.first.take(places[~behind])
        out[behind] = self.more[places[behind] - n]
        return out

    def blocks(self, positions: Positions, step: int = 1 << 14) -> Iterator[Array]:
        """Some rows, a piece at a time."""
        for start in range(0, len(positions), step):
            yield self[positions[start : start + step]]

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        whole = self.first.whole()
        joined = whole if not len(self.more) else np.concatenate([whole, self.more])
        return joined if dtype is None else joined.astype(dtype)
