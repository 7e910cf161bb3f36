"""`IVF`: a clustered index (inverted file) with early exit, over float32 or float16 vectors.

k-means cuts the vectors into lists. A query visits the lists whose centroids are closest, one after another, until its
exit rule (`rules.py`) is content: Busolin et al. 2024.

    σ(q, v)   inner product, or −‖q − v‖²: larger is closer, in both
    N         the most lists a query may visit
    RS_h      the best k after h lists
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from crosscut.ann import clusters
from crosscut.ann.ivf import folder
from crosscut.ann.ivf.layout import Layout, Single
from crosscut.ann.ivf.rules import TAU, USUAL, Rule, as_rule
from crosscut.ann.ivf.searching import Restrictions, search
from crosscut.ann.nearest import Lookup, VectorIndex
from crosscut.ann.results import Metric, NearestMany
from crosscut.errors import InputError
from crosscut.linalg.arrays import Ids, checked_vectors, named, storage
from crosscut.linalg.products import product
from crosscut.spaces.home import Home
from crosscut.storage import Touched, Unread
from crosscut.types import Array, Floats, Positions, whole

if TYPE_CHECKING:
    from crosscut.ann.ivf.tuning import Tuned


class IVF(VectorIndex):
    """A clustered index. Make one with `IVF.build` or `IVF.load`.

    Examples
    --------
    >>> index = IVF.build(vectors, metric="ip", dtype=np.float16)
    >>> found = index.search(query, k=10)
    >>> found.ids, found.scores, found.lists, found.vectors
    >>> index.tune(train_queries, target=0.95)              # choose N and the exit rule on queries of your own
    >>> index.search(query, k=10, exclude=seen, rule=Patience(7, 0.05))
    """

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
        self._layout = Layout(centroids, vectors, starts, ids, metric)
        self._unread = Unread()
        self.rule = USUAL if rule is None else as_rule(rule)

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
            The exit rule of searches that name none; a number is `Fixed`. `rules.USUAL` when not given.
        """
        given = np.asarray(vectors)
        kind = storage(given.dtype if dtype is None else np.dtype(dtype), given=dtype is not None)
        array = checked_vectors(given, "vectors", kind=kind)
        if not array.size:
            raise InputError(f"an index needs vectors (n × d), one at least; got shape {array.shape}")
        if metric not in ("ip", "l2"):
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
        return cls._holding(Layout.of(array, centres, list_of, names, metric, kind), rule)

    @classmethod
    def from_assignment(cls, vectors: Array, centroids: Single, list_of: Ids) -> IVF:
        """An index of vectors whose lists are known: `list_of` (n) is the list of each. By inner product."""
        kind = storage(vectors.dtype, given=False)
        return cls._holding(Layout.of(vectors, centroids, list_of, np.arange(len(vectors)), "ip", kind), None)

    @classmethod
    def laid_out(cls, vectors: Touched, centroids: Single, starts: Ids, rule: Rule | int | None = None) -> IVF:
        """An index of vectors that lie list by list already; the id of each is its place. By inner product."""
        ids = np.arange(len(vectors), dtype=np.int64)
        return cls._holding(Layout(centroids, vectors.array, starts, ids, "ip", vectors, True), rule)

    @classmethod
    def _holding(cls, layout: Layout, rule: Rule | int | None) -> IVF:
        made = cls(layout.centroids, layout.vectors, layout.starts, layout.ids, metric=layout.metric, rule=rule)
        made._layout = layout
        return made

    @property
    def layout(self) -> Layout:
        """The arrays; those of a file are compared with their checksums when they are first asked for."""
        self._unread.check()
        return self._layout

    @property
    def lasting(self) -> IVF:
        return self

    @property
    def home(self) -> Home | None:
        """Its lists, for a space that its vectors are a part of."""
        layout = self._layout
        if layout.ordered:
            return Home(layout.starts, layout.n)
        return Home(layout.starts, 0, layout.ids) if layout.dense else None

    @property
    def n(self) -> int:
        """The number of vectors."""
        return self._layout.n

    @property
    def d(self) -> int:
        """The number of dimensions."""
        return self._layout.d

    @property
    def most(self) -> int:
        """The number of lists."""
        return len(self._layout.centroids)

    @property
    def metric(self) -> Metric:
        """`ip` or `l2`."""
        return self._layout.metric

    @property
    def centroids(self) -> Single:
        """(lists × d)."""
        return self.layout.centroids

    @property
    def vectors(self) -> Array:
        """(n × d), list by list."""
        return self.layout.vectors

    @property
    def starts(self) -> Ids:
        """(lists + 1) where each list begins."""
        return self.layout.starts

    @property
    def ids(self) -> Ids:
        """(n) of the vectors."""
        return self.layout.ids

    @property
    def nbytes(self) -> int:
        """Memory, of the whole index."""
        return self._layout.nbytes

    def _nearest(self, asked: Lookup) -> NearestMany:
        layout, (points, k, rule, exclude, allow, trails, threads) = self.layout, asked
        stop = rule.conditions(k, len(layout.centroids))
        restrictions = Restrictions.of(layout, len(points), exclude, allow, trails)
        found = search(layout, points, k, stop, restrictions, threads)[0]
        wrong = found.ids[~np.isfinite(found.scores)]
        if (wrong >= 0).any():
            raise _no_number(wrong.max())
        return found

    def rows(self, positions: Positions) -> Floats:
        """The vectors of some ids (m × d), in float64: with `predict`, this makes an index a space (`spaces.base`)."""
        rows: Floats = self._taken(positions).astype(np.float64)
        if not np.isfinite(rows).all():
            raise _no_number(positions[int((~np.isfinite(rows)).any(axis=1).argmax())])
        return rows

    def at(self, positions: Positions, vector: Floats) -> Array:
        """Inner products with the vectors of some ids."""
        return np.asarray(product(self._taken(positions), vector[None, :])[0])

    def _taken(self, ids: Positions) -> Array:
        layout = self.layout
        places = layout.places_of(ids)
        taken: Array = layout.vectors[places] if layout.guard is None else layout.guard.take(places)
        return taken

    def predict(self, queries: Floats) -> Array:
        """Inner products with every vector, by id 0 … n − 1: (q × d) → (q × n). Reads everything."""
        layout = self.layout
        if not layout.dense:
            raise InputError("predictions for all items need ids 0 … n − 1; this index has others")
        return np.ascontiguousarray(product(np.asarray(layout.vectors), queries)[:, layout.places])

    def add(self, vectors: npt.ArrayLike, ids: npt.ArrayLike | None = None) -> Ids:
        """Add (m × d) vectors to the lists of their nearest centroids; returns their ids.

        The lists are laid out anew, which reads and writes the whole index once: add many at a time.
        """
        self._layout, names = self.layout.extended(vectors, ids)
        return names

    def remove(self, ids: npt.ArrayLike) -> None:
        """Take vectors out; like `add`, it rewrites the index once."""
        self._layout = self.layout.without(ids)

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

    def save(self, path: str | Path) -> None:
        """Write the index as a folder, replaced in one step."""
        folder.save(Path(path), self.layout, self.rule)

    @classmethod
    def load(cls, path: str | Path, *, memory_map: bool = True) -> IVF:
        """Open a folder that `save` wrote; the vectors stay on disk until a search visits them."""
        layout, rule, unread = folder.load(Path(path), memory_map=memory_map)
        made = cls._holding(layout, rule)
        made._unread = unread
        return made

    def __len__(self) -> int:
        return self.n

    def __repr__(self) -> str:
        return f"IVF({self.n} × {self.d} {self._layout.vectors.dtype}, {self.most} lists, {self.metric}, {self.rule})"


def _no_number(id: int) -> InputError:
    return InputError(f"the vector of id {int(id)} holds NaN, infinities or numbers too large: build the index again")
