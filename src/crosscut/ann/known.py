"""What a scorer knows of items without a call, where nobody reads every item: over a store, of those it has shown.

In memory that is an array, a number for every item. Over a store a candidate is read when it is first looked at. What
of it is linear in the vectors goes into the question that the store is asked: g(q, v) ≈ c + s (q · v), with s by least
squares over all that was read, so that u + s q is asked for. The rest orders a wider answer.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import numpy as np

from crosscut.types import Floats, Handles

WIDER = 8  # times as many candidates are read as are wanted


class KnownOfCandidates:
    """Of one query: `read` tells what is known of some items, `rows` their vectors; each item is read once."""

    def __init__(
        self, read: Callable[[Handles], Floats], rows: Callable[[Handles], Floats], vector: Floats | None
    ) -> None:
        self._read, self._rows, self.vector = read, rows, vector
        self._values: Floats = np.empty(0)  # by handle; NaN: not read

    def __getitem__(self, handles: Handles, /) -> Floats:
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


Known: TypeAlias = Floats | KnownOfCandidates
"""What is known of items for one query alone: of all (n), or of those that are looked at."""
