"""The files of one generation of a folder (`folders.py`): written with checksums on the way, and read with checks.

Every MiB of a file has a BLAKE2b checksum of its own. Sizes, headers and checksums are compared before a byte is
used, except in large memory maps, which are compared when they are first used: opening gigabytes stays quick.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import itertools
import json
import os
import shutil
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, BinaryIO, Literal, TypeVar

import numpy as np
import numpy.typing as npt

from crosscut.errors import FolderError, InputError
from crosscut.storage.files import regular, sync, write_synced
from crosscut.storage.touched import Touched
from crosscut.threads import cores
from crosscut.types import Array

T = TypeVar("T")
Bytes = npt.NDArray[np.uint8]
BLOCK = 1 << 20
HERE_AND_THERE = 1 << 16
"""Bytes of a block in files of which a search reads little pieces: a whole block is compared for each."""
WILD = 1e18
"""Numbers of more than this are none that a model, or a mean of vectors, comes to."""
LATER = 1 << 26
"""Memory maps of more bytes than this are compared with their checksums when they are first used, not when opened."""


class Files:
    """The files of a generation while they are written; checksums are made on the way."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.told: dict[str, dict[str, Any]] = {}

    def write(self, name: str, chunks: Iterable[bytes | memoryview], *, block: int | None = None) -> None:
        """A file, with a checksum for every `block` bytes."""
        step = block or BLOCK
        size, digests = 0, [digest()]

        def counted() -> Iterator[bytes | memoryview]:
            nonlocal size
            for chunk in chunks:
                yield chunk
                rest = memoryview(chunk)
                while len(rest):
                    if size and not size % step:
                        digests.append(digest())
                    part = rest[: step - size % step]
                    digests[-1].update(part)
                    size += len(part)
                    rest = rest[len(part) :]

        write_synced(self.home / name, counted())
        told = {"bytes": size, "blake2b": [digest.hexdigest() for digest in digests]}
        self.told[name] = told if block is None else {"block": block, **told}

    def keep(self, name: str, saved: Saved) -> None:
        """A file of an older generation, as it is: a second name for it, where the file system has such, or a copy.

        Its checksums are those it had: damage is not covered up.
        """
        source = saved.home / name
        try:
            os.link(source, self.home / name)
        except OSError:
            shutil.copyfile(source, self.home / name)
            sync(self.home / name)
        self.told[name] = {"block": saved.block, **saved.files[name]}

    def rows(
        self,
        name: str,
        kind: npt.DTypeLike,
        shape: tuple[int, ...],
        chunks: Iterable[Array],
        *,
        scattered: bool = False,
    ) -> None:
        """`<name>.npy` from some rows after others; `scattered`: it will be read in little pieces."""
        dtype = np.dtype(kind).newbyteorder("<")
        parts = (np.ascontiguousarray(chunk, dtype).reshape(-1).view(np.uint8).data for chunk in chunks)
        block = min(BLOCK, HERE_AND_THERE) if scattered else None
        self.write(f"{name}.npy", itertools.chain([npy_header(dtype, shape)], parts), block=block)

    def array(self, name: str, array: Array, *, scattered: bool = False) -> None:
        """`<name>.npy`: C order, little-endian."""
        self.rows(name, array.dtype, array.shape, [array], scattered=scattered)

    def json(self, name: str, value: Any) -> None:
        self.write(f"{name}.json", [json.dumps(value).encode()])

    def lines(self, name: str, values: Iterable[Any]) -> None:
        """`<name>.jsonl`: one JSON value a line."""
        self.write(f"{name}.jsonl", ((json.dumps(value, ensure_ascii=False) + "\n").encode() for value in values))


def npy_header(dtype: np.dtype[Any], shape: tuple[int, ...]) -> bytes:
    """What stands before the numbers in a `.npy` file of C order."""
    heading = io.BytesIO()
    described = {"descr": np.lib.format.dtype_to_descr(dtype), "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_1_0(heading, described)
    return heading.getvalue()


class Unread:
    """Maps that were opened and not compared with their checksums yet. `check` comes before their first use."""

    def __init__(self) -> None:
        self._waiting: list[Callable[[], None]] = []
        self._lock = threading.Lock()

    def add(self, compare: Callable[[], None]) -> None:
        self._waiting.append(compare)

    def check(self) -> None:
        """Compare what was not compared before; damage is an InputError, now and every further time."""
        if self._waiting:
            with self._lock:
                while self._waiting:
                    self._waiting[-1]()
                    self._waiting.pop()


class Saved:
    """A generation that is read. Nothing leaves here that does not match size, header and checksum.

    Memory maps of more than `LATER` bytes are the exception: `unread.check()` compares them.
    """

    def __init__(self, path: Path, noun: str, remedy: str, record: dict[str, Any], verify: bool) -> None:
        self.facts = record
        self.unread = Unread()
        self._told = f"the {noun} at {str(path)!r} is damaged", remedy
        self.home = path / str(record["folder"])
        self.files: dict[str, dict[str, Any]] = record["files"]
        self.block = int(record["block"])
        self._verify = verify
        for name, about in self.files.items():
            if Path(name).name != name:
                raise self.damaged(repr(name), "is not in its folder")
            if not (int(about["bytes"]) >= 0 < self._block_of(name) and isinstance(about["blake2b"], list)):
                raise self.damaged(name, "is not described")

    def __contains__(self, name: str) -> bool:
        return name in self.files

    @property
    def names(self) -> list[str]:
        return list(self.files)

    @property
    def gone(self) -> bool:
        """Whether files of it are no longer there: a newer generation has taken its place."""
        return not all((self.home / name).exists() for name in self.files)

    def damaged(self, name: str, what: str) -> FolderError:
        """The sentence for a file that cannot be used."""
        return FolderError(f"{self._told[0]}: {name} {what}; {self._told[1]}")

    @contextlib.contextmanager
    def _opened(self, name: str) -> Iterator[BinaryIO]:
        """A file of the right size."""
        wanted = self.files[name]["bytes"] if name in self.files else None
        try:
            with regular(self.home / name).open("rb") as file:
                size = os.fstat(file.fileno()).st_size
                if wanted is None or size != wanted:
                    raise self.damaged(name, f"has {size} bytes instead of {wanted}" if wanted else "is not listed")
                yield file
        except FileNotFoundError:
            raise self.damaged(name, "is missing") from None
        except OSError as error:
            raise self.damaged(name, f"cannot be read ({error.strerror or error})") from error

    def _compare(self, name: str, data: Bytes, first: int = 0, last: int | None = None) -> None:
        """Compare blocks of a file with their checksums, in several threads if there are many."""
        told, block = self.files[name]["blake2b"], self._block_of(name)
        numbers = range(first, len(told) if last is None else last)

        def right(number: int) -> bool:
            return bool(digest(data[number * block : (number + 1) * block].data).hexdigest() == told[number])

        if len(told) != max(1, -(-len(data) // block)):
            raise self.damaged(name, f"has {len(told)} checksums for {len(data)} bytes")
        if len(numbers) < 4:
            fine = all(map(right, numbers))
        else:
            with ThreadPoolExecutor(cores()) as pool:
                fine = all(pool.map(right, numbers))
        if not fine:
            raise self.damaged(name, "does not match its checksum")

    def _block_of(self, name: str) -> int:
        """Bytes of a block; a file that was kept from an older generation may have its own, and so may one that is read
        here and there."""
        return int(self.files[name].get("block", self.block))

    def bytes(self, name: str) -> Bytes:
        """A whole file."""
        with self._opened(name) as file:
            data: Bytes = np.fromfile(file, np.uint8)
        if self._verify:
            self._compare(name, data)
        return data

    def text(self, name: str) -> str:
        return self._meant(name, lambda: self.bytes(name).tobytes().decode())

    def json(self, name: str) -> Any:
        return self._meant(name, lambda: json.loads(self.text(f"{name}.json")))

    def lines(self, name: str) -> list[Any]:
        return self._meant(name, lambda: _lines(self.text(f"{name}.jsonl").split("\n")[:-1]))

    def _meant(self, name: str, read: Callable[[], T]) -> T:
        try:
            return read()
        except InputError:
            raise
        except (ValueError, RecursionError) as error:
            raise self.damaged(name, f"cannot be read ({error})") from error

    def array(
        self, name: str, kinds: str, shape: tuple[int | None, ...], *, mapped: Literal["r", "c"] | None = None
    ) -> Array:
        """`<name>.npy`, whose dtype is one of the `kinds` ("<f2 <f4") and whose shape is as told, None: any.

        `mapped` is the mode of a memory map: read-only, or copy-on-write where compiled code wants a writable array.
        """
        name = f"{name}.npy"
        data, _, array = self._array(name, kinds, shape, mapped)
        if self._verify and mapped and len(data) > LATER:
            self.unread.add(lambda: self._compare(name, data, first=1))
        elif self._verify:
            self._compare(name, data, first=1)
        return array

    def numbers(self, name: str, kinds: str, shape: tuple[int | None, ...]) -> Array:
        """The same of a small array, whose numbers are looked at: no NaN, and none too large to calculate with."""
        array = self.array(name, kinds, shape)
        if array.size and not float(np.abs(array).max()) <= WILD:  # NaN is neither
            raise self.damaged(f"{name}.npy", "holds NaN, infinities or numbers too large to calculate with")
        return array

    def touched(self, name: str, kinds: str, shape: tuple[int | None, ...]) -> Touched:
        """The same as a map whose blocks are compared when they are first read; a small one is compared now."""
        name = f"{name}.npy"
        data, offset, array = self._array(name, kinds, shape, "c")
        if self._verify and len(data) <= LATER:
            self._compare(name, data, first=1)
        if not self._verify or len(data) <= LATER:
            return Touched(array)
        return Touched(array, lambda first, last: self._compare(name, data, first, last), offset, self._block_of(name))

    def _array(
        self, name: str, kinds: str, shape: tuple[int | None, ...], mapped: Literal["r", "c"] | None
    ) -> tuple[Bytes, int, Array]:
        """The bytes of a file, and the array in them, of which only the header was compared."""
        with self._opened(name) as file:
            data: Bytes = np.memmap(file, np.uint8, mode=mapped) if mapped else np.fromfile(file, np.uint8)
            if self._verify:
                self._compare(name, data, last=1)  # the header, before it is believed
            offset, dtype, found = self._meant(name, lambda: _header(file))
        if dtype.str not in kinds.split() or len(found) != len(shape):
            raise self.damaged(name, f"holds {dtype.str} of shape {found} instead of {kinds} of {shape}")
        if any(want not in (None, size) for want, size in zip(shape, found, strict=True)):
            raise self.damaged(name, f"has shape {found} instead of {shape}")
        if offset % 16 or offset + dtype.itemsize * int(np.prod(found, dtype=object)) != len(data):
            raise self.damaged(name, f"has {len(data)} bytes, and {dtype} of shape {found} needs another number")
        return data, offset, data[offset:].view(dtype).reshape(found)


def _header(file: BinaryIO) -> tuple[int, np.dtype[Any], tuple[int, ...]]:
    file.seek(0)
    version = np.lib.format.read_magic(file)
    if version != (1, 0):
        raise ValueError(f"npy version {version}")
    shape, fortran, dtype = np.lib.format.read_array_header_1_0(file)
    if fortran or dtype.hasobject:
        raise ValueError(f"npy of {dtype}, {'Fortran' if fortran else 'C'} order")
    return file.tell(), dtype, shape


def divides(starts: Array, total: int) -> bool:
    """Whether these say where each part of `total` things begins, and the last one ends: compiled code goes by them.

    They are compared, not subtracted: differences of numbers that wrap around would be fine.
    """
    return bool(starts[0] == 0 and starts[-1] == total and (starts[1:] >= starts[:-1]).all())


def digest(data: bytes | memoryview = b"") -> Any:
    """The checksum that everything here goes by: BLAKE2b, 16 bytes."""
    return hashlib.blake2b(data, digest_size=16)


def _lines(lines: list[str]) -> list[Any]:
    """The value of every line, all read at once: half the time of one after another."""
    values: list[Any] = json.loads(f"[{','.join(lines)}]")
    if len(values) != len(lines):
        raise ValueError(f"{len(lines)} lines hold {len(values)} values")
    return values
