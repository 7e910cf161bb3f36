"""Hard negatives: random, TF-IDF, dual encoder (ANNCUR appendix B.1, table 3).

A miner ranks items for queries; `draw` picks negatives from a ranking, never a judged item. Drawing at
random among the best few dozen, rather than taking the very best, keeps unjudged relevant items from being
taught as wrong.
"""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Collection as AnyCollection
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
from scipy import sparse

from crosscut.errors import InputError

_WORD = re.compile(r"\w+")


class TfIdf:
    """Cosine of TF-IDF vectors; fitted on the items, as in ANNCUR section 3.2."""

    def __init__(self, items: Sequence[str]) -> None:
        if not items:
            raise InputError("TF-IDF needs at least one item; the corpus is empty")
        self.vocabulary: dict[str, int] = {}
        bags = [Counter(_WORD.findall(text.lower())) for text in items]
        for bag in bags:
            for word in bag:
                self.vocabulary.setdefault(word, len(self.vocabulary))
        counts = self._matrix(bags)  # (n × words)
        seen = np.asarray((counts > 0).sum(axis=0)).ravel()
        self.weights = np.log((1 + len(items)) / (1 + seen)) + 1  # (words,)
        self.items = self._weigh(counts)

    def rank(self, queries: Sequence[str], k: int) -> npt.NDArray[np.int64]:
        """Positions of the k best items of each query, best first: (queries × k)."""
        k = min(k, self.items.shape[0])
        vectors = self._weigh(self._matrix([Counter(_WORD.findall(text.lower())) for text in queries]))
        ranked = np.empty((len(queries), k), np.int64)
        for start in range(0, len(queries), 256):  # a slab of dense scores at a time
            scores = (vectors[start : start + 256] @ self.items.T).toarray()
            ranked[start : start + len(scores)] = top(scores, k)
        return ranked

    def _matrix(self, bags: Sequence[Counter[str]]) -> sparse.csr_matrix:
        rows, columns, values = [], [], []
        for row, bag in enumerate(bags):
            for word, count in bag.items():
                if word in self.vocabulary:
                    rows.append(row)
                    columns.append(self.vocabulary[word])
                    values.append(float(count))
        return sparse.csr_matrix((values, (rows, columns)), shape=(len(bags), len(self.vocabulary)))

    def _weigh(self, counts: sparse.csr_matrix) -> sparse.csr_matrix:
        weighed = counts.multiply(self.weights[None, :]).tocsr()
        norms = np.sqrt(np.asarray(weighed.multiply(weighed).sum(axis=1)).ravel())
        return sparse.csr_matrix(sparse.diags(1 / np.maximum(norms, 1e-12)) @ weighed)


def rank_dense(items: npt.NDArray[np.float32], queries: npt.NDArray[np.float32], k: int) -> npt.NDArray[np.int64]:
    """Positions of the k items (n × d) with the largest inner product, for every query (m × d): (m × k)."""
    k = min(k, len(items))
    ranked = np.empty((len(queries), k), np.int64)
    for start in range(0, len(queries), 256):
        ranked[start : start + 256] = top(queries[start : start + 256] @ items.T, k)
    return ranked


def top(scores: npt.NDArray[np.floating], k: int) -> npt.NDArray[np.int64]:
    """Positions of the k largest of each row, best first; ties go to the lower position."""
    if k < scores.shape[1]:
        best = np.sort(np.argpartition(-scores, k - 1, axis=1)[:, :k], axis=1)
    else:
        best = np.tile(np.arange(scores.shape[1]), (len(scores), 1))
    values = np.take_along_axis(scores, best, 1)
    return np.take_along_axis(best, np.argsort(-values, axis=1, kind="stable"), 1)


def draw(
    ranked: Sequence[int] | npt.NDArray[np.int64],
    judged: AnyCollection[int],
    count: int,
    rng: random.Random,
    *,
    among: int = 50,
) -> list[int]:
    """`count` items drawn from the best `among` of a ranking, without the judged ones."""
    pool = [int(position) for position in ranked[: among + len(judged)] if int(position) not in judged]
    return rng.sample(pool[:among], min(count, len(pool[:among])))
