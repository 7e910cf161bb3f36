"""Filters: one grammar, compiled by each vector database for itself and applied in memory by `crosscut.index.metadata`.

A filter is a mapping of conditions on metadata, all of which must hold. A condition is a value, a list of values (any
of them), or bounds: `{"language": "en", "topic": ["law", "tax"], "year": {"gte": 2000, "lt": 2010}}`. An item without
the key does not pass. Where an item has several values, one of them must meet the condition, with all of its bounds.
"""

from __future__ import annotations

import math
import operator
import sys
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np

from crosscut.errors import InputError

SIGNS: dict[str, str] = {"gt": ">", "gte": ">=", "lt": "<", "lte": "<=", "ne": "<>"}
"""Bounds, as SQL writes them."""
TESTS: dict[str, Callable[[Any, Any], Any]] = {
    "gt": operator.gt,
    "gte": operator.ge,
    "lt": operator.lt,
    "lte": operator.le,
    "ne": operator.ne,
}
LARGEST = 1 << 63
"""Whole numbers of a store are below this."""
FINITE = sys.float_info.max
MOST = 64  # conditions of a filter in a request
LONGEST = 1000  # characters of a key in a request


class Condition(NamedTuple):
    """On one key: a value is one of these, or within bounds."""

    key: str
    values: tuple[Any, ...] | None  # of none nothing passes; None: there are bounds
    bounds: Mapping[str, Any]  # by the names in `SIGNS`

    @property
    def given(self) -> tuple[Any, ...]:
        """All that values are compared with."""
        return tuple(self.bounds.values()) if self.values is None else self.values


def conditions(filter: Any, plain: Callable[[Any, str], Any] | None = None) -> tuple[Condition, ...]:
    """Return the conditions of a filter; None has none. `plain(value, key)` is a value as the back end compares it."""
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
        check_text(key, "a key of the filter")
        if isinstance(wanted, Mapping):
            if not wanted or set(wanted) - set(SIGNS):
                names = sorted(map(str, wanted))
                raise InputError(f"the filter on {key!r} has bounds {names}; known are {', '.join(SIGNS)}")
            found.append(Condition(key, None, {name: plain(bound, key) for name, bound in wanted.items()}))
        else:
            several = isinstance(wanted, list | tuple | set | frozenset | np.ndarray)
            found.append(Condition(key, tuple(plain(one, key) for one in (wanted if several else [wanted])), {}))
    return tuple(found)


def request_filter(value: Any) -> dict[str, Any]:
    """Return a filter from outside, of a request or an agent, if it is one; else raise a ValueError.

    One pass that ends at the first wrong value, however many there are.
    """
    if not isinstance(value, dict):
        raise ValueError("a filter is an object of conditions")
    if len(value) > MOST:
        raise ValueError(f"a filter has {MOST} conditions at most; got {len(value)}")
    if any(len(key) > LONGEST for key in value):
        raise ValueError(f"a key of a filter has {LONGEST} characters at most")
    for key, wanted in value.items():
        if isinstance(wanted, dict) and (not wanted or wanted.keys() - SIGNS.keys()):
            raise ValueError(f"the bounds on {key[:60]!r} are one or more of {', '.join(SIGNS)}")
        values = wanted.values() if isinstance(wanted, dict) else wanted if isinstance(wanted, list) else [wanted]
        if not all(isinstance(one, str | int) or (isinstance(one, float) and math.isfinite(one)) for one in values):
            raise ValueError(f"the condition on {key[:60]!r} is a text, number or boolean, a list of them, or bounds")
    return value


def within(value: Any, bounds: Mapping[str, Any]) -> bool:
    """Whether a value meets all bounds; a text is neither above nor below a number."""
    try:
        return all(TESTS[name](value, bound) for name, bound in bounds.items())
    except TypeError:
        return False


def check_value(key: str, value: Any) -> None:
    """Refuse a condition on what no item has: a key without a value is a key that is not there."""
    if value is None or (isinstance(value, float) and value != value):
        raise InputError(
            f"the filter on {key!r} compares with {value}, and an item without a value passes no condition: give a "
            "text, a number, a boolean or a list of them, or leave the key out"
        )


def check_text(text: str, what: str) -> str:
    """Return a text that every store can be sent; refuse others."""
    if "\0" in text or any("\ud800" <= letter <= "\udfff" for letter in text):
        raise InputError(f"{what} holds a NUL or half a character, which no store keeps: {text[:40]!r}")
    return text


def is_number(value: Any) -> bool:
    """Whether a value is a number (True and False are not)."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def integers(values: Iterable[Any]) -> list[int]:
    """Return those of some numbers that a column of 64-bit integers can hold."""
    return [int(value) for value in values if value == int(value) and abs(value) < LARGEST]


def _plain(value: Any, key: str) -> Any:
    value = value.item() if isinstance(value, np.generic) else value
    check_value(key, value)
    if isinstance(value, str):
        return check_text(value, f"the filter on {key!r}")
    if is_number(value) and not abs(value) <= FINITE:
        raise InputError(f"the filter on {key!r} compares with {str(value)[:20]}: give a number of at most {FINITE:g}")
    return value
