"""Which words two texts share, weighed by an idf that is frozen: BM25 without a corpus to wait for.

    bm25(q, i) = Σ_{t ∈ q}  idf(t) · tf / (tf + k₁ (1 − b + b · |i| / mean |i|))        (Robertson and Zaragoza 2009)
    idf(t)     = ln(1 + (1 − p + ½/n) / (p + ½/n)),   p = the share of documents that hold t     (Lucene's, by shares)

The shares, n and the mean length are a `Lexicon`: counted once, when an index is built, or that of the bundled model,
the mean of many collections. Either way it does not change when items come or go, so that a pair's score depends on the
pair alone. The counts are those of `crosscut.retrieval.bm25`.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from crosscut.errors import InputError
from crosscut.linalg.arrays import looked_up
from crosscut.retrieval.bm25 import BM25, K1, B, Postings, Terms, query_stems, stems, terms_of
from crosscut.storage import Files, Saved, write_file

Floats = npt.NDArray[np.float32]
Positions = npt.NDArray[np.int64]


class Lexicon:
    """How common words are, frozen.

    A stem is looked up by a hash of it: what an index keeps of its lexicon spells out no word of an item that was
    forgotten since.

    Parameters
    ----------
    shares : stem → share of documents that hold it, in 0 … 1; a stem that is not there is held by none.
    documents : how many documents the shares were counted in; the fewer, the flatter the idf.
    mean_length : stems a document holds, on average.
    """

    def __init__(self, shares: Mapping[str, float], documents: float, mean_length: float) -> None:
        if documents <= 0 or mean_length <= 0:
            raise InputError(
                f"a lexicon of {documents} documents with {mean_length} words each says nothing; give at least one text"
            )
        self.documents, self.mean_length = float(documents), float(mean_length)
        self.stems: dict[str, float] | None = dict(shares)  # None: only their hashes are known
        keys = terms_of(list(self.stems))
        order = np.argsort(keys)
        self._keys: Terms = keys[order]
        self._shares = np.fromiter(self.stems.values(), np.float64, len(self.stems))[order]

    @classmethod
    def hashed(cls, keys: Terms, shares: npt.NDArray[np.float64], documents: float, mean_length: float) -> Lexicon:
        """Return the lexicon of sorted hashes of stems, which are not spelled out."""
        lexicon = cls({}, documents, mean_length)
        lexicon.stems, lexicon._keys, lexicon._shares = None, keys, shares
        return lexicon

    @classmethod
    def of(cls, texts: Iterable[str]) -> Lexicon:
        """Return the lexicon of a corpus, stems spelled out."""
        frequency: Counter[str] = Counter()
        documents = words = 0
        for text in texts:
            found = stems(text)
            documents, words = documents + 1, words + len(found)
            frequency.update(set(found))
        n = documents or 1
        return cls({stem: count / n for stem, count in frequency.items()}, n, words / n or 1.0)

    @classmethod
    def counted(cls, postings: Postings) -> Lexicon:
        """Return the lexicon of a corpus that was counted."""
        n = postings.n or 1
        return cls.hashed(postings.terms, np.diff(postings.starts) / n, n, float(postings.lengths.sum()) / n or 1.0)

    @classmethod
    def mean(cls, lexicons: Sequence[Lexicon], documents: float, *, least: float = 0.0) -> Lexicon:
        """Many collections as one, each of the same weight; shares under `least` are left out."""
        shares: defaultdict[str, float] = defaultdict(float)
        for lexicon in lexicons:
            for stem, share in lexicon._spelled().items():
                shares[stem] += share / len(lexicons)
        # a geometric mean: one collection of long texts shall not decide
        length = math.exp(sum(math.log(lexicon.mean_length) for lexicon in lexicons) / len(lexicons))
        return cls({stem: share for stem, share in shares.items() if share >= least}, documents, length)

    @cached_property
    def fingerprint(self) -> str:
        """A short name that changes whenever a weight may change."""
        digest = hashlib.sha256(json.dumps([self.documents, self.mean_length]).encode())
        digest.update(self._keys.tobytes())
        digest.update(self._shares.tobytes())
        return digest.hexdigest()[:8]

    def idf(self, words: Sequence[str]) -> Floats:
        """The weight of each word, (len(words),)."""
        half = 0.5 / self.documents
        share = looked_up(terms_of(words), self._keys, self._shares)
        return np.log1p((1 - share + half) / (share + half)).astype(np.float32)

    def save(self, path: Path) -> None:
        """One JSON file; shares in parts per million, rounded up."""
        parts = {stem: math.ceil(share * 1e6) for stem, share in sorted(self._spelled().items())}
        about = {"documents": self.documents, "mean_length": self.mean_length, "parts_per_million": parts}
        write_file(path, [json.dumps(about, ensure_ascii=False, separators=(",", ":")).encode()])

    @classmethod
    def load(cls, path: Path) -> Lexicon:
        """What `save` wrote."""
        try:
            about = json.loads(path.read_text("utf-8"))
            shares = {stem: parts / 1e6 for stem, parts in about["parts_per_million"].items()}
            return cls(shares, about["documents"], about["mean_length"])
        except (OSError, ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError) as error:
            raise InputError(f"{str(path)!r} holds no readable lexicon ({error!r}); export the model again") from error

    def write(self, files: Files) -> None:
        """Hashes and shares, as files of a generation."""
        files.json("lexicon", {"documents": self.documents, "mean_length": self.mean_length})
        files.array("lexicon-stems", self._keys)
        files.array("lexicon-shares", self._shares)

    @classmethod
    def read(cls, saved: Saved) -> Lexicon:
        """What `write` wrote, bit for bit."""
        about = saved.json("lexicon")
        keys = saved.array("lexicon-stems", "<u8", (None,))
        shares = saved.array("lexicon-shares", "<f8", (len(keys),))
        if len(keys) and not ((keys[1:] > keys[:-1]).all() and shares.min() >= 0 and shares.max() <= 1):
            raise saved.damaged("lexicon-stems.npy", f"and its shares are no lexicon of {len(keys)} stems")
        try:
            return cls.hashed(keys, shares, float(about["documents"]), float(about["mean_length"]))
        except (KeyError, TypeError, ValueError, InputError) as error:
            raise saved.damaged("lexicon.json", f"says nothing of its documents ({error!r})") from error

    def _spelled(self) -> dict[str, float]:
        if self.stems is None:
            raise InputError("the lexicon of a saved index holds hashes of its stems, and this needs them spelled out")
        return self.stems


class Match(NamedTuple):
    """What a query's words say of items: BM25, and the same as a share of the most that any item could reach."""

    bm25: Floats
    relative: Floats


class QueryWords(NamedTuple):
    """The terms of a query, each once, with its idf times how often it is asked for."""

    terms: list[tuple[np.uint64, np.float32]]
    limit: float  # of an item that holds every word as often as could be


class Words:
    """The words of a corpus under a frozen lexicon; items are the positions 0 … n − 1 of `bm25`."""

    def __init__(self, bm25: BM25, lexicon: Lexicon) -> None:
        self.bm25, self.lexicon = bm25, lexicon

    @classmethod
    def of(cls, texts: Iterable[str], lexicon: Lexicon) -> Words:
        """Return the words of texts, counted now."""
        return cls(BM25(texts), lexicon)

    def extended(self, texts: Iterable[str]) -> Words:
        """Return the words of these texts and more at the end."""
        return Words(self.bm25.extended(texts), self.lexicon)

    def __len__(self) -> int:
        return self.bm25.n

    def ask(self, query: str) -> QueryWords:
        """Return a query, ready to be matched with any item."""
        words = Counter(query_stems(query))
        weights = self.lexicon.idf(list(words)) * np.fromiter(words.values(), np.float32, len(words))
        return QueryWords(list(zip(terms_of(list(words)), weights, strict=True)), float(weights.sum()) or 1.0)

    def match(self, query: str | QueryWords, positions: Positions | None = None) -> Match:
        """Return the match of every item, or of those at `positions`."""
        asked = self.ask(query) if isinstance(query, str) else query
        bm25 = np.zeros(len(self) if positions is None else len(positions), np.float32)
        for term, weight in asked.terms:
            for segment, start, part in self.bm25.parts(term):
                items, counts = segment.items[part], segment.counts[part]
                if positions is None:
                    bm25[items + start] += weight * self._shares(segment, items, counts)
                else:
                    places = np.minimum(np.searchsorted(items, positions - start), len(items) - 1)
                    found = np.flatnonzero(items[places] == positions - start)
                    places = places[found]
                    bm25[found] += weight * self._shares(segment, items[places], counts[places])
        return Match(bm25, bm25 / np.float32(asked.limit))

    def _shares(self, segment: Postings, items: npt.NDArray[np.int32], counts: npt.NDArray[np.uint8]) -> Floats:
        """tf / (tf + …), the score without the idf."""
        norm = K1 * (1 - B + B * segment.lengths[items] / self.lexicon.mean_length)
        return (counts / (counts + norm)).astype(np.float32)

    def limit(self, query: str) -> tuple[float, int]:
        """Return the idf of all words of a query together, which no item can exceed, and how many they are."""
        words = query_stems(query)
        return float(self.lexicon.idf(words).sum()), len(words)
