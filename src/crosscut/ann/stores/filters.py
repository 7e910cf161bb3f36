"""A filter as a value: conditions on metadata, all of which must hold, for a store to compile into its own words.

The grammar is that of `Index.search(filter=…)`: a value, a list of values (any of them), or bounds:
`{"language": "en", "topic": ["law", "tax"], "year": {"gte": 2000, "lt": 2010}}`. An item without the key does not pass.
Where an item has several values, one of them must meet the condition.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from typing import Any, Literal, NamedTuple, TypeAlias, cast, get_args

import numpy as np

from crosscut.errors import InputError

Bound: TypeAlias = Literal["gt", "gte", "lt", "lte", "ne"]
SIGNS: dict[str, str] = {"gt": ">", "gte": ">=", "lt": "<", "lte": "<=", "ne": "<>"}
"""Bounds as SQL writes them."""


LARGEST = 1 << 63
"""Whole numbers of a store are below this."""
FINITE = sys.float_info.max


class Condition(NamedTuple):
    """On one key: it is one of these values, or above, below or not equal to this one."""

    key: str
    kind: Literal["in"] | Bound
    value: Any  # "in": a tuple of values, which may be empty: then nothing passes


def conditions(filter: Any) -> tuple[Condition, ...]:
    """The conditions of a filter; None has none."""
    if filter is None:
        return ()
    if not isinstance(filter, Mapping):
        raise InputError(
            f"over a store a filter is a mapping of metadata, {{'year': {{'gte': 2000}}}}, that the store can read; "
            f"got {filter!r}"
        )
    found: list[Condition] = []
    for key, wanted in filter.items():
        if not isinstance(key, str):
            raise InputError(f"a filter names metadata by text; got the key {key!r}")
        written(key, "a key of the filter")
        if isinstance(wanted, Mapping):
            if not wanted or set(wanted) - set(get_args(Bound)):
                known = ", ".join(get_args(Bound))
                raise InputError(f"the filter on {key!r} has bounds {sorted(map(str, wanted))}; known are {known}")
            found += [Condition(key, cast(Bound, name), _plain(bound, key)) for name, bound in wanted.items()]
        else:
            several = isinstance(wanted, list | tuple | set | frozenset | np.ndarray)
            values = [_plain(value, key) for value in (wanted if several else [wanted])]
            found.append(Condition(key, "in", tuple(values)))
    return tuple(found)


def is_something(key: str, value: Any) -> None:
    """Refuse a condition on what no item has: a key without a value is a key that is not there."""
    if value is None or (isinstance(value, float) and value != value):
        raise InputError(
            f"the filter on {key!r} compares with {value}, and an item without a value passes no condition: give a "
            "text, a number, a boolean or a list of them, or leave the key out"
        )


def number(value: Any) -> bool:
    """Whether a value is a number (True and False are not)."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def whole(values: Iterable[Any]) -> list[int]:
    """Those of some numbers that a column of whole numbers can hold, in 64 bits."""
    return [int(value) for value in values if value == int(value) and abs(value) < LARGEST]


def written(text: str, what: str) -> str:
    """A text that every store can be sent; others none can hold."""
    if "\0" in text or any("\ud800" <= letter <= "\udfff" for letter in text):
        raise InputError(f"{what} holds a NUL or half a character, which no store keeps: {text[:40]!r}")
    return text


def _plain(value: Any, key: str) -> Any:
    value = value.item() if isinstance(value, np.generic) else value
    is_something(key, value)
    if isinstance(value, str):
        return written(value, f"the filter on {key!r}")
    if number(value) and not abs(value) <= FINITE:
        raise InputError(f"the filter on {key!r} compares with {str(value)[:20]}: give a number of at most {FINITE:g}")
    return value
