"""Compiled work on the bytes of items; importing this loads numba."""

from __future__ import annotations

from typing import Any

import numpy as np

from crosscut.linalg.kernels import compiled


@compiled()
def hash_each(data: Any, starts: Any, sizes: Any, out: Any) -> None:
    """FNV-1a of pieces of the data, 64 bits, mixed once more."""
    for row in range(len(sizes)):
        value = np.uint64(14695981039346656037)
        for place in range(starts[row], starts[row] + np.int64(sizes[row])):
            value = (value ^ np.uint64(data[place])) * np.uint64(1099511628211)
        value ^= value >> np.uint64(32)
        value *= np.uint64(0xD6E8FEB86659FD93)
        out[row] = value ^ (value >> np.uint64(32))


@compiled()
def gather(data: Any, starts: Any, sizes: Any, out: Any) -> None:
    """Pieces of the data, one after another."""
    to = 0
    for row in range(len(sizes)):
        for place in range(starts[row], starts[row] + sizes[row]):
            out[to] = data[place]
            to += 1
