"""Which words two texts share, weighed by an idf that is frozen: BM25 without a corpus to wait for.

    bm25(q, i) = Σ_{t ∈ q}  idf(t) · tf / (tf + k₁ (1 − b + b · |i| / mean |i|))        (Robertson and Zaragoza 2009)
    idf(t)     = ln(1 + (1 − p + ½/n) / (p + ½/n)),   p = the share of documents that hold t     (Lucene's, by shares)

The shares, n and the mean length are a `Lexicon`. It is made from a corpus once, when an index is built, or it is the
box's own, made from many collections. Either way it does not change when items come or go, so that a pair's score
depends on the pair alone. A query's marked mention, `… [START] bank [END] …`, counts twice.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from scipy import sparse

from crosscut.datasets.records import MENTION_END, MENTION_START
from crosscut.encoders.tokens import TITLE_MARK
from crosscut.errors import InputError

Floats = npt.NDArray[np.float32]
Positions = npt.NDArray[np.int64]

K1, B = 1.2, 0.75
WORD = re.compile(r"\w\w+")
_STOP_WORDS = """a an and are as at be but by for if in into is it no not of on or such that the their then there these
they this to was will with"""
STOP_WORDS = frozenset(_STOP_WORDS.split())  # Lucene's
LONGEST_TEXT = 100_000
"""Characters looked at."""


def stems(text: str) -> list[str]:
    """The words of a text, stemmed, in order, without stop words and marks."""
    for mark in (MENTION_START, MENTION_END, TITLE_MARK):
        text = text.replace(mark, " ")
    words = [word for word in WORD.findall(text[:LONGEST_TEXT].lower()) if word not in STOP_WORDS]
    return list(_stemmer().stemWords(words))


def query_stems(query: str) -> list[str]:
    """The words of a query; those of a marked mention stand there twice."""
    start, end = query.find(MENTION_START), query.find(MENTION_END)
    mention = query[start + len(MENTION_START) : end] if 0 <= start < end else ""
    return stems(f"{query} {mention}")


def _stemmer() -> Any:
    from Stemmer import Stemmer

    return Stemmer("english")  # cheap to make, and not to be shared between threads


class Lexicon:
    """How common words are, frozen.

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
        self.shares, self.documents, self.mean_length = dict(shares), float(documents), float(mean_length)

    @classmethod
    def of(cls, texts: Iterable[str]) -> Lexicon:
        """Counted in a corpus."""
        return cls.counted([stems(text) for text in texts])

    @classmethod
    def counted(cls, texts: Sequence[Sequence[str]]) -> Lexicon:
        """Counted in texts that are stemmed already."""
        held: Counter[str] = Counter()
        for words in texts:
            held.update(set(words))
        n = len(texts)
        length = sum(len(words) for words in texts) / n if n else 0.0
        return cls({stem: count / n for stem, count in held.items()}, n or 1, length or 1.0)

    @classmethod
    def mean(cls, lexicons: Sequence[Lexicon], documents: float, *, least: float = 0.0) -> Lexicon:
        """Many collections as one, each of the same weight; shares under `least` are left out."""
        shares: defaultdict[str, float] = defaultdict(float)
        for lexicon in lexicons:
            for stem, share in lexicon.shares.items():
                shares[stem] += share / len(lexicons)
        # a geometric mean: one collection of long texts shall not decide
        length = math.exp(sum(math.log(lexicon.mean_length) for lexicon in lexicons) / len(lexicons))
        return cls({stem: share for stem, share in shares.items() if share >= least}, documents, length)

    @property
    def fingerprint(self) -> str:
        """A short name that changes whenever a weight may change."""
        about = [self.documents, self.mean_length, sorted(self.shares.items())]
        return hashlib.sha256(json.dumps(about).encode()).hexdigest()[:8]

    def idf(self, words: Sequence[str]) -> Floats:
        """The weight of each word, (len(words),)."""
        share = np.asarray([self.shares.get(word, 0.0) for word in words], np.float64)
        half = 0.5 / self.documents
        return np.log1p((1 - share + half) / (share + half)).astype(np.float32)

    def save(self, path: Path) -> None:
        """One JSON file; shares in parts per million, rounded up."""
        parts = {stem: math.ceil(share * 1e6) for stem, share in sorted(self.shares.items())}
        about = {"documents": self.documents, "mean_length": self.mean_length, "parts_per_million": parts}
        temporary = path.with_name(path.name + ".part")
        temporary.write_text(json.dumps(about, ensure_ascii=False, separators=(",", ":")), "utf-8")
        temporary.replace(path)

    @classmethod
    def load(cls, path: Path) -> Lexicon:
        """What `save` wrote."""
        try:
            about = json.loads(path.read_text("utf-8"))
            shares = {stem: parts / 1e6 for stem, parts in about["parts_per_million"].items()}
            return cls(shares, about["documents"], about["mean_length"])
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise InputError(f"{str(path)!r} holds no readable lexicon ({error!r}); export the model again") from error


class Match(NamedTuple):
    """What a query's words say of items: BM25, and the same as a share of the most that any item could reach."""

    bm25: Floats
    relative: Floats


class Words:
    """The words of a corpus under a frozen lexicon; items are positions 0 … n − 1."""

    def __init__(self, items: Sequence[str], lexicon: Lexicon) -> None:
        self.lexicon = lexicon
        self._terms: dict[str, int] = {}  # stem → column
        columns: list[int] = []
        starts = [0]
        for text in items:
            columns += [self._terms.setdefault(stem, len(self._terms)) for stem in stems(text)]
            starts.append(len(columns))
        shape = (len(items), len(self._terms))
        counts = sparse.csr_matrix((np.ones(len(columns), np.float32), columns, starts), shape=shape)
        counts.sum_duplicates()
        lengths = np.diff(starts)
        norm = K1 * (1 - B + B * lengths / lexicon.mean_length)  # (n,)
        rows = np.repeat(np.arange(len(items)), np.diff(counts.indptr))
        counts.data = (counts.data / (counts.data + norm[rows])).astype(np.float32)  # tf / (tf + …), without the idf
        self._weights = counts.tocsc()

    def __len__(self) -> int:
        return int(self._weights.shape[0])

    def match(self, query: str) -> Match:
        """Every item, (n,) each: a query's words are few, and only their columns are read."""
        words = Counter(query_stems(query))
        idf = self.lexicon.idf(list(words))  # (distinct words,)
        limit = float(sum(weight * times for weight, times in zip(idf, words.values(), strict=True))) or 1.0
        bm25 = np.zeros(len(self), np.float32)
        for (word, times), weight in zip(words.items(), idf, strict=True):
            term = self._terms.get(word)
            if term is not None:
                part = slice(self._weights.indptr[term], self._weights.indptr[term + 1])
                bm25[self._weights.indices[part]] += times * weight * self._weights.data[part]
        return Match(bm25, bm25 / limit)

    def limit(self, query: str) -> tuple[float, int]:
        """The idf of all words of a query together, more than which no item can reach, and how many they are."""
        words = query_stems(query)
        return float(self.lexicon.idf(words).sum()), len(words)
