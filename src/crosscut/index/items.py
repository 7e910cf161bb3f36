"""The items of an index: where they come from, and which of them a filter lets through."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from crosscut.datasets.beir import read_items as read_corpus
from crosscut.datasets.files import find, metadata_of, text_of
from crosscut.datasets.plain import read_items
from crosscut.datasets.records import Collection, Item
from crosscut.datasets.storable import as_json, storable
from crosscut.errors import InputError

Source: TypeAlias = str | Path | Collection | Iterable[str | Item | Mapping[str, Any]]
"""A file (.jsonl, .tsv, .txt), a BEIR folder, a collection, or texts, items or records."""

Filter: TypeAlias = Mapping[str, Any] | Callable[[Item], bool]
"""Conditions on metadata, all of which must hold, or a predicate on items. A condition is a value, a list of values
(any of them), or bounds: `{"language": "en", "topic": ["law", "tax"], "year": {"gte": 2000, "lt": 2010}}`."""

BOUNDS: dict[str, Callable[[Any, Any], bool]] = {
    "gt": lambda value, bound: value > bound,
    "gte": lambda value, bound: value >= bound,
    "lt": lambda value, bound: value < bound,
    "lte": lambda value, bound: value <= bound,
    "ne": lambda value, bound: value != bound,
}


def as_items(source: Source, *, taken: int = 0) -> list[Item]:
    """Items from what the user has, such as can be saved; those without an id are called by their number."""
    return [storable(item) for item in _given(source, taken)]


def _given(source: Source, taken: int) -> list[Item]:
    if isinstance(source, Collection):
        return list(source.items)
    if isinstance(source, str | Path):
        path = Path(source)
        if not path.exists():
            raise InputError(
                f"there is no file or folder {str(source)!r}; pass a .jsonl, .tsv or .txt file, a BEIR folder, "
                "or a list of texts"
            )
        return list(read_corpus(find(path, "corpus.jsonl"))) if path.is_dir() else read_items(path)
    items = []
    for number, entry in enumerate(source, taken):
        if isinstance(entry, Item):
            items.append(entry)
        elif isinstance(entry, str):
            items.append(Item(str(number), "", entry))
        elif isinstance(entry, Mapping):
            items.append(_item(dict(entry), number))
        else:
            raise InputError(f"item {number} is a {type(entry).__name__}; expected a text, a record or an Item")
    return items


def _item(record: dict[str, Any], number: int) -> Item:
    named = "_id" in record or "id" in record
    id = text_of(record, ("_id", "id"), "record", number) if named else str(number)
    title = text_of({"title": "", **record}, ("title",), "record", number)
    metadata = metadata_of(record, ("_id", "id", "title", "text", "contents"))
    return Item(id, title, text_of(record, ("text", "contents"), "record", number), metadata)


def passing(items: Sequence[Item], condition: Filter) -> npt.NDArray[np.bool_]:
    """Which items a filter lets through (n)."""
    if callable(condition):
        return np.fromiter((bool(condition(item)) for item in items), np.bool_, len(items))
    if not isinstance(condition, Mapping):
        raise InputError(f"a filter is a mapping of metadata or a predicate on items; got {condition!r}")
    condition = {key: as_json(wanted, f"the filter on {key!r}") for key, wanted in condition.items()}
    for key, wanted in condition.items():
        if isinstance(wanted, Mapping) and (not wanted or set(wanted) - set(BOUNDS)):
            raise InputError(f"the filter on {key!r} has bounds {sorted(wanted)}; known are {', '.join(BOUNDS)}")
    return np.fromiter(
        (all(_holds(item.metadata.get(key), wanted) for key, wanted in condition.items()) for item in items),
        np.bool_,
        len(items),
    )


def _holds(value: Any, wanted: Any) -> bool:
    """Whether one metadata value (or one of several) meets a condition; an item without it does not."""
    if value is None:
        return False
    if isinstance(value, list | tuple | set):
        return any(_holds(one, wanted) for one in value)
    if isinstance(wanted, Mapping):
        try:
            return all(BOUNDS[name](value, bound) for name, bound in wanted.items())
        except TypeError:  # a word is neither above nor below a number
            return False
    if isinstance(wanted, list | tuple | set):
        return value in wanted
    return bool(value == wanted)
