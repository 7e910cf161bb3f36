"""One file of a score store: a JSON header and arrays, each with its checksum.

    8 bytes   b"CCSCORE1"
    4 bytes   length of the header, unsigned, little-endian
    4 bytes   CRC-32 of the header
    header    JSON: {"format": 1, …, "arrays": [[name, dtype, shape, CRC-32], …]}
    arrays    one after the other, C order, little-endian

A file is written to a temporary sibling, synced and renamed: it is there as a whole or not at all. It is never changed
afterwards, so readers need no lock; a length or a checksum that does not fit is damage, and is never read past.
"""

from __future__ import annotations

import json
import os
import struct
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any, BinaryIO, TypeAlias

import numpy as np
import numpy.typing as npt

from crosscut.errors import DamagedRecord, StoreError
from crosscut.storage import regular, write_file

MAGIC = b"CCSCORE1"
FORMAT = 1
PREFIX = struct.Struct("<8sII")
SUFFIX = ".scores"
_FIRST_READ = 1 << 14
Check: TypeAlias = Callable[[], None]
"""Raises if something should not be written after all."""


@dataclass(frozen=True, slots=True)
class Damage:
    """A file that cannot be trusted, and why."""

    path: Path
    reason: str

    def __str__(self) -> str:
        return f"{self.path.name}: {self.reason}"


@dataclass(frozen=True, slots=True)
class ScoreFile:
    """An opened file: its header has been checked, its arrays are checked when they are read."""

    path: Path
    header: dict[str, Any]
    layout: dict[str, tuple[int, np.dtype[Any], tuple[int, ...], int]]

    @classmethod
    def open(cls, path: Path) -> ScoreFile:
        """Read and check the header and the length of the file; the arrays stay on disk."""
        with opened(path) as file:
            size = os.fstat(file.fileno()).st_size
            start = file.read(_FIRST_READ)
            if len(start) < PREFIX.size:
                raise DamagedRecord(path, f"{size} bytes long, shorter than any record")
            magic, length, checksum = PREFIX.unpack_from(start)
            if magic != MAGIC:
                if magic[:-1] == MAGIC[:-1] and magic[-1:].isdigit():
                    raise StoreError(
                        f"{str(path)!r} has format {magic[-1:].decode()}, this version reads {FORMAT}; update crosscut"
                    )
                raise DamagedRecord(path, "it does not begin like a record")
            if len(start) < PREFIX.size + length:
                start += file.read(PREFIX.size + length - len(start))
        text = start[PREFIX.size : PREFIX.size + length]
        if len(text) != length or zlib.crc32(text) != checksum:
            raise DamagedRecord(path, "the checksum of the header does not fit")
        layout = {}
        offset = PREFIX.size + length
        with sound(path):
            header = json.loads(text)
            for name, kind, shape, crc in header["arrays"]:
                dtype = np.dtype(kind)
                layout[name] = (offset, dtype, tuple(shape), crc)
                offset += dtype.itemsize * prod(shape)
        if size != offset:
            raise DamagedRecord(path, f"{size} bytes long, and {offset} were written")
        return cls(path, header, layout)

    def read(self, name: str) -> npt.NDArray[Any]:
        """One array, checked."""
        with sound(self.path), opened(self.path) as file:
            offset, dtype, shape, checksum = self.layout[name]
            file.seek(offset)
            data = file.read(dtype.itemsize * prod(shape))
            if len(data) != dtype.itemsize * prod(shape) or zlib.crc32(data) != checksum:
                raise DamagedRecord(self.path, f"the checksum of its {name} does not fit")
            return np.frombuffer(data, dtype).reshape(shape)


@contextmanager
def sound(path: Path) -> Iterator[None]:
    """What is written in a record must fit together: one whose checksums are right may still be a forgery."""
    try:
        yield
    except (LookupError, TypeError, ValueError, ArithmeticError, RecursionError) as error:
        raise DamagedRecord(path, f"what it says does not fit together ({type(error).__name__}: {error})") from error


@contextmanager
def opened(path: Path) -> Iterator[BinaryIO]:
    """A file to read; what the system cannot read is damaged, what is not there is not there."""
    try:
        with regular(path).open("rb") as file:
            yield file
    except FileNotFoundError:
        raise
    except OSError as error:
        raise DamagedRecord(path, f"it cannot be read ({error.strerror or error})") from error


def anyway() -> None:
    """The check of what is written in any case."""


def write_record(
    path: Path, header: Mapping[str, Any], arrays: Mapping[str, npt.NDArray[Any]], check: Check = anyway
) -> None:
    """Write a record as one atomic act; `check` may still call it off, once the temporary file is there for others to
    see and before anything is in it."""
    solid = {name: np.ascontiguousarray(array) for name, array in arrays.items()}
    listed = [[name, array.dtype.str, array.shape, zlib.crc32(array.data)] for name, array in solid.items()]
    text = json.dumps({"format": FORMAT, **header, "arrays": listed}, ensure_ascii=False).encode()
    prefix = PREFIX.pack(MAGIC, len(text), zlib.crc32(text))

    def chunks() -> Iterator[bytes | memoryview]:
        check()
        yield prefix + text
        for array in solid.values():
            yield array.data

    write_file(path, chunks())
