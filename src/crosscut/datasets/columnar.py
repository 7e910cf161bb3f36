"""Items in files, read when they are shown: no object of Python for an item that nobody asked for.

items.npy           (bytes) of every item its id, title, text and metadata (JSON), one after another
items-starts.npy    (n + 1) where each item begins
items-lengths.npy   (n × 3) bytes of its id, title and text
ids.npy             (n) hashes of the ids, sorted
ids-places.npy      (n) the item of each
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from crosscut.datasets.records import Item, ItemSequence, SharedItems
from crosscut.errors import FolderError, InputError
from crosscut.linalg.arrays import starts_of
from crosscut.storage import Files, Saved, Touched, divides, put_down
from crosscut.types import Array, Handles, Positions

Bytes = npt.NDArray[np.uint8]
GATHERED = 1 << 14  # items written at a time
WHOLE = (1 << 64) - 1


def packed(items: Sequence[Item]) -> tuple[bytes, Positions, npt.NDArray[np.uint32]]:
    """Items as bytes, the size of each (m), and the sizes of its id, title and text (m × 3)."""
    parts: list[bytes] = []
    lengths = np.empty((len(items), 3), np.uint32)
    sizes = np.empty(len(items), np.int64)
    for row, (id, title, text, metadata) in enumerate(items):
        told = [id.encode(), title.encode(), text.encode()]
        lengths[row] = [len(part) for part in told]
        if metadata:
            told.append(json.dumps(metadata, ensure_ascii=False).encode())
        whole = b"".join(told)
        sizes[row] = len(whole)
        parts.append(whole)
    return b"".join(parts), sizes, lengths


class Packed:
    """Items as bytes, in memory or in files."""

    def __init__(self, data: Touched, starts: Touched, lengths: Touched, hashes: Touched, places: Touched) -> None:
        self.data, self.starts, self.lengths = data, starts, lengths
        self._hashes, self._places = hashes, places
        self._size = len(data)

    @classmethod
    def of(cls, items: Sequence[Item]) -> Packed:
        """Of items in memory."""
        data, sizes, lengths = packed(items)
        return cls.laid(np.frombuffer(data, np.uint8), starts_of(sizes), lengths)

    @classmethod
    def laid(cls, data: Bytes, starts: Positions, lengths: Array) -> Packed:
        """Of bytes that lie somewhere; ids are hashed, and none may stand twice."""
        hashes, places = hashed(data, starts, lengths)
        made = cls(*(Touched(array) for array in (data, starts, lengths, hashes, places)))
        made._distinct()
        return made

    def __len__(self) -> int:
        return len(self.lengths)

    def _bounds(self, places: Positions) -> tuple[Positions, Positions, Positions]:
        """Where items begin and end (m), and where in each its id, title and text end (m × 3)."""
        starts, ends = self.starts.take(places), self.starts.take(places + 1)
        parts = np.cumsum(self.lengths.take(places), axis=1, dtype=np.int64)
        wrong = np.flatnonzero((starts < 0) | (ends > self._size) | (starts + parts[:, 2] > ends))
        if len(wrong):
            place, start, end, size = (int(each[wrong[0]]) for each in (places, starts, ends, parts[:, 2]))
            raise FolderError(
                f"item {place} is said to begin at byte {start} and to end at {end}, of {self._size}, and its id, "
                f"title and text to be {size} bytes"
            )
        return starts, ends, parts

    def id(self, place: int) -> str:
        (start,), _, ((size, _, _),) = self._bounds(np.array([place]))
        try:
            return self.data.rows(start, start + size).tobytes().decode()
        except ValueError as error:
            raise FolderError(f"the id of item {place} cannot be read ({error})") from error

    def item(self, place: int) -> Item:
        return self.items(np.array([place]))[0]

    def items(self, places: Positions) -> list[Item]:
        """Some items."""
        starts, ends, parts = self._bounds(places)
        self.data.ready(starts, ends)
        made = []
        for start, end, (id, title, text) in zip(starts.tolist(), ends.tolist(), parts.tolist(), strict=True):
            whole = self.data.array[start:end].tobytes()
            try:
                metadata = _mapping(json.loads(whole[text:])) if text < len(whole) else {}
                made.append(Item(whole[:id].decode(), whole[id:title].decode(), whole[title:text].decode(), metadata))
            except (ValueError, RecursionError) as error:
                raise FolderError(f"the item at bytes {start} to {end} cannot be read ({error})") from error
        return made

    def metadata(self, places: Positions) -> list[Any]:
        """The metadata of some items; None for one that has none."""
        starts, ends, parts = self._bounds(places)
        starts = starts + parts[:, 2]
        self.data.ready(starts, ends)
        told = zip(starts.tolist(), ends.tolist(), strict=True)
        try:
            return [
                _mapping(json.loads(self.data.array[start:end].tobytes())) if start < end else None
                for start, end in told
            ]
        except (ValueError, RecursionError) as error:
            raise FolderError(f"the metadata of items cannot be read ({error})") from error

    def each_metadata(self, places: Positions | None = None) -> Iterator[tuple[int, Any]]:
        """Place and metadata, of all items or of these."""
        every = np.arange(len(self)) if places is None else places
        for begin in range(0, len(every), GATHERED):
            these = every[begin : begin + GATHERED]
            yield from zip(these.tolist(), self.metadata(these), strict=True)
            put_down(self.data.array)

    def find(self, id: str) -> int | None:
        """The place of an id."""
        name = id.encode(errors="surrogatepass")
        wanted = _hash(np.frombuffer(name, np.uint8))
        place = self._hashes.place(wanted)
        while place < len(self) and self._hashes.rows(place, place + 1)[0] == wanted:
            item = int(self._places.rows(place, place + 1)[0])
            if not item < len(self):
                raise FolderError(f"the ids name item {item}, and there are {len(self)}")
            if self.id(item) == id:
                return item
            place += 1
        return None

    def _distinct(self) -> None:
        hashes, places = self._hashes.array, self._places.array
        for place in np.flatnonzero(hashes[1:] == hashes[:-1]).tolist():
            one, two = self.id(int(places[place])), self.id(int(places[place + 1]))
            if one == two:
                raise InputError(f"the id {one!r} stands twice among {len(self)} items; ids must be unique")

    def write(self, files: Files, order: Positions | None = None) -> None:
        """As files of a generation; the item at position j is `order[j]` of these, and others are left out."""
        starts, lengths = self.starts.whole(), self.lengths.whole()
        if order is None:
            files.array("items", self.data.whole(), scattered=True)
            files.array("items-starts", starts)
            files.array("items-lengths", lengths)
            files.array("ids", self._hashes.whole())
            files.array("ids-places", self._places.whole())
            return
        inverse = np.full(len(self), -1, np.int64)
        inverse[order] = np.arange(len(order))
        laid = starts_of(np.diff(starts)[order])
        files.rows("items", np.uint8, (int(laid[-1]),), self._gathered(order), scattered=True)
        files.array("items-starts", laid)
        files.array("items-lengths", lengths[order])
        places = inverse[self._places.whole()]
        files.array("ids", self._hashes.whole()[places >= 0])
        files.array("ids-places", places[places >= 0].astype(np.uint32))

    def _gathered(self, order: Positions) -> Iterator[Bytes]:
        from crosscut.datasets.bytes import gather

        starts, data = self.starts.whole(), self.data.whole()
        for begin in range(0, len(order), GATHERED):
            these = order[begin : begin + GATHERED]
            sizes = starts[these + 1] - starts[these]
            out = np.empty(int(sizes.sum()), np.uint8)
            gather(data, starts[these], sizes, out)
            yield out
            put_down(data)

    @classmethod
    def read(cls, saved: Saved, n: int) -> Packed:
        """What `write` wrote, of n items."""
        made = cls(
            saved.touched("items", "|u1", (None,)),
            saved.touched("items-starts", "<i8", (n + 1,)),
            saved.touched("items-lengths", "<u4", (n, 3)),
            saved.touched("ids", "<u8", (n,)),
            saved.touched("ids-places", "<u4", (n,)),
        )
        if made.starts.compared and n:  # a small one is looked at now, a large one when it is read
            starts = made.starts.array
            sizes = made.lengths.array.sum(axis=1, dtype=np.int64)
            if not divides(starts, made._size) or (np.diff(starts) < sizes).any():
                raise saved.damaged("items-starts.npy", f"does not divide {made._size} bytes among {n} items")
            hashes, places = made._hashes.array, made._places.array
            if places.max() >= n:
                raise saved.damaged("ids-places.npy", f"names items outside the {n} there are")
            if not np.bincount(places, minlength=n).all() or (hashes[1:] < hashes[:-1]).any():
                raise saved.damaged(
                    "ids-places.npy", f"does not name each of the {n} items once, in order of their ids"
                )
        return made


def _mapping(metadata: Any) -> dict[str, Any]:
    if not isinstance(metadata, dict):
        raise ValueError(f"metadata is a mapping, and this is {metadata!r:.60}")
    return metadata


def hashed(data: Bytes, starts: Positions, lengths: Array) -> tuple[npt.NDArray[np.uint64], npt.NDArray[np.uint32]]:
    """Sorted hashes of the ids, and the item of each."""
    from crosscut.datasets.bytes import hash_each

    hashes = np.empty(len(lengths), np.uint64)
    for begin in range(0, len(lengths), GATHERED):
        these = slice(begin, begin + GATHERED)
        hash_each(data, starts[:-1][these], lengths[these, 0], hashes[these])
        put_down(data)
    order = np.argsort(hashes, kind="stable")
    return hashes[order], order.astype(np.uint32)


def _hash(data: Bytes) -> np.uint64:
    """`bytes.hash_each` of one id, without loading a compiled loop."""
    value = 14695981039346656037
    for byte in data.tobytes():
        value = (value ^ byte) * 1099511628211 & WHOLE
    value ^= value >> 32
    value = value * 0xD6E8FEB86659FD93 & WHOLE
    return np.uint64(value ^ (value >> 32))


class FiledItems(ItemSequence):
    """Items in files, and those that were added since behind them."""

    shared: SharedFiledItems

    def __init__(self, first: Packed, more: Iterable[Item] = ()) -> None:
        super().__init__(SharedFiledItems(first, list(more)))

    @property
    def first(self) -> Packed:
        """Those in files."""
        return self.shared.first

    @property
    def more(self) -> list[Item]:
        """Those behind them."""
        return self.shared.items[: self._size - len(self.first)]


class SharedFiledItems(SharedItems):
    """`items` stand behind those in files."""

    filed: ClassVar[bool] = True

    def __init__(self, first: Packed, items: list[Item]) -> None:
        super().__init__(items)
        self.first = first

    @property
    def total(self) -> int:
        return len(self.first) + len(self.items)

    def at(self, place: int) -> Item:
        n = len(self.first)
        return self.first.item(place) if place < n else self.items[place - n]

    def _taken(self, handles: Handles) -> list[Item]:
        n = len(self.first)
        filed = iter(self.first.items(handles[handles < n]))
        return [next(filed) if handle < n else self.items[handle - n] for handle in handles.tolist()]


class Filing:
    """Items written to files one after another: what a build that is stopped goes on with."""

    NAMES = (("items", np.uint8), ("sizes", np.int64), ("lengths", np.uint32))

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def _path(self, name: str) -> Path:
        return self._folder / f"{name}.bin"

    def add(self, items: Sequence[Item]) -> None:
        data, sizes, lengths = packed(items)
        for (name, _), values in zip(self.NAMES, (data, sizes.tobytes(), lengths.tobytes()), strict=True):
            with self._path(name).open("ab") as file:
                file.write(values)

    def sizes(self) -> dict[str, int]:
        """Bytes written so far, file by file."""
        return {f"{name}.bin": self._path(name).stat().st_size for name, _ in self.NAMES}

    def done(self) -> Packed:
        """Everything that was written."""
        maps: list[Array] = [
            np.memmap(self._path(name), kind, mode="r") if self._path(name).stat().st_size else np.zeros(0, kind)
            for name, kind in self.NAMES
        ]
        return Packed.laid(maps[0], starts_of(maps[1]), maps[2].reshape(-1, 3))
