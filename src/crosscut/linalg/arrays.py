"""Checks and small work on arrays of vectors and ids, for clustered indexes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from crosscut.errors import InputError
from crosscut.storage import put_down
from crosscut.types import Array

Ids = npt.NDArray[np.int64]
LARGEST = 1e15  # so that sums of products of two stay far inside float32
NOTHING: Ids = np.zeros(0, dtype=np.int64)


def joined(parts: Sequence[Ids]) -> tuple[Ids, Ids]:
    """Arrays one after another, and where each begins."""
    return np.concatenate([NOTHING, *parts]), starts_of([len(part) for part in parts])


def starts_of(sizes: npt.ArrayLike) -> Ids:
    """(m + 1) where each of m parts of these sizes begins when they stand side by side, and where the last one ends."""
    each = np.asarray(sizes)
    starts = np.zeros(len(each) + 1, dtype=np.int64)
    np.cumsum(each, out=starts[1:])
    return starts


def spans(starts: Ids, sizes: Ids) -> Ids:
    """The places of parts that begin at `starts`, one part after another."""
    ends = np.cumsum(sizes)
    return np.asarray(np.repeat(starts - (ends - sizes), sizes) + np.arange(int(sizes.sum())))


def looked_up(wanted: Array, keys: Array, values: Array, otherwise: float = 0.0) -> Array:
    """The values of some keys, which are sorted and each there once; `otherwise` of one that is not there."""
    if not len(keys):
        return np.full(len(wanted), otherwise)
    places = np.minimum(np.searchsorted(keys, wanted), len(keys) - 1)
    return np.where(keys[places] == wanted, values[places], otherwise)


def inside(some: Ids, places: Ids) -> npt.NDArray[np.bool_]:
    """Whether each of some places is one of many sorted ones."""
    at = np.searchsorted(places, some)
    return np.asarray(places[np.minimum(at, len(places) - 1)] == some if len(places) else np.zeros(len(some), np.bool_))


def without(some: Ids, gone: Ids) -> Ids:
    """Some places less others, in their order: few of each, for which a set is ten times as fast as sorting."""
    dropped = set(gone.tolist())
    return np.array([place for place in some.tolist() if place not in dropped], dtype=np.int64)


def rising(places: Ids) -> bool:
    """Whether each place is above the one before. Of millions, some at a time, which then stay in the cache."""
    pieces = (places[start : start + 1 + (1 << 16)] for start in range(0, len(places), 1 << 16))
    return all(bool((piece[1:] > piece[:-1]).all()) for piece in pieces)


def storage(kind: np.dtype[Any], given: bool) -> np.dtype[Any]:
    """The precision that vectors are kept in: `given`, it must be one that there is."""
    if kind in (np.float16, np.float32):
        return kind
    if given:
        raise InputError(f"vectors are stored as float32 or float16; got {kind}")
    return np.dtype(np.float32)


def checked_vectors(values: npt.ArrayLike, what: str, d: int | None = None, kind: npt.DTypeLike = np.float32) -> Array:
    """(m × d) numbers as they are, checked: they can be kept as `kind` and searched."""
    try:
        array = np.asarray(values)
    except ValueError as error:
        raise InputError(f"{what} are an array (rows × dimensions): {error}") from None
    if array.ndim != 2 or (d is not None and array.shape[1] != d):
        wanted = "" if d is None else f" for an index of {d} dimensions"
        raise InputError(f"{what} of shape {array.shape}{wanted}: pass (rows × {d or 'dimensions'})")
    if array.dtype.kind not in "fiu":
        raise InputError(f"{what} are numbers; got {array.dtype}")
    finite(array, what, kind)
    return array


def finite(array: Array, what: str, kind: npt.DTypeLike = np.float32) -> None:
    """Refuse NaN, infinities, and numbers too large for what they are kept as; name the row."""
    most = min(LARGEST, float(np.finfo(kind).max))
    step = max(1, (1 << 22) // max(array.shape[1], 1))
    for start in range(0, len(array), step):
        block = array[start : start + step]
        if block.dtype == np.float16:  # slow to compare, and never too large
            fine = bool(np.isfinite(block).all())
        else:
            fine = not block.size or bool(block.max() <= most and block.min() >= -most)  # NaN is neither
        if not fine:
            row = int((abs(block) <= most).all(axis=1).argmin())
            worst = float(abs(block[row]).max())
            if not np.isfinite(worst):
                raise InputError(f"row {start + row} of the {what} contains NaN or infinities")
            raise InputError(
                f"row {start + row} of the {what} holds {worst:g}, and an index in {np.dtype(kind)} takes up to "
                f"{most:g}: divide all vectors by one number, which changes no order"
            )
        put_down(array)


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
