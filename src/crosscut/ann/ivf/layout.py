"""The data of a clustered index: vectors list by list, and where each of them stands."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from crosscut.ann import clusters
from crosscut.ann.results import Metric
from crosscut.errors import InputError
from crosscut.linalg.arrays import NOTHING, Ids, checked_vectors, named, rising
from crosscut.storage import Touched
from crosscut.types import Array, Mask

if TYPE_CHECKING:
    from crosscut.ann.ivf.probing import Stored

Single = npt.NDArray[np.float32]
COPIED = 1 << 16  # rows copied at a time


@dataclass(frozen=True, eq=False)
class Layout:
    """Vectors, list by list. It is never changed: a search goes on with the layout that it began with."""

    centroids: Single  # (lists × d)
    vectors: Array  # (n × d)
    starts: Ids  # (lists + 1) where each list begins
    ids: Ids  # (n)
    metric: Metric = "ip"
    guard: Touched | None = field(default=None, repr=False)  # compares what is read of a file
    ordered: bool = False  # ids are places
    _allowed: list[tuple[Ids, Ids, Mask]] = field(default_factory=list, repr=False)  # the last answer of `allowed`

    @classmethod
    def of(
        cls, vectors: Array, centroids: Single, list_of: Ids, ids: Ids, metric: Metric, dtype: npt.DTypeLike
    ) -> Layout:
        """Vectors laid out by the list of each (n)."""
        order = np.argsort(list_of, kind="stable")
        stored = np.empty(vectors.shape, dtype=dtype)
        for start in range(0, len(order), COPIED):  # no second copy of everything beside it
            stored[start : start + COPIED] = vectors[order[start : start + COPIED]]
        starts = np.searchsorted(list_of[order], np.arange(len(centroids) + 1)).astype(np.int64)
        return cls(centroids, stored, starts, ids[order], metric)

    @property
    def n(self) -> int:
        return len(self.vectors)

    @property
    def d(self) -> int:
        return int(self.vectors.shape[1])

    @property
    def nbytes(self) -> int:
        """Memory, of everything."""
        arrays = (self.centroids, self.vectors, self.starts, self.ids, self.places, self.norms)
        return sum(array.nbytes for array in arrays)

    @property
    def list_of(self) -> Ids:
        """(n) the list of each vector."""
        return np.repeat(np.arange(len(self.centroids)), np.diff(self.starts))

    @cached_property
    def norms(self) -> Single:
        """(lists) squared lengths of the centroids."""
        return np.asarray((self.centroids * self.centroids).sum(axis=1))

    @cached_property
    def dense(self) -> bool:
        """Whether the ids are 0 … n − 1."""
        return self.ordered or not self.n or bool(self.ids.min() == 0 and self.ids.max() == self.n - 1)

    @cached_property
    def places(self) -> Ids:
        """(n) where the vector of every id stands, in order of id."""
        if self.ordered:
            return self.ids
        if not self.dense:
            return np.argsort(self.ids)
        places = np.empty(self.n, dtype=np.int64)
        places[self.ids] = np.arange(self.n)
        return places

    @cached_property
    def stored(self) -> Stored:
        """For the compiled search, to which a memory map is an array like any other."""
        from crosscut.ann.ivf.probing import Stored

        bits = self.vectors.view(np.uint16) if self.vectors.dtype == np.float16 else self.vectors
        return Stored(np.asarray(bits), np.asarray(self.starts), np.asarray(self.ids), self.metric == "l2")

    def places_of(self, ids: npt.ArrayLike | None) -> Ids:
        """Where the vectors of these ids stand; unknown ids are refused."""
        wanted = NOTHING if ids is None else np.asarray(ids).reshape(-1)
        if not len(wanted):
            return NOTHING
        if not np.issubdtype(wanted.dtype, np.integer):
            raise InputError(f"ids are whole numbers; got {wanted[0]!r}")
        if self.dense:
            missing = (wanted < 0) | (wanted >= self.n)
            at = wanted
        else:
            at = np.minimum(np.searchsorted(self.ids, wanted, sorter=self.places), self.n - 1)
            missing = self.ids[self.places[at]] != wanted
        if missing.any():
            raise InputError(f"id {wanted[missing][0]} is not in this index of {self.n} vectors")
        return np.asarray(at if self.ordered else self.places[at], dtype=np.int64)

    def ready(self, lists: Ids) -> None:
        """Compare lists that a search has visited with their checksums, if that was not done before."""
        if self.guard is not None:
            self.guard.ready(self.starts[lists], self.starts[lists + 1])

    def allowed(self, ids: npt.ArrayLike | None) -> tuple[Ids, Mask | None]:
        """Sorted places of the ids that may be found, and (lists) whether a list holds none of them.

        The rounds of a search ask with the same ids again and again: the last answer is kept.
        """
        if ids is None:
            return NOTHING, None
        last = self._allowed[0] if self._allowed else None
        if last is not None and last[0] is ids:
            return last[1], last[2]
        wanted = np.asarray(ids).reshape(-1)
        same = last is not None and np.array_equal(last[0], wanted)
        if last is None or not same:
            places = wanted.astype(np.int64, copy=False) if self.ordered else self.places_of(wanted)
            if not rising(places):
                places = np.sort(places)
            if self.ordered and len(places):
                self.places_of(places[[0, -1]])  # refuses what is not there
            closed = np.asarray(np.diff(np.searchsorted(places, self.starts)) == 0)
            last = (wanted, places, closed)
        self._allowed[:] = [(wanted if not isinstance(ids, np.ndarray) else ids, *last[1:])]
        return last[1], last[2]

    def similarities(self, queries: Single) -> Single:
        """σ(q, c) of every query and centroid (q × lists)."""
        if len(queries) == 1:
            from crosscut.linalg import kernels

            near = np.empty((1, len(self.centroids)), dtype=np.float32)
            (kernels.distance if self.metric == "l2" else kernels.dot)(self.centroids, queries[0], near[0])
            return near
        near = queries @ self.centroids.T
        if self.metric == "l2":
            near *= 2
            near -= self.norms
            near -= (queries * queries).sum(axis=1, keepdims=True)
        return near

    def extended(self, vectors: npt.ArrayLike, ids: npt.ArrayLike | None) -> tuple[Layout, Ids]:
        """With more vectors, in the lists of their nearest centroids; and their ids."""
        array = checked_vectors(vectors, "vectors", self.d, self.vectors.dtype)
        names = named(ids, len(array), int(self.ids.max()) + 1 if self.n else 0)
        if len(np.unique(names)) < len(names) or np.isin(names, self.ids).any():
            raise InputError("ids must be distinct, and new to the index: remove the old vectors first")
        list_of = np.concatenate([self.list_of, clusters.assign(array, self.centroids)])
        everything = np.concatenate([self.vectors, array.astype(self.vectors.dtype)])
        return self._anew(everything, list_of, np.concatenate([self.ids, names])), names

    def without(self, ids: npt.ArrayLike) -> Layout:
        """Less some vectors."""
        stays = np.ones(self.n, dtype=bool)
        stays[self.places_of(ids)] = False
        return self._anew(self.vectors[stays], self.list_of[stays], self.ids[stays])

    def _anew(self, vectors: Array, list_of: Ids, ids: Ids) -> Layout:
        return Layout.of(vectors, self.centroids, list_of, ids, self.metric, vectors.dtype)
