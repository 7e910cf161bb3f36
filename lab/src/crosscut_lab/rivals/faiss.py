"""A FAISS index as a back end of searches: IVFFlat and HNSW, without exit rules.

>>> searcher = crosscut.Searcher(scorer, vectors=Faiss.build(V, kind="hnsw"))
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import faiss
import numpy as np

from crosscut.ann import clusters
from crosscut.ann.topk import Ask, Everything, Found
from crosscut.errors import InputError
from crosscut.linalg.arrays import checked_vectors
from crosscut.types import Array, Floats, Handles


class Faiss(Everything):
    """A `TopK` over vectors in the order of their positions, 0 … n − 1, by inner product.

    `effort` is the number of clusters to read (IVF) or the size of the search queue (HNSW).
    """

    exact = False

    def __init__(self, index: Any, effort: int = 32) -> None:
        if index.metric_type != faiss.METRIC_INNER_PRODUCT:
            raise InputError("rounds look for high inner products; build the FAISS index with METRIC_INNER_PRODUCT")
        super().__init__(int(index.ntotal))
        self.index, self.effort, self.d = index, effort, int(index.d)

    @classmethod
    def build(
        cls, vectors: Array, kind: Literal["ivf", "hnsw"] = "hnsw", *, effort: int = 32, links: int = 32
    ) -> Faiss:
        """Build an IVFFlat index, or an HNSW graph of `links` links a vector, over (n × d) vectors."""
        array = checked_vectors(vectors, "vectors").astype(np.float32)
        if kind == "hnsw":
            index = faiss.IndexHNSWFlat(array.shape[1], links, faiss.METRIC_INNER_PRODUCT)
        else:
            count = min(clusters.usual_lists(len(array)), len(array))
            coarse = faiss.IndexFlatIP(array.shape[1])
            coarse.add(clusters.centroids(array, count, spherical=True))
            index = faiss.IndexIVFFlat(coarse, array.shape[1], count, faiss.METRIC_INNER_PRODUCT)
            index.make_direct_map()
        index.add(array)
        return cls(index, effort)

    def top(self, asks: Sequence[Ask]) -> list[Found]:
        return [self._one(ask) for ask in asks]

    def _one(self, ask: Ask) -> Found:
        wanted = min(ask.count + len(ask.exclude), self.n)
        settings = {} if ask.allowed is None else {"sel": faiss.IDSelectorBatch(ask.allowed)}
        if hasattr(self.index, "nprobe"):
            how = faiss.SearchParametersIVF(nprobe=min(self.effort, self.index.nlist), **settings)
        else:
            how = faiss.SearchParametersHNSW(efSearch=max(self.effort, wanted), **settings)
        scores, found = self.index.search(ask.vector[None].astype(np.float32), wanted, params=how)
        open_ = (found[0] >= 0) & ~np.isin(found[0], ask.exclude)
        return Found(found[0][open_][: ask.count], scores[0][open_][: ask.count].astype(np.float64))

    def rows(self, handles: Handles) -> Floats:
        return np.asarray(self.index.reconstruct_batch(np.asarray(handles, dtype=np.int64)), dtype=np.float64)
