"""The score store: (query, item) → score of each scorer, in one SQLite file in a folder.

    scorer      id, fingerprint
    item_list   id, digest, crc, hashes: 16 bytes an item; a corpus once, under its digest, and lists of scattered items
    record      id, scorer, query (16 bytes), list, start, written, seconds, crc, scores: float32, of items `start` …
    epoch       how often items were forgotten

A later record replaces an earlier one, NaN is no score, and what does not fit its checksum counts as missing.
docs/scores.md shows how to read it with any SQLite.
"""

from __future__ import annotations

import logging
import sqlite3
import time
import zlib
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from crosscut.database import WAIT, Database
from crosscut.errors import InputError, StoreError, WriteError
from crosscut.latest import Latest
from crosscut.score_store.cache import StoreCache
from crosscut.score_store.keys import HASH_BYTES, Contents, Keys, text_hash
from crosscut.storage import npy_header, write_file
from crosscut.types import Positions

LOGGER = logging.getLogger("crosscut.score_store")
FILE = "scores.sqlite"
SCHEMA = (
    "CREATE TABLE scorer (id INTEGER PRIMARY KEY, fingerprint TEXT NOT NULL UNIQUE)",
    "CREATE TABLE item_list (id INTEGER PRIMARY KEY AUTOINCREMENT, digest TEXT, crc INTEGER NOT NULL, "
    "hashes BLOB NOT NULL)",
    "CREATE UNIQUE INDEX list_by_digest ON item_list (digest) WHERE digest IS NOT NULL",
    "CREATE TABLE record (id INTEGER PRIMARY KEY, scorer INTEGER NOT NULL, query BLOB NOT NULL, list INTEGER NOT NULL, "
    "start INTEGER NOT NULL, written REAL NOT NULL, seconds REAL NOT NULL, crc INTEGER NOT NULL, scores BLOB NOT NULL)",
    "CREATE INDEX record_by_query ON record (scorer, query)",
    "CREATE INDEX record_by_list ON record (list)",
    "CREATE TABLE epoch (number INTEGER NOT NULL)",
    "INSERT INTO epoch VALUES (0)",
)
PAGE_SIZE = 32768  # rows of a dense matrix are large
SHORT_LIST = 4096 * HASH_BYTES
"""Lists up to this many bytes are read with their records, longer ones are remembered."""
SHORTEST_RUN = 32
"""Consecutive items from this many on are stored as a range of their corpus, fewer by their hashes."""
WINDOW = 300.0
"""Seconds back from the latest record, over which the pace is measured."""

Scores: TypeAlias = npt.NDArray[np.float32]


class Block(NamedTuple):
    """Scores of one query to be stored: of the items `start` … of a corpus, or of those with the `hashes`."""

    query: bytes
    scores: Scores
    corpus: Keys | None = None
    start: int = 0
    hashes: bytes = b""


class Known(NamedTuple):
    """Scores of one query as they are stored: of the items `start` … of a list."""

    list_id: int
    digest: str | None
    start: int
    scores: Scores
    short: Keys | None  # the list, if it is a short one


class ScoredPairs(NamedTuple):
    """Known pairs: row of the query list, column of the item list, score; all of shape (p,)."""

    rows: Positions
    columns: Positions
    scores: Scores


class Summary(NamedTuple):
    """Counts of one scorer in a store; `pairs_per_second` over the last minutes of scoring."""

    scores: int
    queries: int
    records: int
    bytes: int
    pairs_per_second: float | None


class ScoreStore:
    """Scores of one scorer. Nothing is created before something is written.

    >>> store = ScoreStore("scores/", scorer_fingerprint=scorer.fingerprint)
    >>> store.put_block(queries[:2], items, block)          # (2 × items), one transaction
    >>> matrix = store.matrix(queries[:2], items)           # float32
    """

    def __init__(self, path: str | Path, *, scorer_fingerprint: str) -> None:
        if not scorer_fingerprint:
            raise InputError("a scorer without a fingerprint has no place in a score store; give it one")
        self.path = Path(path)
        self.scorer_fingerprint = scorer_fingerprint
        if self.path.exists() and not self.path.is_dir():
            raise StoreError(f"{str(self.path)!r} is a file; a score store is a folder")
        self.database = Database(self.path / FILE, "score store", SCHEMA, page_size=PAGE_SIZE)
        self._lists: Latest[Keys] = Latest(4)  # long ones
        self._targets: Latest[Positions] = Latest(8)
        self._reported: set[str] = set()

    @classmethod
    def open(cls, path: str | Path, scorer_fingerprint: str | None = None) -> ScoreStore:
        """Return the store in a folder; the scorer may be left out when the folder has scores of one only."""
        there = scorers(path)
        if scorer_fingerprint is None:
            if len(there) != 1:
                raise StoreError(
                    f"{str(path)!r} holds scores of {len(there)} scorers ({', '.join(there) or 'none'}); "
                    "name one by its fingerprint"
                )
            scorer_fingerprint = there[0]
        elif scorer_fingerprint not in there:
            raise StoreError(
                f"{str(path)!r} holds no scores of the scorer {scorer_fingerprint!r}, only of "
                f"{', '.join(there) or 'none'}; scores of another model are never reused"
            )
        return cls(path, scorer_fingerprint=scorer_fingerprint)

    def create(self) -> ScoreStore:
        """Create the file now, so that an unwritable folder is found before the first score is paid for."""
        if not self.database.read("SELECT 1 FROM scorer WHERE fingerprint = ?", (self.scorer_fingerprint,)):
            self.database.write(self._scorer_of)
        return self

    # -- writing -------------------------------------------------------------------------------------------------------

    def put_block(
        self, queries: Contents, items: Contents, scores: npt.ArrayLike, *, start: int = 0, seconds: float = 0.0
    ) -> None:
        """Commit scores (q × m) of queries with the items `start` … `start + m − 1`; durable when this returns.

        `seconds` is what they took to compute, for estimates of the time left.
        """
        queries, items = Keys.of(queries), Keys.of(items)
        block = checked(scores)
        if block.ndim != 2 or len(block) != len(queries):
            raise InputError(f"a block for {len(queries)} queries needs as many rows of scores, not {block.shape}")
        stop = start + block.shape[1]
        if not 0 <= start <= stop <= len(items):
            raise InputError(f"items {start} … {stop - 1} are not all among the {len(items)} of the corpus")
        if block.size:
            rows = zip(queries.names, block, strict=True)
            self.write([Block(query, row, items, start) for query, row in rows], seconds=seconds)

    def put_pairs(
        self,
        queries: Contents,
        items: Contents,
        rows: npt.ArrayLike,
        columns: npt.ArrayLike,
        scores: npt.ArrayLike,
        *,
        seconds: float = 0.0,
    ) -> None:
        """Commit the scores of pairs (queries[rows[j]], items[columns[j]]); durable when this returns."""
        queries, items = Keys.of(queries), Keys.of(items)
        rows, columns = np.asarray(rows, np.int64).ravel(), np.asarray(columns, np.int64).ravel()
        values = checked(scores).ravel()
        if not len(rows) == len(columns) == len(values):
            raise InputError(f"{len(rows)} rows, {len(columns)} columns and {len(values)} scores do not make pairs")
        for name, places, size in (("query", rows, len(queries)), ("item", columns, len(items))):
            if len(places) and not (places.min() >= 0 and places.max() < size):
                raise InputError(f"{name} numbers {places.min()} … {places.max()} do not fit a list of {size}")
        if len(values):
            order = np.argsort(rows, kind="stable")
            distinct, starts = np.unique(rows[order], return_index=True)
            blocks: list[Block] = []
            for row, mine in zip(distinct.tolist(), np.split(order, starts[1:]), strict=True):
                blocks += blocks_of(queries.names[row], items, columns[mine], values[mine])
            self.write(blocks, seconds=seconds)

    def write(
        self, blocks: Sequence[Block], *, seconds: float = 0.0, epoch: int | None = None, wait: float = WAIT
    ) -> bool:
        """Commit blocks in one transaction. False, and nothing is written, if items were forgotten since `epoch`."""

        def insert(connection: sqlite3.Connection) -> bool:
            if epoch is not None and connection.execute("SELECT number FROM epoch").fetchone()[0] != epoch:
                return False
            scorer, now = self._scorer_of(connection), time.time()
            lists: dict[int, int] = {}
            for block in blocks:
                if block.corpus is None:
                    list_id = _insert_list(connection, None, block.hashes)
                elif (list_id := lists.get(id(block.corpus), 0)) == 0:
                    list_id = lists[id(block.corpus)] = _list_of(connection, block.corpus)
                data = block.scores.tobytes()
                crc = _crc(block.query, list_id, block.start, data)
                connection.execute(
                    "INSERT INTO record (scorer, query, list, start, written, seconds, crc, scores) "
                    "VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
                    (scorer, block.query, list_id, block.start, now, seconds, crc, data),
                )
            return True

        return self.database.write(insert, wait=wait)

    def _scorer_of(self, connection: sqlite3.Connection) -> int:
        named = (self.scorer_fingerprint,)
        found = connection.execute("SELECT id FROM scorer WHERE fingerprint = ?", named).fetchone()
        if found is None:
            found = (connection.execute("INSERT INTO scorer (fingerprint) VALUES (?)", named).lastrowid,)
        return int(found[0])

    # -- reading -------------------------------------------------------------------------------------------------------

    @property
    def epoch(self) -> int:
        """The number of times that items were erased."""
        rows = self.database.read("SELECT number FROM epoch")
        return int(rows[0][0]) if rows else 0

    def known(self, query: bytes, *, wait: float = WAIT) -> list[Known]:
        """Return what is stored of a query, given by its hash; a later record goes before an earlier one."""
        found = []
        rows = self.database.read(
            "SELECT record.id, list, digest, start, record.crc, scores, item_list.crc, "
            "CASE WHEN length(hashes) <= ? THEN hashes END FROM record JOIN item_list ON item_list.id = list "
            "WHERE scorer = (SELECT id FROM scorer WHERE fingerprint = ?) AND query = ? ORDER BY record.id",
            (SHORT_LIST, self.scorer_fingerprint, query),
            wait=wait,
        )
        for record_id, list_id, digest, start, crc, data, list_crc, hashes in rows:
            if crc != _crc(query, list_id, start, data) or (hashes is not None and list_crc != zlib.crc32(hashes)):
                self._report(f"record {record_id}")
            else:
                short = None if hashes is None else Keys.of_hashes(hashes)
                found.append(Known(list_id, digest, start, np.frombuffer(data, np.float32), short))
        return found

    def scores_at(self, known: Known, names: Sequence[bytes]) -> Scores:
        """Return the scores of the items with these hashes, NaN where there is none."""
        places = self._list(known).find(names) - known.start
        scores = np.full(len(names), np.nan, np.float32)
        there = (places >= 0) & (places < len(known.scores))
        scores[there] = known.scores[places[there]]
        return scores

    def _list(self, known: Known) -> Keys:
        def load() -> Keys:
            rows = self.database.read("SELECT hashes, crc FROM item_list WHERE id = ?", (known.list_id,))
            if not rows or zlib.crc32(rows[0][0]) != rows[0][1]:
                self._report(f"item list {known.list_id}")
                return Keys([])
            return Keys.of_hashes(rows[0][0])

        return known.short or self._lists.get(known.list_id, load)

    def _report(self, what: str) -> None:
        if what not in self._reported:
            self._reported.add(what)
            LOGGER.warning("%s of %r does not fit its checksum: its scores count as missing", what, str(self.path))

    def get(self, query: str | bytes, items: Contents, positions: npt.ArrayLike | None = None) -> Scores:
        """Return the known scores of one query with the items at `positions` (all, if left out), NaN elsewhere."""
        name = query if isinstance(query, bytes) else text_hash(query)
        items = Keys.of(items)
        row = np.full(len(items), np.nan, np.float32)
        for known in self.known(name):
            stop = known.start + len(known.scores)
            scores = known.scores
            if known.digest == items.digest:
                target: Positions | slice = slice(known.start, stop)
            else:
                places = self._target(known, items)[known.start : stop]
                there = places >= 0
                target, scores = places[there], scores[: len(places)][there]
            if np.isnan(scores).any():
                scores = np.where(np.isnan(scores), row[target], scores)
            row[target] = scores
        if items.first is not None:
            row = np.where(np.isnan(row), row[items.first], row)
        return row if positions is None else row[np.asarray(positions, np.int64)]

    def _target(self, known: Known, items: Keys) -> Positions:
        """Return for every item of a list its position among `items`, or −1."""

        def find() -> Positions:
            return items.find(self._list(known).names)

        return find() if known.short else self._targets.get((known.list_id, items.digest), find)

    def missing(self, queries: Contents, items: Contents) -> Iterator[tuple[int, Positions]]:
        """Yield each query that has not been scored with every item: its number and the positions that are missing."""
        items = Keys.of(items)
        for number, name in enumerate(Keys.of(queries).names):
            lacking = np.flatnonzero(np.isnan(self.get(name, items)))
            if len(lacking):
                yield number, lacking

    def pairs(self, queries: Contents, items: Contents) -> ScoredPairs:
        """Return every known pair of these queries and items, query by query: the sparse matrix G."""
        found: list[tuple[Positions, Positions, Scores]] = []
        items = Keys.of(items)
        for number, name in enumerate(Keys.of(queries).names):
            row = self.get(name, items)
            there = np.flatnonzero(~np.isnan(row))
            found.append((np.full(len(there), number, np.int64), there, row[there]))
        if not found:
            return ScoredPairs(np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0, np.float32))
        rows, columns, scores = (np.concatenate(part) for part in zip(*found, strict=True))
        return ScoredPairs(rows, columns, scores)

    def matrix(self, queries: Contents, items: Contents, *, partial: bool = False) -> Scores:
        """Return the scores (queries × items), float32. Missing pairs are an error, or with `partial` NaN."""
        queries, items = Keys.of(queries), Keys.of(items)
        scores = np.empty((len(queries), len(items)), np.float32)
        for number, name in enumerate(queries.names):
            scores[number] = self.get(name, items)
        if not partial:
            self._complete(int(np.isnan(scores).sum()), scores.size)
        return scores

    def _complete(self, lacking: int, size: int) -> None:
        if lacking:
            raise InputError(
                f"{lacking} of {size} scores are not in {str(self.path)!r}: "
                "score them first with `crosscut score`, or ask for partial=True to have NaN there"
            )

    def export(self, path: str | Path, queries: Contents, items: Contents) -> None:
        """Write the scores (queries × items) as a .npy file, row by row, to be memory-mapped by anybody."""
        queries, items = Keys.of(queries), Keys.of(items)
        names, size = queries.names, len(queries) * len(items)

        def chunks() -> Iterator[bytes]:
            yield npy_header(np.dtype("<f4"), (len(queries), len(items)))
            for name in names:
                row = self.get(name, items)
                self._complete(int(np.isnan(row).sum()), size)
                yield row.tobytes()

        write_file(path, chunks())

    def cache(self, items: Contents, *, flush_pairs: int = 4096, flush_seconds: float = 10.0) -> StoreCache:
        """Return this store as the cache of a search over `items`: known scores are free, new ones are stored."""
        with suppress(WriteError):  # one that can only be read
            self.create()
        return StoreCache(self, Keys.of(items), flush_pairs=flush_pairs, flush_seconds=flush_seconds)

    def summary(self) -> Summary:
        """Return what the store holds of this scorer."""
        of_scorer = "FROM record WHERE scorer = (SELECT id FROM scorer WHERE fingerprint = ?)"
        named = (self.scorer_fingerprint,)
        counts = self.database.read(
            f"SELECT ifnull(sum(length(scores)) / 4, 0), count(DISTINCT query), count(*), max(written) {of_scorer}",
            named,
        ) or [(0, 0, 0, None)]
        scores, queries, records, latest = counts[0]
        rows = self.database.read(
            f"SELECT sum(length(scores)) / 4, max(written) - min(written - seconds) {of_scorer} "
            "AND seconds > 0 AND written > ?",
            (*named, (latest or 0.0) - WINDOW),
        )
        pace = rows[0][0] / max(rows[0][1], 1e-9) if rows and rows[0][0] else None
        size = sum(file.stat().st_size for file in self.path.glob(f"{FILE}*"))
        return Summary(scores, queries, records, size, pace)

    # -- upkeep --------------------------------------------------------------------------------------------------------

    def verify(self) -> list[str]:
        """Read everything, compare every checksum, and delete damaged records, which are then scored again.

        Returns what was wrong, of any scorer.
        """
        wrong, records, lists = self.database.check(), [], []
        for list_id, crc, hashes in self._each(
            "SELECT id, crc, hashes FROM item_list WHERE id > ? ORDER BY id LIMIT 1"
        ):
            if zlib.crc32(hashes) != crc:
                lists.append(list_id)
        each = "SELECT id, query, list, start, crc, scores FROM record WHERE id > ? ORDER BY id LIMIT 1"
        for record_id, query, list_id, start, crc, data in self._each(each):
            if list_id in lists or crc != _crc(query, list_id, start, data):
                records.append(record_id)
        wrong += [f"item list {one} does not fit its checksum" for one in lists]
        wrong += [f"record {one} does not fit its checksum" for one in records]

        def delete(connection: sqlite3.Connection) -> None:
            connection.executemany("DELETE FROM record WHERE id = ?", [(one,) for one in records])
            connection.executemany("DELETE FROM item_list WHERE id = ?", [(one,) for one in lists])

        if records or lists:
            self.database.write(delete)
        return wrong

    def _each(self, sql: str) -> Iterator[tuple[Any, ...]]:
        """Yield rows one by one, by ascending id, so that other writers are not kept waiting."""
        last = 0
        while rows := self.database.read(sql, (last,)):
            yield rows[0]
            last = rows[0][0]

    def forget(self, items: Contents) -> int:
        """Erase every score of these items by any scorer, and their hashes; returns how many scores were found.

        The file is written anew, so that nothing is left in it, also of what was rolled back or replaced before. Caches
        and scoring jobs that began before write nothing more: they may know the items still.
        """
        gone = set(Keys.of(items).names)

        def erase(connection: sqlite3.Connection) -> int:
            connection.execute("UPDATE epoch SET number = number + 1")
            found = 0
            for (list_id,) in connection.execute("SELECT id FROM item_list").fetchall():
                (hashes,) = connection.execute("SELECT hashes FROM item_list WHERE id = ?", (list_id,)).fetchone()
                places = np.array(
                    [place for place, name in enumerate(Keys.of_hashes(hashes).names) if name in gone], np.int64
                )
                if len(places):
                    found += _erase(connection, list_id, hashes, places)
            return found

        if not self.database.path.exists():
            return 0
        found = self.database.write(erase)
        self.database.erase_freed()
        return found

    def __repr__(self) -> str:
        return f"ScoreStore({str(self.path)!r}, scorer_fingerprint={self.scorer_fingerprint!r})"


def scorers(path: str | Path) -> list[str]:
    """Return the fingerprints of the scorers that a folder has scores of."""
    if not (Path(path) / FILE).exists():
        raise StoreError(f"there is no score store at {str(path)!r}; `crosscut score` makes one")
    database = Database(Path(path) / FILE, "score store", SCHEMA)
    return [fingerprint for (fingerprint,) in database.read("SELECT fingerprint FROM scorer ORDER BY fingerprint")]


def blocks_of(query: bytes, items: Keys, positions: Positions, scores: Scores) -> list[Block]:
    """Return scores of a query as blocks: long runs of consecutive items as ranges, the others by their hashes."""
    edges = np.concatenate([[0], np.flatnonzero(np.diff(positions) != 1) + 1, [len(positions)]])
    blocks, loose = [], np.ones(len(positions), np.bool_)
    for run in np.flatnonzero(np.diff(edges) >= SHORTEST_RUN).tolist():
        part = slice(int(edges[run]), int(edges[run + 1]))
        blocks.append(Block(query, scores[part], items, int(positions[part.start])))
        loose[part] = False
    if loose.any():
        blocks.append(Block(query, scores[loose], hashes=b"".join(items.at(positions[loose]))))
    return blocks


def checked(scores: npt.ArrayLike) -> Scores:
    """Return scores as float32, all finite."""
    with np.errstate(over="ignore"):
        array = np.asarray(scores).astype("<f4", copy=False)
    if not np.isfinite(array).all():
        bad = int((~np.isfinite(array)).sum())
        raise InputError(f"{bad} of {array.size} scores are not finite as float32; only real scores are stored")
    return array


def _crc(query: bytes, list_id: int, start: int, scores: bytes) -> int:
    return zlib.crc32(scores, zlib.crc32(b"%b %d %d" % (query, list_id, start)))


def _insert_list(connection: sqlite3.Connection, digest: str | None, hashes: bytes) -> int:
    row = (digest, zlib.crc32(hashes), hashes)
    made = connection.execute("INSERT INTO item_list (digest, crc, hashes) VALUES (?, ?, ?)", row).lastrowid
    return int(made or 0)


def _list_of(connection: sqlite3.Connection, corpus: Keys) -> int:
    """Return the id of the list of a corpus, which is stored once."""
    found = connection.execute("SELECT id FROM item_list WHERE digest = ?", (corpus.digest,)).fetchone()
    return int(found[0]) if found else _insert_list(connection, corpus.digest, b"".join(corpus.names))


def _erase(connection: sqlite3.Connection, list_id: int, hashes: bytes, places: Positions) -> int:
    """Erase items of a list and their scores; returns how many scores there were."""
    left = np.frombuffer(hashes, np.uint8).reshape(-1, HASH_BYTES).copy()
    left[places] = 0
    changed = left.tobytes()
    update = (zlib.crc32(changed), changed, list_id)
    connection.execute("UPDATE item_list SET digest = NULL, crc = ?, hashes = ? WHERE id = ?", update)
    found = 0
    for (record_id,) in connection.execute("SELECT id FROM record WHERE list = ?", (list_id,)).fetchall():
        sql = "SELECT query, start, scores FROM record WHERE id = ?"
        query, start, data = connection.execute(sql, (record_id,)).fetchone()
        scores = np.frombuffer(data, np.float32).copy()
        here = places[(places >= start) & (places < start + len(scores))] - start
        if len(here):
            found += int((~np.isnan(scores[here])).sum())
            scores[here] = np.nan
            data = scores.tobytes()
            row = (_crc(query, list_id, start, data), data, record_id)
            connection.execute("UPDATE record SET crc = ?, scores = ? WHERE id = ?", row)
    return found
