"""`IVF`: a clustered index (inverted file) with early exit, over float32 or float16 vectors.

k-means cuts the vectors into lists. A query visits the lists whose centroids are closest, one after another, until its
exit rule (`rules.py`) is content: Busolin et al. 2024.

    σ(q, v)   inner product, or −‖q − v‖²: larger is closer, in both
    N         the most lists a query may visit
    RS_h      the best k after h lists

In a folder (`crosscut.storage`), which is replaced as a whole:

    ivf.json            its record, with the metric and the exit rule
    vectors.npy         (n × d) float16 or float32, list by list
    starts.npy          (lists + 1) where each list begins
    ids.npy             (n) the id of each vector
    centroids.npy       (lists × d)
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

import numpy as np
import numpy.typing as npt

from crosscut.ann import clusters
from crosscut.ann.ivf.rules import TAU, USUAL, Conditions, Rule, as_rule, from_json
from crosscut.ann.results import METRICS, Metric, Nearest, NearestMany, as_queries, each
from crosscut.errors import InputError
from crosscut.linalg.arrays import NOTHING, Ids, checked_vectors, inside, joined, named, rising, storage
from crosscut.linalg.products import pool, product
from crosscut.spaces.base import Slot, Space
from crosscut.spaces.home import Home
from crosscut.storage import Files, Folder, Kind, Saved, divides
from crosscut.threads import cores
from crosscut.types import Array, Floats, Mask, Positions, whole

if TYPE_CHECKING:
    from crosscut.ann.ivf.kernels import Answers, Lists, Queries
    from crosscut.ann.ivf.tuning import Tuned
    from crosscut.ann.topk import TopK

Single = npt.NDArray[np.float32]
PerQuery = Sequence[npt.ArrayLike | None] | None

KIND = Kind("clustered index", "ivf.json", 2)
COPIED = 1 << 16  # rows copied at a time
BATCH = 1 << 23  # similarities to centroids held at a time: 32 MiB
DESCRIBED = 100  # closest centroids that the features of a forest look at


class IVF(Space):
    """A clustered index, which is never changed. Make one with `IVF.build` or `IVF.load`.

    Several indexes, each of other items, may share their centroids.

    Parameters
    ----------
    centroids : (lists × d).
    vectors : (n × d), list by list.
    starts : (lists + 1) where each list begins.
    ids : (n) of the vectors.
    rule : the exit rule of searches that name none; a number is `Fixed`. `rules.USUAL` when not given.

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
        centroids: Single,
        vectors: Array,
        starts: Ids,
        ids: Ids,
        *,
        metric: Metric = "ip",
        rule: Rule | int | None = None,
    ) -> None:
        self.centroids, self.vectors, self.starts, self.ids, self.metric = centroids, vectors, starts, ids, metric
        self.rule = USUAL if rule is None else as_rule(rule)
        self._last_allowed: tuple[Ids, Ids, Mask] | None = None

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
        """Return an index of (n × d) vectors.

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
            The exit rule of searches that name none.
        """
        given = np.asarray(vectors)
        kind = storage(given.dtype if dtype is None else np.dtype(dtype), given=dtype is not None)
        array = checked_vectors(given, "vectors", kind=kind)
        if not array.size:
            raise InputError(f"an index needs vectors (n × d), one at least; got shape {array.shape}")
        if metric not in METRICS:
            raise InputError(f"the metric is 'ip' or 'l2'; got {metric!r}")
        count = None if lists is None else whole("lists", lists, 1)
        if centroids is None:
            centres, list_of = clusters.partition(array, count, whole("seed", seed), inner=metric == "ip")
        else:
            own = checked_vectors(centroids, "centroids", array.shape[1])
            if not len(own):
                raise InputError("an index needs at least 1 list; got no centroids")
            centres = np.ascontiguousarray(own, dtype=np.float32)
            list_of = clusters.assign(array, centres)
        names = named(ids, len(array), 0)
        if (distinct := len(np.unique(names))) < len(names):
            raise InputError(f"ids must be distinct: {len(names)} ids name {distinct} vectors")
        return cls.arrange(array, centres, list_of, names, metric=metric, dtype=kind, rule=rule)

    @classmethod
    def arrange(
        cls,
        vectors: Array,
        centroids: Single,
        list_of: Ids,
        ids: Ids | None = None,
        *,
        metric: Metric = "ip",
        dtype: npt.DTypeLike | None = None,
        rule: Rule | int | None = None,
    ) -> IVF:
        """Return an index of vectors whose lists are known: `list_of` (n) is the list of each."""
        order = np.argsort(list_of, kind="stable")
        stored = np.empty(vectors.shape, dtype=dtype or storage(vectors.dtype, given=False))
        for start in range(0, len(order), COPIED):  # no second copy of everything beside it
            stored[start : start + COPIED] = vectors[order[start : start + COPIED]]
        starts = np.searchsorted(list_of[order], np.arange(len(centroids) + 1)).astype(np.int64)
        return cls(centroids, stored, starts, order if ids is None else ids[order], metric=metric, rule=rule)

    @property
    def n(self) -> int:
        """The number of vectors."""
        return len(self.vectors)

    @property
    def d(self) -> int:
        """The number of dimensions."""
        return int(self.vectors.shape[1])

    @property
    def most(self) -> int:
        """The number of lists."""
        return len(self.centroids)

    def __len__(self) -> int:
        return self.n

    def __repr__(self) -> str:
        return f"IVF({self.n} × {self.d} {self.vectors.dtype}, {self.most} lists, {self.metric}, {self.rule})"

    # -- ids and places

    @cached_property
    def dense(self) -> bool:
        """Whether the ids are 0 … n − 1."""
        return not self.n or bool(self.ids.min() == 0 and self.ids.max() == self.n - 1)

    @cached_property
    def places(self) -> Ids:
        """(n) where the vector of every id is, in order of id."""
        if not self.dense:
            return np.argsort(self.ids)
        places = np.empty(self.n, dtype=np.int64)
        places[self.ids] = np.arange(self.n)
        return places

    def places_of(self, ids: npt.ArrayLike | None) -> Ids:
        """Return where the vectors of these ids are; refuse unknown ids."""
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
        return np.asarray(self.places[at], dtype=np.int64)

    # -- search

    def search(
        self,
        query: npt.ArrayLike,
        k: int = 10,
        *,
        rule: Rule | int | None = None,
        exclude: npt.ArrayLike | None = None,
        allow: npt.ArrayLike | None = None,
    ) -> Nearest:
        """Return the k closest vectors to one query (d).

        Parameters
        ----------
        rule
            When to stop; that of the index when not given. A number is a fixed number of lists.
        exclude, allow
            Ids that must not be found; the only ids that may be. Lists without an allowed vector are not visited.
        """
        gone = None if exclude is None else [exclude]
        return self.search_many(np.asarray(query).reshape(1, -1), k, rule=rule, exclude=gone, allow=allow).only()

    def search_many(
        self,
        queries: npt.ArrayLike,
        k: int = 10,
        *,
        rule: Rule | int | None = None,
        exclude: PerQuery = None,
        allow: npt.ArrayLike | None = None,
        starts: PerQuery = None,
        threads: int | None = None,
    ) -> NearestMany:
        """Return what `search` finds, for every query (q × d).

        `exclude` and `starts` have one entry per query, `allow` holds for all. `starts` are ids to begin with: what an
        earlier search of a query that moves has found.
        """
        points = as_queries(queries, self.d, k)
        stop = (self.rule if rule is None else as_rule(rule)).conditions(int(k), self.most)
        found = self.probe(points, int(k), stop, exclude, allow, starts, threads)[0]
        wrong = found.ids[~np.isfinite(found.scores)]
        if (wrong >= 0).any():
            raise _no_number(wrong.max())
        return found

    def probe(
        self,
        points: Single,
        k: int,
        stop: Conditions,
        exclude: PerQuery = None,
        allow: npt.ArrayLike | None = None,
        starts: PerQuery = None,
        threads: int | None = None,
        traced: bool = False,
    ) -> tuple[NearestMany, Single]:
        """Return what is found under these conditions, and a trace of every query (q × N × 4) if `traced`."""
        from crosscut.ann.ivf.kernels import Answers, Queries

        count = len(points)
        if stop.learned:
            _check_features(stop, self.d)
        allowed, closed = self._allowed(allow)
        excluded = [np.sort(self.places_of(ids)) for ids in each("sets of excluded ids", exclude, count)]
        known = [NOTHING] * count
        for j, ids in enumerate([] if starts is None else each("sets of ids to begin with", starts, count)):
            begin = np.setdiff1d(self.places_of(ids), excluded[j])
            known[j] = begin if closed is None else begin[inside(begin, allowed)]
            excluded[j] = np.sort(np.concatenate([excluded[j], known[j]]))  # not found a second time in its list
        answers = Answers(
            np.full((count, k), -np.inf, dtype=np.float32),
            np.full((count, k), -1, dtype=np.int64),
            np.zeros((count, 2), dtype=np.int64),
            np.zeros((count, stop.lists, 4) if traced else (0, 0, 4), dtype=np.float32),
        )
        step = max(1, BATCH // self.most)
        for low in range(0, count, step):
            rows = slice(low, min(low + step, count))
            near = self.similarities(points[rows])  # (b × lists)
            if closed is not None:
                near[:, closed] = -np.inf
            queries = Queries(
                points[rows], near, *joined(excluded[rows]), *joined(known[rows]), allowed, closed is not None
            )
            here = Answers(answers.scores[rows], answers.places[rows], answers.costs[rows], answers.traces[rows])
            self._share_out(queries, stop, here, 1 if count == 1 else threads or cores())
        ids = np.full((count, k), -1, dtype=np.int64)
        found = answers.places >= 0
        ids[found] = self.ids[answers.places[found]]
        return NearestMany(ids, answers.scores, answers.costs[:, 0], answers.costs[:, 1]), answers.traces

    def _share_out(self, queries: Queries, stop: Conditions, answers: Answers, workers: int) -> None:
        """Neighbours in turn visit the same lists, which then still are in the processor's cache."""
        from crosscut.ann.ivf.kernels import probe_all

        near = queries.similarities
        width = min(max(stop.lists, DESCRIBED if stop.learned else 0), near.shape[1])
        turns = np.argsort(near.argmax(axis=1), kind="stable") if len(near) > 1 else np.zeros(1, dtype=np.int64)

        def work(part: Ids) -> None:
            probe_all(part, queries, self._compiled, stop, width, answers)

        if workers == 1:
            work(turns)
        else:
            list(pool().map(work, np.array_split(turns, min(len(turns), 4 * workers))))

    @cached_property
    def _compiled(self) -> Lists:
        """The arrays for the compiled search, to which a memory map is an array like any other."""
        from crosscut.ann.ivf.kernels import Lists

        bits = self.vectors.view(np.uint16) if self.vectors.dtype == np.float16 else self.vectors
        return Lists(np.asarray(bits), np.asarray(self.starts), np.asarray(self.ids), self.metric == "l2")

    def _allowed(self, ids: npt.ArrayLike | None) -> tuple[Ids, Mask | None]:
        """Sorted places of the ids that may be found, and (lists) whether a list holds none of them.

        The rounds of a search ask with the same ids again and again: the last answer is cached.
        """
        if ids is None:
            return NOTHING, None
        last, wanted = self._last_allowed, np.asarray(ids).reshape(-1)
        if last is None or not (last[0] is ids or np.array_equal(last[0], wanted)):
            places = self.places_of(wanted)
            if not rising(places):
                chosen = np.zeros(self.n, np.bool_)
                chosen[places] = True
                places = np.flatnonzero(chosen)
            last = self._last_allowed = wanted, places, np.diff(np.searchsorted(places, self.starts)) == 0
        return last[1], last[2]

    @cached_property
    def _norms(self) -> Single:
        """(lists) squared lengths of the centroids."""
        return np.asarray((self.centroids * self.centroids).sum(axis=1))

    def similarities(self, queries: Single) -> Single:
        """Return σ(q, c) of every query and centroid (q × lists)."""
        if len(queries) == 1:
            from crosscut.linalg import kernels

            near = np.empty((1, self.most), dtype=np.float32)
            (kernels.distance if self.metric == "l2" else kernels.dot)(self.centroids, queries[0], near[0])
            return near
        near = queries @ self.centroids.T
        if self.metric == "l2":
            near *= 2
            near -= self._norms
            near -= (queries * queries).sum(axis=1, keepdims=True)
        return near

    def tune(
        self,
        queries: npt.ArrayLike,
        target: float = 0.95,
        *,
        k: int = 100,
        loss: float = 0.02,
        rules: Sequence[str] | None = None,
        taus: Sequence[int] = (TAU,),
        trials: int = 1,
    ) -> Tuned:
        """Choose N and an exit rule on (train) queries of your own, and make it this index's; see `tuning.tune`."""
        from crosscut.ann.ivf.tuning import tune

        tuned = tune(self, queries, target=target, k=k, loss=loss, rules=rules, taus=taus, trials=trials)
        self.rule = tuned.rule
        return tuned

    # -- a space for the rounds of a search

    @property
    def topk(self) -> TopK | None:
        """For the rounds of a search; few items are read whole."""
        from crosscut.ann.clustered import SMALL, Clustered

        return Clustered(self) if self.n >= SMALL else None

    @property
    def lasting(self) -> IVF:
        return self

    @property
    def home(self) -> Home | None:
        """Its lists, for a space that its vectors are a part of."""
        return Home(self.starts, self.ids) if self.dense else None

    def rows(self, positions: Positions) -> Floats:
        """Return the vectors of some ids (m × d), in float64."""
        rows: Floats = self.vectors[self.places_of(positions)].astype(np.float64)
        if not np.isfinite(rows).all():
            raise _no_number(positions[int((~np.isfinite(rows)).any(axis=1).argmax())])
        return rows

    def at(self, positions: Positions, vector: Floats) -> Array:
        """Return inner products with the vectors of some ids."""
        return np.asarray(product(self.vectors[self.places_of(positions)], vector[None, :])[0])

    def predict(self, queries: Floats) -> Array:
        """Return inner products with every vector, by id 0 … n − 1: (q × d) → (q × n). Reads everything."""
        if not self.dense:
            raise InputError("predictions for all items need ids 0 … n − 1; this index has others")
        return np.ascontiguousarray(product(np.asarray(self.vectors), queries)[:, self.places])

    # -- files

    def save(self, path: str | Path) -> None:
        """Write the index as a folder, replaced in one step."""

        def fill(files: Files) -> None:
            for name in ("centroids", "vectors", "starts", "ids"):
                files.array(name, getattr(self, name))

        facts = {"metric": self.metric, "rule": None if self.rule is USUAL else self.rule.json()}
        Folder(Path(path), KIND).save(facts, fill)

    @classmethod
    def load(cls, path: str | Path, *, memory_map: bool = True) -> IVF:
        """Open a folder that `save` wrote; the vectors stay on disk until a search visits them.

        The compiled search goes by starts and ids without looking, so these are looked at here.
        """

        def read(saved: Saved) -> IVF:
            # copy-on-write: the compiled search wants arrays it could write to
            vectors = saved.array("vectors", "<f2 <f4", (None, None))
            vectors = vectors if memory_map else np.array(vectors)
            n, d = vectors.shape
            centroids = saved.numbers("centroids", "<f4", (None, d))
            starts = saved.array("starts", "<i8", (len(centroids) + 1,))
            ids = saved.array("ids", "<i8", (n,))
            if not divides(starts, n):
                raise saved.damaged("starts.npy", f"does not divide {n} vectors into {len(centroids)} lists")
            if n and (ids.min() < 0 or len(np.unique(ids)) < n):
                raise saved.damaged("ids.npy", "does not hold distinct numbers of 0 or more")
            rule, metric = saved.facts["rule"], saved.facts["metric"]
            if metric not in METRICS:
                raise InputError(f"the metric of a clustered index is {' or '.join(METRICS)}, and not {metric!r}")
            return cls(centroids, vectors, starts, ids, metric=metric, rule=None if rule is None else from_json(rule))

        return Folder(Path(path), KIND).load(read)


def _no_number(id: int) -> InputError:
    return InputError(f"the vector of id {int(id)} holds NaN, infinities or numbers too large: build the index again")


def _check_features(stop: Conditions, d: int) -> None:
    """Refuse forests that ask for features which vectors of d dimensions do not have."""
    from crosscut.ann.ivf.kernels import features_of

    asks = max(int(trees.feature.max(initial=-1)) for trees in (stop.classifier, stop.regression))
    if asks >= features_of(d, stop.tau):
        raise InputError(
            f"this exit rule asks for feature {asks} of {features_of(d, stop.tau)}: it was learned on vectors of "
            f"another number of dimensions than {d}; tune the index anew"
        )
