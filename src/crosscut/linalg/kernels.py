"""Compiled inner loops; importing this module loads numba."""

from __future__ import annotations

import platform
from collections.abc import Callable
from functools import cache, partial
from typing import Any, Literal, TypeVar

import llvmlite.binding
import numba
import numpy as np
import numpy.typing as npt
from llvmlite import ir
from numba.extending import intrinsic

F = TypeVar("F", bound=Callable[..., Any])
REBIAS = np.float32(2.0**112)  # between the exponents of float16 and float32


def compiled(*, inline: Literal["never", "always"] = "never", fastmath: bool = False) -> Callable[[F], F]:
    """Compile without the interpreter lock, and keep the result on disk where there is a place for it."""

    def compile(function: F) -> Any:
        make = partial(numba.njit, nogil=True, inline=inline, fastmath=fastmath)
        try:
            return _forgiving(make(cache=True)(function))
        except RuntimeError:  # no writable place for a cache
            return make()(function)

    return compile


def _forgiving(dispatcher: Any) -> Any:
    """One that compiles anew where what it kept names a class that is not there any more.

    numba reads what an older version has left before it looks whether that is out of date.
    """
    kept = getattr(dispatcher._cache, "_cache_file", None)
    if kept is not None:
        load = kept._load_index

        def load_index() -> Any:
            try:
                return load()
            except (AttributeError, ImportError):
                return {}

        kept._load_index = load_index
    return dispatcher


@cache
def _converts_halves() -> bool:
    """Whether the processor widens float16 by itself: every one but the oldest of x86."""
    if platform.machine().lower() not in ("x86_64", "amd64"):
        return platform.machine().lower() in ("aarch64", "arm64")
    return bool(llvmlite.binding.get_host_cpu_features().get("f16c", False))


@intrinsic
def _wide(typing_context: Any, number: Any) -> Any:
    """float32 as it is; the 16 bits of a float16 as float32, exactly. A loop over it becomes SIMD instructions."""
    half = number == numba.types.uint16

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        if not half:
            return arguments[0]
        if _converts_halves():
            return builder.fpext(builder.bitcast(arguments[0], ir.HalfType()), ir.FloatType())
        # shift into place, then × 2¹¹²
        bits = builder.zext(arguments[0], ir.IntType(32))
        sign = builder.shl(builder.and_(bits, bits.type(0x8000)), bits.type(16))
        rest = builder.shl(builder.and_(bits, bits.type(0x7FFF)), bits.type(13))
        value = builder.bitcast(builder.or_(sign, rest), ir.FloatType())
        return builder.fmul(value, value.type(float(REBIAS)))

    return numba.types.float32(numba.types.uint16 if half else numba.types.float32), generate


wide: Any = _wide


@compiled(fastmath=True)
def dot(array: npt.NDArray[Any], vector: npt.NDArray[np.float32], out: npt.NDArray[np.float32]) -> None:
    """out[i] = array[i] · vector; the array is float32, or the bits of float16.

    Four rows at a time, far apart: memory serves several streams faster than one.
    """
    n, d = array.shape
    far = n // 4
    for i in range(far):
        first = second = third = fourth = np.float32(0)
        for j in range(d):
            weight = vector[j]
            first += wide(array[i, j]) * weight
            second += wide(array[far + i, j]) * weight
            third += wide(array[2 * far + i, j]) * weight
            fourth += wide(array[3 * far + i, j]) * weight
        out[i], out[far + i], out[2 * far + i], out[3 * far + i] = first, second, third, fourth
    for i in range(4 * far, n):
        total = np.float32(0)
        for j in range(d):
            total += wide(array[i, j]) * vector[j]
        out[i] = total


@compiled(fastmath=True)
def distance(array: npt.NDArray[Any], vector: npt.NDArray[np.float32], out: npt.NDArray[np.float32]) -> None:
    """out[i] = −‖array[i] − vector‖²."""
    for i in range(array.shape[0]):
        total = np.float32(0)
        for j in range(array.shape[1]):
            difference = wide(array[i, j]) - vector[j]
            total += difference * difference
        out[i] = -total


@compiled()
def widen(bits: npt.NDArray[np.uint16], out: npt.NDArray[np.float32]) -> None:
    """float16 bits → float32."""
    for i in range(bits.size):
        out[i] = wide(bits[i])


@cache
def warm(dtype: np.dtype[Any]) -> None:
    """Compile, or load from the cache, the loop of flat search over vectors of this type; each takes time."""
    out = np.zeros(1, dtype=np.float32)
    dot(np.zeros((1, 1), dtype=np.uint16 if dtype == np.float16 else np.float32), out, out)
