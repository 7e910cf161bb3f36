"""Products with float16 item vectors, at the speed of reading them.

numpy widens float16 one number at a time, ten times slower than memory. Here blocks of rows are widened by integer
arithmetic that the compiler vectorises, into a buffer that stays in cache, and multiplied there by BLAS.
"""

from __future__ import annotations

from typing import Any

import numba
import numpy as np
import numpy.typing as npt

from crosscut.scorers.base import Floats

BLOCK = 1 << 18  # numbers widened at a time: 1 MiB of float32


@numba.njit(cache=True, nogil=True)
def _widen(half: npt.NDArray[np.uint16], out: npt.NDArray[np.uint32], scale: npt.NDArray[np.float32]) -> None:
    """float16 bits → float32 bits × 2⁻¹¹², then × 2¹¹²: exact for every finite half, subnormals included."""
    for i in range(half.size):
        bits = np.uint32(half[i])
        out[i] = ((bits & np.uint32(0x8000)) << np.uint32(16)) | ((bits & np.uint32(0x7FFF)) << np.uint32(13))
    values = out.view(np.float32)
    for i in range(half.size):
        values[i] *= scale[0]


_SCALE = np.array([2.0**112], dtype=np.float32)


def widen(block: npt.NDArray[np.float16]) -> npt.NDArray[np.float32]:
    """A contiguous float16 array as float32."""
    bits = np.ascontiguousarray(block).view(np.uint16).reshape(-1)
    out = np.empty(bits.size, dtype=np.uint32)
    _widen(bits, out, _SCALE)
    return out.view(np.float32).reshape(block.shape)


def product(array: npt.NDArray[Any], queries: Floats) -> npt.NDArray[np.float32]:
    """(q × d) query vectors times float16 item vectors (n × d) → (q × n)."""
    n, d = array.shape
    vectors = queries.astype(np.float32)  # (q × d)
    out = np.zeros((len(vectors), n), dtype=np.float32)
    if array.flags.f_contiguous and not array.flags.c_contiguous:  # Rᵀ: widen whole rows of R
        step = max(1, BLOCK // max(n, 1))
        for start in range(0, d, step):
            out += vectors[:, start : start + step] @ widen(array.T[start : start + step])
        return out
    step = max(1, BLOCK // max(d, 1))
    for start in range(0, n, step):
        rows = widen(array[start : start + step])  # (step × d)
        out[:, start : start + step] = vectors @ rows.T
    return out
