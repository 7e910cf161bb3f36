"""Checks of metadata: only values that JSON can store, so that an index never fails to save after scoring."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Set
from datetime import date, time
from typing import Any

import numpy as np

from crosscut.datasets.records import Item
from crosscut.errors import InputError

DEEPEST = 50


def storable(item: Item) -> Item:
    """An item whose texts are Unicode and whose metadata is JSON: obvious conversions are made, the rest is refused."""
    for name, text in zip(("id", "title", "text"), item[:3], strict=True):
        valid_text(text, f"the {name} of item {item.id!r}")
    if not item.metadata:
        return item
    return item._replace(metadata=as_json(item.metadata, f"the metadata of item {item.id!r}"))


def valid_text(text: Any, where: str) -> str:
    """A text that can be written as UTF-8."""
    if not isinstance(text, str):
        raise InputError(f"{where} is a {type(text).__name__}; expected a string")
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise InputError(
            f"{where} is no valid Unicode (a lone surrogate at character {error.start}); "
            "clean it, for example with text.encode('utf-8', 'replace').decode()"
        ) from error
    return text


def as_json(value: Any, where: str, depth: int = 0) -> Any:
    """A value as JSON has it: numpy's numbers as numbers, dates and times as ISO texts, tuples and sets as lists."""
    if depth > DEEPEST:
        raise InputError(f"{where} is nested more than {DEEPEST} deep, or holds itself; make it flatter")
    if isinstance(value, np.datetime64 | np.timedelta64):
        return str(value)
    if isinstance(value, np.generic | np.ndarray):
        value = value.tolist()
    if isinstance(value, str):
        return valid_text(value, where)
    if isinstance(value, float) and not math.isfinite(value):
        if math.isnan(value):  # how pandas and Parquet readers mark what is missing
            return None
        raise InputError(f"{where} holds {value}, which JSON does not have: leave it out, or store it as a string")
    if value is None or isinstance(value, int | float):
        return value
    if isinstance(value, date | time):
        return value.isoformat()
    if isinstance(value, Mapping):
        return {_key(key, where): as_json(inner, f"{where}, {key!r},", depth + 1) for key, inner in value.items()}
    if isinstance(value, list | tuple | Set):
        plain = [as_json(inner, where, depth + 1) for inner in value]
        return sorted(plain, key=_order) if isinstance(value, Set) else plain
    raise InputError(
        f"{where} holds {value!r:.40}, a {type(value).__name__}, which cannot be saved; "
        "give a text, a number, a date, or lists and mappings of them"
    )


def _key(key: Any, where: str) -> str:
    """The name of an entry, as JSON writes it."""
    if key is None or isinstance(key, int | float):
        return json.dumps(key)
    return valid_text(key, f"a key in {where}")


def _order(value: Any) -> tuple[str, Any]:
    """Numbers among numbers, texts among texts."""
    return "" if isinstance(value, int | float) else type(value).__name__, value
