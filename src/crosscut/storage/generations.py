"""The files of a generation of a folder (`folders.py`), and of its parts: written with checksums, read with checks."""

from __future__ import annotations

import contextlib
import hashlib
import io
import itertools
import json
import os
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, BinaryIO, TypeVar
from uuid import uuid4

import numpy as np
import numpy.typing as npt

from crosscut.errors import FolderError, InputError
from crosscut.storage.files import regular, sync, write_synced
from crosscut.types import Array

T = TypeVar("T")
MARK = ".crosscut"
SMALL = 1 << 20
"""Bytes up to which a file is read, and compared with its checksum, on load; a larger one is mapped."""
READ = 1 << 22
WILD = 1e18
"""Numbers of more than this are none that a model, or a mean of vectors, comes to."""


class Files:
    """The files of a generation, or of a part of it, while they are written."""

    def __init__(self, home: Path, mark: bytes) -> None:
        self.home, self._mark = home, mark
        self.described: dict[str, dict[str, Any]] = {}
        self.parts: dict[str, dict[str, dict[str, Any]]] = {}
        """Of the other folders that the generation needs: name → files."""
        home.mkdir()
        write_synced(home / MARK, [mark])

    def part(self) -> Files:
        """Return a new folder beside this one, which later generations may keep as it is."""
        number = self.home.name.partition("-")[0]
        part = Files(self.home.with_name(f"{number}-{uuid4().hex[:8]}"), self._mark)
        self.parts[part.home.name] = part.described
        return part

    def keep(self, part: Saved) -> None:
        """Use a part of an earlier generation."""
        self.parts[part.home.name] = part.files

    def close(self) -> None:
        """Wait until the names are on the disk."""
        for name in (self.home.name, *self.parts):
            sync(self.home.with_name(name))

    def write(self, name: str, chunks: Iterable[bytes | memoryview]) -> None:
        checksum, size = digest(), 0

        def counted() -> Iterator[bytes | memoryview]:
            nonlocal size
            for chunk in chunks:
                checksum.update(chunk)
                size += memoryview(chunk).nbytes
                yield chunk

        write_synced(self.home / name, counted())
        self.described[name] = {"bytes": size, "blake2b": checksum.hexdigest()}

    def rows(self, name: str, kind: npt.DTypeLike, shape: tuple[int, ...], chunks: Iterable[Array]) -> None:
        """Write `<name>.npy` from some rows after others: C order, little-endian."""
        dtype = np.dtype(kind).newbyteorder("<")
        parts = (np.ascontiguousarray(chunk, dtype).reshape(-1).view(np.uint8).data for chunk in chunks)
        self.write(f"{name}.npy", itertools.chain([npy_header(dtype, shape)], parts))

    def array(self, name: str, array: Array) -> None:
        self.rows(name, array.dtype, array.shape, [array])

    def json(self, name: str, value: Any) -> None:
        self.write(f"{name}.json", [json.dumps(value).encode()])

    def lines(self, name: str, values: Iterable[Any]) -> None:
        """Write `<name>.jsonl`: one JSON value a line."""
        self.write(f"{name}.jsonl", ((json.dumps(value, ensure_ascii=False) + "\n").encode() for value in values))


def npy_header(dtype: np.dtype[Any], shape: tuple[int, ...]) -> bytes:
    """The bytes before the numbers in a `.npy` file of C order."""
    heading = io.BytesIO()
    described = {"descr": np.lib.format.dtype_to_descr(dtype), "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_1_0(heading, described)
    return heading.getvalue()


class Saved:
    """A generation that is read, or a part of one. Nothing leaves here that does not fit its size and header."""

    def __init__(self, path: Path, noun: str, remedy: str, record: dict[str, Any], every: bool, part: str = "") -> None:
        self._context = path, noun, remedy, record, every
        self.facts = record
        self.home = path / (part or str(record["folder"]))
        self.files: dict[str, dict[str, Any]] = record["parts"][part] if part else record["files"]
        for name, described in self.files.items():
            if Path(name).name != name:
                raise self.damaged(repr(name), "is not in its folder")
            if not int(described["bytes"]) >= 0:
                raise self.damaged(name, "is not described")

    def __contains__(self, name: str) -> bool:
        return name in self.files

    @property
    def parts(self) -> list[Saved]:
        """The other folders that the generation needs, in the order in which they were written or kept."""
        return [Saved(*self._context, part=name) for name in self.facts["parts"]]

    def damaged(self, name: str, what: str) -> FolderError:
        """The error for a file that cannot be used."""
        path, noun, remedy, *_ = self._context
        return FolderError(f"the {noun} at {str(path)!r} is damaged: {name} {what}; {remedy}")

    @contextlib.contextmanager
    def _opened(self, name: str) -> Iterator[BinaryIO]:
        """A file of the right size; a small one is compared with its checksum."""
        if name not in self.files:
            raise self.damaged(name, "is not listed")
        wanted = self.files[name]["bytes"]
        try:
            with regular(self.home / name).open("rb") as file:
                size = os.fstat(file.fileno()).st_size
                if size != wanted:
                    raise self.damaged(name, f"has {size} bytes instead of {wanted}")
                if size <= SMALL or self._context[-1]:
                    self._compare(name, file)
                yield file
        except FileNotFoundError:
            raise self.damaged(name, "is missing") from None
        except OSError as error:
            raise self.damaged(name, f"cannot be read ({error.strerror or error})") from error

    def _compare(self, name: str, file: BinaryIO) -> None:
        checksum = digest()
        while block := file.read(READ):
            checksum.update(block)
        if checksum.hexdigest() != self.files[name]["blake2b"]:
            raise self.damaged(name, "does not match its checksum")
        file.seek(0)

    def check(self) -> Iterator[str]:
        """Compare every file; yield a sentence for each that does not fit."""
        for name in self.files:
            try:
                with self._opened(name) as file:
                    self._compare(name, file)
            except InputError as error:
                yield str(error)

    def bytes(self, name: str) -> bytes:
        with self._opened(name) as file:
            return file.read()

    def text(self, name: str) -> Array:
        """The bytes of a file as an array (n) of uint8; of a large one a memory map."""
        with self._opened(name) as file:
            large = self.files[name]["bytes"] > SMALL
            data: Array = np.memmap(file, np.uint8, mode="r") if large else np.fromfile(file, np.uint8)
        return data

    def json(self, name: str) -> Any:
        return self._read(name, lambda: json.loads(self.bytes(f"{name}.json")))

    def lines(self, name: str) -> list[Any]:
        return self._read(name, lambda: _lines(self.bytes(f"{name}.jsonl").decode().split("\n")[:-1]))

    def _read(self, name: str, read: Callable[[], T]) -> T:
        try:
            return read()
        except InputError:
            raise
        except (ValueError, RecursionError) as error:
            raise self.damaged(name, f"cannot be read ({error})") from error

    def array(self, name: str, kinds: str, shape: tuple[int | None, ...]) -> Array:
        """`<name>.npy`, whose dtype is one of `kinds` ("<f2 <f4") and whose shape is this, None: any.

        A large one is a memory map: copy-on-write, because compiled code wants a writable array.
        """
        name = f"{name}.npy"
        with self._opened(name) as file:
            offset, dtype, found = self._read(name, lambda: _header(file))
            file.seek(0)
            large = self.files[name]["bytes"] > SMALL
            data: Array = np.memmap(file, np.uint8, mode="c") if large else np.fromfile(file, np.uint8)
        if dtype.str not in kinds.split() or len(found) != len(shape):
            raise self.damaged(name, f"holds {dtype.str} of shape {found} instead of {kinds} of {shape}")
        if any(want not in (None, size) for want, size in zip(shape, found, strict=True)):
            raise self.damaged(name, f"has shape {found} instead of {shape}")
        if offset % 16 or offset + dtype.itemsize * int(np.prod(found, dtype=object)) != len(data):
            raise self.damaged(name, f"has {len(data)} bytes, and {dtype} of shape {found} needs another number")
        return data[offset:].view(dtype).reshape(found)

    def numbers(self, name: str, kinds: str, shape: tuple[int | None, ...]) -> Array:
        """The same of an array whose numbers are looked at: no NaN, and none too large to calculate with."""
        array = self.array(name, kinds, shape)
        if array.size and not float(np.abs(array).max()) <= WILD:  # NaN is neither
            raise self.damaged(f"{name}.npy", "holds NaN, infinities or numbers too large to calculate with")
        return array


def _header(file: BinaryIO) -> tuple[int, np.dtype[Any], tuple[int, ...]]:
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
    """The checksum of everything here: BLAKE2b, 16 bytes."""
    return hashlib.blake2b(data, digest_size=16)


def _lines(lines: list[str]) -> list[Any]:
    """The value of every line, all read at once: half the time of one after another."""
    values: list[Any] = json.loads(f"[{','.join(lines)}]")
    if len(values) != len(lines):
        raise ValueError(f"{len(lines)} lines hold {len(values)} values")
    return values
