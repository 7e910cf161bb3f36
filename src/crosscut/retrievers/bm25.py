"""BM25 over titles and texts of items (Robertson and Zaragoza 2009, with Lucene's idf): stemmed, without stop words.

    score(q, i) = Σ_{t ∈ q}  idf(t) · tf / (tf + k₁ (1 − b + b · |i| / mean |i|))
    idf(t)      = ln(1 + (n − df(t) + ½) / (df(t) + ½))

Counts are kept by item; the weights, which depend on all items, are computed in one pass when they are first asked
for. A query's marked mention, `… [START] bank [END] …`, counts twice: in entity linking it is the word that is meant.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import sparse

from crosscut.datasets.records import Item, plain_text
from crosscut.encoders.words import K1, B, count_words, query_stems, stacked
from crosscut.retrievers.first import Retriever
from crosscut.storage import WILD, Files, Saved, divides
from crosscut.types import Mask, Positions

Scores = npt.NDArray[np.float32]


class BM25(Retriever):
    """A retriever that knows its items, which are positions 0 … n − 1."""

    def __init__(self, items: Sequence[Item | str] = (), *, k1: float = K1, b: float = B) -> None:
        self.k1, self.b = k1, b
        self._terms: dict[str, int] = {}  # stem → column
        self._counts = sparse.csr_matrix(np.zeros((0, 0), np.float32))  # (n × terms)
        self._alive: Mask = np.ones(0, np.bool_)  # (n) False: an item that counts no more
        self._weights: sparse.csc_matrix | None = None
        self._add(items)

    @property
    def n(self) -> int:
        return int(self._counts.shape[0])

    def extended(self, items: Sequence[Item | str]) -> BM25:
        """A retriever of these items and more, at the end; this one stays as it is."""
        made = self._of(dict(self._terms), self._counts, self._alive)
        made._add(items)
        return made

    def among(self, alive: Mask, items: object = None) -> BM25:
        """The same items, of which only those alive count: the others have no words, and make no word frequent."""
        return self._of(self._terms, self._counts, alive)

    def taken(self, positions: Positions) -> BM25:
        """A retriever of some of the items; words that only others have are forgotten."""
        counts = self._counts[positions]
        used = np.flatnonzero(counts.getnnz(axis=0))
        terms = list(self._terms)
        numbers = {terms[old]: new for new, old in enumerate(used.tolist())}
        return self._of(numbers, counts[:, used].tocsr(), self._alive[positions])

    def _of(self, terms: dict[str, int], counts: sparse.csr_matrix, alive: Mask) -> BM25:
        made = BM25(k1=self.k1, b=self.b)
        made._terms, made._counts, made._alive = terms, counts, alive
        return made

    def _add(self, items: Sequence[Item | str]) -> None:
        new = count_words(map(plain_text, items), self._terms)
        self._counts = stacked(self._counts, new)
        self._alive = np.append(self._alive, np.ones(len(items), np.bool_))
        self._weights = None

    def scores(self, query: str) -> Scores:
        """The BM25 score of every item (n); 0 where no word is shared."""
        if self._weights is None:
            self._weights = self._weigh()
        out = np.zeros(self.n, np.float32)
        for stem in query_stems(query):
            term = self._terms.get(stem)
            if term is not None:
                part = slice(self._weights.indptr[term], self._weights.indptr[term + 1])
                out[self._weights.indices[part]] += self._weights.data[part]
        return out

    def _weigh(self) -> sparse.csc_matrix:
        """idf(t) · tf / (tf + …) for every item and term, by columns."""
        counts, n = self._counts, int(self._alive.sum())
        if n < self.n:
            counts = counts.copy()
            counts.data *= np.repeat(self._alive, np.diff(counts.indptr))
            counts.eliminate_zeros()
        weights = counts.tocsc(copy=True)
        lengths = np.asarray(counts.sum(axis=1)).reshape(-1)  # (n)
        mean = float(lengths.sum()) / max(n, 1)
        norm = self.k1 * (1 - self.b + self.b * lengths / (mean or 1.0))  # (n)
        frequency = np.diff(weights.indptr)  # df(t)
        idf = np.log1p((n - frequency + 0.5) / (frequency + 0.5))
        weights.data = np.asarray(
            np.repeat(idf, frequency) * weights.data / (weights.data + norm[weights.indices]), np.float32
        )
        return weights

    @property
    def words(self) -> tuple[dict[str, int], sparse.csr_matrix]:
        """Stem → column, and how often each item holds each, (n × terms)."""
        return self._terms, self._counts

    def write(self, files: Files) -> None:
        """Counts and terms, as files of a generation."""
        for name in ("data", "indices", "indptr"):
            files.array(f"bm25-{name}", getattr(self._counts, name))
        files.json("bm25", {"k1": self.k1, "b": self.b, "terms": list(self._terms)})

    @classmethod
    def read(cls, saved: Saved, n: int) -> BM25:
        """What `write` wrote, of n items; indices are checked, because compiled code goes by them."""
        about = saved.json("bm25")
        indptr = saved.array("bm25-indptr", "<i4 <i8", (n + 1,))
        indices = saved.array("bm25-indices", "<i4 <i8", (None,))
        data = saved.numbers("bm25-data", "<f4", (len(indices),))
        if len(data) and not data.min() > 0:
            raise saved.damaged("bm25-data.npy", "counts words that are not there")
        if not divides(indptr, len(indices)):
            raise saved.damaged("bm25-indptr.npy", f"does not divide {len(indices)} counts among {n} items")
        k1, b = settings_of(saved, about)
        made = cls(k1=k1, b=b)
        made._terms = {
            str(term): column for column, term in enumerate(about["terms"])
        }  # one that is told twice counts once
        if len(indices) and not (indices.min() >= 0 and indices.max() < len(made._terms)):
            raise saved.damaged("bm25-indices.npy", f"names words outside the {len(made._terms)} there are")
        if any(column >= len(made._terms) for column in made._terms.values()):
            raise saved.damaged("bm25.json", "tells a word twice")
        made._counts = sparse.csr_matrix((data, indices, indptr), shape=(n, len(made._terms)))
        made._alive = np.ones(n, np.bool_)
        return made


def settings_of(saved: Saved, about: Any) -> tuple[float, float]:
    """k₁ and b of a saved retriever."""
    k1, b = float(about["k1"]), float(about["b"])
    if not (0 <= k1 <= WILD and 0 <= b <= 1):
        raise saved.damaged("bm25.json", f"tells k1 = {k1} and b = {b}, and b is 0 … 1")
    return k1, b
