"""Queries and results of an index, with their cost."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from crosscut.errors import InputError
from crosscut.linalg.arrays import Ids, checked_vectors
from crosscut.types import whole

Metric = Literal["ip", "l2"]
METRICS: tuple[Metric, ...] = ("ip", "l2")


class Nearest(NamedTuple):
    """The result of one query and its cost. Best first."""

    ids: Ids  # (≤ k)
    scores: npt.NDArray[np.float32]  # (≤ k) inner products, or minus squared distances
    lists: int  # probed
    vectors: int  # scanned


class NearestMany(NamedTuple):
    """The results of a batch and their cost. Where there are fewer than k, ids are −1 and scores −inf."""

    ids: Ids  # (q × k)
    scores: npt.NDArray[np.float32]  # (q × k)
    lists: Ids  # (q) probed
    vectors: Ids  # (q) scanned

    def only(self) -> Nearest:
        """The result of the only query."""
        count = int((self.ids[0] >= 0).sum())
        return Nearest(self.ids[0, :count], self.scores[0, :count], int(self.lists[0]), int(self.vectors[0]))


def as_queries(queries: npt.ArrayLike, d: int, k: int) -> npt.NDArray[np.float32]:
    """Queries (q × d) as they are searched, and k checked."""
    whole("k", k, 1)
    return np.ascontiguousarray(checked_vectors(queries, "queries", d), dtype=np.float32)


def each(what: str, given: Any, count: int) -> Sequence[Any]:
    """Return the values for each query; None for each if there are none."""
    if given is None:
        return [None] * count
    if len(given) != count:
        raise InputError(f"{len(given)} {what} for {count} queries: give one for each, None where there is none")
    return given  # type: ignore[no-any-return]
