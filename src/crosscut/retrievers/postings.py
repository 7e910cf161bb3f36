"""Words of many items: which items have a word, and how often. Counted in one pass, in bounded memory, on disk.

A *term* is a 64-bit hash of a stem: no word is kept as text. `Counting` takes items one after another and writes, item
by item, the numbers of their terms; `Postings.of` turns that around, term by term:

    terms    (t)       sorted hashes
    starts   (t + 1)   where the items of each term begin
    items    (m)       positions, ascending within a term
    counts   (m)       occurrences there, 255 at most
    lengths  (n)       words of each item
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from crosscut.datasets.records import MENTION_END, MENTION_START, Item, plain_text
from crosscut.encoders.tokens import TITLE_MARK
from crosscut.encoders.words import STOP_WORDS, WORD, key_of, query_stems, stems
from crosscut.linalg.arrays import spans, starts_of
from crosscut.storage import Files, Saved, divides
from crosscut.types import Positions

MARKS = re.compile("|".join(map(re.escape, (MENTION_START, MENTION_END, TITLE_MARK))))
REMEMBERED = 1 << 20  # words whose term is known without stemming them
SOME = 1 << 26  # postings that are looked at at a time
Hashes = npt.NDArray[np.uint64]


def terms_of(text: str) -> list[int]:
    """The terms of a text, in order; a term as often as it stands there."""
    return [term_of(stem) for stem in stems(text)]


def terms_asked(query: str) -> list[int]:
    """The terms of a query; those of a marked mention stand there twice."""
    return [term_of(stem) for stem in query_stems(query)]


def _terms_of_each(words: Sequence[str]) -> dict[str, int]:
    """The term of each word; 0 for stop words."""
    from Stemmer import Stemmer

    told = [word for word in words if word not in STOP_WORDS]
    pairs = zip(told, Stemmer("english").stemWords(told), strict=True)
    return {**dict.fromkeys(words, 0), **{word: term_of(stem) for word, stem in pairs}}


def words_of(text: str) -> list[str]:
    """The words of a text, marks apart."""
    return WORD.findall((MARKS.sub(" ", text) if "[" in text else text).lower())


def term_of(stem: str) -> int:
    """64 bits of a stem, none of them 0 alone."""
    return key_of(stem) or 1


@dataclass(frozen=True, eq=False)
class Counted:
    """Items and their terms, item by item: what `Postings.of` turns around."""

    terms: Hashes  # (t) in order of appearance
    starts: Positions  # (n + 1)
    numbers: npt.NDArray[np.int32]  # (m) places in `terms`
    counts: npt.NDArray[np.uint8]  # (m)
    lengths: npt.NDArray[np.uint32]  # (n)


class Counting:
    """Counts words of items, some at a time. With a folder the counts go to files there, and `sizes` says how far."""

    FILES = (("numbers", np.int32), ("counts", np.uint8), ("sizes", np.int32), ("lengths", np.uint32))

    def __init__(self, folder: Path | None = None, *, items: int = 0) -> None:
        self._places: dict[int, int] = {}  # term → its number
        self._fresh: list[int] = []  # terms that are in no file yet
        self._words: dict[str, int] = {}  # word → the number of its term, −1 for a stop word
        self._parts: dict[str, list[Any]] = {name: [] for name, _ in self.FILES}
        self._folder = folder
        if folder is not None and items:
            self._places = {term: place for place, term in enumerate(self._read("terms", np.uint64).tolist())}

    def add(self, items: Iterable[Item | str]) -> None:
        """Count these items, behind those before them."""
        from crosscut.retrievers.matching import count

        words = [words_of(plain_text(item)) for item in items]
        self._learn(dict.fromkeys(itertools.chain.from_iterable(words)))
        sizes = np.fromiter(map(len, words), np.int32, len(words))
        each = map(self._words.__getitem__, itertools.chain.from_iterable(words))
        tokens = np.fromiter(each, np.int32, int(sizes.sum(dtype=np.int64)))  # −1: a stop word
        numbers, times = np.empty(len(tokens), np.int32), np.empty(len(tokens), np.uint8)
        words_each = np.zeros(len(sizes), np.uint32)
        size = count(tokens, sizes, np.full(len(self._places), -1, np.int64), numbers, times, words_each)
        for (name, kind), values in zip(self.FILES, (numbers[:size], times[:size], sizes, words_each), strict=True):
            self._put(name, np.asarray(values, kind))

    def _learn(self, words: Iterable[str]) -> None:
        if len(self._words) > REMEMBERED:
            self._words = {}
        for word, term in _terms_of_each([word for word in words if word not in self._words]).items():
            if term and term not in self._places:
                self._places[term] = len(self._places)
                self._fresh.append(term)
            self._words[word] = self._places[term] if term else -1

    def _put(self, name: str, values: npt.NDArray[Any]) -> None:
        if self._folder is None:
            self._parts[name].append(values)
        else:
            with (self._folder / f"words-{name}.bin").open("ab") as file:
                file.write(values.data)

    def sizes(self) -> dict[str, int]:
        """What was written so far, file by file; the terms are written now."""
        assert self._folder is not None
        with (self._folder / "words-terms.bin").open("ab") as file:
            file.write(np.array(self._fresh, np.uint64).data)
        self._fresh = []
        names = ("terms", *(name for name, _ in self.FILES))
        return {f"words-{name}.bin": (self._folder / f"words-{name}.bin").stat().st_size for name in names}

    def _read(self, name: str, kind: npt.DTypeLike) -> npt.NDArray[Any]:
        if self._folder is None:
            return np.concatenate([np.zeros(0, kind), *self._parts[name]])
        path = self._folder / f"words-{name}.bin"
        return np.memmap(path, kind, mode="r") if path.stat().st_size else np.zeros(0, kind)

    def done(self) -> Counted:
        """Everything that was counted."""
        return Counted(
            np.array(self._fresh, np.uint64) if self._folder is None else self._read("terms", np.uint64),
            starts_of(self._read("sizes", np.int32)),
            self._read("numbers", np.int32),
            self._read("counts", np.uint8),
            self._read("lengths", np.uint32),
        )


@dataclass(frozen=True, eq=False)
class Postings:
    """Terms and the items that have them."""

    terms: Hashes
    starts: Positions
    items: npt.NDArray[np.int32]
    counts: npt.NDArray[np.uint8]
    lengths: npt.NDArray[np.uint32]

    @classmethod
    def of(cls, counted: Counted, order: Positions | None = None, folder: Path | None = None) -> Postings:
        """Turned around; the item at position j is `order[j]` of what was counted. With a folder, arrays lie there."""
        from crosscut.retrievers.matching import turn

        n, m = len(counted.lengths), len(counted.numbers)
        by_hash = np.argsort(counted.terms)
        rank = np.empty(len(by_hash), np.int32)
        rank[by_hash] = np.arange(len(by_hash), dtype=np.int32)
        often = np.zeros(len(by_hash), np.int64)
        for begin in range(0, m, SOME):  # bincount makes 64 bits of each
            often += np.bincount(counted.numbers[begin : begin + SOME], minlength=len(by_hash))
        starts = starts_of(often[by_hash])

        def room(name: str, kind: npt.DTypeLike) -> npt.NDArray[Any]:
            if folder is None or not m:
                return np.empty(m, kind)
            return np.memmap(folder / f"postings-{name}.bin", kind, mode="w+", shape=(m,))

        items, counts = room("items", np.int32), room("counts", np.uint8)
        places = np.arange(n) if order is None else np.asarray(order, np.int64)
        turn(places, counted.starts, counted.numbers, counted.counts, rank, starts[:-1].copy(), items, counts)
        return cls(counted.terms[by_hash], starts, items, counts, np.asarray(counted.lengths)[places])

    @property
    def n(self) -> int:
        return len(self.lengths)

    def find(self, terms: Hashes) -> Positions:
        """The places of terms, −1 for those that no item has."""
        if not len(self.terms):
            return np.full(len(terms), -1, np.int64)
        places = np.minimum(np.searchsorted(self.terms, terms), len(self.terms) - 1)
        return np.where(self.terms[places] == terms, places, -1)

    def frequency(self, places: Positions) -> Positions:
        """How many items have each of these terms."""
        there = np.maximum(places, 0)
        if not len(self.terms):
            return np.zeros(len(places), np.int64)
        return np.where(places < 0, 0, self.starts[there + 1] - self.starts[there])

    def taken(self, positions: Positions) -> Postings:
        """Of some items, in this order; terms that only others have are gone."""
        if len(positions) > 1 and not (np.diff(positions) > 0).all():
            return Postings.of(_trimmed(self._forward(), positions))
        self._whole()
        place = np.full(self.n, -1, np.int32)
        place[positions] = np.arange(len(positions), dtype=np.int32)
        stay = place[self.items] >= 0
        starts = starts_of(stay)[self.starts]
        used = np.flatnonzero(np.diff(starts))
        return Postings(
            self.terms[used],
            np.append(starts[used], starts[-1]),
            place[self.items[stay]],
            self.counts[stay],
            np.asarray(self.lengths)[positions],
        )

    def ready(self, places: Positions) -> None:
        """Before compiled code goes by the items of these terms."""

    def _whole(self) -> None:
        """Before everything is read."""

    def joined(self, other: Postings) -> Counted:
        """These items and others behind them, item by item."""
        one, two = self._forward(), other._forward()
        terms, place = np.unique(np.concatenate([one.terms, two.terms]), return_inverse=True)  # each once
        numbers = np.concatenate([one.numbers, two.numbers + np.int32(len(one.terms))])
        return Counted(
            terms,
            np.concatenate([one.starts, two.starts[1:] + one.starts[-1]]),
            place.astype(np.int32)[numbers],
            np.concatenate([one.counts, two.counts]),
            np.concatenate([one.lengths, two.lengths]),
        )

    def _forward(self) -> Counted:
        """Item by item again."""
        self._whole()
        numbers = np.repeat(np.arange(len(self.terms), dtype=np.int32), np.diff(self.starts))
        order = np.argsort(self.items, kind="stable")
        starts = starts_of(np.bincount(self.items, minlength=self.n))
        return Counted(self.terms, starts, numbers[order], self.counts[order], np.asarray(self.lengths))

    def write(self, files: Files, prefix: str = "") -> None:
        for name in ("terms", "starts", "items", "counts", "lengths"):
            files.array(f"{prefix}bm25-{name}", getattr(self, name))

    @classmethod
    def read(cls, saved: Saved, n: int, prefix: str = "") -> Postings:
        """What `write` wrote, of n items. Compiled code goes by what it says: it is looked at here, or, of many items,
        when a term is first asked for."""
        terms = saved.touched(f"{prefix}bm25-terms", "<u8", (None,)).whole()
        starts = saved.touched(f"{prefix}bm25-starts", "<i8", (len(terms) + 1,)).whole()
        items = saved.touched(f"{prefix}bm25-items", "<i4", (None,))
        counts = saved.touched(f"{prefix}bm25-counts", "|u1", (len(items),))
        lengths = saved.touched(f"{prefix}bm25-lengths", "<u4", (n,)).whole()
        name = f"{prefix}bm25-starts.npy"
        if not divides(starts, len(items)):
            raise saved.damaged(name, f"does not divide {len(items)} counts among {len(terms)} words")
        guard = _Guard(saved, prefix, items, counts, n)
        if items.compared:
            guard.check(np.zeros(1, np.int64), np.array([len(items)]))
        return Mapped(terms, starts, items.array, counts.array, lengths, guard)


@dataclass(frozen=True, eq=False)
class Mapped(Postings):
    """In files: what is read of them is compared and looked at when it is first read."""

    guard: _Guard

    def ready(self, places: Positions) -> None:
        self.guard.check(self.starts[places], self.starts[places + 1])

    def _whole(self) -> None:
        self.guard.check(np.zeros(1, np.int64), np.array([len(self.items)]))


class _Guard:
    def __init__(self, saved: Saved, prefix: str, items: Any, counts: Any, n: int) -> None:
        self._saved, self._name = saved, f"{prefix}bm25-items.npy"
        self._items, self._counts, self._n = items, counts, n
        self._fine: set[tuple[int, int]] = set()

    def check(self, first: Positions, last: Positions) -> None:
        for start, end in zip(first.tolist(), last.tolist(), strict=True):
            if (start, end) in self._fine or start == end:
                continue
            items = self._items.rows(start, end)
            self._counts.rows(start, end)
            if not (items.min() >= 0 and items.max() < self._n):
                raise self._saved.damaged(self._name, f"names items outside the {self._n} there are")
            self._fine.add((start, end))


def _trimmed(counted: Counted, positions: Positions) -> Counted:
    """Of some items; terms that only others have are gone."""
    sizes = np.diff(counted.starts)[positions]
    starts = starts_of(sizes)
    places = spans(counted.starts[positions], sizes)
    used, numbers = np.unique(counted.numbers[places], return_inverse=True)
    return Counted(
        counted.terms[used],
        starts,
        numbers.reshape(-1).astype(np.int32),
        counted.counts[places],
        np.asarray(counted.lengths)[positions],
    )
