"""SQLite files, shared by threads, forked children and other processes: the score store and the log of searches.

A rollback journal, never a WAL: SQLite 3.7.0 to 3.51.2 can corrupt a WAL file that two connections write, and it would
not be faster here. Every call of SQLite in this process is made under one lock, which is held over `fork`: a child that
was forked while another thread was inside SQLite would hang on SQLite's own locks. The lock is not held while waiting
for another process.
"""

from __future__ import annotations

import os
import sqlite3
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar, cast

from crosscut.errors import LockedError, StoreError, WriteError
from crosscut.storage import make_folder, writing

T = TypeVar("T")
Rows = list[tuple[Any, ...]]
APPLICATION = 0x63637374  # "ccst": marks a file as ours
FORMAT = 1
SYNCHRONOUS = "FULL"
WAIT = 60.0
"""Seconds that a writer waits for another process."""
PAUSE = 0.05
BUSY = (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)
DAMAGED = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)
FORBIDDEN = (sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PERM, sqlite3.SQLITE_AUTH)

_lock = threading.RLock()
_inherited: list[sqlite3.Connection] = []  # of the parent of this process: never used, and never closed here
if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_lock.acquire, after_in_parent=_lock.release, after_in_child=_lock.release)


class Database:
    """One file with one schema, through one connection, which is opened when it is first needed.

    `what` names the kind of file in errors; `schema` are the statements that create it. A file of another kind is
    refused. Nothing is created by reading: a file that is not there has no rows.
    """

    def __init__(self, path: Path, what: str, schema: Sequence[str], *, page_size: int = 4096) -> None:
        self.path, self.what, self.schema, self.page_size = path, what, schema, page_size
        self._connection: sqlite3.Connection | None = None
        self._process = 0

    def read(self, sql: str, parameters: Sequence[Any] = (), *, wait: float = WAIT) -> Rows:
        """Return the rows of one statement."""

        def select(connection: sqlite3.Connection) -> Rows:
            return connection.execute(sql, parameters).fetchall()

        return self._attempt(select, wait, create=False) or []

    def write(self, action: Callable[[sqlite3.Connection], T], *, wait: float = WAIT) -> T:
        """Run `action` in one transaction, durable when this returns; it may run again if the file was busy."""

        def transaction(connection: sqlite3.Connection) -> T:
            connection.execute("BEGIN IMMEDIATE")
            try:
                result = action(connection)
                connection.execute("COMMIT")
            except BaseException:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
                raise
            return result

        with writing(self.path.parent):
            make_folder(self.path.parent)
        return cast(T, self._attempt(transaction, wait, create=True))

    def erase_freed(self) -> None:
        """Write the file anew from its rows: bytes of deleted rows are left neither in it nor in its journal."""
        self._attempt(lambda connection: connection.execute("VACUUM").fetchall(), WAIT, create=False)

    def check(self) -> list[str]:
        """Return what `PRAGMA integrity_check` finds wrong."""
        return [line for (line,) in self.read("PRAGMA integrity_check") if line != "ok"]

    def changed_by_others(self) -> int:
        """Return a number that changes whenever another connection has written."""
        rows = self.read("PRAGMA data_version")
        return int(rows[0][0]) if rows else 0

    def close(self) -> None:
        """Close the connection; the next call opens it again."""
        with _lock:
            if self._connection is not None and self._process != os.getpid():
                _inherited.append(self._connection)
            elif self._connection is not None:
                self._connection.close()
            self._connection = None

    def __del__(self) -> None:
        self.close()

    def _attempt(self, work: Callable[[sqlite3.Connection], T], wait: float, *, create: bool) -> T | None:
        end = time.monotonic() + wait
        while True:
            busy: Exception | None = None
            if not _lock.acquire(timeout=max(end - time.monotonic(), 0.0)):
                raise self._locked(wait)
            try:
                connection = self._opened(create)
                return None if connection is None else work(connection)
            except sqlite3.Error as error:
                if _code(error) not in BUSY:
                    raise self._error(error, create) from error
                busy = error
            finally:
                _lock.release()
            if time.monotonic() >= end:
                raise self._locked(wait) from busy
            time.sleep(PAUSE / 10)

    def _opened(self, create: bool) -> sqlite3.Connection | None:
        """Return the connection of this process; None where there is no file, or an empty one, and none to create."""
        if self._process != os.getpid():
            self.close()
        if self._connection is not None:
            return self._connection
        if self.path.exists() and not self.path.is_file():
            raise StoreError(f"{str(self.path)!r} is no file, so it is no {self.what}: name another")
        if not create and (not self.path.exists() or not self.path.stat().st_size):
            return None
        address = f"{self.path.absolute().as_uri()}?mode={'rwc' if create else 'rw'}"
        connection = sqlite3.connect(address, PAUSE, isolation_level=None, check_same_thread=False, uri=True)
        try:
            connection.execute(f"PRAGMA page_size = {self.page_size}")
            connection.execute("PRAGMA secure_delete = ON")
            connection.execute(f"PRAGMA synchronous = {SYNCHRONOUS}")
            if self._blank(connection):
                if not create:
                    connection.close()
                    return None
                self._create(connection)
            connection.execute("PRAGMA journal_mode = TRUNCATE")
            self._recognise(connection)
        except BaseException:
            connection.close()
            raise
        self._connection, self._process = connection, os.getpid()
        return connection

    def _blank(self, connection: sqlite3.Connection) -> bool:
        return not connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]

    def _create(self, connection: sqlite3.Connection) -> None:
        connection.execute("BEGIN IMMEDIATE")
        if self._blank(connection):  # another process may have been faster
            for statement in self.schema:
                connection.execute(statement)
            connection.execute(f"PRAGMA application_id = {APPLICATION}")
            connection.execute(f"PRAGMA user_version = {FORMAT}")
        connection.execute("COMMIT")

    def _recognise(self, connection: sqlite3.Connection) -> None:
        application = connection.execute("PRAGMA application_id").fetchone()[0]
        created = connection.execute("SELECT sql FROM sqlite_master WHERE sql IS NOT NULL ORDER BY rowid").fetchall()
        if application != APPLICATION or (self.schema[0],) not in created:
            raise StoreError(f"{str(self.path)!r} is a database, but no {self.what}: name another file")
        version = connection.execute("PRAGMA user_version").fetchone()[0]
        if version != FORMAT:
            raise StoreError(f"{str(self.path)!r} has format {version}, this version reads {FORMAT}; update crosscut")

    def _locked(self, wait: float) -> LockedError:
        return LockedError(
            f"the {self.what} {str(self.path)!r} was locked by another process or thread for {wait:.3g} s; try again"
        )

    def _error(self, error: sqlite3.Error, create: bool) -> StoreError:
        code, place = _code(error), repr(str(self.path))
        unharmed = "what was there before is unharmed"
        if code in DAMAGED:
            return StoreError(
                f"{place} is no {self.what}, or is damaged ({error}): name another file, or restore it from a copy"
            )
        if code == sqlite3.SQLITE_FULL:
            return WriteError(f"no room to write to {place} ({error}); {unharmed}: make room and run the same again")
        if code in FORBIDDEN and create:
            return WriteError(
                f"{place} cannot be written to ({error}); {unharmed}: allow writing there, or choose another"
            )
        if create:
            return WriteError(f"writing to {place} failed ({error}); {unharmed}: run the same again")
        return StoreError(f"the {self.what} {place} cannot be read ({error})")


def _code(error: sqlite3.Error) -> int:
    """Return the primary code of an error."""
    return int(getattr(error, "sqlite_errorcode", 0)) & 0xFF
