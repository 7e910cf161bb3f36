"""Which words two texts share, weighed by an idf that is frozen: BM25 without a corpus to wait for.

    bm25(q, i) = Σ_{t ∈ q}  idf(t) · tf / (tf + k₁ (1 − b + b · |i| / mean |i|))        (Robertson and Zaragoza 2009)
    idf(t)     = ln(1 + (1 − p + ½/n) / (p + ½/n)),   p = the share of documents that hold t     (Lucene's, by shares)

The shares, n and the mean length are a `Lexicon`. It is made from a corpus once, when an index is built, or it is the
box's own, made from many collections. Either way it does not change when items come or go, so that a pair's score
depends on the pair alone. A query's marked mention, `… [START] bank [END] …`, counts twice.

What a word is, is said here for `crosscut.retrievers.bm25` too, whose counts an index shares with `Words`.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from scipy import sparse

from crosscut.datasets.records import MENTION_END, MENTION_START
from crosscut.encoders.tokens import TITLE_MARK
from crosscut.errors import InputError
from crosscut.linalg.arrays import looked_up
from crosscut.storage import Files, Saved, write_file

Floats = npt.NDArray[np.float32]
Positions = npt.NDArray[np.int64]
Keys = npt.NDArray[np.uint64]

K1, B = 1.2, 0.75
WORD = re.compile(r"\w\w+")
_STOP_WORDS = """a an and are as at be but by for if in into is it no not of on or such that the their then there these
they this to was will with"""
STOP_WORDS = frozenset(_STOP_WORDS.split())  # Lucene's


def stems(text: str) -> list[str]:
    """The words of a text, stemmed, in order, without stop words and marks."""
    from Stemmer import Stemmer

    for mark in (MENTION_START, MENTION_END, TITLE_MARK):
        text = text.replace(mark, " ")
    words = [word for word in WORD.findall(text.lower()) if word not in STOP_WORDS]
    return list(Stemmer("english").stemWords(words))  # cheap to make, and not to be shared between threads


def query_stems(query: str) -> list[str]:
    """The words of a query; those of a marked mention stand there twice."""
    start, end = query.find(MENTION_START), query.find(MENTION_END)
    mention = query[start + len(MENTION_START) : end] if 0 <= start < end else ""
    return stems(f"{query} {mention}")


def count_words(texts: Iterable[str], terms: dict[str, int]) -> sparse.csr_matrix:
    """How often each text holds each stem, (texts × terms); new stems join `terms`, stem → column."""
    columns: list[int] = []
    starts = [0]
    for text in texts:
        columns += [terms.setdefault(stem, len(terms)) for stem in stems(text)]
        starts.append(len(columns))
    shape = (len(starts) - 1, len(terms))
    counts = sparse.csr_matrix((np.ones(len(columns), np.float32), columns, starts), shape=shape)
    counts.sum_duplicates()
    return counts


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
        keys = np.fromiter(map(key_of, self.stems), np.uint64, len(self.stems))
        order = np.argsort(keys)
        self._keys: Keys = keys[order]
        self._shares = np.fromiter(self.stems.values(), np.float64, len(self.stems))[order]

    @classmethod
    def of(cls, texts: Iterable[str]) -> Lexicon:
        """Counted in a corpus."""
        terms: dict[str, int] = {}
        return cls.counted(terms, count_words(texts, terms))

    @classmethod
    def counted(cls, terms: Mapping[str, int], counts: sparse.csr_matrix) -> Lexicon:
        """Of stems (stem → column) that were counted in every text, (texts × terms)."""
        n = int(counts.shape[0])
        held = np.asarray(counts.getnnz(axis=0)).reshape(-1)
        length = float(counts.sum()) / n if n else 0.0
        shares = {stem: float(held[column]) / n for stem, column in terms.items() if held[column]}
        return cls(shares, n or 1, length or 1.0)

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
        share = looked_up(np.fromiter(map(key_of, words), np.uint64, len(words)), self._keys, self._shares)
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
        try:
            made = cls({}, float(about["documents"]), float(about["mean_length"]))
        except (KeyError, TypeError, ValueError, InputError) as error:
            raise saved.damaged("lexicon.json", f"says nothing of its documents ({error!r})") from error
        if len(keys) and not ((keys[1:] > keys[:-1]).all() and shares.min() >= 0 and shares.max() <= 1):
            raise saved.damaged("lexicon-stems.npy", f"and its shares are no lexicon of {len(keys)} stems")
        made.stems, made._keys, made._shares = None, keys, shares
        return made

    def _spelled(self) -> dict[str, float]:
        if self.stems is None:
            raise InputError("the lexicon of a saved index holds hashes of its stems, and this needs them spelled out")
        return self.stems


def key_of(stem: str) -> int:
    """64 bits that stand for a stem."""
    return int.from_bytes(hashlib.blake2b(stem.encode(errors="surrogatepass"), digest_size=8).digest(), "little")


class Match(NamedTuple):
    """What a query's words say of items: BM25, and the same as a share of the most that any item could reach."""

    bm25: Floats
    relative: Floats


class QueryWords(NamedTuple):
    """The words of a query, each once: its column among those of a corpus, and its idf times how often it is asked
    for."""

    columns: list[tuple[int, np.float32]]
    limit: float  # what an item would reach that holds every word as often as could be


class Words:
    """The words of a corpus under a frozen lexicon; items are positions 0 … n − 1.

    `terms` and `counts` are what `count_words` gives; weights are computed when they are first asked for.
    """

    def __init__(self, terms: Mapping[str, int], counts: sparse.csr_matrix, lexicon: Lexicon) -> None:
        self.terms, self.counts, self.lexicon = terms, counts, lexicon

    @classmethod
    def of(cls, texts: Iterable[str], lexicon: Lexicon) -> Words:
        """Of texts, counted now."""
        terms: dict[str, int] = {}
        return cls(terms, count_words(texts, terms), lexicon)

    def extended(self, texts: Iterable[str]) -> Words:
        """Of these texts and more behind them; this one stays as it is."""
        terms = dict(self.terms)
        return Words(terms, stacked(self.counts, count_words(texts, terms)), self.lexicon)

    @cached_property
    def _weights(self) -> sparse.csc_matrix:
        """tf / (tf + …) by columns, without the idf."""
        counts = self.counts
        lengths = np.asarray(counts.sum(axis=1), np.float64).reshape(-1)  # (n,)
        norm = K1 * (1 - B + B * lengths / self.lexicon.mean_length)  # (n,)
        weights = counts.tocsc(copy=True)
        weights.data = (weights.data / (weights.data + norm[weights.indices])).astype(np.float32)
        return weights

    def __len__(self) -> int:
        return int(self.counts.shape[0])

    def ask(self, query: str) -> QueryWords:
        """A query, ready to be matched with any item."""
        words = Counter(query_stems(query))
        idf = self.lexicon.idf(list(words))  # (distinct words,)
        weighed = [(word, times * weight) for (word, times), weight in zip(words.items(), idf, strict=True)]
        columns = [(self.terms[word], weight) for word, weight in weighed if word in self.terms]
        return QueryWords(columns, float(sum(weight for _, weight in weighed)) or 1.0)

    def match(self, query: str | QueryWords, positions: Positions | None = None) -> Match:
        """Every item, or those at `positions`: a query's words are few, and only their columns are read."""
        asked = self.ask(query) if isinstance(query, str) else query
        bm25 = np.zeros(len(self) if positions is None else len(positions), np.float32)
        weights = self._weights
        for column, weight in asked.columns:
            part = slice(weights.indptr[column], weights.indptr[column + 1])
            held, values = weights.indices[part], weights.data[part]  # the items that hold the word, in order
            if positions is None:
                bm25[held] += weight * values
            elif len(held):
                places = np.minimum(np.searchsorted(held, positions), len(held) - 1)
                bm25 += np.where(held[places] == positions, weight * values[places], np.float32(0))
        return Match(bm25, bm25 / asked.limit)

    def limit(self, query: str) -> tuple[float, int]:
        """The idf of all words of a query together, more than which no item can reach, and how many they are."""
        words = query_stems(query)
        return float(self.lexicon.idf(words).sum()), len(words)


def stacked(counts: sparse.csr_matrix, more: sparse.csr_matrix) -> sparse.csr_matrix:
    """Counts of texts and of more behind them, which may hold more stems."""
    shape = (counts.shape[0], more.shape[1])
    widened = sparse.csr_matrix((counts.data, counts.indices, counts.indptr), shape=shape)
    both: sparse.csr_matrix = sparse.vstack([widened, more], format="csr")
    return both
