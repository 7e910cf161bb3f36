"""What was forgotten, told to those who still have it in memory.

A process that was started before something was forgotten may hold scores of it that wait to be written, or make new
ones. So whoever writes asks here first. What is kept must not tell what was forgotten: a name is kept as a hash under a
key, and that key is on no disk any more when `add` returns.

    key₀ random,  key₊₁ = H(key)          on disk: the present one, from which no earlier one can be made
    the mark of a name: H(key, name)      under the key at which it was forgotten

A process keeps the key that it found when it began (`Since`): from that it makes the later ones, and with them the
marks of whatever names it has. What began after a name was forgotten may write it: it is there anew.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import os
import secrets
from collections.abc import Collection, Iterable
from pathlib import Path
from typing import NamedTuple

from crosscut.errors import StoreError
from crosscut.storage.files import regular, write_json
from crosscut.storage.folders import checksum_of

LOGGER = logging.getLogger("crosscut.storage")
TIMES, MARKS = 10_000, 1 << 20
"""Times of forgetting, and names, that are known at most: who began before the oldest of them writes no more."""


class Since(NamedTuple):
    """How often something had been forgotten, and the key, when a process began; and the times at which it did so
    itself, which do not concern it: what it has of those names since then is new."""

    times: int
    key: bytes
    own: frozenset[int] = frozenset()

    def after(self, time: int) -> Since:
        """Having forgotten something itself, that time."""
        (times, key, own) = self
        own |= {time}
        while times in own:
            times, key, own = times + 1, _next(key), own - {times}
        return Since(times, key, own)


class Notice(NamedTuple):
    """What the file says: the present times and key, and the marks of the last few times."""

    since: Since
    marks: tuple[frozenset[bytes], ...]


class Forgotten:
    """The marks of what was forgotten, in a file. Who adds to it holds a lock; who reads it needs none."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._read: tuple[tuple[int, ...], Notice] | None = None

    @property
    def found(self) -> Since | None:
        """`now`, of somebody who may only want to read: a damaged file is an error when something is to be written."""
        with contextlib.suppress(StoreError):
            return self.now
        return None

    @property
    def now(self) -> Since | None:
        """From which a process that begins now must ask; None: there is no file yet."""
        notice = self._notice()
        return None if notice is None else notice.since

    def begin(self) -> None:
        """Make the file, so that those who begin now have a key. The caller holds a lock."""
        if not self.path.exists():
            self._write(Notice(Since(0, secrets.token_bytes(32)), ()))

    def add(self, names: Iterable[bytes]) -> int:
        """These names are forgotten; returns which time this is. The caller holds a lock, and deletes what is there of
        them afterwards."""
        self.begin()
        notice = self._notice()
        assert notice is not None
        (times, key, _), marks = notice
        kept = [*marks, frozenset(_mark(key, name) for name in names)][-TIMES:]
        while len(kept) > 1 and sum(map(len, kept)) > MARKS:
            del kept[0]
        self._write(Notice(Since(times + 1, _next(key)), tuple(kept)))
        return times

    def among(self, names: Collection[bytes], since: Since | None) -> set[bytes]:
        """Those of these names that were forgotten since; all of them where that cannot be told."""
        notice = self._notice()
        if notice is None or notice.since == since or (since is None and not notice.since.times):
            return set()
        first = notice.since.times - len(notice.marks)
        if since is None or not first <= since.times <= notice.since.times:
            return self._unknown(names)
        key, gone = since.key, set[bytes]()
        for time, marks in enumerate(notice.marks[since.times - first :], since.times):
            if marks and time not in since.own:
                gone.update(name for name in names if _mark(key, name) in marks)
            key = _next(key)
        return gone if key == notice.since.key else self._unknown(names)

    def _unknown(self, names: Collection[bytes]) -> set[bytes]:
        LOGGER.warning(
            "%s: this process began before things were forgotten that it cannot tell by now, so it keeps nothing more "
            "there; start it again",
            self.path,
        )
        return set(names)

    def _notice(self) -> Notice | None:
        try:
            status = os.stat(regular(self.path))
            stamp = (status.st_ino, status.st_size, status.st_mtime_ns)
            if self._read is None or self._read[0] != stamp:
                self._read = stamp, _parsed(self.path.read_bytes())
            return self._read[1]
        except (FileNotFoundError, NotADirectoryError):
            return None
        except (OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
            raise StoreError(
                f"{str(self.path)!r} cannot be read ({error}), so nobody can tell what was forgotten: end every other "
                "process that writes here, then delete it"
            ) from error

    def _write(self, notice: Notice) -> None:
        facts = {
            "times": notice.since.times,
            "key": notice.since.key.hex(),
            "marks": [sorted(mark.hex() for mark in marks) for marks in notice.marks],
        }
        write_json(self.path, {**facts, "checksum": checksum_of(facts)})


def _parsed(data: bytes) -> Notice:
    facts = json.loads(data)
    if facts.pop("checksum", None) != checksum_of(facts):
        raise ValueError("it does not match its checksum")
    marks = tuple(frozenset(map(bytes.fromhex, some)) for some in facts["marks"])
    return Notice(Since(int(facts["times"]), bytes.fromhex(facts["key"])), marks)


def _mark(key: bytes, name: bytes) -> bytes:
    return hashlib.blake2b(name, key=key, digest_size=16, person=b"forgotten").digest()


def _next(key: bytes) -> bytes:
    return hashlib.blake2b(key, digest_size=32, person=b"next").digest()
