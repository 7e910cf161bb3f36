"""The metadata of items by key, each distinct value once: a condition is asked of values, not of items.

On disk, of the items that an index was written with:

    metadata.json               the keys, in order, and those of too many values
    metadata-<j>.jsonl          the distinct values of the j-th key
    metadata-<j>-codes.npy      (n) which of them an item has, −1 for none; or (m), where an item may have several,
    metadata-<j>-rows.npy       (m) and then the item of each
"""

from __future__ import annotations

import difflib
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from crosscut.datasets.columnar import FiledItems, Packed
from crosscut.datasets.records import Item
from crosscut.datasets.storable import as_json
from crosscut.errors import InputError
from crosscut.index.items import Filter
from crosscut.latest import Latest
from crosscut.storage import Files, Saved
from crosscut.stores.filters import TESTS, Condition, check_value, conditions, within
from crosscut.types import Floats, Mask, Positions

T = TypeVar("T")
EXACT = 2**53  # whole numbers up to here are float64 numbers too
MOST_COLUMNS = 16  # kept in memory
MOST_VALUES = 1 << 20  # distinct ones of a key that is kept on disk


class Metadata:
    """Filters over items; `saved` has the columns of those in files."""

    def __init__(self, items: Sequence[Item], saved: Saved | None = None) -> None:
        self._items = items
        self._saved = saved
        self._made: Latest[list[MetadataColumn]] = Latest(MOST_COLUMNS)

    def passing(self, filter: Filter) -> Mask:
        """Which items a filter lets through (n)."""
        if callable(filter):
            return np.fromiter((bool(filter(item)) for item in self._items), np.bool_, len(self._items))
        passed = np.ones(len(self._items), np.bool_)
        for condition in conditions(filter, _kept):  # all are looked at before any work
            start, columns = 0, self._made.get(condition.key, partial(self._columns, condition.key))
            if len(self._items) and not any(column.values for column in columns):
                self._known(condition.key)
            met = [column.meets(condition) for column in columns]
            if not any(part.any() for part in met):
                _comparable(condition, columns)
            for part in met:
                passed[start : start + len(part)] &= part
                start += len(part)
        return passed

    def has(self, key: str) -> bool:
        """Whether an item has this key."""
        return key in self._names()

    def _names(self) -> set[str]:
        """The keys that items have."""
        items: Iterable[Item] = self._items
        names: set[str] = set()
        about = self._filed(lambda saved: _keys(saved) if "metadata.json" in saved else None)
        if about is not None and isinstance(self._items, FiledItems):
            items = self._items.more
            names = {name for some in about for name in some}
        return names | {str(name) for item in items for name in item.metadata}

    def _filed(self, read: Callable[[Saved], T | None]) -> T | None:
        """What the files say; None if there are none, or if a newer generation has taken their place since."""
        if self._saved is None or not isinstance(self._items, FiledItems):
            return None
        try:
            return read(self._saved)
        except InputError:
            if self._saved.gone:  # the items, whose maps stay, hold all of it
                self._saved = None
                return None
            raise

    def _known(self, key: str) -> None:
        """Refuse a key that no item has: it is misspelt, or there is no metadata."""
        names = sorted(self._names())
        if key in names:
            return
        names = [name for name in names if not name.startswith("passage_")]  # those of `crosscut.index.passages`
        close = difflib.get_close_matches(str(key), names, 1)
        meant = f"did you mean {close[0]!r}? " if close else ""
        told = f"the keys are {', '.join(names[:20])}" if names else "no item has metadata"
        raise InputError(f"the filter asks for {key!r}, which no item has: {meant}{told}")

    def _columns(self, key: str) -> list[MetadataColumn]:
        """A key, of the items in files and of those behind them."""
        if not isinstance(self._items, FiledItems):
            return [column_of((item.metadata for item in self._items), key)]
        first = self._items.first
        filed = self._filed(lambda saved: read_column(saved, key, len(first)))
        if filed is None:
            filed = column_of((metadata for _, metadata in first.each_metadata()), key)
        return [filed, column_of((item.metadata for item in self._items.more), key)]


@dataclass(frozen=True, eq=False)
class MetadataColumn:
    """One key of n items: its distinct values, and which item has which. An item with a list of values has each."""

    n: int
    values: list[Any]
    codes: npt.NDArray[np.int32]  # (n) places in `values`, −1 for none; (m) where there are rows
    rows: Positions | None = None  # (m) items, where an item may have several values

    @cached_property
    def numbers(self) -> Floats | None:
        """The values, where all of them are numbers that float64 holds exactly."""
        return np.array(self.values, np.float64) if all(map(_is_number, self.values)) else None

    @cached_property
    def _places(self) -> dict[Any, int] | None:
        """Value → place, where all of them can be looked up."""
        return {value: place for place, value in enumerate(self.values)} if all(map(_hashes, self.values)) else None

    def meets(self, wanted: Condition) -> Mask:
        """Which items have a value that meets the condition; an item without a value does not."""
        held = np.zeros(len(self.values) + 1, np.bool_)  # the last: no value
        held[:-1] = self._held(wanted)
        if self.rows is None:
            return np.asarray(held[self.codes])
        passed = np.zeros(self.n, np.bool_)
        passed[self.rows[held[self.codes]]] = True
        return passed

    def _held(self, wanted: Condition) -> Mask:
        """Which of the values meet the condition."""
        if wanted.values is None:
            if self.numbers is None or not all(map(_is_number, wanted.given)):
                return np.fromiter((within(value, wanted.bounds) for value in self.values), np.bool_, len(self.values))
            held = np.ones(len(self.values), np.bool_)
            for name, bound in wanted.bounds.items():
                held &= TESTS[name](self.numbers, bound)
            return held
        known, others = set(filter(_hashes, wanted.values)), [one for one in wanted.values if not _hashes(one)]
        if self._places is None:
            alike = (value in (known if _hashes(value) else others) for value in self.values)
            return np.fromiter(alike, np.bool_, len(self.values))
        held = np.zeros(len(self.values), np.bool_)
        held[[self._places[value] for value in known if value in self._places]] = True
        return held


class Coding:
    """One key, item by item."""

    def __init__(self) -> None:
        self.values: list[Any] = []
        self._places: dict[Any, int] = {}
        self._rows, self._codes = array("q"), array("i")
        self._several = False

    def add(self, row: int, value: Any) -> None:
        if isinstance(value, str | int | float):
            self._code(row, value)
            return
        each = list(_each(value))
        self._several |= len(each) > 1
        for one in each:
            self._code(row, one)

    def _code(self, row: int, value: Any) -> None:
        code = self._places.setdefault(value, len(self.values)) if _hashes(value) else len(self.values)
        if code == len(self.values):
            self.values.append(value)
        self._rows.append(row)
        self._codes.append(code)

    def done(self, n: int) -> MetadataColumn:
        rows, codes = np.array(self._rows, np.int64), np.array(self._codes, np.int32)
        if self._several:
            return MetadataColumn(n, self.values, codes, rows)
        dense = np.full(n, -1, np.int32)
        dense[rows] = codes
        return MetadataColumn(n, self.values, dense)


def column_of(each: Iterable[Mapping[str, Any] | None], key: str) -> MetadataColumn:
    """One key of items in memory."""
    coding, row = Coding(), -1
    for row, metadata in enumerate(each):
        if metadata and key in metadata:
            coding.add(row, metadata[key])
    return coding.done(row + 1)


def write_columns(files: Files, items: Packed, order: Positions | None = None) -> None:
    """The columns of all keys; the item at position j is `order[j]` of these, and others are left out."""
    keys: dict[str, Coding] = {}
    for row, metadata in items.each_metadata(None if order is None else np.sort(order)):
        for key, value in (metadata or {}).items():
            if key not in keys:
                keys[key] = Coding()
            keys[key].add(row, value)
    inverse = None
    if order is not None:
        inverse = np.full(len(items), -1, np.int64)
        inverse[order] = np.arange(len(order))
    kept = [key for key, coding in keys.items() if len(coding.values) <= MOST_VALUES]
    for j, key in enumerate(kept):
        column = keys.pop(key).done(len(items))
        files.lines(f"metadata-{j}", column.values)
        if column.rows is not None:
            files.array(f"metadata-{j}-rows", column.rows if inverse is None else inverse[column.rows])
        files.array(
            f"metadata-{j}-codes", column.codes if order is None or column.rows is not None else column.codes[order]
        )
    files.json("metadata", {"keys": kept, "others": list(keys)})


def _keys(saved: Saved) -> tuple[list[str], list[str]]:
    """The keys that are kept as columns, and the others."""
    about = saved.json("metadata")
    told: list[Any] = [about.get(name) for name in ("keys", "others")] if isinstance(about, dict) else []
    if not told or not all(isinstance(some, list) and all(isinstance(key, str) for key in some) for some in told):
        raise saved.damaged("metadata.json", "does not name the keys")
    return told[0], told[1]


def read_column(saved: Saved, key: str, n: int) -> MetadataColumn | None:
    """A key that `write_columns` wrote; None if it has too many values to be kept."""
    if "metadata.json" not in saved:
        return None
    keys, others = _keys(saved)
    if key not in keys:
        return None if key in others else MetadataColumn(n, [], np.full(n, -1, np.int32))
    j = keys.index(key)
    values = saved.lines(f"metadata-{j}")
    rows = saved.array(f"metadata-{j}-rows", "<i8", (None,)) if f"metadata-{j}-rows.npy" in saved else None
    codes = saved.array(f"metadata-{j}-codes", "<i4", (n if rows is None else len(rows),))
    if len(codes) and not (codes.min() >= -1 and codes.max() < len(values)):
        raise saved.damaged(f"metadata-{j}-codes.npy", f"names values outside the {len(values)} there are")
    if rows is not None and len(rows) and not (rows.min() >= 0 and rows.max() < n):
        raise saved.damaged(f"metadata-{j}-rows.npy", f"names items outside the {n} there are")
    return MetadataColumn(n, values, codes, rows)


def _kept(value: Any, key: str) -> Any:
    """A value of a filter as metadata is kept: as JSON has it."""
    kept = as_json(value, f"the filter on {key!r}")
    check_value(key, kept)
    return kept


def _comparable(wanted: Condition, columns: Sequence[MetadataColumn]) -> None:
    """Refuse a condition on numbers where all values are texts, and the reverse: nothing could ever meet it."""
    key, here = wanted.key, {_kind(value) for column in columns for value in column.values}
    there = {_kind(value) for value in wanted.given}
    if len(here) == len(there) == 1 and here != there and here | there == {"number", "text"}:
        value = next(value for column in columns for value in column.values)
        way = f"build it with numbers=[{key!r}] (--number {key})" if "text" in here else "leave out the quotes"
        raise InputError(
            f"the filter compares {key!r} with the {there.pop()} {wanted.given[0]!r}, and every {key!r} of this "
            f"index is a {here.pop()}, such as {value!r}: {way}, or compare with the same kind"
        )


def _kind(value: Any) -> str:
    return "text" if isinstance(value, str) else "number" if isinstance(value, int | float) else "other"


def _each(value: Any) -> Iterator[Any]:
    """The values that one item has for a key."""
    if isinstance(value, list | tuple | set | frozenset):
        for one in value:
            yield from _each(one)
    elif value is not None:
        yield value


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not abs(value) > EXACT


def _hashes(value: Any) -> bool:
    try:
        hash(value)
    except TypeError:
        return False
    return True
