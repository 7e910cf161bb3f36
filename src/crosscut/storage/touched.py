"""Arrays in files that are compared with their checksums where they are read, block by block, when they are first read.

An index of ten million items is opened in seconds and read in pieces: an item's text here, a list of vectors there.
"""

from __future__ import annotations

import bisect
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from crosscut.types import Array, Positions


class Touched:
    """An array (n × …) whose rows are asked for by `rows`, `take` or `ready`; one in memory is ready as it is.

    `compare(first, last)` compares blocks of the file, and raises an InputError on damage; `offset` is where the array
    begins in the file.
    """

    def __init__(
        self, array: Array, compare: Callable[[int, int], None] | None = None, offset: int = 0, block: int = 1
    ) -> None:
        self.array = np.asarray(array)  # a plain one: slices of memory maps cost a microsecond more
        self._compare, self._offset, self._block = compare, offset, block
        self._row = array.itemsize * int(np.prod(array.shape[1:], dtype=np.int64))
        size = offset + array.nbytes
        self._seen: npt.NDArray[np.bool_] = np.full(0 if compare is None else -(-size // block), False)

    def __len__(self) -> int:
        return len(self.array)

    @property
    def compared(self) -> bool:
        """Whether all of it is ready."""
        return self._compare is None

    def ready(self, first: Positions, last: Positions) -> None:
        """Compare what was not compared yet of rows [first, last), of each pair."""
        if self._compare is None or not len(first):
            return
        low = (self._offset + first * self._row) // self._block
        high = -(-(self._offset + last * self._row) // self._block)
        unseen = np.flatnonzero(~self._seen[low] | ~self._seen[np.maximum(high - 1, low)] | (high - low > 2))
        for place in unseen.tolist():
            for block in range(int(low[place]), int(high[place])):
                if not self._seen[block]:
                    self._compare(block, block + 1)
                    self._seen[block] = True

    def rows(self, first: int, last: int) -> Array:
        """Rows [first, last)."""
        self.ready(np.array([first]), np.array([last]))
        return self.array[first:last]

    def take(self, positions: Positions) -> Array:
        """Some rows."""
        self.ready(positions, positions + 1)
        taken: Array = self.array[positions]
        return taken

    def place(self, value: Any) -> int:
        """The first place of a value in sorted rows, or where it would stand; only what is looked at is compared."""
        if self._compare is None:
            return int(np.searchsorted(self.array, value))
        return bisect.bisect_left(range(len(self)), value, key=lambda place: self.rows(place, place + 1)[0])

    def whole(self) -> Array:
        """Everything, compared."""
        if self._compare is not None and not self._seen.all():
            self._compare(0, len(self._seen))
            self._seen[:] = True
        return self.array
