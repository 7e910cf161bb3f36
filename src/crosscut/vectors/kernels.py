"""Compiled inner loops; importing this module loads numba."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, TypeVar

import numba
import numpy as np
import numpy.typing as npt

F = TypeVar("F", bound=Callable[..., None])
REBIAS = np.float32(2.0**112)  # between the exponents of float16 and float32


def _compiled(**how: Any) -> Callable[[F], Any]:
    """Compile without the interpreter lock, and keep the result on disk where there is a place for it."""

    def compile(function: F) -> Any:
        try:
            return numba.njit(cache=True, nogil=True, **how)(function)
        except RuntimeError:  # no writable place for a cache
            return numba.njit(nogil=True, **how)(function)

    return compile


@_compiled(fastmath=True)
def dot(array: npt.NDArray[np.float32], vector: npt.NDArray[np.float32], out: npt.NDArray[np.float32]) -> None:
    """out[i] = array[i] · vector."""
    for i in range(array.shape[0]):
        total = np.float32(0)
        for j in range(array.shape[1]):
            total += array[i, j] * vector[j]
        out[i] = total


@_compiled()
def widen(bits: npt.NDArray[np.uint16], out_bits: npt.NDArray[np.uint32], out: npt.NDArray[np.float32]) -> None:
    """float16 bits → float32: shift into place, then × 2¹¹²; exact for every finite half, subnormals included.

    `out_bits` and `out` are two views of the same memory.
    """
    for i in range(bits.size):
        half = np.uint32(bits[i])
        out_bits[i] = ((half & np.uint32(0x8000)) << np.uint32(16)) | ((half & np.uint32(0x7FFF)) << np.uint32(13))
    for i in range(bits.size):
        out[i] *= REBIAS


@_compiled(fastmath=True)
def dot_half(bits: npt.NDArray[np.uint16], vector: npt.NDArray[np.float32], out: npt.NDArray[np.float32]) -> None:
    """out[i] = row i of float16 bits · vector."""
    d = bits.shape[1]
    row_bits = np.empty(d, dtype=np.uint32)
    row = row_bits.view(np.float32)
    for i in range(bits.shape[0]):
        for j in range(d):
            half = np.uint32(bits[i, j])
            sign = (half & np.uint32(0x8000)) << np.uint32(16)
            row_bits[j] = sign | ((half & np.uint32(0x7FFF)) << np.uint32(13))
        total = np.float32(0)
        for j in range(d):
            total += row[j] * vector[j]
        out[i] = total * REBIAS


@cache
def warm() -> None:
    """Compile, or load from the cache, every loop."""
    out = np.zeros(1, dtype=np.float32)
    dot(np.zeros((1, 1), dtype=np.float32), out, out)
    dot_half(np.zeros((1, 1), dtype=np.uint16), out, out)
    widen(np.zeros(1, dtype=np.uint16), out.view(np.uint32), out)
