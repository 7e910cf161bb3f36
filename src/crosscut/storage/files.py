"""One file: written to a temporary sibling, synced, renamed, and the folder around it synced. And one lock."""

from __future__ import annotations

import contextlib
import errno
import io
import json
import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any
from uuid import uuid4

import numpy as np
import numpy.typing as npt

from crosscut.errors import LockedError, WriteError

TEMPORARY = ".tmp"
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_FORBIDDEN = (errno.EROFS, errno.EACCES, errno.EPERM)


@contextlib.contextmanager
def writing(place: Path, unharmed: str = "what was there before is unharmed") -> Iterator[None]:
    """A sentence for what the operating system refuses to write."""
    try:
        yield
    except WriteError:
        raise
    except OSError as error:
        said = error.strerror or str(error)
        if error.errno in _FULL:
            message = f"no room to write to {str(place)!r} ({said}); {unharmed}: make room and run the same again"
        elif error.errno in _FORBIDDEN:
            message = (
                f"{str(place)!r} cannot be written to ({said}); {unharmed}: allow writing there, or choose another"
            )
        else:
            message = f"writing to {str(place)!r} failed ({said}); {unharmed}: run the same again"
        raise WriteError(message) from error


def write_file(path: str | Path, chunks: Iterable[bytes | memoryview]) -> None:
    """Make a file hold these bytes, all of them or none."""
    target = Path(path)
    temporary = target.with_name(f"{target.name}.{uuid4().hex[:12]}{TEMPORARY}")
    with writing(target.parent):
        try:
            make_folder(target.parent)
            write_synced(temporary, chunks)
            os.replace(temporary, target)
        finally:
            with contextlib.suppress(OSError):
                temporary.unlink()
    with writing(target.parent, f"{target.name} is new, and may be gone after a power failure"):
        sync(target.parent)


def write_json(path: str | Path, value: Any) -> None:
    """Write JSON so that a reader never sees half of it."""
    write_file(path, [(json.dumps(value, indent=1, ensure_ascii=False) + "\n").encode()])


def write_arrays(path: str | Path, arrays: Mapping[str, npt.NDArray[Any]]) -> None:
    """Write an .npz so that a reader never sees half of it."""
    packed = io.BytesIO()
    np.savez_compressed(packed, allow_pickle=False, **arrays)
    write_file(path, [packed.getbuffer()])


def make_folder(path: Path) -> None:
    """A folder and those above it, synced; nothing if it is there."""
    if not path.is_dir():
        make_folder(path.parent)
        path.mkdir(exist_ok=True)
        sync(path.parent)


def regular(path: Path) -> Path:
    """This path, if what is there comes to an end: pipes and devices, which may not, are an OSError."""
    if path.exists() and not path.is_file():
        raise OSError(errno.EINVAL, "it is no file")
    return path


def sync(path: Path) -> None:
    """Wait until the disk has a file, or the names in a folder."""
    if os.name == "nt" and path.is_dir():
        return  # Windows cannot open a folder
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def write_synced(path: Path, chunks: Iterable[bytes | memoryview]) -> None:
    """A new file, on the disk when this returns."""
    with path.open("xb") as file:
        for chunk in chunks:
            file.write(chunk)
        file.flush()
        os.fsync(file.fileno())


class Lock:
    """The right to change a folder: of one process, until it is released or the process ends."""

    def __init__(self, folder: Path, what: str = "folder", *, name: str = "lock", wait: bool = False) -> None:
        from filelock import FileLock, Timeout

        path = folder / name
        with writing(folder):
            make_folder(folder)
            self._lock = FileLock(path, thread_local=False)
            try:
                self._lock.acquire(blocking=wait)
            except Timeout:
                holder = ""
                with contextlib.suppress(OSError):
                    holder = path.read_text(encoding="utf-8", errors="replace")[:32].strip()
                raise LockedError(
                    f"the {what} at {str(folder)!r} is being changed by another process"
                    f"{f' ({holder})' if holder else ''}; wait until it has saved, then load the {what} again"
                ) from None
        with contextlib.suppress(OSError):  # who holds it, for the sentence above
            path.write_text(f"process {os.getpid()}", encoding="utf-8")

    def release(self) -> None:
        self._lock.release(force=True)

    def __enter__(self) -> Lock:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()
