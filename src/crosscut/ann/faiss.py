"""FAISS behind the same interface, for those who have an index there: IVFFlat and HNSW.

FAISS knows no exit rules for k-NN; a number of lists (IVFFlat) or the size of the search queue (HNSW) is all that
`rule` may be.
"""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from crosscut.ann import clusters
from crosscut.ann.ivf.rules import Fixed, as_rule
from crosscut.ann.nearest import Lookup, VectorIndex
from crosscut.ann.results import Metric, NearestMany
from crosscut.errors import InputError, MissingDependency
from crosscut.linalg.arrays import Ids, checked_vectors, untie
from crosscut.types import Array, Floats, Positions


class Faiss(VectorIndex):
    """A FAISS index as a search back end: `search`, `search_many`, and a space for the loop's rounds.

    Parameters
    ----------
    index
        A FAISS index over vectors in the order of their ids, 0 … n − 1.
    rule
        Lists to probe (IVF) or queue size (HNSW) of searches that name none.
    """

    def __init__(self, index: Any, rule: Fixed | int = 32) -> None:
        self.index = index
        self.rule = as_rule(rule)
        self._metric: Metric = "ip" if index.metric_type == _faiss().METRIC_INNER_PRODUCT else "l2"

    @classmethod
    def build(
        cls,
        vectors: npt.ArrayLike,
        *,
        kind: Literal["ivf", "hnsw"] = "hnsw",
        metric: Metric = "ip",
        lists: int | None = None,
        links: int = 32,
        rule: Fixed | int = 32,
    ) -> Faiss:
        """An IVFFlat index of `lists` lists, or an HNSW graph of `links` links a vector, over (n × d) vectors."""
        faiss = _faiss()
        array = checked_vectors(vectors, "vectors")
        if not array.size:
            raise InputError(f"an index needs vectors (n × d), one at least; got shape {array.shape}")
        measure = faiss.METRIC_INNER_PRODUCT if metric == "ip" else faiss.METRIC_L2
        if kind == "hnsw":
            index = faiss.IndexHNSWFlat(array.shape[1], links, measure)
        elif kind == "ivf":
            count = min(lists or clusters.usual_lists(len(array)), len(array))
            coarse = faiss.IndexFlat(array.shape[1], measure)
            coarse.add(clusters.centroids(array, count, spherical=metric == "ip"))
            index = faiss.IndexIVFFlat(coarse, array.shape[1], count, measure)
            index.make_direct_map()
        else:
            raise InputError(f"kind is 'ivf' or 'hnsw'; got {kind!r}")
        for _, block in clusters.blocks(array, 1 << 16):
            index.add(block)
        return cls(index, rule)

    @property
    def metric(self) -> Metric:
        return self._metric

    @property
    def n(self) -> int:
        return int(self.index.ntotal)

    @property
    def d(self) -> int:
        return int(self.index.d)

    @property
    def most(self) -> int:
        return int(getattr(self.index, "nlist", self.n))

    def _nearest(self, asked: Lookup) -> NearestMany:
        """Which of several equal vectors at the end of a result are in it is FAISS's choice. What it scanned it does
        not tell: `vectors` is −1."""
        points, k, rule, exclude, allow, _, _ = asked
        if not isinstance(rule, Fixed):
            raise InputError(f"FAISS knows no exit rules: use crosscut.IVF, or a number of lists; got {rule!r}")
        effort = int(rule.lists)
        gone = [self._known(ids) for ids in exclude]
        only = None if allow is None else self._known(allow)
        # a filter holds for a whole call
        parts = [points[j : j + 1] for j in range(len(points))] if any(map(len, gone)) else [points]
        found = [
            self.index.search(part, k, params=self._parameters(effort, k, out, only))
            for part, out in zip(parts, gone or [self._known(None)], strict=False)
        ]
        scores, ids = (np.concatenate([one[side] for one in found]) for side in (0, 1))
        values = np.where(ids < 0, -np.inf, scores if self.metric == "ip" else -scores).astype(np.float32)
        untie(ids, values)
        return NearestMany(ids, values, np.full(len(points), effort), np.full(len(points), -1))

    def _known(self, ids: npt.ArrayLike | None) -> Ids:
        """Ids for a selector; unknown ones are refused."""
        wanted = np.asarray([] if ids is None else ids).reshape(-1)
        if len(wanted) and not np.issubdtype(wanted.dtype, np.integer):
            raise InputError(f"ids are whole numbers; got {wanted[0]!r}")
        missing = (wanted < 0) | (wanted >= self.n)
        if missing.any():
            raise InputError(f"id {wanted[missing][0]} is not in this index of {self.n} vectors")
        return wanted.astype(np.int64)

    def _parameters(self, effort: int, k: int, gone: Ids, only: Ids | None) -> Any:
        faiss = _faiss()
        settings: dict[str, Any] = {}
        selectors = [] if only is None else [faiss.IDSelectorBatch(only)]
        if len(gone):
            selectors.append(faiss.IDSelectorNot(faiss.IDSelectorBatch(gone)))
        if selectors:
            settings["sel"] = selectors[0] if len(selectors) == 1 else faiss.IDSelectorAnd(*selectors)
        if hasattr(self.index, "nprobe"):
            return faiss.SearchParametersIVF(nprobe=min(effort, self.most), **settings)
        return faiss.SearchParametersHNSW(efSearch=max(effort, k), **settings)

    def rows(self, positions: Positions) -> Floats:
        """Some vectors (m × d), in float64."""
        return np.asarray(self.index.reconstruct_batch(np.asarray(positions, dtype=np.int64)), dtype=np.float64)

    def predict(self, queries: Floats) -> Array:
        """Inner products with every vector: (q × d) → (q × n). Reads everything."""
        blocks = [
            queries.astype(np.float32) @ self.index.reconstruct_n(start, min(1 << 16, self.n - start)).T
            for start in range(0, self.n, 1 << 16)
        ]
        return np.concatenate(blocks, axis=1)


def _faiss() -> Any:
    try:
        import faiss
    except ImportError:
        raise MissingDependency("this back end needs FAISS", "faiss") from None
    return faiss
