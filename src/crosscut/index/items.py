"""The items of an index: where they come from, and which of them a filter lets through."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias, Unpack

import numpy as np

from crosscut.datasets.columns import Columns, Named
from crosscut.datasets.reading import read_items
from crosscut.datasets.records import Collection, Item
from crosscut.datasets.storable import as_json, storable
from crosscut.errors import InputError
from crosscut.index.sources import entries_of, item_of
from crosscut.types import Floats, Mask, Positions, Progress

Source: TypeAlias = Any
"""A file or folder (`crosscut.datasets.read_items`), a collection, a frame, a dataset, a mapping of ids to texts, or
texts, items, records, tuples or documents (`crosscut.index.sources`)."""

Filter: TypeAlias = Mapping[str, Any] | Callable[[Item], bool]
"""Conditions on metadata, all of which must hold, or a predicate on items. A condition is a value, a list of values
(any of them), or bounds: `{"language": "en", "topic": ["law", "tax"], "year": {"gte": 2000, "lt": 2010}}`."""

BOUNDS: dict[str, Callable[[Any, Any], Any]] = {
    "gt": lambda value, bound: value > bound,
    "gte": lambda value, bound: value >= bound,
    "lt": lambda value, bound: value < bound,
    "lte": lambda value, bound: value <= bound,
    "ne": lambda value, bound: value != bound,
}
EXACT = 2**53  # whole numbers up to here are float64 numbers too
MOST_COLUMNS = 16


def as_items(
    source: Source, *, taken: int = 0, progress: Progress | None = None, **columns: Unpack[Named]
) -> list[Item]:
    """Items from what the user has, such as can be saved; those without an id are called by their number."""
    return list(stream(source, taken=taken, progress=progress, **columns))


def stream(
    source: Source, *, taken: int = 0, progress: Progress | None = None, **columns: Unpack[Named]
) -> Iterator[Item]:
    """`as_items`, one after another: a file is never in memory as a whole."""
    return map(storable, _given(source, taken, progress, columns))


def _given(source: Source, taken: int, progress: Progress | None, columns: Named) -> Iterator[Item]:
    if isinstance(source, str | Path):
        return read_items(source, progress=progress, **columns)
    entries = source.items if isinstance(source, Collection) else entries_of(source, id=columns.get("id"))
    return _each_of(entries, taken, Columns(**columns))


def _each_of(entries: Iterable[Any], taken: int, columns: Columns) -> Iterator[Item]:
    for number, entry in enumerate(entries, taken):
        if isinstance(entry, Mapping):
            yield columns.item(entry, "record", number)
            continue
        item = Item("", "", entry) if isinstance(entry, str) else item_of(entry)
        if item is None:
            raise InputError(
                f"item {number} is a {type(entry).__name__}; expected a text, a record, a tuple, a document or an Item"
            )
        if columns.given:
            told = "a text" if isinstance(entry, str) else "an Item" if isinstance(entry, Item) else "no record"
            raise InputError(f"item {number} is {told}, which has no columns to name; got {columns.given[0]!r}")
        yield item if item.id or isinstance(entry, Item) else item._replace(id=str(number))


def passing(items: Sequence[Item], condition: Filter) -> Mask:
    """Which items a filter lets through (n)."""
    return Metadata(items).passing(condition)


class Metadata:
    """The metadata of items by key, each distinct value once: a condition is asked of values, not of items."""

    def __init__(self, items: Sequence[Item]) -> None:
        self._items = items
        self._made: dict[str, _Column] = {}

    def passing(self, condition: Filter) -> Mask:
        """Which items a filter lets through (n)."""
        if callable(condition):
            return np.fromiter((bool(condition(item)) for item in self._items), np.bool_, len(self._items))
        if not isinstance(condition, Mapping):
            raise InputError(f"a filter is a mapping of metadata or a predicate on items; got {condition!r}")
        wanted = [(key, _checked(key, value)) for key, value in condition.items()]  # all of them, before any work
        passed = np.ones(len(self._items), np.bool_)
        for key, value in wanted:
            column = self._column(key)
            if not len(column.rows) and len(self._items):
                self._known(key)
            passed &= column.meets(value, len(self._items))
        return passed

    def _known(self, key: str) -> None:
        """Refuse a key that no item has: it is misspelt, or there is no metadata."""
        names = sorted({str(name) for item in self._items for name in item.metadata})
        if key in names:
            return
        close = difflib.get_close_matches(str(key), names, 1)
        meant = f"did you mean {close[0]!r}? " if close else ""
        told = f"the keys are {', '.join(names[:20])}" if names else "no item has metadata"
        raise InputError(f"the filter asks for {key!r}, which no item has: {meant}{told}")

    def _column(self, key: str) -> _Column:
        column = self._made.pop(key, None) or _Column.of(self._items, key)
        self._made[key] = column  # the latest stands last
        for old in list(self._made)[:-MOST_COLUMNS]:
            self._made.pop(old, None)
        return column


@dataclass(frozen=True, eq=False)
class _Column:
    """One key: its distinct values, and which item has which. An item with a list of values has each of them."""

    values: list[Any]
    rows: Positions  # (m) items
    codes: Positions  # (m) places in `values`
    numbers: Floats | None  # the values, where all of them are numbers that float64 holds exactly

    @classmethod
    def of(cls, items: Sequence[Item], key: str) -> _Column:
        places: dict[Any, int] = {}
        values: list[Any] = []
        rows: list[int] = []
        codes: list[int] = []
        for row, item in enumerate(items):
            for value in _each(item.metadata.get(key)):
                code = places.setdefault(value, len(values)) if _hashes(value) else len(values)
                if code == len(values):
                    values.append(value)
                rows.append(row)
                codes.append(code)
        numbers = np.array(values, np.float64) if all(map(_is_number, values)) else None
        return cls(values, np.array(rows, np.int64), np.array(codes, np.int64), numbers)

    def meets(self, wanted: Any, n: int) -> Mask:
        """Which of n items have a value that meets the condition; an item without a value does not."""
        if self.numbers is not None and isinstance(wanted, Mapping) and all(map(_is_number, wanted.values())):
            held = np.ones(len(self.values), np.bool_)
            for name, bound in wanted.items():
                held &= BOUNDS[name](self.numbers, bound)
        else:
            held = np.fromiter((_holds(value, wanted) for value in self.values), np.bool_, len(self.values))
        passed = np.zeros(n, np.bool_)
        passed[self.rows[held[self.codes]]] = True
        return passed


@dataclass(frozen=True)
class _AnyOf:
    """A list of values, any of which will do, for look-up."""

    known: frozenset[Any]
    others: list[Any]  # that cannot be hashed

    def __contains__(self, value: Any) -> bool:
        return value in (self.known if _hashes(value) else self.others)


def _checked(key: str, wanted: Any) -> Any:
    """A condition as it is asked of values, which are those of JSON."""
    wanted = as_json(wanted, f"the filter on {key!r}")
    if isinstance(wanted, Mapping):
        if not wanted or set(wanted) - set(BOUNDS):
            raise InputError(
                f"the filter on {key!r} has bounds {sorted(map(str, wanted))}; known are {', '.join(BOUNDS)}"
            )
        return wanted
    if isinstance(wanted, list | tuple | set | frozenset):
        known = frozenset(filter(_hashes, wanted))
        return _AnyOf(known, [value for value in wanted if not _hashes(value)])
    return wanted


def _holds(value: Any, wanted: Any) -> bool:
    """Whether one metadata value meets a condition."""
    if isinstance(wanted, Mapping):
        try:
            return all(BOUNDS[name](value, bound) for name, bound in wanted.items())
        except TypeError:  # a word is neither above nor below a number
            return False
    return value in wanted if isinstance(wanted, _AnyOf) else bool(value == wanted)


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
