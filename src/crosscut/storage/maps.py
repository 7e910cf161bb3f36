"""Memory maps of files larger than memory should be: what was read of them need not stay."""

from __future__ import annotations

import mmap

import numpy as np

from crosscut.types import Array


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
