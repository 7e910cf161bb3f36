"""Where a query that moves has been: what makes the next search of it cheaper, and finds more.

The rounds of a search ask an index again and again, with a query vector that changes a little each time. Asked afresh,
they visit nearly the same lists every time, and what lies elsewhere is never seen. A trail lets a search go on where
those before it stopped: it begins with what they found, visits the `AGAIN` closest lists once more, because their
vectors may rank otherwise now, and then the closest lists that none of them has visited.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from crosscut.linalg.arrays import NOTHING, Ids

AGAIN = 4  # closest lists that are visited in every search


@dataclass
class Trail:
    """The searches of one query so far. `IVF.search_many` follows it and marks it; `ids` are the caller's to set."""

    ids: Ids = field(default_factory=lambda: NOTHING)  # to begin with
    visited: npt.NDArray[np.bool_] | None = None  # (lists)
    probed: int = 0  # lists, by the last search
    parts: dict[int, Trail] = field(default_factory=dict)  # through the parts of an index that has several

    def part(self, number: int) -> Trail:
        """The trail through one part."""
        return self.parts.setdefault(number, Trail())

    def close(self, near: npt.NDArray[np.float32]) -> None:
        """Put −inf, in place, for the lists of `near` (similarities to the centroids) that need no second visit.

        When fewer are left than the last search visited, the tour begins anew.
        """
        if self.visited is None:
            self.visited = np.zeros(len(near), dtype=np.bool_)
        done = self.visited & (near < _nth(near, AGAIN))
        if np.count_nonzero(~done & (near > -np.inf)) < self.probed:
            self.visited[:] = False
        else:
            near[done] = -np.inf

    def mark(self, lists: Ids) -> None:
        """A search has visited these lists."""
        self.probed = len(lists)
        if self.visited is not None:
            self.visited[lists] = True


def _nth(values: npt.NDArray[np.float32], n: int) -> np.float32:
    """The n-th largest value, the smallest if there are fewer."""
    place = max(len(values) - n, 0)
    return np.float32(np.partition(values, place)[place])
