"""The vocabulary: types of arrays, items and progress."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from crosscut.errors import InputError

Array: TypeAlias = npt.NDArray[Any]
Floats: TypeAlias = npt.NDArray[np.float64]
Mask: TypeAlias = npt.NDArray[np.bool_]

Positions: TypeAlias = npt.NDArray[np.int64]
"""Items by their place in a corpus, 0 … n − 1."""

Handles: TypeAlias = npt.NDArray[np.int64]
"""Items as a search names them: positions in memory; over a store, numbers given in order of appearance."""

NO_HANDLES: Handles = np.empty(0, dtype=np.int64)
NO_SCORES: Floats = np.empty(0, dtype=np.float64)

WILD = 1e30
"""A score beyond this means "never" or "always": it ranks as given, and no fit follows it."""

Progress: TypeAlias = Callable[[str, int, int], None]
"""Called with the name of a step, how much of it is done, and how much there is; 0 if that is not known."""


def whole(name: str, number: Any, least: int = 0) -> int:
    """Return a whole number of `least` or more; refuse any other value."""
    if isinstance(number, bool) or not isinstance(number, int | np.integer):
        raise InputError(f"{name} must be a whole number; got {number!r}")
    if number < least:
        raise InputError(f"{name} must be at least {least}; got {number}")
    return int(number)
