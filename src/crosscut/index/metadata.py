"""The metadata of items by key, each distinct value once: a condition is asked of values, not of items.

Of a segment in files:

    metadata.json               the keys, in order
    metadata-<j>.jsonl          the distinct values of the j-th key
    metadata-<j>-codes.npy      (n) which of them an item has, −1 for none; or (m), where an item may have several,
    metadata-<j>-rows.npy       (m) and then the item of each
"""

from __future__ import annotations

import difflib
import json
from array import array
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from crosscut.datasets.records import Item
from crosscut.datasets.storable import as_json
from crosscut.datasets.tables import ItemTable
from crosscut.errors import InputError
from crosscut.index.items import Filter
from crosscut.storage import Files, Saved
from crosscut.stores.filters import TESTS, Condition, check_value, conditions, within
from crosscut.types import NO_HANDLES, Array, Floats, Mask, Positions

T = TypeVar("T")
EXACT = 2**53  # whole numbers up to here are float64 numbers too


class Metadata:
    """Filters over the items of several segments."""

    def __init__(self, segments: Sequence[Columns]) -> None:
        self._segments = segments

    def passing(self, filter: Filter) -> Mask:
        """Which items a filter lets through (n)."""
        if callable(filter):
            every = (bool(filter(item)) for segment in self._segments for item in segment.items)
            return np.fromiter(every, np.bool_)
        n = sum(len(segment.items) for segment in self._segments)
        passed = np.ones(n, np.bool_)
        for condition in conditions(filter, _kept):  # all are looked at before any work
            columns = [segment.column(condition.key) for segment in self._segments]
            if n and not any(column.values for column in columns):
                self._known(condition.key)
            met = [column.meets(condition) for column in columns]
            if not any(part.any() for part in met):
                _comparable(condition, columns)
            if met:
                passed &= np.concatenate(met)
        return passed

    def find(self, key: str, value: str) -> Positions:
        """The positions of the items whose value for a key is this text."""
        found, start = [NO_HANDLES], 0
        for segment in self._segments:
            if key in segment.keys:
                found.append(segment.column(key).find(value) + start)
            start += len(segment.items)
        return np.concatenate(found)

    def _known(self, key: str) -> None:
        """Refuse a key that no item has: it is misspelt, or there is no metadata."""
        names = sorted({name for segment in self._segments for name in segment.keys})
        if key in names:
            return
        names = [name for name in names if not name.startswith("passage_")]  # those of `crosscut.index.passages`
        close = difflib.get_close_matches(str(key), names, 1)
        meant = f"did you mean {close[0]!r}? " if close else ""
        known = f"the keys are {', '.join(names[:20])}" if names else "no item has metadata"
        raise InputError(f"the filter asks for {key!r}, which no item has: {meant}{known}")


class Columns:
    """The metadata of one segment, in memory or in files. Columns are made when they are first asked for."""

    def __init__(self, items: ItemTable, saved: Saved | None = None) -> None:
        self.items = items
        self._made: dict[str, MetadataColumn] = {}
        self._filed: list[tuple[str, bytes, Array, Array | None]] | None = None
        if saved is None:
            return
        keys = saved.json("metadata")
        if not (isinstance(keys, list) and all(isinstance(key, str) for key in keys)):
            raise saved.damaged("metadata.json", "does not name the keys")
        self._filed = []
        for j, key in enumerate(keys):  # all are opened now: a later save may delete them
            several = f"metadata-{j}-rows.npy" in saved
            rows = saved.array(f"metadata-{j}-rows", "<i8", (None,)) if several else None
            codes = saved.array(f"metadata-{j}-codes", "<i4", (len(items) if rows is None else len(rows),))
            self._filed.append((key, saved.bytes(f"metadata-{j}.jsonl"), codes, rows))
        self._damaged = saved.damaged

    @cached_property
    def keys(self) -> set[str]:
        if self._filed is not None:
            return {key for key, *_ in self._filed}
        return {str(key) for item in self.items for key in item.metadata}

    def column(self, key: str) -> MetadataColumn:
        if key not in self._made:
            self._made[key] = self._read(key) if self._filed is not None else column_of(self.items, key)
        return self._made[key]

    def _read(self, key: str) -> MetadataColumn:
        n = len(self.items)
        for j, (name, text, codes, rows) in enumerate(self._filed or ()):
            if name == key:
                try:
                    values = [json.loads(line) for line in text.decode().split("\n")[:-1]]
                except ValueError as error:
                    raise self._damaged(f"metadata-{j}.jsonl", f"cannot be read ({error})") from error
                if len(codes) and not (codes.min() >= -1 and codes.max() < len(values)):
                    raise self._damaged(f"metadata-{j}-codes.npy", f"names values outside the {len(values)} there are")
                if rows is not None and len(rows) and not (rows.min() >= 0 and rows.max() < n):
                    raise self._damaged(f"metadata-{j}-rows.npy", f"names items outside the {n} there are")
                return MetadataColumn(n, values, codes, rows)
        return MetadataColumn(n, [], np.full(n, -1, np.int32))

    def write(self, files: Files) -> None:
        keys: dict[str, Coding] = {}
        for row, item in enumerate(self.items):
            for key, value in item.metadata.items():
                if key not in keys:
                    keys[key] = Coding()
                keys[key].add(row, value)
        for j, coding in enumerate(keys.values()):
            column = coding.done(len(self.items))
            files.lines(f"metadata-{j}", column.values)
            files.array(f"metadata-{j}-codes", column.codes)
            if column.rows is not None:
                files.array(f"metadata-{j}-rows", column.rows)
        files.json("metadata", list(keys))


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

    def find(self, value: str) -> Positions:
        """The items that have this value."""
        code = None if self._places is None else self._places.get(value)
        found = np.flatnonzero(self.codes == code) if code is not None else NO_HANDLES
        return found if self.rows is None else np.asarray(self.rows[found])

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


def column_of(items: Iterable[Item], key: str) -> MetadataColumn:
    """One key of items in memory."""
    coding, row = Coding(), -1
    for row, item in enumerate(items):
        if item.metadata and key in item.metadata:
            coding.add(row, item.metadata[key])
    return coding.done(row + 1)


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
