"""Where a query that moves has been: what makes the next search of it cheaper, and finds more.

The rounds of a search ask an index again and again, with a query vector that changes each time. Asked afresh while it
changes little, they visit nearly the same lists every time, and what lies elsewhere is never seen. A trail lets a
search go on where those before it stopped: it begins with what they found, visits the `AGAIN` closest lists once more,
and then the closest lists that none of them has visited.

That holds as long as the query points where it did. In the first rounds it turns far (of WordNet's synsets under a
scorer that the encoder sees in part, the median cosine of a later round with the second is .36), and then a list that
was read for one query holds other items that are best for the next. So a tour of the lists begins anew once the query
has turned away from where it began (`ALIKE`). On 117,659 synsets rounds that passed by whatever they had visited found
.41 of the best where flat ones found .46, and these .44 (`benchmarks/rounds.py`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from crosscut.linalg.arrays import NOTHING, Ids

ALIKE = 0.95  # cosine
AGAIN = 4  # closest lists that are visited in every search


@dataclass
class Trail:
    """The searches of one query so far. `IVF.search_many` follows it and marks it; `ids` are the caller's to set."""

    ids: Ids = field(default_factory=lambda: NOTHING)  # to begin with
    visited: npt.NDArray[np.bool_] | None = None  # (lists)
    towards: npt.NDArray[np.float32] | None = None  # (d) the query that this tour began with
    probed: int = 0  # lists, by the last search
    parts: dict[int, Trail] = field(default_factory=dict)  # through the parts of an index that has several

    def part(self, number: int) -> Trail:
        """The trail through one part."""
        return self.parts.setdefault(number, Trail())

    def close(self, near: npt.NDArray[np.float32], query: npt.NDArray[np.float32]) -> None:
        """Put −inf, in place, for the lists of `near` (similarities to the centroids) that need no second visit.

        When the query has turned away from where it pointed then, or fewer lists are left than the last search visited,
        the tour begins anew.
        """
        if self.visited is None or self.towards is None or not _alike(self.towards, query):
            self.visited, self.towards = np.zeros(len(near), dtype=np.bool_), query
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


def _alike(one: npt.NDArray[np.float32], other: npt.NDArray[np.float32]) -> bool:
    """Whether two queries point in nearly the same direction."""
    return float(one @ other) >= ALIKE * math.sqrt(float(one @ one) * float(other @ other))


def _nth(values: npt.NDArray[np.float32], n: int) -> np.float32:
    """The n-th largest value, the smallest if there are fewer."""
    place = max(len(values) - n, 0)
    return np.float32(np.partition(values, place)[place])
