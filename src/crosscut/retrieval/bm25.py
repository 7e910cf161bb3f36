"""BM25 over titles and texts of items (Robertson and Zaragoza 2009, with Lucene's idf): stemmed, without stop words.

    score(q, i) = Σ_{t ∈ q}  idf(t) · tf / (tf + k₁ (1 − b + b · |i| / mean |i|))
    idf(t)      = ln(1 + (n − df(t) + ½) / (df(t) + ½))

A *term* is a 64-bit hash of a stem: no word of an item is kept as text. `Postings` are the counts of one immutable
segment of items, in memory or in files. `BM25` scores the items of several segments, one after another; idf and mean
length are computed when a query is asked, so that items that come and go change nothing that is kept.

A query's marked mention, `… [START] bank [END] …`, counts twice: in entity linking it is the word that is meant.
"""

from __future__ import annotations

import hashlib
import itertools
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from crosscut.datasets.records import MENTION_END, MENTION_START, TITLE_MARK, Item, plain_text
from crosscut.errors import InputError
from crosscut.linalg.arrays import inside, starts_of
from crosscut.linalg.top import ranked
from crosscut.types import NO_HANDLES, Array, Handles, Mask, Positions

Scores = npt.NDArray[np.float32]
Terms = npt.NDArray[np.uint64]

K1, B = 1.2, 0.75
MARKS = re.compile("|".join(map(re.escape, (MENTION_START, MENTION_END, TITLE_MARK))))
WORD = re.compile(r"\w\w+")
_STOP_WORDS = """a an and are as at be but by for if in into is it no not of on or such that the their then there these
they this to was will with"""
STOP_WORDS = frozenset(_STOP_WORDS.split())  # Lucene's
BLOCK = 1 << 14  # texts counted at a time
FEW = 1 << 14  # items of a term up to which compiled code is not worth its start
VOCABULARY = 1 << 20  # words whose term is remembered while counting


def words_of(text: str) -> list[str]:
    """Return the words of a text in lower case, in order, without marks."""
    return WORD.findall((MARKS.sub(" ", text) if "[" in text else text).lower())


def stems(text: str) -> list[str]:
    """Return the stemmed words of a text, in order, without stop words."""
    from Stemmer import Stemmer

    words = [word for word in words_of(text) if word not in STOP_WORDS]
    return list(Stemmer("english").stemWords(words))  # cheap to create, and not to be shared between threads


def query_stems(query: str) -> list[str]:
    """Return the stemmed words of a query; those of a marked mention twice."""
    start, end = query.find(MENTION_START), query.find(MENTION_END)
    mention = query[start + len(MENTION_START) : end] if 0 <= start < end else ""
    return stems(f"{query} {mention}")


def term_of(stem: str) -> int:
    """Return the 64-bit hash of a stem."""
    return int.from_bytes(hashlib.blake2b(stem.encode(errors="surrogatepass"), digest_size=8).digest(), "little")


def terms_of(stems: Sequence[str]) -> Terms:
    """Return the hash of each stem."""
    return np.fromiter(map(term_of, stems), np.uint64, len(stems))


@dataclass(frozen=True, eq=False)
class Postings:
    """Which of n items hold which terms, and how often: m pairs of a term and an item, term by term."""

    terms: Terms  # (t) sorted
    starts: Positions  # (t + 1) where the items of each term begin
    items: npt.NDArray[np.int32]  # (m) positions, ascending within a term
    counts: npt.NDArray[np.uint8]  # (m) occurrences, at most 255
    lengths: npt.NDArray[np.uint32]  # (n) words of each item

    DTYPES: ClassVar = {"terms": "<u8", "starts": "<i8", "items": "<i4", "counts": "|u1", "lengths": "<u4"}

    def __post_init__(self) -> None:
        starts, m = self.starts, len(self.items)
        if len(starts) != len(self.terms) + 1 or starts[0] != 0 or starts[-1] != m or (np.diff(starts) < 0).any():
            raise InputError(f"the starts of {len(self.terms)} terms do not divide {m} postings; build the index again")
        if len(self.counts) != m:
            raise InputError(f"{len(self.counts)} counts for {m} postings; build the index again")

    @classmethod
    def count(cls, items: Iterable[Item | str]) -> Postings:
        """Return the postings of some items, which are read once."""
        from Stemmer import Stemmer

        from crosscut.retrieval.kernels import count, transpose

        stemmer = Stemmer("english")
        ranks: dict[int, int] = {}  # term → its number, in order of appearance
        known = dict.fromkeys(STOP_WORDS, -1)  # word → the number of its term
        parts: list[tuple[Array, ...]] = []
        texts = map(plain_text, items)
        while block := list(itertools.islice(texts, BLOCK)):
            words = [words_of(text) for text in block]
            if len(known) > VOCABULARY:
                known = dict.fromkeys(STOP_WORDS, -1)
            unseen = [word for word in dict.fromkeys(itertools.chain.from_iterable(words)) if word not in known]
            for word, stem in zip(unseen, stemmer.stemWords(unseen), strict=True):
                known[word] = ranks.setdefault(term_of(stem), len(ranks))
            sizes = np.fromiter(map(len, words), np.int64, len(words))
            tokens = np.fromiter(map(known.__getitem__, itertools.chain.from_iterable(words)), np.int32, sizes.sum())
            parts.append(count(tokens, starts_of(sizes), len(ranks)))
        numbers, counts, sizes, lengths = (
            np.concatenate([np.zeros(0, dtype), *(part[column] for part in parts)])
            for column, dtype in enumerate((np.int32, np.uint8, np.int64, np.uint32))
        )
        terms = np.fromiter(ranks, np.uint64, len(ranks))
        order = np.argsort(terms)
        rank = np.empty(len(order), np.int64)
        rank[order] = np.arange(len(order))
        starts = starts_of(np.bincount(rank[numbers], minlength=len(terms)))
        held_by, often = transpose(starts_of(sizes), rank[numbers], counts, starts)
        return cls(terms[order], starts, held_by, often, lengths)

    @classmethod
    def join(cls, segments: Sequence[Postings], positions: Positions | None = None) -> Postings:
        """Return one segment of the items of several, or of those at `positions`, in that order.

        Terms that no item holds any more are left out.
        """
        offsets = starts_of([segment.n for segment in segments])
        every, ranks = np.unique(np.concatenate([segment.terms for segment in segments]), return_inverse=True)
        rank = np.repeat(ranks, np.concatenate([np.diff(segment.starts) for segment in segments]))  # (m)
        items = np.concatenate([segment.items + start for segment, start in zip(segments, offsets, strict=False)])
        counts = np.concatenate([segment.counts for segment in segments])
        lengths = np.concatenate([segment.lengths for segment in segments])
        if positions is not None:
            places = np.full(len(lengths), -1, np.int64)
            places[positions] = np.arange(len(positions))
            items, lengths = places[items], lengths[positions]
            keep = items >= 0
            rank, items, counts = rank[keep], items[keep], counts[keep]
        order = np.argsort(rank * max(len(lengths), 1) + items, kind="stable")  # of sorted runs: linear
        sizes = np.bincount(rank, minlength=len(every))
        used = np.flatnonzero(sizes)
        return cls(every[used], starts_of(sizes[used]), items[order].astype(np.int32), counts[order], lengths)

    @property
    def n(self) -> int:
        return len(self.lengths)

    def of_term(self, term: np.uint64) -> slice:
        """Return the part of `items` and `counts` that belongs to a term; empty if no item holds it."""
        place = int(np.searchsorted(self.terms, term))
        if place == len(self.terms) or self.terms[place] != term:
            return slice(0, 0)
        return slice(int(self.starts[place]), int(self.starts[place + 1]))


class BM25:
    """A retriever of items, which are the positions 0 … n − 1."""

    def __init__(self, items: Iterable[Item | str] = (), *, k1: float = K1, b: float = B) -> None:
        self.segments: tuple[Postings, ...] = (Postings.count(items),)
        self.alive: Mask | None = None  # (n) False: an item that was removed
        self.k1, self.b = k1, b

    @classmethod
    def over(cls, segments: Sequence[Postings], alive: Mask | None = None, *, k1: float = K1, b: float = B) -> BM25:
        """Return a retriever of the items of these segments.

        Those that are not `alive` score 0 and count neither in n, nor in df(t), nor in the mean length.
        """
        bm25 = cls.__new__(cls)  # nothing is counted
        bm25.segments, bm25.alive = tuple(segments), None if alive is None or alive.all() else alive
        bm25.k1, bm25.b = k1, b
        return bm25

    @property
    def n(self) -> int:
        return sum(segment.n for segment in self.segments)

    def scores(self, query: str) -> Scores:
        """Return the score of every item (n); 0 where no word is shared."""
        return self._scored(query)[0]

    def top(self, query: str, count: int, exclude: Handles = NO_HANDLES, within: Handles | None = None) -> Handles:
        """Return at most `count` items of a score above 0, best first, ties to the lower position.

        `exclude` are not among them; `within` are the only ones that may be, sorted.
        """
        scores, holders = self._scored(query)
        if sum(map(len, holders)) * 8 < self.n:  # rare words: do not read every score
            touched = np.unique(np.concatenate([NO_HANDLES, *holders]))
            touched = touched[scores[touched] > 0]
            touched = touched if within is None else touched[inside(touched, within)]
        elif within is not None:
            touched = within[scores[within] > 0]
        else:
            touched = np.flatnonzero(scores)
        if len(exclude):
            touched = touched[~np.isin(touched, exclude)]
        return touched[ranked(scores[touched], count)]

    def parts(self, term: np.uint64) -> list[tuple[Postings, int, slice]]:
        """Return the segments that hold a term, with the position of their first item, and what belongs to the term."""
        starts = starts_of([segment.n for segment in self.segments]).tolist()
        parts = [(segment, start, segment.of_term(term)) for segment, start in zip(self.segments, starts, strict=False)]
        return [(segment, start, part) for segment, start, part in parts if part.stop > part.start]

    def _scored(self, query: str) -> tuple[Scores, list[Array]]:
        """The score of every item, and the items that hold each term of the query."""
        scores = np.zeros(self.n, np.float32)
        holders: list[Array] = []
        n, mean = self._size
        for term in terms_of(query_stems(query)):
            parts = self.parts(term)
            found = [segment.items[part] + start for segment, start, part in parts]
            holders += found
            frequency = sum(len(items) if self.alive is None else int(self.alive[items].sum()) for items in found)
            idf = np.log1p((n - frequency + 0.5) / (frequency + 0.5))
            for segment, start, part in parts:
                add = _add_few if part.stop - part.start <= FEW else _add_many
                out = scores[start : start + segment.n]
                add(segment.items[part], segment.counts[part], segment.lengths, idf, self.k1, self.b, mean, out)
        if self.alive is not None:
            scores[~self.alive] = 0
        return scores, holders

    @cached_property
    def _size(self) -> tuple[int, float]:
        """Return the number of items, and their mean length in words."""
        lengths = np.concatenate([segment.lengths for segment in self.segments])
        if self.alive is not None:
            lengths = lengths[self.alive]
        return len(lengths), float(lengths.sum(dtype=np.int64)) / max(len(lengths), 1) or 1.0


def _add_few(
    items: Array, counts: Array, lengths: Array, idf: float, k1: float, b: float, mean: float, out: Scores
) -> None:
    """Do what `kernels.add` does, without loading a compiler; an item occurs once."""
    inside_file = (items >= 0) & (items < len(lengths))
    items, tf = items[inside_file], counts[inside_file].astype(np.float64)
    out[items] += (idf * tf / (tf + k1 * (1 - b + b * lengths[items] / mean))).astype(np.float32)


def _add_many(*arguments: Any) -> None:
    from crosscut.retrieval.kernels import add

    add(*arguments)
