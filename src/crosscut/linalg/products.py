"""Products of item vectors and query vectors, at the speed of reading the item vectors, and work shared over cores.

BLAS with threads of its own reads row-major vectors at two thirds of the memory's speed for one query, its idle threads
spin beside whatever follows, and on a busy machine they wait for each other many times as long as one thread takes. So
cores are shared out here: a thread takes a block of items and either a compiled dot product per row (one query), or
BLAS on one thread (a batch). And numpy widens float16 one number at a time, ten times slower than memory: here float16
is widened by the processor's own instruction, in the dot product itself or block by block into a buffer that BLAS then
takes.

Loading a compiled loop takes half a second, once. A process that makes a few products and ends says so (`few`), and
float16 is then widened by shifting bits, three times slower.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from functools import cache
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from crosscut.errors import InputError
from crosscut.linalg.blas import one_thread
from crosscut.threads import after_fork, cores
from crosscut.types import Floats

Part = TypeVar("Part")
Result = TypeVar("Result")

BLOCK = 1 << 18  # numbers widened at a time: 1 MiB of float32
NAME = "crosscut-product"  # of threads
SMALL = 1 << 20  # up to this many numbers, handing work to other threads takes longer than the work
LARGE = 1 << 23  # from this many numbers on, work on several queries is shared out
LIMITED = 1 << 18  # from this many numbers on, BLAS would split one query over its threads: limit it to one
COMPILED = 1 << 19  # from this many float32 numbers on, one query is worth loading a compiled loop
COMPILED_FOR_FEW = 1 << 25  # and this many numbers, where there will be few products
ALONE = 1 << 24  # up to this many numbers, one core is as fast with one query as all of them


_users_of_few: list[None] = []  # an entry for each that is within `few`


@contextmanager
def few() -> Iterator[None]:
    """Within it few products are made, in any thread: compiled loops are loaded only for large arrays."""
    _users_of_few.append(None)
    try:
        yield
    finally:
        _users_of_few.pop()


def _compiled(array: npt.NDArray[Any]) -> bool:
    """Whether products with this array are worth a compiled loop."""
    half = array.dtype == np.float16
    least = COMPILED_FOR_FEW if _users_of_few else 0 if half else COMPILED
    return (half or array.dtype == np.float32) and array.size >= least


def product(array: npt.NDArray[Any], queries: Floats) -> npt.NDArray[Any]:
    """(q × d) query vectors times item vectors (n × d) → (q × n)."""
    if queries.shape[1] != array.shape[1]:
        raise InputError(f"query vectors have {queries.shape[1]} dimensions, item vectors {array.shape[1]}")
    half = array.dtype == np.float16
    vectors = queries.astype(np.float32 if half else array.dtype, copy=False)
    if len(vectors) == 1 and _compiled(array) and array.flags.c_contiguous:
        return _one_query(array, vectors[0])[None, :]
    if half and array.flags.f_contiguous and not array.flags.c_contiguous:
        return _widened_columns(array, vectors)
    if not half and len(vectors) == 1:
        # numpy has reported "invalid" of finite numbers, too: once in 200,000 products on a busy machine
        with one_thread() if array.size >= LIMITED else nullcontext(), np.errstate(invalid="ignore"):
            return np.asarray(array @ vectors[0])[None, :]
    return _many_queries(array, vectors)


def _one_query(array: npt.NDArray[Any], vector: npt.NDArray[Any]) -> npt.NDArray[np.float32]:
    from crosscut.linalg import kernels

    out = np.empty(len(array), dtype=np.float32)
    values: npt.NDArray[Any] = array.view(np.uint16) if array.dtype == np.float16 else array
    if array.size < ALONE:
        kernels.dot(values, vector, out)
        return out
    workers = cores()
    step = -(-len(array) // (4 * workers))  # a few pieces each, so that a slow core does not hold up the rest
    pieces = [slice(start, start + step) for start in range(0, len(array), step)]
    share(lambda piece: kernels.dot(values[piece], vector, out[piece]), pieces)
    return out


def _many_queries(array: npt.NDArray[Any], vectors: npt.NDArray[Any]) -> npt.NDArray[Any]:
    n, d = array.shape
    out = np.empty((len(vectors), n), dtype=vectors.dtype)
    block = BLOCK if array.dtype == np.float16 else 16 * BLOCK  # numbers

    wide = widen if _compiled(array) else _shifted

    def part(start: int) -> None:
        rows = array[start : start + step]
        np.matmul(vectors, (wide(rows) if rows.dtype == np.float16 else rows).T, out=out[:, start : start + step])

    step = max(1, block // max(d, 1))
    with one_thread():
        share(part, range(0, n, step))
    return out


def add(total: npt.NDArray[Any], part: npt.NDArray[Any]) -> None:
    """total += part, (q × n), the queries over all cores."""
    if total.size < SMALL:
        total += part
    else:
        share(lambda row: np.add(total[row], part[row], out=total[row]), range(len(total)))


@cache
def pool() -> ThreadPoolExecutor:
    """Threads for compiled loops, one a core."""
    return ThreadPoolExecutor(cores(), thread_name_prefix=NAME)


after_fork(pool.cache_clear)  # a child makes its own


def share(work: Callable[[Part], Result], parts: Sequence[Part]) -> list[Result]:
    """`work` of every part, in order, over all cores; what is shared already is not shared again."""
    inside = threading.current_thread().name.startswith(NAME)
    if len(parts) < 2 or cores() == 1 or inside:
        return [work(part) for part in parts]
    return list(pool().map(work, parts))


def prepare(array: npt.NDArray[Any]) -> None:
    """Load the compiled loops that products with this array will need, before a search is being timed."""
    if _compiled(array):
        from crosscut.linalg import kernels

        kernels.warm(array.dtype)


def widen(block: npt.NDArray[np.float16]) -> npt.NDArray[np.float32]:
    """A float16 array as float32, exactly."""
    from crosscut.linalg import kernels

    bits = np.ascontiguousarray(block).view(np.uint16).reshape(-1)
    out = np.empty(bits.size, dtype=np.float32)
    kernels.widen(bits, out)
    return out.reshape(block.shape)


def _shifted(block: npt.NDArray[np.float16]) -> npt.NDArray[np.float32]:
    """The same of finite numbers, without a compiled loop: bits are shifted into place, then × 2¹¹²."""
    bits = np.ascontiguousarray(block).view(np.int16).astype(np.int32)
    bits <<= 13
    bits &= np.int32(-0x70002000)  # sign, exponent and fraction, without the copies of the sign
    wide = bits.view(np.float32)
    wide *= np.float32(2.0**112)
    return wide


def _widened_columns(array: npt.NDArray[Any], vectors: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    """Items in columns (Rᵀ): whole rows of R are widened."""
    n, d = array.shape
    out = np.zeros((len(vectors), n), dtype=np.float32)
    step = max(1, BLOCK // max(n, 1))
    wide = widen if _compiled(array) else _shifted
    with one_thread():
        for start in range(0, d, step):
            out += vectors[:, start : start + step] @ wide(array.T[start : start + step])
    return out
