"""BM25 (`bm25.py`) of an index that lies in files: counts by word (`postings.py`), of any number of items.

Weights are computed when they are asked for: items that come and go change n, df(t) and the mean length, and none of
what is kept of the others. New items are a part of their own behind the old ones.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from crosscut.datasets.records import Item, plain_text
from crosscut.encoders.words import K1, B
from crosscut.retrievers.bm25 import settings_of
from crosscut.retrievers.first import Retriever
from crosscut.retrievers.postings import Counting, Postings, terms_asked, terms_of
from crosscut.storage import Files, Saved
from crosscut.types import NO_HANDLES, Handles, Mask, Positions

Scores = npt.NDArray[np.float32]
PORTION = 1 << 14  # items counted at a time


class FiledBM25(Retriever):
    """A retriever that knows its items, which are positions 0 … n − 1."""

    def __init__(self, items: Sequence[Item | str] = (), *, k1: float = K1, b: float = B) -> None:
        self.k1, self.b = k1, b
        self._parts = [counted(items)]  # the items that were there first, and those that came later
        self._gone: dict[int, int] = {}  # term → items that had it and count no more
        self._alive: Mask | None = None  # (n) False: an item that counts no more
        self._n, self._words = self.n, int(self._parts[0].lengths.sum(dtype=np.int64))  # that count

    @classmethod
    def _holding(cls, parts: list[Postings], k1: float, b: float) -> FiledBM25:
        made = cls(k1=k1, b=b)
        made._parts = parts
        made._n, made._words = made.n, sum(int(part.lengths.sum(dtype=np.int64)) for part in parts)
        return made

    @classmethod
    def holding(cls, postings: Postings, *, k1: float = K1, b: float = B) -> FiledBM25:
        """A retriever of items that were counted before."""
        return cls._holding([postings], k1, b)

    @property
    def n(self) -> int:
        return sum(part.n for part in self._parts)

    @property
    def first(self) -> Postings:
        """Of the items that were there first."""
        return self._parts[0]

    def extended(self, items: Sequence[Item | str]) -> FiledBM25:
        """A retriever of these items and more, at the end; this one stays as it is. Costs what is new."""
        more = counted(items)
        if len(self._parts) > 1:
            more = Postings.of(self._parts[1].joined(more))
        made = self._copy([self._parts[0], more] if self._parts[0].n else [more])
        made._alive = None if self._alive is None else np.append(self._alive, np.ones(len(items), np.bool_))
        made._n, made._words = (
            self._n + len(items),
            self._words + int(more.lengths[-len(items) :].sum() if len(items) else 0),
        )
        return made

    def among(self, alive: Mask, items: Sequence[Item | str] | None = None) -> FiledBM25:
        """The same items, of which only those alive count: the others have no words, and make no word frequent.

        `items` are those that do not count any more, if the caller has them: it then costs what they cost.
        """
        made = self._copy(self._parts)
        made._alive = alive
        old = np.ones(self.n, np.bool_) if self._alive is None else self._alive
        gone = np.flatnonzero(old & ~alive)
        if items is None:
            for part, start in self._offsets():
                here = gone[(gone >= start) & (gone < start + part.n)] - start
                for term, count in zip(*_terms_of(part, here), strict=True):
                    made._gone[term] = made._gone.get(term, 0) + count
        else:
            for item in items:
                for term in set(terms_of(plain_text(item))):
                    made._gone[term] = made._gone.get(term, 0) + 1
        lengths = np.concatenate(
            [np.asarray(part.lengths[gone[(gone >= s) & (gone < s + part.n)] - s]) for part, s in self._offsets()]
        )
        made._n, made._words = self._n - len(gone), self._words - int(lengths.sum(dtype=np.int64))
        return made

    def taken(self, positions: Positions) -> FiledBM25:
        """A retriever of some of the items; words that only others have are forgotten."""
        whole = self._parts[0]
        if len(self._parts) > 1:
            whole = Postings.of(self._parts[0].joined(self._parts[1]))
        return self._holding([whole.taken(np.asarray(positions, np.int64))], self.k1, self.b)

    def _copy(self, parts: list[Postings]) -> FiledBM25:
        made = self._holding(parts, self.k1, self.b)
        made._gone, made._alive, made._n, made._words = dict(self._gone), self._alive, self._n, self._words
        return made

    def _offsets(self) -> list[tuple[Postings, int]]:
        return [(part, sum(before.n for before in self._parts[:j])) for j, part in enumerate(self._parts)]

    def scores(self, query: str) -> Scores:
        """The BM25 score of every item (n); 0 where no word is shared."""
        from crosscut.retrievers.matching import add

        out = np.zeros(self.n, np.float32)
        terms, idf = self._weighed(query)
        flat, slope = self._norm()
        for part, start in self._offsets():
            for place, weight in zip(_found(part, terms).tolist(), idf, strict=True):
                if place >= 0:
                    these = slice(part.starts[place], part.starts[place + 1])
                    here = out[start : start + part.n]
                    add(part.items[these], part.counts[these], part.lengths, weight, flat, slope, here)
        if self._alive is not None:
            out[~self._alive] = 0
        return out

    def top(self, query: str, count: int, exclude: Handles = NO_HANDLES, within: Handles | None = None) -> Handles:
        """The `count` items of the highest scores above 0, best first, ties to the lower position.

        `exclude` are not among them; `within` are the only ones that may be, sorted, and then alive.
        """
        from crosscut.retrievers.matching import best

        terms, idf = self._weighed(query)
        flat, slope = self._norm()
        if within is None and self._alive is not None and not self._alive.all():
            within = np.flatnonzero(self._alive)
        found: list[tuple[Scores, Positions]] = []
        for part, start in self._offsets():
            places = _found(part, terms)
            there = places >= 0
            scores = np.full(min(count + len(exclude), part.n), -np.inf, np.float32)
            items = np.zeros(len(scores), np.int64)
            low, high = np.searchsorted(NO_HANDLES if within is None else within, (start, start + part.n))
            allowed = NO_HANDLES if within is None else within[low:high]
            allowed = allowed - start if start else allowed  # many: no copy of them
            size = best(
                part.starts[places[there]],
                part.starts[places[there] + 1],
                idf[there],
                np.asarray(part.items),
                np.asarray(part.counts),
                np.asarray(part.lengths),
                flat,
                slope,
                allowed,
                within is not None,
                scores,
                items,
            )
            found.append((scores[:size], items[:size] + start))
        scores, items = (np.concatenate(each) for each in zip(*found, strict=True))
        order = np.lexsort((items, -scores))
        items = items[order]
        return items[~np.isin(items, exclude)][:count] if len(exclude) else items[:count]

    def _weighed(self, query: str) -> tuple[npt.NDArray[np.uint64], Scores]:
        """A query's terms and idf(t), times their number in the query; the rarest first."""
        terms, times = np.unique(np.array(terms_asked(query), np.uint64), return_counts=True)
        frequency = sum((part.frequency(part.find(terms)) for part in self._parts), np.zeros(len(terms), np.int64))
        frequency = frequency - np.array([self._gone.get(term, 0) for term in terms.tolist()], np.int64)
        idf = np.log1p((self._n - frequency + 0.5) / (frequency + 0.5)) * times
        order = np.argsort(-idf, kind="stable")
        return terms[order], idf[order].astype(np.float32)

    def _norm(self) -> tuple[np.float32, np.float32]:
        """k₁ (1 − b), and k₁ b / mean |i|."""
        mean = self._words / max(self._n, 1)
        return np.float32(self.k1 * (1 - self.b)), np.float32(self.k1 * self.b / (mean or 1.0))

    def write(self, files: Files) -> None:
        """Counts and terms, as files of a generation; of items that count no more nothing."""
        whole = self._parts[0]
        if len(self._parts) > 1 or self._alive is not None:
            alive = np.ones(self.n, np.bool_) if self._alive is None else self._alive
            whole = self.taken(np.flatnonzero(alive))._parts[0]
        whole.write(files)
        files.json("bm25", {"k1": self.k1, "b": self.b})

    @classmethod
    def read(cls, saved: Saved, n: int) -> FiledBM25:
        """What `write` wrote, of n items."""
        return cls._holding([Postings.read(saved, n)], *settings_of(saved, saved.json("bm25")))


def counted(items: Sequence[Item | str]) -> Postings:
    """The words of items, in memory."""
    counting = Counting()
    for start in range(0, len(items), PORTION):
        counting.add(items[start : start + PORTION])
    return Postings.of(counting.done())


def _found(part: Postings, terms: npt.NDArray[np.uint64]) -> Positions:
    """Where the terms stand, their items ready to be gone by."""
    places = part.find(terms)
    part.ready(places[places >= 0])
    return places


def _terms_of(part: Postings, positions: Positions) -> tuple[list[int], list[int]]:
    """The terms of some items, and how many of them have each. Reads every posting."""
    if not len(positions):
        return [], []
    chosen = np.zeros(part.n, np.bool_)
    chosen[positions] = True
    hits = np.add.reduceat(np.append(chosen[part.items], False), np.minimum(part.starts[:-1], len(part.items)))
    hits[np.diff(part.starts) == 0] = 0
    there = np.flatnonzero(hits)
    return part.terms[there].tolist(), hits[there].tolist()
