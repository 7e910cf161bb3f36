"""An index built in its folder, item after item: at no time is the corpus, or its vectors, in memory.

A folder beside it, `<folder>.building`, holds what is done:

    .crosscut           says that this folder is ours to delete
    settings.json       what is being built, from what
    done.json           how many items and vectors there are, the length and the checksum of each file, and its own
    items.bin, …        items in the order they came (`Filing`), their vectors

What is written is synced before `done.json` says so. A build that was stopped, by `kill -9` too, goes on from there
when the same is asked for again, and comes to the same index; if a file is damaged, it begins anew. When the index is
written, the folder is deleted.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import shutil
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from crosscut.ann import clustered, clusters
from crosscut.datasets.columnar import Filing, Packed
from crosscut.datasets.columns import ColumnNames
from crosscut.datasets.records import Item
from crosscut.errors import InputError, LockedError
from crosscut.index.build import Brought, as_brought, brought, kept_as, same_space
from crosscut.index.folder import KIND, write_words
from crosscut.index.items import Source, stream
from crosscut.index.metadata import write_columns
from crosscut.index.settings import Settings
from crosscut.linalg.arrays import finite, starts_of
from crosscut.models.bi_encoder import DualEncoder
from crosscut.retrieval.bm25 import BM25
from crosscut.storage import (
    MARK,
    TEMPORARY,
    Files,
    Folder,
    Lock,
    checksum_of,
    digest,
    make_folder,
    put_down,
    sync,
    write_json,
)
from crosscut.types import Array, Positions, Progress

PORTION = 1 << 14  # items between two commits
ENCODED = 1 << 12  # vectors between two commits
BUILDING = ".building"
BLOCK = 1 << 20  # bytes of a file that share a checksum


@dataclass
class StreamedBuild:
    """One build. `run` does what is left of it."""

    path: Path
    source: Source
    columns: ColumnNames
    settings: Settings
    encoder: DualEncoder | None
    vectors: Brought | None
    dtype: npt.DTypeLike
    words: bool
    progress: Progress | None

    def __post_init__(self) -> None:
        self.work = self.path.with_name(self.path.name + BUILDING)
        self.kind = kept_as(self.dtype)
        self._done: dict[str, Any] = {"items": 0, "all": False, "vectors": 0, "files": {}}

    def run(self) -> None:
        """Read, count, encode, lay out and write."""
        if (self.path / KIND.record).exists():
            if _read_json(self.work / "settings.json") == self._inputs():  # stopped after its last step
                clear(self.path)
                return
            raise InputError(f"there is an index at {str(self.path)!r} already: load it and add, or choose another")
        if not _ours(self.work):
            raise InputError(f"{str(self.work)!r}, where it is built, holds something else: choose another folder")
        make_folder(self.path.parent)
        with Lock(self.work, "build"):
            self._resume()
            self._read()
            packed = Filing(self.work).done()
            vectors = self._vectors(packed)
            self._write(packed, vectors)
        clear(self.path)

    def _tell(self, what: str, done: int, total: int) -> None:
        if self.progress is not None:
            self.progress(what, done, total)

    # what is done

    def _inputs(self) -> dict[str, Any]:
        told: dict[str, Any] = {"columns": {name: value for name, value in self.columns.items() if value}}
        if isinstance(self.source, str | Path):
            told["source"] = [str(Path(self.source).resolve()), *_about(Path(self.source))]
        told |= {"encoder": None if self.encoder is None else self.encoder.fingerprint, "dtype": self.kind.str}
        told |= {"words": self.words, "vectors": self.vectors is not None}
        told |= {"passages": None if self.settings.passages is None else asdict(self.settings.passages)}
        return json.loads(json.dumps(told))  # type: ignore[no-any-return]

    def _resume(self) -> None:
        """Go on with what is there, if it is the same build; otherwise begin."""
        settings = self._inputs()
        same = "source" in settings and _read_json(self.work / "settings.json") == settings
        done = self._whole() if same else None
        if done is None:
            (self.work / MARK).touch()
            for path in (*self.work.glob("*.json"), *self.work.glob(f"*{TEMPORARY}")):
                path.unlink()
            write_json(self.work / "settings.json", settings)
        else:
            self._done = done
        for path in self.work.glob("*.bin"):
            if path.name in self._done["files"]:
                os.truncate(path, self._done["files"][path.name]["bytes"])
            else:
                path.unlink()

    def _whole(self) -> dict[str, Any] | None:
        """What `done.json` says, if it and all the files are as it says."""
        told = _read_json(self.work / "done.json")
        done: dict[str, Any] = told if isinstance(told, dict) else {}
        if done.pop("checksum", None) != checksum_of(done):
            return None
        for name, about in done["files"].items():
            path = self.work / name
            if not path.is_file() or path.stat().st_size < about["bytes"] or _told(path, about["bytes"]) != about:
                return None
        return done

    def _commit(self, sizes: dict[str, int], **done: int) -> None:
        files = self._done["files"]
        for name, size in sizes.items():
            sync(self.work / name)
            files[name] = _told(self.work / name, size, files.get(name))
        self._done |= done
        write_json(self.work / "done.json", {**self._done, "checksum": checksum_of(self._done)})

    # the steps

    def _read(self) -> None:
        """Items, in one pass."""
        if self._done["all"]:
            return
        count = int(self._done["items"])
        filing = Filing(self.work)
        items: Iterable[Item] = stream(self.source, progress=self.progress, **self.columns)
        if self.settings.passages is not None:
            items = self.settings.passages.cut(items)
        rest = itertools.islice(items, count, None)
        while portion := list(itertools.islice(rest, PORTION)):
            filing.add(portion)
            count += len(portion)
            self._commit(filing.sizes(), items=count)
        if not count:
            filing.add([])
        self._commit(filing.sizes(), all=True)

    def _vectors(self, packed: Packed) -> Array | None:
        """Vectors (n × d) in the order the items came: the user's own, or those of an encoder, in a file."""
        n = len(packed)
        if self.vectors is not None and not callable(self.vectors):
            rows = as_brought(self.vectors, n, self.kind)
            same_space(rows, self.encoder)
            return rows
        if self.vectors is None and self.encoder is None:
            return None
        path, done = self.work / "vectors.bin", int(self._done["vectors"])
        while done < n:
            items = packed.items(np.arange(done, min(done + ENCODED, n)))
            rows = self._encoded(items)
            with path.open("ab") as file:
                file.write(rows.data)
            done += len(items)
            self._commit({path.name: path.stat().st_size}, vectors=done)
            put_down(packed.data.array)
            self._tell("encoding items", done, n)
        if not n:
            return np.empty((0, 0 if self.encoder is None else self.encoder.dimension), self.kind)
        return np.memmap(path, self.kind, mode="r").reshape(n, -1)

    def _encoded(self, items: list[Item]) -> Array:
        if callable(self.vectors):
            made = brought(self.vectors, items, self.kind, None)
            same_space(made, self.encoder)
            return np.ascontiguousarray(made)
        assert self.encoder is not None
        rows = self.encoder.encode_items(items)
        finite(rows, "vectors", self.kind)
        return np.ascontiguousarray(rows.astype(self.kind))

    def _write(self, packed: Packed, vectors: Array | None) -> None:
        n = len(packed)
        order: Positions | None = None
        lists: tuple[Array, Array] | None = None
        if vectors is not None and n >= clustered.SMALL:
            self._tell("clustering vectors", 0, n)
            centroids, home = clusters.partition(vectors, seed=self.settings.seed)
            order = np.argsort(home, kind="stable")
            lists = (centroids, starts_of(np.bincount(home, minlength=len(centroids))))
            self._tell("clustering vectors", n, n)

        def fill(files: Files) -> None:
            packed.write(files, order)
            write_columns(files, packed, order)
            if vectors is not None:
                files.rows("vectors", self.kind, vectors.shape, _rows(vectors, order), scattered=True)
            if lists is not None and order is not None:
                files.array("centroids", lists[0])
                files.array("starts", lists[1])
                files.array("arrival", order)
            if self.words:
                places = np.arange(n) if order is None else order
                blocks = (packed.items(places[start : start + PORTION]) for start in range(0, n, PORTION))
                words = BM25(itertools.chain.from_iterable(blocks))
                write_words(words.segments[0], words, files)

        self._tell("writing the index", 0, 1)
        Folder(self.path, KIND).save({**self.settings.json(), "items": n, "first": n}, fill)
        self._tell("writing the index", 1, 1)


def _rows(vectors: Array, order: Positions | None) -> Iterator[Array]:
    for start in range(0, len(vectors), PORTION):
        yield vectors[start : start + PORTION] if order is None else vectors[order[start : start + PORTION]]
        put_down(vectors)


def _told(path: Path, size: int, known: dict[str, Any] | None = None) -> dict[str, Any]:
    """The length of a file that grows, and checksums: of its whole blocks, each with the one before, and of the rest.

    `known` is what was told of it when it was shorter: only what came since is read.
    """
    start, chain = (0, "") if known is None else (known["blocks"], known["chain"])
    with path.open("rb") as file:
        file.seek(start)
        while start + BLOCK <= size:
            chain = digest(chain.encode() + file.read(BLOCK)).hexdigest()
            start += BLOCK
        rest = digest(chain.encode() + file.read(size - start)).hexdigest()
    return {"bytes": size, "blocks": start, "chain": chain, "rest": rest}


def _about(source: Path) -> list[Any]:
    """Size and age of a file; of a folder, a digest of those of its files: when one changes, a build begins anew."""
    if not source.is_dir():
        about = source.stat() if source.exists() else None
        return [] if about is None else [about.st_size, about.st_mtime_ns]
    files = sorted(path for path in source.rglob("*") if path.is_file())
    return [digest(json.dumps([[str(path), *_about(path)] for path in files]).encode()).hexdigest()]


def _ours(work: Path) -> bool:
    """Whether a folder may be built in: there is none, it is empty, or it has our mark."""
    there = {path.name for path in work.iterdir()} if work.is_dir() else set()
    linked = work.is_symlink() or any((work / name).is_symlink() for name in there)  # what they lead to is not ours
    return not linked and (work.is_dir() or not work.exists()) and (MARK in there or there <= {"lock"})


def clear(path: Path) -> None:
    """Delete what a build has left beside the index that came of it; nothing while one is going on."""
    work = path.with_name(path.name + BUILDING)
    if not (work.is_dir() and _ours(work)):
        return
    last = ("settings.json", MARK)  # what was built, and that it is ours
    with contextlib.suppress(LockedError), Lock(work, "build"):
        for file in sorted(work.iterdir(), key=lambda file: (file.name in last, file.name == MARK)):
            if file.name != "lock":
                file.unlink()
        shutil.rmtree(work, ignore_errors=True)


def _read_json(path: Path) -> Any:
    try:
        return json.loads(path.read_text("utf-8"))
    except (OSError, ValueError, RecursionError):
        return None
