"""What a filter from outside may look like: of a request, or of an agent."""

from __future__ import annotations

import math
from typing import Any

from crosscut.stores.filters import SIGNS

MOST = 64  # conditions of a filter
LONGEST = 1000  # characters of a key


def conditions(value: Any) -> dict[str, Any]:
    """A filter, if it is one; one pass that ends at the first wrong value, however many there are."""
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
        if not all(map(_is_value, values)):
            raise ValueError(f"the condition on {key[:60]!r} is a text, number or boolean, a list of them, or bounds")
    return value


def _is_value(value: Any) -> bool:
    return isinstance(value, str | int) or (isinstance(value, float) and math.isfinite(value))
