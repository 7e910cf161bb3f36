"""Memory maps of files larger than memory should be: what was read of them need not stay."""

from __future__ import annotations

import mmap
import tempfile

import numpy as np
import numpy.typing as npt

from crosscut.types import Array

LARGE = 1 << 31
"""Bytes past which an array that is to be filled lies in a file."""


def room(shape: tuple[int, ...], dtype: npt.DTypeLike) -> Array:
    """An array to be filled: in memory, or, a large one, in a file without a name that goes with it."""
    size = int(np.prod(shape, dtype=np.int64)) * np.dtype(dtype).itemsize
    if size <= LARGE:
        return np.empty(shape, dtype)
    with tempfile.TemporaryFile() as file:
        file.truncate(size)
        return np.memmap(file, dtype, "r+", shape=shape)


def put_down(array: Array) -> None:
    """Pages of a memory map that were read leave this process: the next use reads them again, from the system's cache
    of the file or from the file. Nothing that was written is lost. An array in memory stays as it is."""
    base: object = array
    mode = None
    while base is not None and not isinstance(base, mmap.mmap):
        mode = base.mode if isinstance(base, np.memmap) else mode
        base = getattr(base, "base", None)
    # what was written to a copy-on-write map is nowhere else
    if isinstance(base, mmap.mmap) and mode in ("r", "r+", "w+") and hasattr(mmap, "MADV_DONTNEED"):
        base.madvise(mmap.MADV_DONTNEED)
