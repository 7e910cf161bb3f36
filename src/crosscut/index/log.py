"""A log of past searches in an SQLite file: what was asked, what was scored, by which models. `index.learn` reads it.

The text of a query is not logged, only a hash by which it can be forgotten; its vector may still say what it was about.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import sqlite3
import zlib
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from crosscut.database import Database
from crosscut.errors import InputError

LOGGER = logging.getLogger("crosscut.index")
SCHEMA = (
    "CREATE TABLE search (id INTEGER PRIMARY KEY AUTOINCREMENT, crc INTEGER NOT NULL, query TEXT NOT NULL, "
    "models TEXT NOT NULL, time REAL NOT NULL, ids TEXT NOT NULL, vector BLOB NOT NULL, scores BLOB NOT NULL, "
    "chances BLOB)",
    "CREATE TABLE epoch (number INTEGER NOT NULL)",
    "INSERT INTO epoch VALUES (0)",
)
LIMIT = 64 << 20  # bytes: some 30,000 searches of 100 calls
SMALLEST = 1 << 16


class Logged(NamedTuple):
    """One past search."""

    query: str  # a hash of its text
    models: str  # the fingerprints of scorer and encoder
    time: float  # seconds since 1970
    ids: list[str]  # (m) of the items that were scored, in order
    vector: npt.NDArray[np.float32]  # (d) the encoder's query vector
    scores: npt.NDArray[np.float32]  # (m) without base scores
    chances: npt.NDArray[np.float32] | None = None  # (m) with which each was picked; None: 1


class SearchLog:
    """Past searches in a file; several processes may append to it.

    At `limit` bytes the older half is dropped. `since` is how often something had been forgotten when this log was
    opened, plus its own times: once others have, it logs nothing more, for this process may know it still.
    """

    def __init__(self, path: str | Path, *, limit: int = LIMIT) -> None:
        if limit < SMALLEST:
            raise InputError(f"a log of searches needs a limit of at least {SMALLEST} bytes; got {limit}")
        if not Path(path).name:
            raise InputError(f"a log of searches is a file, such as 'searches.log'; got {str(path)!r}")
        self.path, self.limit = Path(path), limit
        self._database = Database(self.path, "log of searches", SCHEMA)
        self.since = self._epoch()
        self._warned = False

    def begin(self) -> None:
        """Create the file. One that is there and is no log of searches is refused."""
        self._database.write(lambda connection: None)

    def append(self, searches: Sequence[Logged], *, since: int | None = None) -> None:
        """Add searches, all of them or none; nothing if something was forgotten `since` they began."""
        began = self.since if since is None else since

        def insert(connection: sqlite3.Connection) -> bool:
            if connection.execute("SELECT number FROM epoch").fetchone()[0] != began:
                return False
            sql = "INSERT INTO search (crc, query, models, time, ids, vector, scores, chances) VALUES (?,?,?,?,?,?,?,?)"
            connection.executemany(sql, map(_row, searches))
            pages, free, size = (
                connection.execute(f"PRAGMA {name}").fetchone()[0]
                for name in ("page_count", "freelist_count", "page_size")
            )
            if (pages - free) * size > self.limit:
                half = "SELECT id FROM search ORDER BY id LIMIT (SELECT (count(*) + 1) / 2 FROM search)"
                connection.execute(f"DELETE FROM search WHERE id IN ({half})")
            return True

        if searches and not self._database.write(insert) and not self._warned:
            self._warned = True
            LOGGER.warning(
                "something was forgotten in %r after this process had read it: its searches are not logged any more; "
                "load the index again",
                str(self.path),
            )

    def read(self) -> list[Logged]:
        """Return every search whose checksum fits, oldest first."""
        found = []
        for _, crc, *fields in self._database.read("SELECT * FROM search ORDER BY id"):
            with contextlib.suppress(LookupError, TypeError, ValueError, RecursionError):  # not written by us
                if _crc(fields) == crc:
                    found.append(_logged(fields))
        return found

    def forget(self, *, queries: Iterable[str] = (), ids: Iterable[str] = ()) -> int:
        """Erase the searches of these queries and the scores of these items; returns how many searches changed.

        The file is written anew, so that nothing is left in it, also of what was dropped or rolled back before.
        """
        asked, items = {query_hash(query) for query in queries}, set(ids)

        def erase(connection: sqlite3.Connection) -> int:
            connection.execute("UPDATE epoch SET number = number + 1")
            changed = 0
            for row_id, _, *fields in connection.execute("SELECT * FROM search").fetchall():
                search = _logged(fields)
                stay = [place for place, id in enumerate(search.ids) if id not in items]
                if len(stay) == len(search.ids) and search.query not in asked:
                    continue
                changed += 1
                connection.execute("DELETE FROM search WHERE id = ?", (row_id,))
                if stay and search.query not in asked:
                    sql = "INSERT INTO search VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)"
                    connection.execute(sql, (row_id, *_row(_part(search, stay))))
            return changed

        if not self.path.exists():
            return 0
        changed = self._database.write(erase)
        self._database.erase_freed()
        self.since += 1
        return changed

    @property
    def forgot(self) -> bool:
        """Whether anything was ever forgotten."""
        return self._epoch() > 0

    def _epoch(self) -> int:
        rows = self._database.read("SELECT number FROM epoch")
        return int(rows[0][0]) if rows else 0


def query_hash(query: str) -> str:
    """Return a hash by which a query is found again, and not read."""
    return hashlib.blake2b(query.encode(errors="surrogatepass"), digest_size=16).hexdigest()


def _part(search: Logged, stay: list[int]) -> Logged:
    chances = None if search.chances is None else search.chances[stay]
    return search._replace(ids=[search.ids[place] for place in stay], scores=search.scores[stay], chances=chances)


def _row(search: Logged) -> tuple[Any, ...]:
    arrays = (None if one is None else one.astype("<f4").tobytes() for one in search[4:])
    fields = [search.query, search.models, float(search.time), json.dumps(search.ids), *arrays]
    return _crc(fields), *fields


def _logged(fields: Sequence[Any]) -> Logged:
    query, models, time, ids, *arrays = fields
    vector, scores, chances = (None if one is None else np.frombuffer(one, "<f4").astype(np.float32) for one in arrays)
    search = Logged(query, models, time, [str(id) for id in json.loads(ids)], vector, scores, chances)  # type: ignore[arg-type]
    if not len(search.ids) == len(search.scores) == len(search.scores if chances is None else chances):
        raise ValueError(f"{len(search.ids)} items have {len(search.scores)} scores")
    return search


def _crc(fields: Sequence[Any]) -> int:
    """Return the checksum of a row."""
    return zlib.crc32(b"\0".join(one if isinstance(one, bytes) else repr(one).encode() for one in fields))
