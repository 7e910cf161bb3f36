"""A filter as a value: conditions on metadata, all of which must hold, for a back end to compile into its own words.

A condition is a value, a list of values (any of them), or bounds:
`{"language": "en", "topic": ["law", "tax"], "year": {"gte": 2000, "lt": 2010}}`. An item without the key does not pass.
Where an item has several values, one of them must meet the condition, with all of its bounds.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np

from crosscut.errors import InputError

SIGNS: dict[str, str] = {"gt": ">", "gte": ">=", "lt": "<", "lte": "<=", "ne": "<>"}
"""Bounds as SQL writes them."""


LARGEST = 1 << 63
"""Whole numbers of a store are below this."""
FINITE = sys.float_info.max


class Condition(NamedTuple):
    """On one key: a value is one of these, or within bounds."""

    key: str
    values: tuple[Any, ...] | None  # of none nothing passes; None: there are bounds
    bounds: Mapping[str, Any]  # as `SIGNS` names them

    @property
    def given(self) -> tuple[Any, ...]:
        """All that values are compared with."""
        return tuple(self.bounds.values()) if self.values is None else self.values


def conditions(filter: Any, plain: Callable[[Any, str], Any] | None = None) -> tuple[Condition, ...]:
    """The conditions of a filter; None has none. `plain(value, key)` is a value as the back end compares it."""
    plain = plain or _plain
    if filter is None:
        return ()
    if not isinstance(filter, Mapping):
        raise InputError(
            f"a filter is a mapping of metadata, {{'year': {{'gte': 2000}}}}, or, of items in memory, a predicate on "
            f"them; got {filter!r}"
        )
    found: list[Condition] = []
    for key, wanted in filter.items():
        if not isinstance(key, str):
            raise InputError(f"a filter names metadata by text; got the key {key!r}")
        written(key, "a key of the filter")
        if isinstance(wanted, Mapping):
            if not wanted or set(wanted) - set(SIGNS):
                told = sorted(map(str, wanted))
                raise InputError(f"the filter on {key!r} has bounds {told}; known are {', '.join(SIGNS)}")
            found.append(Condition(key, None, {name: plain(bound, key) for name, bound in wanted.items()}))
        else:
            several = isinstance(wanted, list | tuple | set | frozenset | np.ndarray)
            found.append(Condition(key, tuple(plain(one, key) for one in (wanted if several else [wanted])), {}))
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
