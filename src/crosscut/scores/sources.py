"""Where a store finds scores: dense blocks, sparse pairs, consolidated matrices.

All three answer one question, `row(i)`: which items of their item list the i-th of their queries has been scored with,
and the scores. Nothing is returned whose checksum does not fit.

    dense    blocks/<name>.scores    queries (q × 16), scores (q × m): items start … stop − 1 of the list items/<id>
    pairs    blocks/<name>.scores    queries (q × 16), items (u × 16), ends (q), columns (p), scores (p): its own list
    matrix   matrices/<name>.npy     (q × n) float32, with <name>.scores: queries (q × 16), checksums (q), one a row
"""

from __future__ import annotations

import os
import zlib
from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from crosscut.errors import DamagedRecord
from crosscut.scores.keys import Hashes, split_hashes
from crosscut.scores.records import ScoreFile, opened, sound

Scores: TypeAlias = npt.NDArray[np.float32]
Places: TypeAlias = slice | npt.NDArray[Any]


class Source(ABC):
    """One file of scores. `items_id` names the item list that places refer to."""

    def __init__(self, record: ScoreFile) -> None:
        self.record = record
        self.name = record.path.stem
        self.queries = split_hashes(record.read("queries"))
        self.items_id = str(record.header["items"])
        if self.items_id.strip("0123456789abcdef"):
            raise DamagedRecord(record.path, f"{self.items_id!r} names no list of items")
        self.pairs = int(record.header["pairs"])
        self.written = float(record.header["written"])
        self.seconds = float(record.header["seconds"])

    @property
    def files(self) -> list[Path]:
        """In the order in which they may be deleted."""
        return [self.record.path]

    @abstractmethod
    def load(self) -> Any:
        """What `row` needs of the file, checked; the store keeps it for a while."""

    @abstractmethod
    def row(self, row: int, loaded: Any) -> tuple[Places, Scores]:
        """Places in the item list, and the scores there."""


class DenseBlock(Source):
    """Some queries with a range of a corpus."""

    def __init__(self, record: ScoreFile) -> None:
        super().__init__(record)
        self.span = slice(int(record.header["start"]), int(record.header["stop"]))

    def load(self) -> Scores:
        scores = self.record.read("scores")
        if self.span.start < 0 or scores.shape != (len(self.queries), self.span.stop - self.span.start):
            raise DamagedRecord(self.record.path, f"scores of shape {scores.shape} are not those of {self.span}")
        return scores

    def row(self, row: int, loaded: Scores) -> tuple[Places, Scores]:
        return self.span, loaded[row]


class PairBlock(Source):
    """Scattered pairs, query by query; the items are its own list."""

    def __init__(self, record: ScoreFile) -> None:
        super().__init__(record)
        self.items_id = self.name

    def hashes(self) -> Hashes:
        return self.record.read("items")

    def load(self) -> dict[str, npt.NDArray[Any]]:
        loaded = {name: self.record.read(name) for name in ("ends", "columns", "scores")}
        ends, columns = loaded["ends"], loaded["columns"]
        ordered = len(ends) == len(self.queries) and (np.diff(ends, prepend=0) >= 0).all()
        if not ordered or not columns.shape == loaded["scores"].shape == (ends[-1] if len(ends) else 0,):
            raise DamagedRecord(self.record.path, "its pairs do not belong to its queries")
        return loaded

    def row(self, row: int, loaded: dict[str, npt.NDArray[Any]]) -> tuple[Places, Scores]:
        start = int(loaded["ends"][row - 1]) if row else 0
        part = slice(start, int(loaded["ends"][row]))
        return loaded["columns"][part], loaded["scores"][part]


class Matrix(Source):
    """Queries with a whole corpus, to be memory-mapped.

    A row read through `row` is checked against its own checksum. The map as a whole is handed out by `map` when size
    and time of the file are those of the moment it was written, or when every row has been checked.
    """

    def __init__(self, record: ScoreFile) -> None:
        super().__init__(record)
        self.path = record.path.with_suffix(".npy")
        self.shape = (len(self.queries), int(record.header["columns"]))
        self.offset = int(record.header["offset"])
        self.checksums = record.read("checksums")
        self.spoilt: set[int] = set()
        self._good: set[int] = set()
        if not self.path.exists():
            raise DamagedRecord(self.path, "the file is gone")

    @property
    def files(self) -> list[Path]:
        return [self.record.path, self.path]

    def load(self) -> None:
        return None

    def row(self, row: int, loaded: None = None) -> tuple[Places, Scores]:
        length = self.shape[1] * 4
        try:
            with opened(self.path) as file:
                file.seek(self.offset + row * length)
                data = file.read(length)
        except FileNotFoundError:
            if self.record.path.exists():  # a consolidation deletes the record first
                raise DamagedRecord(self.record.path, "its .npy is gone") from None
            raise
        if row not in self._good:
            if len(data) != length:
                raise DamagedRecord(self.path, f"it ends before row {row}")
            if zlib.crc32(data) != int(self.checksums[row]):
                raise DamagedRecord(self.path, f"the checksum of row {row} does not fit")
            self._good.add(row)
        return slice(0, self.shape[1]), np.frombuffer(data, "<f4")

    @property
    def untouched(self) -> bool:
        """Whether the file has the size and the time with which it was written."""
        status = os.stat(self.path)
        return bool([status.st_size, status.st_mtime_ns] == self.record.header["stamp"])

    @property
    def trusted(self) -> bool:
        """Whether the whole map may be handed out without reading it."""
        return not self.spoilt and (self.untouched or len(self._good) == self.shape[0])

    def map(self) -> np.memmap[Any, np.dtype[np.float32]]:
        """(q × n), read-only."""
        return np.memmap(self.path, np.dtype("<f4"), mode="r", offset=self.offset, shape=self.shape)


KINDS: dict[str, type[Source]] = {"dense": DenseBlock, "pairs": PairBlock, "matrix": Matrix}


def open_source(path: Path) -> Source:
    """The source in a file, header checked."""
    record = ScoreFile.open(path)
    with sound(path):
        return KINDS[record.header["kind"]](record)
