"""`IVF`: a clustered index (inverted file) with early exit, over float32 or float16 vectors.

k-means cuts the vectors into lists. A query visits the lists whose centroids are closest, one after another, until its
exit rule (`early_exit.py`) is content: Busolin et al. 2024.

    σ(q, v)   inner product, or −‖q − v‖²: larger is closer, in both
    N         the most lists a query may visit
    RS_h      the best k after h lists

On disk an index is a folder: `ivf.json` (format, metric, rule), `vectors.npy` (n × d, list by list, memory-mapped when
loaded), `starts.npy` (where each list begins), `ids.npy` (n), `centroids.npy` (lists × d), and what the rule needs.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from crosscut.ann import clusters
from crosscut.ann.early_exit import USUAL, Fixed, Rule, as_rule
from crosscut.ann.trail import Trail
from crosscut.errors import InputError
from crosscut.linalg.arrays import NOTHING, Ids, finite, inside, joined, named, storage, untie
from crosscut.linalg.products import pool, product
from crosscut.spaces.base import Slot, Space
from crosscut.storage import Unread
from crosscut.threads import cores
from crosscut.types import Floats, Positions

if TYPE_CHECKING:
    from crosscut.ann.base import TopK
    from crosscut.ann.probing import Lists, Program
    from crosscut.ann.tuning import Tuned

Metric = Literal["ip", "l2"]
BATCH = 1 << 23  # similarities to centroids held at a time: 32 MiB


class Found(NamedTuple):
    """The result of one query and its cost. Best first."""

    ids: Ids  # (≤ k)
    scores: npt.NDArray[np.float32]  # (≤ k) inner products, or minus squared distances
    lists: int  # probed
    vectors: int  # scanned


class FoundMany(NamedTuple):
    """The results of a batch and their cost. Where there are fewer than k, ids are −1 and scores −inf."""

    ids: Ids  # (q × k)
    scores: npt.NDArray[np.float32]  # (q × k)
    lists: Ids  # (q) probed
    vectors: Ids  # (q) scanned


class IVF(Space):
    """A clustered index. Make one with `IVF.build` or `IVF.load`.

    Examples
    --------
    >>> index = IVF.build(vectors, metric="ip", dtype=np.float16)
    >>> found = index.search(query, k=10)
    >>> found.ids, found.scores, found.lists, found.vectors
    >>> index.tune(train_queries, target=0.95)              # choose N and the exit rule on queries of your own
    >>> index.search(query, k=10, exclude=seen, rule=Patience(7, 0.05))
    """

    slot: ClassVar[Slot] = "encoder"
    of_queries: ClassVar[bool] = True

    def __init__(
        self,
        centroids: npt.NDArray[np.float32],
        vectors: npt.NDArray[Any],
        starts: Ids,
        ids: Ids,
        *,
        metric: Metric = "ip",
        rule: Rule | None = None,
    ) -> None:
        self.centroids = centroids  # (lists × d)
        self._vectors = vectors  # (n × d), list by list
        self._unread = Unread()
        self.starts = starts  # (lists + 1)
        self.ids = ids  # (n)
        self.metric = metric
        self.rule: Rule = rule or USUAL
        self._arrange()

    def _arrange(self) -> None:
        """What follows from the arrays."""
        self._norms = (self.centroids * self.centroids).sum(axis=1)
        dense = len(self.ids) and self.ids.min() == 0 and self.ids.max() == len(self.ids) - 1
        self._places = np.empty(len(self.ids), dtype=np.int64)
        if dense:
            self._places[self.ids] = np.arange(len(self.ids))
        else:
            self._places = np.argsort(self.ids)
        self._dense = bool(dense)
        self._lists: Lists | None = None
        self._last_allowed: tuple[Ids, Ids, npt.NDArray[np.bool_]] | None = None

    @classmethod
    def build(
        cls,
        vectors: npt.ArrayLike,
        *,
        lists: int | None = None,
        metric: Metric = "ip",
        dtype: npt.DTypeLike | None = None,
        ids: npt.ArrayLike | None = None,
        centroids: npt.ArrayLike | None = None,
        rule: Rule | int | None = None,
        seed: int = 0,
    ) -> IVF:
        """An index of (n × d) vectors.

        Parameters
        ----------
        lists
            Number of clusters; a power of two near 4 √n when not given, never more than n.
        metric
            `ip` (inner product) or `l2`.
        dtype
            float32 or float16 storage; that of the vectors when not given (float64 becomes float32).
        ids
            (n) whole numbers that name the vectors; their positions when not given.
        centroids
            (lists × d) of your own, instead of k-means.
        rule
            The exit rule of searches that name none; a number is `Fixed`. `early_exit.USUAL` when not given.
        """
        array = np.asarray(vectors)
        if array.ndim != 2 or not array.shape[0]:
            raise InputError(f"an index needs vectors (n × d), one at least; got shape {array.shape}")
        if metric not in ("ip", "l2"):
            raise InputError(f"the metric is 'ip' or 'l2'; got {metric!r}")
        kind = storage(array.dtype if dtype is None else np.dtype(dtype), given=dtype is not None)
        finite(array, "vectors")
        if lists is not None and lists < 1:
            raise InputError(f"an index needs at least 1 list; got {lists}")
        if centroids is None:
            centres, home = clusters.partition(array, lists, seed, inner=metric == "ip")
        else:
            centres = np.ascontiguousarray(centroids, dtype=np.float32)
            if centres.ndim != 2 or centres.shape[1] != array.shape[1]:
                raise InputError(f"centroids of shape {centres.shape} for vectors of {array.shape[1]} dimensions")
            finite(centres, "centroids")
            home = clusters.assign(array, centres)
        names = named(ids, len(array), 0)
        _, counts = np.unique(names, return_counts=True)
        if (counts > 1).any():
            raise InputError(f"ids must be distinct: {len(names)} ids name {len(counts)} vectors")
        return cls._laid_out(array, centres, home, names, kind, metric, rule)

    @classmethod
    def of_homes(
        cls, vectors: npt.NDArray[Any], centroids: npt.NDArray[np.float32], home: Ids, rule: Rule | int | None = None
    ) -> IVF:
        """An index of vectors whose lists are known: `home` (n) is the list of each. By inner product."""
        kind = storage(vectors.dtype, given=False)
        return cls._laid_out(vectors, centroids, home, np.arange(len(vectors)), kind, "ip", rule)

    @classmethod
    def _laid_out(
        cls,
        vectors: npt.NDArray[Any],
        centres: npt.NDArray[np.float32],
        home: Ids,
        names: Ids,
        kind: np.dtype[Any],
        metric: Metric,
        rule: Rule | int | None,
    ) -> IVF:
        order = np.argsort(home, kind="stable")
        stored = np.empty(vectors.shape, dtype=kind)
        for start in range(0, len(order), 1 << 16):  # no second copy of everything beside it
            stored[start : start + (1 << 16)] = vectors[order[start : start + (1 << 16)]]
        starts = np.searchsorted(home[order], np.arange(len(centres) + 1)).astype(np.int64)
        return cls(centres, stored, starts, names[order], metric=metric, rule=None if rule is None else as_rule(rule))

    @property
    def topk(self) -> TopK | None:
        """For the rounds of a search; few items are read whole."""
        from crosscut.ann.clustered import SMALL, Clustered

        return Clustered(self) if self.n >= SMALL else None

    @property
    def n(self) -> int:
        """The number of vectors."""
        return int(self._vectors.shape[0])

    @property
    def d(self) -> int:
        """The number of dimensions."""
        return int(self._vectors.shape[1])

    @property
    def vectors(self) -> npt.NDArray[Any]:
        """(n × d), list by list; those of a file are compared with their checksums when they are first asked for."""
        self._unread.check()
        return self._vectors

    @property
    def most(self) -> int:
        """The number of lists."""
        return len(self.centroids)

    @property
    def nbytes(self) -> int:
        """Memory, of the whole index."""
        arrays = (self.centroids, self._vectors, self.starts, self.ids, self._places, self._norms)
        return sum(array.nbytes for array in arrays)

    def search(
        self,
        query: npt.ArrayLike,
        k: int = 10,
        *,
        rule: Rule | int | None = None,
        exclude: npt.ArrayLike | None = None,
        allow: npt.ArrayLike | None = None,
    ) -> Found:
        """The k closest vectors to one query (d).

        Parameters
        ----------
        rule
            When to stop; that of the index when not given. A number is a fixed number of lists.
        exclude, allow
            Ids that must not be found; the only ids that may be. Lists without an allowed vector are not visited.
        """
        queries = np.asarray(query, dtype=np.float32).reshape(1, -1)
        out = self.search_many(queries, k, rule=rule, exclude=None if exclude is None else [exclude], allow=allow)
        count = int((out.ids[0] >= 0).sum())
        return Found(out.ids[0, :count], out.scores[0, :count], int(out.lists[0]), int(out.vectors[0]))

    def search_many(
        self,
        queries: npt.ArrayLike,
        k: int = 10,
        *,
        rule: Rule | int | None = None,
        exclude: Sequence[npt.ArrayLike | None] | None = None,
        allow: npt.ArrayLike | None = None,
        trails: Sequence[Trail] | None = None,
        threads: int | None = None,
    ) -> FoundMany:
        """What `search` finds, for every query (q × d).

        `exclude` and `trails` have one entry per query, `allow` holds for all. With a trail a search goes on where
        those before it have stopped, see `crosscut.ann.trail`.
        """
        points = self._queries(queries)
        program = self._program(rule, k)
        return self._run(points, k, program, exclude, allow, trails, threads)[0]

    def traces(self, queries: npt.ArrayLike, k: int, lists: int) -> tuple[FoundMany, npt.NDArray[np.float32]]:
        """Search to a fixed depth, and tell what every list did: (q × lists × 4), see `probing`."""
        points = self._queries(queries)
        return self._run(points, k, self._program(Fixed(lists), k), None, None, None, None, traced=True)

    def similarities(self, queries: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
        """σ(q, c) of every query and centroid (q × lists)."""
        if len(queries) == 1:
            from crosscut.linalg import kernels

            near = np.empty((1, len(self.centroids)), dtype=np.float32)
            (kernels.distance if self.metric == "l2" else kernels.dot)(self.centroids, queries[0], near[0])
            return near
        near = queries @ self.centroids.T
        if self.metric == "l2":
            near *= 2
            near -= self._norms
            near -= (queries * queries).sum(axis=1, keepdims=True)
        return near

    def _run(
        self,
        points: npt.NDArray[np.float32],
        k: int,
        program: Program,
        exclude: Sequence[npt.ArrayLike | None] | None,
        allow: npt.ArrayLike | None,
        trails: Sequence[Trail] | None,
        threads: int | None,
        traced: bool = False,
    ) -> tuple[FoundMany, npt.NDArray[np.float32]]:
        from crosscut.ann import probing

        count = len(points)
        if exclude is not None and len(exclude) != count:
            raise InputError(f"{len(exclude)} sets of excluded ids for {count} queries: give one for each, or None")
        if trails is not None and len(trails) != count:
            raise InputError(f"{len(trails)} trails for {count} queries: give one for each")
        scores = np.full((count, k), -np.inf, dtype=np.float32)
        places = np.full((count, k), -1, dtype=np.int64)
        costs = np.zeros((count, 3), dtype=np.int64)
        traces = np.zeros((count if traced else 0, program.lists if traced else 0, 4), dtype=np.float32)
        allowed, closed = self._allowed(allow)
        gone = [NOTHING if exclude is None else self._sorted_places(exclude[j]) for j in range(count)]
        begun = [NOTHING] * count
        for j, trail in enumerate(trails or ()):
            known = np.setdiff1d(self._sorted_places(trail.ids), gone[j])
            begun[j] = known if allow is None else known[inside(known, allowed)]
            gone[j] = np.sort(np.concatenate([gone[j], begun[j]]))
        gone_all, gone_starts = joined(gone)
        begun_all, begun_starts = joined(begun)
        lists = self._as_lists()
        learned = len(program.classifier.roots) or len(program.regression.roots)
        width = min(max(program.lists, 100 if learned else 0), len(self.centroids))
        workers = 1 if count == 1 else threads or cores()
        step = max(1, BATCH // len(self.centroids))
        for low in range(0, count, step):
            here = slice(low, min(low + step, count))
            near = self.similarities(points[here])  # (b × lists)
            if closed is not None:
                near[:, closed] = -np.inf
            for trail, row in zip(trails[here] if trails else (), near, strict=False):
                trail.close(row)
            # neighbours in turn visit the same lists, which then still are in the processor's cache
            turns = np.argsort(near.argmax(axis=1), kind="stable") if len(near) > 1 else np.zeros(1, dtype=np.int64)

            def work(part: Ids, here: slice = here, near: npt.NDArray[np.float32] = near) -> None:
                probing.probe_all(
                    points[here],
                    part,
                    near,
                    lists,
                    program,
                    gone_all,
                    gone_starts[here.start : here.stop + 1],
                    allowed,
                    allow is not None,
                    begun_all,
                    begun_starts[here.start : here.stop + 1],
                    width,
                    scores[here],
                    places[here],
                    costs[here],
                    traces[here],
                )

            if workers == 1:
                work(turns)
            else:
                list(pool().map(work, np.array_split(turns, min(len(turns), 4 * workers))))
            for trail, row, probed in zip(trails[here] if trails else (), near, costs[here, 1], strict=False):
                trail.mark(row, int(probed))
        ids = np.where(places >= 0, self.ids[places], -1)
        untie(ids, scores)
        return FoundMany(ids, scores, costs[:, 1], costs[:, 2]), traces

    def _as_lists(self) -> Lists:
        if self._lists is None:
            from crosscut.ann.probing import Lists

            bits = self.vectors.view(np.uint16) if self.vectors.dtype == np.float16 else self.vectors
            # a memory map is an array like any other to the compiled search
            self._lists = Lists(np.asarray(bits), np.asarray(self.starts), self.metric == "l2")
        return self._lists

    def _program(self, rule: Rule | int | None, k: int) -> Program:
        if not isinstance(k, int | np.integer) or isinstance(k, bool) or k < 1:
            raise InputError(f"k must be a whole number of at least 1; got {k!r}")
        return as_rule(self.rule if rule is None else rule).program(int(k), len(self.centroids))

    def _sorted_places(self, ids: npt.ArrayLike | None) -> Ids:
        """Where the vectors of these ids stand, in order; unknown ids are refused."""
        return np.sort(self._places_of(NOTHING if ids is None else ids))

    def _places_of(self, ids: npt.ArrayLike) -> Ids:
        wanted = np.asarray(ids).reshape(-1)
        if not len(wanted):
            return NOTHING
        if not np.issubdtype(wanted.dtype, np.integer):
            raise InputError(f"ids are whole numbers; got {wanted[0]!r}")
        if self._dense:
            low, high = wanted.min(), wanted.max()
            if low < 0 or high >= self.n:
                raise InputError(f"id {low if low < 0 else high} is not in this index of {self.n} vectors")
            return np.asarray(self._places[wanted], dtype=np.int64)
        at = np.minimum(np.searchsorted(self.ids, wanted, sorter=self._places), self.n - 1)
        places = np.asarray(self._places[at], dtype=np.int64)
        missing = self.ids[places] != wanted
        if missing.any():
            raise InputError(f"id {wanted[missing][0]} is not in this index of {self.n} vectors")
        return places

    def _allowed(self, ids: npt.ArrayLike | None) -> tuple[Ids, npt.NDArray[np.bool_] | None]:
        """Sorted places of the ids that may be found, and (lists) whether a list holds none of them.

        The rounds of a search ask with the same ids again and again: the last answer is kept.
        """
        if ids is None:
            return NOTHING, None
        wanted = np.asarray(ids).reshape(-1)
        last = self._last_allowed
        if last is None or last[0].dtype != wanted.dtype or not np.array_equal(last[0], wanted):
            places = self._sorted_places(wanted)
            closed = np.asarray(np.diff(np.searchsorted(places, self.starts)) == 0)
            self._last_allowed = last = (wanted.copy(), places, closed)
        return last[1], last[2]

    def _queries(self, queries: npt.ArrayLike) -> npt.NDArray[np.float32]:
        points = np.ascontiguousarray(queries, dtype=np.float32)
        if points.ndim != 2 or points.shape[1] != self.d:
            raise InputError(
                f"queries of shape {points.shape} for an index of {self.d} dimensions: pass (q × {self.d})"
            )
        finite(points, "queries")
        return points

    def rows(self, positions: Positions) -> Floats:
        """The vectors of some ids (m × d), in float64: with `predict`, this makes an index a space (`spaces.base`)."""
        return self.vectors[self._places_of(positions)].astype(np.float64)

    def predict(self, queries: Floats) -> npt.NDArray[Any]:
        """Inner products with every vector, by id 0 … n − 1: (q × d) → (q × n). Reads everything."""
        if not self._dense:
            raise InputError("predictions for all items need ids 0 … n − 1; this index has others")
        return np.ascontiguousarray(product(np.asarray(self.vectors), queries)[:, self._places])

    def add(self, vectors: npt.ArrayLike, ids: npt.ArrayLike | None = None) -> Ids:
        """Add (m × d) vectors to the lists of their nearest centroids; returns their ids.

        The lists are laid out anew, which reads and writes the whole index once: add many at a time.
        """
        array = np.asarray(vectors)
        if array.ndim != 2 or array.shape[1] != self.d:
            raise InputError(f"vectors of shape {array.shape} for an index of {self.d} dimensions")
        finite(array, "vectors")
        names = named(ids, len(array), int(self.ids.max()) + 1 if self.n else 0)
        if len(np.unique(names)) < len(names) or np.isin(names, self.ids).any():
            raise InputError("ids must be distinct, and new to the index: remove the old vectors first")
        home = np.concatenate([self._home(), clusters.assign(array, self.centroids)])
        stored = np.concatenate([self.vectors, array.astype(self.vectors.dtype)])
        self._lay_out(stored, np.concatenate([self.ids, names]), home)
        return names

    def remove(self, ids: npt.ArrayLike) -> None:
        """Take vectors out; like `add`, it rewrites the index once."""
        keep = np.ones(self.n, dtype=bool)
        keep[self._places_of(ids)] = False
        self._lay_out(self.vectors[keep], self.ids[keep], self._home()[keep])

    def _home(self) -> Ids:
        return np.repeat(np.arange(len(self.centroids)), np.diff(self.starts))

    def _lay_out(self, vectors: npt.NDArray[Any], ids: Ids, home: Ids) -> None:
        order = np.argsort(home, kind="stable")
        self._vectors, self.ids = vectors[order], ids[order]
        self.starts = np.searchsorted(home[order], np.arange(len(self.centroids) + 1)).astype(np.int64)
        self._arrange()

    def tune(
        self,
        queries: npt.ArrayLike,
        target: float = 0.95,
        *,
        k: int = 100,
        loss: float = 0.02,
        rules: Sequence[str] | None = None,
    ) -> Tuned:
        """Choose N and an exit rule on (train) queries of your own, and make it this index's; see `tuning.tune`."""
        from crosscut.ann.tuning import tune

        tuned = tune(self, self._queries(queries), target=target, k=k, loss=loss, rules=rules)
        self.rule = tuned.rule
        return tuned

    def save(self, path: str | Path) -> None:
        """Write the index as a folder, replaced in one step."""
        from crosscut.ann.files import write

        arrays = {"vectors": self.vectors, "starts": self.starts, "ids": self.ids, "centroids": self.centroids}
        rule = None if self.rule is USUAL else self.rule.json()
        write(Path(path), {"metric": self.metric, "rule": rule}, arrays)

    @classmethod
    def load(cls, path: str | Path, *, memory_map: bool = True) -> IVF:
        """Open a folder that `save` wrote; the vectors stay on disk until a search visits them."""
        from crosscut.ann.early_exit import from_json
        from crosscut.ann.files import read

        record, arrays, unread = read(Path(path), memory_map=memory_map)
        rule = None if record["rule"] is None else from_json(record["rule"])
        made = cls(**arrays, metric=record["metric"], rule=rule)
        made._unread = unread
        return made

    def __len__(self) -> int:
        return self.n

    def __repr__(self) -> str:
        return f"IVF({self.n} × {self.d} {self._vectors.dtype}, {self.most} lists, {self.metric}, {self.rule})"
