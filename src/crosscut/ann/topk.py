"""The interface between a search and vectors: the top of base + V u among the items that may be scored next.

A back end is a `TopK`. Items are *handles*: positions in memory; over a store, numbers given in order of appearance. A
search knows neither n nor positions: an answer shorter than what was asked for means that there is no more.

| | what it holds | exact |
|---|---|---|
| `flat.Flat` | any space, every item read | yes |
| `clustered.Clustered` | an `IVF`: some lists read | no |
| `lists.Lists` | any space of items that lie in lists: some of them read | no |
| `linear.Projected` | one of these, asked with part of a longer u | as that is |
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple, Protocol, TypeAlias, runtime_checkable

import numpy as np
import numpy.typing as npt

from crosscut.ann.baseline import NOTHING, Baseline
from crosscut.errors import InputError
from crosscut.spaces.base import Slot, Space, as_space, known_count
from crosscut.types import NO_HANDLES, Array, Floats, Handles

Allowed: TypeAlias = Any
"""Which items may be scored: None for all, sorted handles, or a filter that a store compiles for itself."""


@dataclass(slots=True)
class Ask:
    """One query of a round: the best `count` by base + V u, of those that are allowed and not excluded."""

    vector: Floats  # u (d)
    count: int
    exclude: Handles = field(default_factory=lambda: NO_HANDLES)
    allowed: Allowed = None
    base: Baseline = NOTHING
    start: Handles = field(default_factory=lambda: NO_HANDLES)  # found by the round before, not scored


class Found(NamedTuple):
    """The answer to one ask, best first. The rows of what was found are known from then on: `rows` makes no trip."""

    handles: Handles  # (m)
    expected: Floats  # (m) base + v · u; NaN where nothing is expected
    chances: Floats | None = None  # (m) with which each was picked, where some were drawn; None: 1
    rest: Handles = NO_HANDLES  # what else was looked at
    predictions: npt.NDArray[np.float32] | None = None  # (n) of every item, for a trace


NOTHING_FOUND = Found(NO_HANDLES, np.empty(0))


class Pool(Protocol):
    """Items to draw from."""

    def count(self, allowed: Allowed = None) -> int | None:
        """Return how many items there are; None where that is not known."""

    def sample(
        self, count: int, rng: np.random.Generator, exclude: Handles = NO_HANDLES, allowed: Allowed = None
    ) -> Handles:
        """Draw `count` items uniformly, none of them excluded; fewer if there are no more."""


@runtime_checkable
class TopK(Pool, Protocol):
    """Vectors that can be asked for the top of V u."""

    @property
    def d(self) -> int:
        """The number of dimensions."""

    @property
    def exact(self) -> bool:
        """Whether `top` finds the best, or only most of them."""

    @property
    def precise(self) -> bool:
        """Whether `top` orders what it finds in float64; if not, a search takes a second look at a few more."""
        return False

    @property
    def spread(self) -> float | None:
        """Root mean square distance of the vectors from their mean; None: estimate it from a sample."""
        return None

    def top(self, asks: Sequence[Ask]) -> list[Found]:
        """Return the best of every ask, best first; ties go to the lower handle."""

    def rows(self, handles: Handles) -> Floats:
        """Return V[handles] (m × d) in float64, for fitting."""


class Everything:
    """The items 0 … n − 1: a pool without vectors. A back end that has theirs inherits from it."""

    precise: bool = False
    spread: float | None = None

    def __init__(self, n: int) -> None:
        self.n = n

    def count(self, allowed: Allowed = None) -> int:
        return self.n if allowed is None else len(allowed)

    def sample(
        self, count: int, rng: np.random.Generator, exclude: Handles = NO_HANDLES, allowed: Allowed = None
    ) -> Handles:
        if not count:  # nothing is taken from the generator: batch-mates must not matter
            return NO_HANDLES
        size = self.count(allowed)
        if count + len(exclude) < size // 4:
            # a few out of many: draw with room to spare, instead of a permutation of all
            drawn = rng.choice(size, size=count + len(exclude), replace=False, shuffle=True)
            drawn = drawn if allowed is None else allowed[drawn]
            return np.asarray(drawn[~np.isin(drawn, exclude)][:count], dtype=np.int64)
        pool = np.setdiff1d(np.arange(self.n) if allowed is None else allowed, exclude)
        return np.asarray(rng.permutation(pool)[:count], dtype=np.int64)


class _Rows(Protocol):
    """Vectors of the items 0 … n − 1: a space, or an index of them."""

    @property
    def n(self) -> int: ...
    @property
    def d(self) -> int: ...
    def rows(self, positions: Handles) -> Floats: ...


class OfRows(Everything):
    """The items 0 … n − 1 with the vectors that `source` has of them."""

    def __init__(self, source: _Rows) -> None:
        super().__init__(source.n)
        self._source = source

    @property
    def d(self) -> int:
        return self._source.d

    def rows(self, handles: Handles) -> Floats:
        return self._source.rows(handles)


class Indexed(Space):
    """Vectors that stay in an index or a store: only its top is asked for, and the rows of what it found."""

    slot: ClassVar[Slot] = "encoder"
    of_queries: ClassVar[bool] = True

    def __init__(self, topk: TopK) -> None:
        self._topk = topk

    @property
    def topk(self) -> TopK:
        return self._topk

    @property
    def readable(self) -> bool:
        return False

    @property
    def n(self) -> int:
        return known_count(self._topk.count())

    @property
    def d(self) -> int:
        return self._topk.d

    def rows(self, positions: Handles) -> Floats:
        return self._topk.rows(positions)

    def predict(self, queries: Floats) -> Array:
        raise InputError("these vectors stay in their store, which does not predict every item: ask for its top")


def as_vectors(vectors: Space | TopK | npt.ArrayLike) -> Space:
    """Return item vectors from what the user brought: a space, an index or store, or an array (n × d)."""
    if not isinstance(vectors, Space) and isinstance(vectors, TopK):
        return Indexed(vectors)
    return as_space(vectors)
