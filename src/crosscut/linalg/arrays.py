"""Checks and small work on arrays of vectors and ids, for clustered indexes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from crosscut.errors import InputError

Ids = npt.NDArray[np.int64]
NOTHING: Ids = np.zeros(0, dtype=np.int64)


def joined(parts: Sequence[Ids]) -> tuple[Ids, Ids]:
    """Arrays one after another, and where each begins."""
    starts = np.zeros(len(parts) + 1, dtype=np.int64)
    np.cumsum([len(part) for part in parts], out=starts[1:])
    return np.concatenate([NOTHING, *parts]), starts


def inside(some: Ids, places: Ids) -> npt.NDArray[np.bool_]:
    """Whether each of some places is one of many sorted ones."""
    at = np.searchsorted(places, some)
    return np.asarray(places[np.minimum(at, len(places) - 1)] == some if len(places) else np.zeros(len(some), np.bool_))


def storage(kind: np.dtype[Any], given: bool) -> np.dtype[Any]:
    """The precision that vectors are kept in: `given`, it must be one that there is."""
    if kind in (np.float16, np.float32):
        return kind
    if given:
        raise InputError(f"vectors are stored as float32 or float16; got {kind}")
    return np.dtype(np.float32)


def finite(array: npt.NDArray[Any], what: str) -> None:
    """Refuse NaN and infinities, and name the row."""
    step = max(1, (1 << 22) // max(array.shape[1], 1))
    for start in range(0, len(array), step):
        fine = np.isfinite(array[start : start + step]).all(axis=1)
        if not fine.all():
            raise InputError(f"row {start + int(fine.argmin())} of the {what} contains NaN or infinities")


def named(ids: npt.ArrayLike | None, count: int, start: int) -> Ids:
    """The caller's ids of so many vectors, checked; whole numbers from `start` on without them."""
    if ids is None:
        return np.arange(start, start + count, dtype=np.int64)
    names = np.asarray(ids).reshape(-1)
    if len(names) != count:
        raise InputError(f"{len(names)} ids for {count} vectors")
    if not np.issubdtype(names.dtype, np.integer) or (len(names) and names.min() < 0):
        raise InputError("ids are whole numbers of 0 or more")
    return names.astype(np.int64)


def untie(ids: Ids, scores: npt.NDArray[np.float32]) -> None:
    """Equal scores in order of id, in place."""
    tied = ((scores[:, 1:] == scores[:, :-1]) & (ids[:, 1:] >= 0)).any(axis=1)
    for row in np.flatnonzero(tied):
        order = np.lexsort((np.where(ids[row] < 0, np.iinfo(np.int64).max, ids[row]), -scores[row]))
        ids[row], scores[row] = ids[row, order], scores[row, order]
