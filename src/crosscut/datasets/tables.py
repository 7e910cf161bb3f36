"""Items of one segment, in memory or in files, and the items of several as one sequence.

items.jsonl         one JSON line an item: [id, title, text, metadata]
item-starts.npy     (n + 1) where each line begins
item-hashes.npy     (n) 64-bit hashes of the ids, sorted
item-order.npy      (n) the item of each hash
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Sequence
from copy import copy
from functools import cached_property
from typing import Any, Protocol, overload

import numpy as np

from crosscut.datasets.records import Item
from crosscut.errors import InputError
from crosscut.linalg.arrays import starts_of
from crosscut.storage import Files, Saved, divides
from crosscut.types import Array, Handles

_json = json.JSONEncoder(ensure_ascii=False, allow_nan=False).encode  # `dumps` would make an encoder for each call


class ItemTable(Protocol):
    """Items by place. Never changed."""

    def __len__(self) -> int: ...

    def __iter__(self) -> Iterator[Item]: ...

    def get(self, places: Sequence[int]) -> list[Item]: ...

    def find(self, ids: Iterable[str]) -> list[tuple[str, int]]:
        """Each id that is there with each of its places: an id may be removed, and added again."""


class ItemsInMemory(list[Item]):
    """Items in memory."""

    @cached_property
    def _places(self) -> dict[str, list[int]]:
        places: dict[str, list[int]] = {}
        for place, item in enumerate(self):
            places.setdefault(item.id, []).append(place)
        return places

    def get(self, places: Sequence[int]) -> list[Item]:
        return [self[place] for place in places]

    def find(self, ids: Iterable[str]) -> list[tuple[str, int]]:
        return [(id, place) for id in ids for place in self._places.get(id, ())]


class ItemsInFiles:
    """Items in the files of a segment."""

    def __init__(self, saved: Saved, n: int) -> None:
        self._saved = saved
        self._bytes = saved.text("items.jsonl")
        self._starts = saved.array("item-starts", "<i8", (n + 1,))
        self._hashes = saved.array("item-hashes", "<u8", (n,))
        self._order = saved.array("item-order", "<i4", (n,))
        if not divides(self._starts, len(self._bytes)):
            raise saved.damaged("item-starts.npy", f"does not divide {len(self._bytes)} bytes among {n} items")
        if n and not (self._order.min() >= 0 and self._order.max() < n):
            raise saved.damaged("item-order.npy", f"names items outside the {n} there are")

    def __len__(self) -> int:
        return len(self._order)

    def __iter__(self) -> Iterator[Item]:
        return (self._item(place) for place in range(len(self)))

    def get(self, places: Sequence[int]) -> list[Item]:
        return [self._item(place) for place in places]

    def _item(self, place: int) -> Item:
        line = self._bytes[self._starts[place] : self._starts[place + 1]].tobytes()
        try:
            id, title, text, metadata = json.loads(line)
            if isinstance(id, str) and isinstance(title, str) and isinstance(text, str) and isinstance(metadata, dict):
                return Item(id, title, text, metadata)
            raise ValueError(f"an item is made of three texts and metadata, and this is {line[:60]!r}")
        except (ValueError, TypeError, RecursionError) as error:
            raise self._saved.damaged("items.jsonl", f"cannot be read at item {place} ({error})") from error

    def find(self, ids: Iterable[str]) -> list[tuple[str, int]]:
        wanted = list(ids)
        hashes = np.array([_hash(id) for id in wanted], np.uint64)
        low, high = (np.searchsorted(self._hashes, hashes, side) for side in ("left", "right"))
        found = []
        for j in np.flatnonzero(low < high).tolist():
            for place in self._order[low[j] : high[j]].tolist():
                if self._item(place).id == wanted[j]:
                    found.append((wanted[j], place))
        return found


def write_items(files: Files, items: Iterable[Item]) -> None:
    sizes: list[int] = []
    hashes: list[int] = []

    def lines() -> Iterator[bytes]:
        for item in items:
            line = _json(item).encode() + b"\n"
            sizes.append(len(line))
            hashes.append(_hash(item.id))
            yield line

    files.write("items.jsonl", lines())
    keys = np.array(hashes, np.uint64)
    order = np.argsort(keys, kind="stable")
    files.array("item-starts", starts_of(np.array(sizes, np.int64)))
    files.array("item-hashes", keys[order])
    files.array("item-order", order.astype(np.int32))


def _hash(id: str) -> int:
    return int.from_bytes(hashlib.blake2b(id.encode(errors="surrogatepass"), digest_size=8).digest(), "little")


class SharedTables:
    """The items of several tables, to which a scorer is bound once: it sees what is added later."""

    def __init__(self, tables: Iterable[ItemTable]) -> None:
        self.tables = list(tables)
        self.starts = starts_of(np.array([len(table) for table in self.tables], np.int64))

    @property
    def total(self) -> int:
        return int(self.starts[-1])

    def add(self, table: ItemTable) -> None:
        self.tables.append(table)
        self.starts = np.append(self.starts, self.total + len(table))

    def get(self, handles: Handles, size: int | None = None) -> list[Item]:
        """The items at some positions, in order; of the first `size`."""
        handles, size = np.asarray(handles, np.int64), self.total if size is None else size
        if handles.size and not (handles.min() >= 0 and handles.max() < size):
            raise InputError(f"positions {handles.min()} … {handles.max()} do not fit a corpus of {size} items")
        of = np.searchsorted(self.starts[1:], handles, side="right")
        found: list[Any] = [None] * len(handles)
        for number in np.unique(of).tolist():
            chosen = np.flatnonzero(of == number)
            some = self.tables[number].get((handles[chosen] - self.starts[number]).tolist())
            for place, item in zip(chosen.tolist(), some, strict=True):
                found[place] = item
        return found


class CorpusItems(Sequence[Item]):
    """Items by position. Never changed: `grown` returns a longer one, which shares what they have in common."""

    def __init__(self, tables: Iterable[ItemTable]) -> None:
        self.shared = SharedTables(tables)
        self._size = self.shared.total

    def grown(self, table: ItemTable) -> CorpusItems:
        if self.shared.total != self._size:
            raise InputError(
                f"a corpus of {self._size} items cannot grow twice, it has {self.shared.total} by now: "
                "add to the longer one"
            )
        self.shared.add(table)
        longer = copy(self)
        longer._size = self.shared.total
        return longer

    def get(self, handles: Array) -> list[Item]:
        return self.shared.get(handles, self._size)

    def __len__(self) -> int:
        return self._size

    def __iter__(self) -> Iterator[Item]:
        for table, start in zip(self.shared.tables, self.shared.starts.tolist(), strict=False):
            if start < self._size:
                yield from table

    @overload
    def __getitem__(self, place: int) -> Item: ...
    @overload
    def __getitem__(self, place: slice) -> list[Item]: ...
    def __getitem__(self, place: int | slice) -> Item | list[Item]:
        chosen = range(self._size)[place]
        return self.get(np.array([chosen]))[0] if isinstance(chosen, int) else self.get(np.array(chosen, np.int64))
