"""Baselines: the part of a score that is not v · u, such as a background level, base scores, residuals of single items,
or a coordinate of one query only.

A round looks for the highest base + V u. A flat round adds the baseline of every item. An index or a store can only be
asked for V u: what of the baseline is linear in the vectors joins the question (`direction`), the rest orders a wider
answer (`wider`), which the items of highest baseline join (`tops`).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Any, Protocol

import numpy as np

from crosscut.linalg.arrays import looked_up, without
from crosscut.linalg.top import ranked
from crosscut.types import NO_HANDLES, Array, Floats, Handles

JOIN = 256  # items of highest baseline that join what an index finds


class Baseline(Protocol):
    """A term that is added to V u. Subclass it to write your own."""

    @property
    def wider(self) -> int:
        """The factor of items that an index is asked for, because the baseline reorders them."""
        return 1

    @property
    def direction(self) -> Floats | float:
        """Its linear part, in the coordinates of an index or store; 0: none."""
        return 0.0

    def at(self, handles: Handles) -> Floats | float:
        """Return the baseline of some items (m)."""
        return 0.0

    def everywhere(self) -> Floats | float:
        """Return the baseline of every item (n), or one number for all; in memory only."""
        return 0.0

    def tops(self, count: int, exclude: Handles, allowed: Any) -> Handles:
        """Return items of highest baseline, best first, of those that may be scored."""
        return NO_HANDLES


class Level(Baseline):
    """One number for all items."""

    def __init__(self, value: float) -> None:
        self.value = value

    def at(self, handles: Handles) -> float:
        return self.value

    def everywhere(self) -> float:
        return self.value


NOTHING = Level(0.0)


class PerItem(Baseline):
    """A number for every item (n)."""

    def __init__(self, values: Floats) -> None:
        self.values = values

    def at(self, handles: Handles) -> Floats:
        return np.asarray(self.values[handles], dtype=np.float64)

    def everywhere(self) -> Floats:
        return self.values

    def tops(self, count: int, exclude: Handles, allowed: Any) -> Handles:
        return ranked(masked(self.values.copy(), exclude, allowed), count)


class OfSome(Baseline):
    """Numbers of some of the items 0 … n − 1, in rising order; 0 for all others."""

    wider = 4

    def __init__(self, handles: Handles, values: Floats, n: int) -> None:
        self.handles, self.values, self.n = handles, values, n
        self._order = handles[np.argsort(-values, kind="stable")]

    def at(self, handles: Handles) -> Floats:
        return looked_up(handles, self.handles, self.values)

    def everywhere(self) -> Floats:
        base = np.zeros(self.n)
        there = self.handles < self.n
        base[self.handles[there]] = self.values[there]
        return base

    def tops(self, count: int, exclude: Handles, allowed: Any) -> Handles:
        some = without(self._order[: JOIN + len(exclude)], exclude)
        return some if allowed is None else some[np.isin(some, allowed)]


class OfCandidates(Baseline):
    """Base scores of items in a store, of which only candidates are read.

    `read` returns it for some items and `rows` their vectors; each item is read when it is first looked at. What of it
    is linear in the vectors is g(q, v) ≈ c + s (q · v), with s by least squares over all that was read.
    """

    wider = 8

    def __init__(
        self, read: Callable[[Handles], Floats], rows: Callable[[Handles], Floats], vector: Floats | None
    ) -> None:
        self._read, self._rows, self.vector = read, rows, vector
        self._values: Floats = np.empty(0)  # by handle; NaN: not read

    def at(self, handles: Handles) -> Floats:
        short = int(handles.max(initial=-1)) + 1 - len(self._values)
        if short > 0:
            self._values = np.append(self._values, np.full(short, np.nan))
        if len(new := np.unique(handles[np.isnan(self._values[handles])])):
            self._values[new] = self._read(new)
        found: Floats = self._values[handles]
        return found

    @property
    def direction(self) -> Floats | float:
        """s q (d), of what was read so far; 0 where there is no query vector, or too little to go by."""
        read = np.flatnonzero(~np.isnan(self._values))
        if self.vector is None or len(read) < 3:
            return 0.0
        cosines = self._rows(read) @ self.vector
        cosines -= cosines.mean()
        varied = float(cosines @ cosines)
        return max(float(cosines @ self._values[read]) / varied, 0.0) * self.vector if varied > 0 else 0.0


class Sum(Baseline):
    """Several baselines together."""

    def __init__(self, *parts: Baseline) -> None:
        self.parts = tuple(part for part in parts if part is not NOTHING)

    @property
    def wider(self) -> int:
        return max((part.wider for part in self.parts), default=1)

    @property
    def direction(self) -> Floats | float:
        return sum((part.direction for part in self.parts), 0.0)

    def at(self, handles: Handles) -> Floats | float:
        return sum((part.at(handles) for part in self.parts), 0.0)

    @cached_property
    def _everywhere(self) -> Floats | float:
        return sum((part.everywhere() for part in self.parts), 0.0)

    def everywhere(self) -> Floats | float:
        return self._everywhere

    def tops(self, count: int, exclude: Handles, allowed: Any) -> Handles:
        found = [part.tops(count, exclude, allowed) for part in self.parts]
        return found[0] if len(found) == 1 else np.unique(np.concatenate([NO_HANDLES, *found]))


def masked(values: Array, exclude: Handles, allowed: Any = None) -> Array:
    """Put −inf, in place, for what is not allowed or excluded; return `values` (n)."""
    if allowed is not None and len(allowed) < len(values):
        open_values = values[allowed]
        values[:] = -np.inf
        values[allowed] = open_values
    values[exclude] = -np.inf
    return values
