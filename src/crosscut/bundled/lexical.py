"""BM25 under an idf that is frozen: which words a query and an item share.

    bm25(q, i) = Σ_{t ∈ q}  idf(t) · tf / (tf + k₁ (1 − b + b · |i| / mean |i|))        (Robertson and Zaragoza 2009)
    idf(t)     = ln(1 + (1 − p + ½/n) / (p + ½/n)),   p = the share of documents that hold t     (Lucene's, by shares)

The shares, n and the mean length are a `Lexicon`. It is counted in a corpus once, when an index is built, or comes with
the model, counted in many collections. Either way it does not change when items come or go, so that a pair's score
depends on the pair alone. A query's marked mention, `… [START] bank [END] …`, counts twice.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from crosscut.errors import InputError
from crosscut.linalg.arrays import looked_up
from crosscut.retrieval.bm25 import BM25, K1, B, Postings, Terms, query_stems, terms_of
from crosscut.types import Floats, Positions


class Lexicon:
    """Frozen document frequencies of words.

    A stem is looked up by a hash of it: what an index saves of its lexicon spells out no word of an item that was
    forgotten since.

    Parameters
    ----------
    keys : (w,) hashes of the stems, rising.
    shares : (w,) of documents that hold each; a stem that is not there is held by none.
    documents : that the shares were counted in; the fewer, the flatter the idf.
    mean_length : stems a document, on average.
    """

    def __init__(self, keys: Terms, shares: npt.NDArray[np.float64], documents: float, mean_length: float) -> None:
        if documents <= 0 or mean_length <= 0:
            raise InputError(
                f"a lexicon of {documents} documents with {mean_length} words each says nothing; give at least one text"
            )
        if len(keys) != len(shares) or not (keys[1:] > keys[:-1]).all():
            raise InputError(f"{len(keys)} stems with {len(shares)} shares are no lexicon: one for each, in order")
        if len(shares) and not (shares.min() >= 0 and shares.max() <= 1):
            raise InputError("a share of documents is 0 … 1")
        self.documents, self.mean_length = float(documents), float(mean_length)
        self._keys, self._shares = keys, shares

    @classmethod
    def counted(cls, segments: Sequence[Postings]) -> Lexicon:
        """Return the lexicon of a corpus whose words were counted."""
        postings = segments[0] if len(segments) == 1 else Postings.join(segments)
        n = postings.n or 1
        return cls(postings.terms, np.diff(postings.starts) / n, n, float(postings.lengths.sum()) / n or 1.0)

    @classmethod
    def load(cls, path: Path) -> Lexicon:
        """Read a lexicon in JSON, with its shares in parts per million."""
        try:
            saved = json.loads(path.read_text("utf-8"))
            keys = terms_of(list(saved["parts_per_million"]))
            shares = np.fromiter(saved["parts_per_million"].values(), np.float64, len(keys)) / 1e6
            order = np.argsort(keys)
            return cls(keys[order], shares[order], saved["documents"], saved["mean_length"])
        except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise InputError(f"{str(path)!r} holds no readable lexicon ({error!r})") from error

    def arrays(self) -> dict[str, npt.NDArray[Any]]:
        """Return the lexicon as arrays, to be saved with an index."""
        return {
            "stems": self._keys,
            "shares": self._shares,
            "documents": np.array([self.documents, self.mean_length]),
        }

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, npt.NDArray[Any]]) -> Lexicon:
        """Return the lexicon that `arrays` gave, bit for bit."""
        try:
            documents, mean_length = arrays["documents"].astype(np.float64).tolist()
            return cls(arrays["stems"].astype(np.uint64), arrays["shares"].astype(np.float64), documents, mean_length)
        except (KeyError, ValueError, TypeError) as error:
            raise InputError(f"these arrays are no lexicon ({error!r})") from error

    @cached_property
    def fingerprint(self) -> str:
        """A short name that changes whenever a weight may change."""
        digest = hashlib.sha256(json.dumps([self.documents, self.mean_length]).encode())
        digest.update(self._keys.tobytes())
        digest.update(self._shares.tobytes())
        return digest.hexdigest()[:8]

    def idf(self, words: Sequence[str]) -> npt.NDArray[np.float32]:
        """Return the weight of each word, (len(words),)."""
        half = 0.5 / self.documents
        share = looked_up(terms_of(words), self._keys, self._shares)
        return np.log1p((1 - share + half) / (share + half)).astype(np.float32)


class QueryTerms(NamedTuple):
    """The words of a query: each term with its idf times how often it is asked for, and the sum of those, which no item
    can exceed."""

    terms: list[tuple[np.uint64, np.float32]]
    limit: float


class LexicalIndex:
    """The words of a corpus under a frozen lexicon; items are the positions 0 … n − 1 of `words`."""

    def __init__(self, words: BM25, lexicon: Lexicon) -> None:
        self._words, self._lexicon = words, lexicon

    def __len__(self) -> int:
        return self._words.n

    def read(self, query: str) -> QueryTerms:
        """Return a query, ready to be matched with any item."""
        words = Counter(query_stems(query))
        weights = self._lexicon.idf(list(words)) * np.fromiter(words.values(), np.float32, len(words))
        return QueryTerms(list(zip(terms_of(list(words)), weights, strict=True)), float(weights.sum()))

    def match(self, query: QueryTerms, positions: Positions | None = None) -> Floats:
        """Return BM25 of every item, or of those at `positions`, as a share of its limit: 0 … 1."""
        bm25 = np.zeros(len(self) if positions is None else len(positions), np.float32)
        for term, weight in query.terms:
            for segment, start, part in self._words.parts(term):
                items, counts = segment.items[part], segment.counts[part]
                if positions is None:
                    bm25[items + start] += weight * self._shares(segment, items, counts)
                else:
                    places = np.minimum(np.searchsorted(items, positions - start), len(items) - 1)
                    found = np.flatnonzero(items[places] == positions - start)
                    places = places[found]
                    bm25[found] += weight * self._shares(segment, items[places], counts[places])
        return (bm25 / np.float32(query.limit or 1.0)).astype(np.float64)

    def _shares(
        self, segment: Postings, items: npt.NDArray[np.int32], counts: npt.NDArray[np.uint8]
    ) -> npt.NDArray[np.float32]:
        """tf / (tf + …), the score without the idf."""
        norm = K1 * (1 - B + B * segment.lengths[items] / self._lexicon.mean_length)
        return (counts / (counts + norm)).astype(np.float32)
