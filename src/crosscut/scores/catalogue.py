"""What lies in the folder of a store: which file has scores of which query, and which files cannot be trusted.

Every score that leaves here has had its checksum compared. What is damaged is reported once, taken out of use, and so
counts as missing; what has vanished was consolidated by somebody else, and is looked for again.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import uuid4

import numpy as np
import numpy.typing as npt

from crosscut.errors import DamagedRecord, StoreError, WriteError
from crosscut.latest import Latest
from crosscut.scores.keys import Hashes, Keys
from crosscut.scores.records import SUFFIX, Check, Damage, ScoreFile, anyway, sound, write_record
from crosscut.scores.sources import Matrix, PairBlock, Scores, Source, open_source
from crosscut.storage import Forgotten, Lock, Since, make_folder, writing
from crosscut.types import Mask, Positions

logger = logging.getLogger("crosscut.scores")
KEPT_LOADED = 64
TRIES = 100


class Catalogue:
    """The sources of one scorer's folder, by query."""

    def __init__(self, folder: Path, scorer: str) -> None:
        self.folder = folder
        self.scorer = scorer
        self.sources: dict[str, Source] = {}
        self.by_query: dict[bytes, list[tuple[Source, int]]] = {}
        self.damaged: list[Damage] = []
        self.lock = threading.RLock()
        self._refused: dict[str, Damage] = {}
        self._lists: dict[str, Hashes] = {}
        self._loaded: Latest[Any] = Latest(KEPT_LOADED)
        self._targets: Latest[Positions] = Latest(KEPT_LOADED)
        self._staying: Latest[Mask | None] = Latest(4)
        self.forgotten = Forgotten(folder / "forgotten.json")
        self.since = self.forgotten.found  # what was forgotten after this is not written here

    def begin(self) -> None:
        """Have the key by which others can tell this process what they forget."""
        if self.since is None:
            with alone(self.folder):
                self.forgotten.begin()
            now = self.forgotten.now
            self.since = now if now is not None and not now.times else None

    def lasting(self, write: Callable[[Since | None, Check], None]) -> None:
        """Call `write(now, check)` until nothing was forgotten meanwhile; `check` is to be called while it writes."""
        for left in reversed(range(TRIES)):
            now = self.forgotten.now

            def check(now: Since | None = now) -> None:
                if self.forgotten.now != now:
                    raise Meanwhile

            try:
                return write(now, check)
            except Meanwhile:
                continue
            except WriteError as error:  # its file may be taken away, to be written without what is forgotten
                if not left or not isinstance(error.__cause__, FileNotFoundError):
                    raise
        raise StoreError(f"{str(self.folder)!r}: things were forgotten {TRIES} times in a row; write again later")

    def staying(self, items: Keys, since: Since | None, now: Since | None) -> Mask | None:
        """Which items of a list (n) were not forgotten since; None: all."""

        def made() -> Mask | None:
            gone = self.forgotten.among(items.names, since)
            return np.array([name not in gone for name in items.names], np.bool_) if gone else None

        return None if now == since else self._staying.get((items.digest, since, now), made)

    def refresh(self) -> None:
        """See what other writers have committed and what a consolidation has replaced."""
        with self.lock:
            found = self._snapshot()
            gone = [source for name, source in self.sources.items() if name not in found]
            if gone:
                for source in gone:
                    del self.sources[source.name]
                    self._loaded.pop(source.name)
                self._index()
            for name, path in found.items():
                if name not in self.sources and name not in self._refused:
                    self.add(path)

    def _snapshot(self) -> dict[str, Path]:
        """Blocks first: what a consolidation deletes after this is found again in the matrices listed next."""
        found: dict[str, Path] = {}
        for part in ("blocks", "matrices"):
            names: set[str] | None = None
            while (listed := _names(self.folder / part)) != names:  # until it stands still
                names = listed
            found.update((name.removesuffix(SUFFIX), self.folder / part / name) for name in sorted(listed))
        return found

    def add(self, path: Path) -> None:
        """Take a file into use, if it can be trusted."""
        try:
            source = open_source(path)
            named = source.record.header.get("scorer")
            if named != self.scorer:
                raise DamagedRecord(path, f"it holds scores of {named!r}")
        except FileNotFoundError:
            return  # consolidated since it was listed
        except DamagedRecord as error:
            if path.exists():
                self._refuse(path.stem, error)
            return
        self.sources[source.name] = source
        for row, query in enumerate(source.queries):
            self.by_query.setdefault(query, []).append((source, row))

    def _index(self) -> None:
        self.by_query = {}
        for source in self.sources.values():
            spoilt = source.spoilt if isinstance(source, Matrix) else ()
            for row, query in enumerate(source.queries):
                if row not in spoilt:
                    self.by_query.setdefault(query, []).append((source, row))

    def _report(self, error: DamagedRecord) -> None:
        self.damaged.append(Damage(error.path, error.reason))
        logger.warning("%s; its scores are not used and count as missing", error)

    def _refuse(self, name: str, error: DamagedRecord) -> None:
        self._report(error)
        self._refused[name] = self.damaged[-1]
        self.sources.pop(name, None)

    def distrust(self, source: Source, row: int, error: DamagedRecord) -> None:
        """Take a damaged row of a matrix, or a whole damaged block, out of use."""
        if isinstance(source, Matrix) and error.path == source.path:
            self._report(error)
            source.spoilt.add(row)
        else:
            self._refuse(source.name, error)
        self._index()

    def list_of(self, source: Source) -> Hashes:
        """The item list (n × 16) that the places of a source refer to."""
        if isinstance(source, PairBlock):
            return source.hashes()
        if source.items_id not in self._lists:
            path = self.folder / "items" / f"{source.items_id}{SUFFIX}"
            try:
                self._lists[source.items_id] = ScoreFile.open(path).read("items")
            except FileNotFoundError as error:
                raise DamagedRecord(path, "the item list is gone") from error
        return self._lists[source.items_id]

    def target(self, source: Source, items: Keys) -> Positions:
        """For every place in the item list of a source, its position among `items`, or −1."""
        return self._targets.get((source.items_id, items.digest), lambda: items.find(self.list_of(source)))

    def row(self, query: bytes, items: Keys) -> Scores:
        """The scores (n,) of a query with all items, NaN where there is none."""
        with self.lock:
            while True:
                row = np.full(len(items), np.nan, np.float32)
                for source, number in self.by_query.get(query, ()):
                    try:
                        with sound(source.record.path):
                            loaded = self._loaded.get(source.name, source.load)
                            places, scores = source.row(number, loaded)
                            if source.items_id == items.digest:
                                row[places] = scores
                            else:
                                target = self.target(source, items)[places]
                                row[target[target >= 0]] = scores[target >= 0]
                    except FileNotFoundError:
                        self.refresh()
                        break
                    except DamagedRecord as error:
                        self.distrust(source, number, error)
                        break
                else:
                    if items.first is not None:  # a repeated text has the score of its first place
                        row = np.where(np.isnan(row), row[items.first], row)
                    return row

    def mapped(self, queries: Keys, items: Keys) -> Scores | None:
        """A memory map (queries × items) where a matrix has these queries together, and all of these items."""
        with self.lock:
            for source in self.sources.values():
                if not isinstance(source, Matrix) or source.items_id != items.digest or not len(queries):
                    continue
                wanted = queries.names
                start = source.queries.index(wanted[0]) if wanted[0] in source.queries else -1
                if start < 0 or source.queries[start : start + len(wanted)] != wanted:
                    continue
                try:
                    if not source.untouched:  # copied, restored or meddled with: read it all once
                        self._check_rows(source)
                    if source.trusted:
                        return source.map()[start : start + len(wanted)]
                except FileNotFoundError:
                    self.refresh()
                    return self.mapped(queries, items)
        return None

    def _check_rows(self, source: Matrix) -> None:
        for row in range(source.shape[0]):
            if row not in source.spoilt:
                try:
                    source.row(row)
                except DamagedRecord as error:
                    self.distrust(source, row, error)

    def verify(self) -> None:
        """Read everything and compare every checksum."""
        with self.lock:
            self.refresh()
            for source in list(self.sources.values()):
                try:
                    with sound(source.record.path):
                        if isinstance(source, Matrix):
                            self._check_rows(source)
                        else:
                            source.load()
                        self.list_of(source)
                except FileNotFoundError:
                    continue
                except DamagedRecord as error:
                    self.distrust(source, 0, error)

    def set_aside_damaged(self) -> int:
        """Move damaged files to `damaged/`, so that they are reported once; returns their number."""
        moved = 0
        with self.lock:
            for name, damage in self._refused.items():
                files = list(damage.path.parent.glob(f"{name}.*")) if damage.path.stem == name else []
                for path in files:
                    with writing(self.folder):
                        make_folder(self.folder / "damaged")
                        os.replace(path, self.folder / "damaged" / path.name)
                    moved += 1
        return moved

    def keep_list(self, items: Keys, check: Check = anyway) -> None:
        """Make sure that the item list is on disk, undamaged, before a block refers to it."""
        if items.digest in self._lists:
            return
        path = self.folder / "items" / f"{items.digest}{SUFFIX}"
        try:
            ScoreFile.open(path).read("items")
        except (FileNotFoundError, DamagedRecord):
            write_record(path, {"kind": "items"}, {"items": items.hashes}, check)
        self._lists[items.digest] = items.hashes

    def forget_lists(self) -> None:
        """Look at item lists anew: some were deleted."""
        self._lists.clear()
        self._targets = Latest(KEPT_LOADED)

    def commit_pairs(
        self,
        queries: Hashes,
        items: Hashes,
        rows: Positions,
        columns: Positions,
        scores: Scores,
        seconds: float,
        check: Check = anyway,
    ) -> None:
        """Commit pairs (queries[rows[j]], items[columns[j]]), query by query."""
        order = np.argsort(rows, kind="stable")
        asked, counts = np.unique(rows, return_counts=True)
        arrays = {
            "queries": queries[asked],
            "items": items,
            "ends": np.cumsum(counts).astype("<i8"),
            "columns": columns[order].astype("<u4"),
            "scores": scores[order],
        }
        self.commit({"kind": "pairs", "items": ""}, arrays, len(scores), seconds, check)

    def commit(
        self,
        header: dict[str, Any],
        arrays: dict[str, npt.NDArray[Any]],
        pairs: int,
        seconds: float,
        check: Check = anyway,
    ) -> None:
        """Write a block under a name of its own; the names sort by time."""
        path = self.folder / "blocks" / f"{time.time_ns():020d}-{uuid4().hex[:12]}{SUFFIX}"
        written = {"scorer": self.scorer, "pairs": pairs, "written": time.time(), "seconds": seconds}
        write_record(path, {**header, **written}, arrays, check)
        with self.lock:
            self.add(path)


class Meanwhile(Exception):
    """Something was forgotten while it was being written."""


def alone(folder: Path) -> Lock:
    """The right to delete in a store."""
    return Lock(folder, "score store", name="consolidate.lock", wait=True)


def _names(folder: Path) -> set[str]:
    try:
        return {entry.name for entry in os.scandir(folder) if entry.name.endswith(SUFFIX)}
    except FileNotFoundError:
        return set()
