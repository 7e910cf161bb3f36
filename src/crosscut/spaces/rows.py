"""Rows of several arrays as those of one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Protocol

import numpy as np

from crosscut.storage import put_down, room
from crosscut.types import Array, Positions

STEP = 1 << 14  # rows read at a time


class Block(Protocol):
    """Some rows; an array is one."""

    @property
    def shape(self) -> tuple[int, ...]: ...

    @property
    def dtype(self) -> np.dtype[Any]: ...

    def __len__(self) -> int: ...

    def __getitem__(self, places: Any) -> Array: ...


class Rows:
    """(n × …) rows of blocks, one after another: read where they are, by position or slice."""

    def __init__(self, blocks: Sequence[Block]) -> None:
        self.blocks = tuple(blocks)
        self.starts = np.cumsum([0, *map(len, self.blocks)])

    @property
    def shape(self) -> tuple[int, ...]:
        return len(self), *self.blocks[0].shape[1:]

    @property
    def dtype(self) -> np.dtype[Any]:
        return self.blocks[0].dtype

    def __len__(self) -> int:
        return int(self.starts[-1])

    def __getitem__(self, places: Any) -> Array:
        if isinstance(places, slice):
            places = np.arange(*places.indices(len(self)))
        places = np.asarray(places, np.int64)
        out = np.empty((len(places), *self.shape[1:]), self.dtype)
        for block, chosen, here in self.split(places):
            out[chosen] = self.blocks[block][here]
        return out

    def split(self, places: Positions) -> Iterator[tuple[int, Positions, Positions]]:
        """Which blocks some places are in: the block, which of the places, and where in the block."""
        of = np.searchsorted(self.starts[1:], places, side="right")
        for block in range(len(self.blocks)):
            chosen = np.flatnonzero(of == block)
            if len(chosen):
                yield block, chosen, places[chosen] - self.starts[block]

    def whole(self) -> Array:
        """All rows as one array: a single block as it is, several copied."""
        if len(self.blocks) == 1 and isinstance(self.blocks[0], np.ndarray):
            return self.blocks[0]
        out = room(self.shape, self.dtype)
        for start in range(0, len(self), STEP):
            out[start : start + STEP] = self[start : start + STEP]
            put_down(out)
        return out

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        whole = self.whole()
        return whole if dtype is None else whole.astype(dtype)


class Arranged:
    """Rows (n × d) that are stored in another order: `order[j]` is the place of the j-th of them."""

    def __init__(self, stored: Array, order: Positions) -> None:
        self.stored, self.order = stored, order
        self.places = np.empty(len(order), np.int64)
        self.places[order] = np.arange(len(order))

    @property
    def shape(self) -> tuple[int, ...]:
        return self.stored.shape

    @property
    def dtype(self) -> np.dtype[Any]:
        return self.stored.dtype

    def __len__(self) -> int:
        return len(self.stored)

    def __getitem__(self, places: Any) -> Array:
        rows: Array = self.stored[self.places[places]]
        return rows
