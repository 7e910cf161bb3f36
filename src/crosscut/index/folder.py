"""An index on disk.

    my.index/
      index.json        the manifest: format, version, generation, scorer, encoder, settings, and for every file of the
                        generation its size and BLAKE2b checksum
      lock              held by the process that is changing the index
      000007/           one generation
        items.jsonl         one object a line: id, title, text, metadata
        alive.npy           (n) bool: False where an item was removed
        vectors.npy         (n × d) float16 or float32, memory-mapped when loaded
        centroids.npy, home.npy     of a large index: (lists × d) centroids of its vectors, (n) the list of each
        anchors.npy         (k_q × n) scores of the anchor queries, memory-mapped when loaded
        measured.npy        (n) bool: False where a column of anchors is an estimate
        queries.jsonl       the anchor queries, one JSON string a line
        bm25.json, bm25-*.npy   counts of words
        factors/            of a sparse score matrix: factors.json, items.npy, queries.npy, mlp.npz if inductive

A save writes a new generation beside the old one, then replaces index.json in one step, then deletes the old one. Who
is killed on the way leaves the old index as it was.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from crosscut.errors import CrosscutError, InputError, LockedError

FORMAT = "crosscut index"
VERSION = 1
MANIFEST = "index.json"


class WriteError(CrosscutError, OSError):
    """An index could not be written; what was on disk before is still there."""


def write(folder: Path, manifest: dict[str, Any], fill: Callable[[Path], None]) -> int:
    """Make `folder` hold a new generation: `fill(directory)` writes its files. Returns its number."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        occupied = [path.name for path in folder.iterdir() if path.name != "lock"]
        if occupied and MANIFEST not in occupied and any(not name.isdigit() for name in occupied):
            raise InputError(
                f"{str(folder)!r} holds something else ({', '.join(sorted(occupied)[:3])} …); save to an empty folder"
            )
        old = [int(path.name) for path in folder.iterdir() if path.name.isdigit()]
        generation = max(old, default=0) + 1
        home = folder / f"{generation:06d}"
        try:
            home.mkdir()
            fill(home)
            written = sorted(path for path in home.rglob("*") if path.is_file())
            files = {path.relative_to(home).as_posix(): _described(path) for path in written}
            whole = {"format": FORMAT, "version": VERSION, "generation": generation, **manifest, "files": files}
            for path in (*written, *{path.parent for path in written}):
                _sync(path)
            temporary = home / MANIFEST
            temporary.write_text(json.dumps(whole, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
            _sync(temporary)
            os.replace(temporary, folder / MANIFEST)
            _sync(folder)
        except BaseException:
            shutil.rmtree(home, ignore_errors=True)
            raise
    except OSError as error:
        full = "; the disk is full" if error.errno == errno.ENOSPC else ""
        raise WriteError(
            f"the index could not be saved to {str(folder)!r} ({error.strerror or error}{full}); "
            "what was there before is unchanged"
        ) from error
    for number in old:
        shutil.rmtree(folder / f"{number:06d}", ignore_errors=True)
    return generation


def read(folder: Path, *, verify: bool = True) -> tuple[dict[str, Any], Path]:
    """The manifest and the directory of its generation; every file is there and, with `verify`, unchanged."""
    manifest, home = _manifest(folder)
    for name, told in manifest["files"].items():
        file = home / name
        size = file.stat().st_size if file.is_file() else None
        if size != told["bytes"]:
            if _manifest(folder)[0]["generation"] != manifest["generation"]:
                return read(folder, verify=verify)  # somebody saved meanwhile
            state = "is missing" if size is None else f"has {size} bytes instead of {told['bytes']}"
            raise InputError(f"the index at {str(folder)!r} is damaged: {name} {state}; build it again")
        if verify and _checksum(file) != told["blake2b"]:
            raise InputError(
                f"the index at {str(folder)!r} is damaged: {name} does not match its checksum; build it again"
            )
    return manifest, home


def _manifest(folder: Path) -> tuple[dict[str, Any], Path]:
    path = folder / MANIFEST
    if not folder.is_dir():
        raise InputError(f"there is no index at {str(folder)!r}")
    try:
        manifest = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise InputError(f"{str(folder)!r} is no crosscut index: it has no {MANIFEST}") from None
    except (OSError, ValueError) as error:
        raise InputError(f"{str(path)!r} cannot be read ({error}); restore the index or build it again") from error
    if not isinstance(manifest, dict) or manifest.get("format") != FORMAT:
        raise InputError(f"{str(folder)!r} is no crosscut index: its {MANIFEST} belongs to something else")
    if manifest.get("version") != VERSION:
        raise InputError(
            f"the index at {str(folder)!r} has version {manifest.get('version')}, this crosscut reads {VERSION}; "
            "update crosscut or build the index again"
        )
    return manifest, folder / f"{manifest['generation']:06d}"


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[int]:
    handle = os.open(path, os.O_RDONLY)
    try:
        yield handle
    finally:
        os.close(handle)


def _sync(path: Path) -> None:
    with _opened(path) as handle:
        os.fsync(handle)


def _checksum(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, lambda: hashlib.blake2b(digest_size=16)).hexdigest()


def _described(path: Path) -> dict[str, Any]:
    return {"bytes": path.stat().st_size, "blake2b": _checksum(path)}


class Lock:
    """The right to change an index folder: held by one process until released or the process ends."""

    def __init__(self, folder: Path) -> None:
        import fcntl

        folder.mkdir(parents=True, exist_ok=True)
        self._handle = os.open(folder / "lock", os.O_RDWR | os.O_CREAT, 0o644)
        try:
            fcntl.flock(self._handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            holder = os.read(self._handle, 32).decode(errors="replace").strip()
            os.close(self._handle)
            raise LockedError(
                f"the index at {str(folder)!r} is being changed by another process"
                f"{f' ({holder})' if holder else ''}; wait until it has saved, then load the index again"
            ) from None
        os.ftruncate(self._handle, 0)
        os.write(self._handle, f"process {os.getpid()}".encode())

    def release(self) -> None:
        if self._handle >= 0:
            os.close(self._handle)
            self._handle = -1
