"""Items that were added to a large index since its lists were made: lists of their own, once they are thousands.

Their lists are made anew whenever a quarter came to those that are in lists, so that an item that is added costs a
bounded share of k-means and a copy, however many there are; the latest are in no list, and read whole.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from crosscut.ann import clusters
from crosscut.ann.ivf import IVF
from crosscut.spaces.rows import FiledVectors
from crosscut.storage import Files, Saved
from crosscut.types import Array, Positions

LATEST = 1 << 13  # items that came later, up to which every round reads them all


@dataclass(frozen=True, eq=False)
class LaterLists:
    """The lists of the first j items that came later."""

    lists: npt.NDArray[np.int32]  # (j) the list of each
    index: IVF  # of their vectors; an id is a place among them

    @classmethod
    def of(cls, more: Array, centroids: npt.NDArray[np.float32], lists: npt.NDArray[np.int32]) -> LaterLists:
        """Of the vectors of items that came later, of which the first are in lists."""
        return cls(lists, IVF.arrange(more[: len(lists)], centroids, lists.astype(np.int64)))

    def write(self, files: Files) -> None:
        files.array("more-centroids", self.index.centroids)
        files.array("more-lists", self.lists)

    @classmethod
    def read(cls, saved: Saved, more: Array) -> LaterLists | None:
        """What `write` wrote, of these vectors."""
        if "more-lists.npy" not in saved:
            return None
        centroids = saved.numbers("more-centroids", "<f4", (None, more.shape[1]))
        lists = saved.array("more-lists", "<i4", (None,))
        if not (0 < len(lists) <= len(more) and lists.min() >= 0 and lists.max() < len(centroids)):
            raise saved.damaged("more-lists.npy", f"does not share {len(more)} items among {len(centroids)} lists")
        return cls.of(more, centroids, lists)

    def taken(self, places: Positions, more: Array) -> LaterLists | None:
        """Of some of the items that came later, whose vectors are `more`."""
        lists = self.lists[places[(places >= 0) & (places < len(self.lists))]]
        return LaterLists.of(more, self.index.centroids, lists) if len(lists) else None


def joined(later: LaterLists | None, rows: FiledVectors, seed: int) -> LaterLists | None:
    """Lists of the items that came later, made anew if many of them are in none."""
    known = 0 if later is None else len(later.lists)
    if len(rows.more) - known < max(LATEST, known // 4):
        return later
    centroids, lists = clusters.partition(rows.more, seed=seed)
    return LaterLists.of(rows.more, centroids, lists.astype(np.int32))
