"""The items of an index: where they come from, and which of them a filter lets through."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeAlias, Unpack

from crosscut.datasets.columns import ColumnNames, Columns
from crosscut.datasets.reading import read_items
from crosscut.datasets.records import Collection, Item
from crosscut.datasets.storable import storable
from crosscut.errors import InputError
from crosscut.index.sources import entries_of, item_of
from crosscut.types import Progress

Source: TypeAlias = Any
"""A file or folder (`crosscut.datasets.read_items`), a collection, a frame, a dataset, a mapping of ids to texts, or
texts, items, records, tuples or documents (`crosscut.index.sources`)."""

Filter: TypeAlias = Mapping[str, Any] | Callable[[Item], bool]
"""Conditions on metadata, all of which must hold, or a predicate on items. A condition is a value, a list of values
(any of them), or bounds: `{"language": "en", "topic": ["law", "tax"], "year": {"gte": 2000, "lt": 2010}}`."""


def as_items(
    source: Source, *, taken: int = 0, progress: Progress | None = None, **columns: Unpack[ColumnNames]
) -> list[Item]:
    """Items from what the user has, such as can be saved; those without an id are called by their number."""
    return list(stream(source, taken=taken, progress=progress, **columns))


def stream(
    source: Source, *, taken: int = 0, progress: Progress | None = None, **columns: Unpack[ColumnNames]
) -> Iterator[Item]:
    """`as_items`, one after another: a file is never in memory as a whole."""
    return map(storable, _given(source, taken, progress, columns))


def _given(source: Source, taken: int, progress: Progress | None, columns: ColumnNames) -> Iterator[Item]:
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
            kind = "a text" if isinstance(entry, str) else "an Item" if isinstance(entry, Item) else "no record"
            raise InputError(f"item {number} is {kind}, which has no columns to name; got {columns.given[0]!r}")
        yield item if item.id or isinstance(entry, Item) else item._replace(id=str(number))
