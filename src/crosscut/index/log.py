"""A log of past searches: what was asked, what was scored, by which scorer. `index.learn` learns from it.

One file, appended to. A record is

    b"ccsr"   4 bytes
    size      4 bytes, little-endian, of what follows the checksum
    checksum  8 bytes, blake2b of what follows
    header    JSON, one line: {"query": blake2b of its text, "models": fingerprints, "time": s, "d": d, "ids": [m ids]}
              and, if items were drawn at random, {"chances": [m numbers]}
    vector    d float32: the encoder's query vector
    scores    m float32: what the scorer was asked for, without what it knows unasked

The text of a query is not kept, only a hash by which it can be forgotten; its vector may still tell what it was about.
A record that was torn by a crash, or damaged, is passed over. At `limit` bytes the older half is dropped. What is
forgotten is gone from the file when `forget` returns, and those who have it in memory do not bring it back: they look
at `<file>.forgotten` (`storage/forgotten.py`).
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import struct
import threading
from collections.abc import Collection, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from crosscut.errors import InputError
from crosscut.storage import Forgotten, Lock, Since, make_folder, regular, write_file, writing

MARK = b"ccsr"
HEAD = struct.Struct("<4sI8s")
LIMIT = 64 << 20  # bytes: some 30,000 searches of 100 calls


class Logged(NamedTuple):
    """One past search."""

    query: str  # a hash of its text
    models: str  # the fingerprints of scorer and encoder
    time: float  # seconds since 1970
    ids: list[str]  # (m) of the items that were scored, in order
    vector: npt.NDArray[np.float32]  # (d)
    scores: npt.NDArray[np.float32]  # (m)
    chances: npt.NDArray[np.float32] | None = None  # (m) with which each was picked; None: 1


class SearchLog:
    """Past searches in a file; several processes may append to it."""

    def __init__(self, path: str | Path, *, limit: int = LIMIT) -> None:
        if limit < 1 << 12:
            raise InputError(f"a log of searches needs a limit of at least 4096 bytes; got {limit}")
        self.path = Path(path)
        if not self.path.name:
            raise InputError(f"a log of searches is a file, such as 'searches.log'; got {str(path)!r}")
        self.limit = limit
        self._threads = threading.Lock()
        self._forgotten = Forgotten(self.path.with_name(f"{self.path.name}.forgotten"))
        self.since = self._forgotten.found
        """When this log was opened, or forgot something last: what others forget later is not logged by it."""

    def begin(self) -> None:
        """Have the key by which others can tell this process what they forget. A file that is no log is refused: what
        searches score would be written to its end."""
        if self._foreign():
            raise InputError(
                f"{str(self.path)!r} is there and is no log of searches, which would be written to its end: name "
                "another file, or one that is not there yet"
            )
        if self.since is None:
            with self._alone():
                self._begin()

    def _begin(self) -> None:
        self._forgotten.begin()
        now = self._forgotten.now
        self.since = now if now is not None and not now.times else None

    @property
    def forgot(self) -> bool:
        """Whether it was ever told to forget something, by whomever."""
        now = self._forgotten.found
        return now is not None and now.times > 0

    def append(self, searches: Sequence[Logged], *, since: Since | None = None) -> None:
        """Take in searches, each as a whole or not at all, but for what was forgotten `since` they began."""
        if not searches:
            return
        with self._alone():
            if self.since is None:
                self._begin()
            data = b"".join(map(_packed, self._lasting(searches, since or self.since)))
            if not data:
                return
            with writing(self.path.parent, "the log is as it was"):
                make_folder(self.path.parent)
                with self.path.open("ab") as file:
                    file.write(data)
                    size = file.tell()
            if size > self.limit:
                self._write(_newest([_packed(search) for search in self.read()], self.limit // 2))

    def read(self) -> list[Logged]:
        """Every whole record, oldest first."""
        try:
            data = regular(self.path).read_bytes() if self.path.exists() else b""
        except OSError as error:
            raise InputError(f"the log of searches at {str(self.path)!r} cannot be read ({error.strerror})") from error
        return list(_unpacked(data))

    def forget(self, *, queries: Iterable[str] = (), ids: Iterable[str] = ()) -> int:
        """Erase the searches of these queries and the scores of these items; returns how many searches changed."""
        asked, items = {query_hash(query) for query in queries}, set(ids)
        changed = 0
        with self._alone():
            if self.since is None:
                self._begin()
            time = self._forgotten.add([*map(_of_query, asked), *map(_of_item, items)])
            kept = []
            for search in self.read():
                left = _without(search, asked, items)
                changed += left is not search
                if left is not None and left.ids:
                    kept.append(_packed(left))
            if changed:
                self._write(kept)
            self.since = None if self.since is None else self.since.after(time)
        return changed

    def _foreign(self) -> bool:
        """Whether there is something else in the place of this log."""
        try:
            with regular(self.path).open("rb") as file:
                start = file.read(len(MARK))
        except (FileNotFoundError, NotADirectoryError):
            return False
        except OSError:
            return True
        return not MARK.startswith(start) and not self.read()  # the first of many records may be damaged

    def _lasting(self, searches: Sequence[Logged], since: Since | None) -> list[Logged]:
        """What may be logged of searches by somebody who began then."""
        asked, items = {search.query for search in searches}, {id for search in searches for id in search.ids}
        gone = self._forgotten.among([*map(_of_query, asked), *map(_of_item, items)], since)
        if not gone:
            return list(searches)
        asked = {query for query in asked if _of_query(query) in gone}
        items = {id for id in items if _of_item(id) in gone}
        left = (_without(search, asked, items) for search in searches)
        return [search for search in left if search is not None and search.ids]

    def _write(self, records: Sequence[bytes]) -> None:
        write_file(self.path.resolve(), records)  # where a link leads: what is forgotten is gone there too

    @contextlib.contextmanager
    def _alone(self) -> Iterator[None]:
        """One thread of one process at a time."""
        with self._threads, Lock(self.path.parent, "log of searches", name=f"{self.path.name}.lock", wait=True):
            yield


def query_hash(query: str) -> str:
    """By which a query is found again, and not read."""
    return hashlib.blake2b(query.encode(errors="surrogatepass"), digest_size=16).hexdigest()


def _of_query(hash: str) -> bytes:
    return b"query " + hash.encode()


def _of_item(id: str) -> bytes:
    return b"item " + id.encode(errors="surrogatepass")


def _without(search: Logged, queries: Collection[str], ids: Collection[str]) -> Logged | None:
    """The same, or what is left of it: nothing, or other items."""
    if search.query in queries:
        return None
    stay = [place for place, id in enumerate(search.ids) if id not in ids]
    if len(stay) == len(search.ids):
        return search
    chances = None if search.chances is None else search.chances[stay]
    return search._replace(ids=[search.ids[place] for place in stay], scores=search.scores[stay], chances=chances)


def _packed(search: Logged) -> bytes:
    header: dict[str, Any] = {"query": search.query, "models": search.models, "time": search.time}
    header |= {"d": len(search.vector), "ids": search.ids}
    if search.chances is not None:
        header["chances"] = search.chances.tolist()
    line = json.dumps(header, ensure_ascii=False).encode(errors="surrogatepass") + b"\n"
    body = line + search.vector.astype("<f4").tobytes() + search.scores.astype("<f4").tobytes()
    return HEAD.pack(MARK, len(body), _checksum(body)) + body


def _unpacked(data: bytes) -> Iterator[Logged]:
    start = 0
    while (start := data.find(MARK, start)) >= 0:
        body = b""
        if start + HEAD.size <= len(data):
            _, size, checksum = HEAD.unpack_from(data, start)
            body = data[start + HEAD.size : start + HEAD.size + size]
            if len(body) < size or _checksum(body) != checksum:
                body = b""
        if not body:  # torn, damaged, or no record at all: the next one is found by its mark
            start += 1
            continue
        start += HEAD.size + len(body)
        with contextlib.suppress(LookupError, TypeError, ValueError, RecursionError):  # not written by us: passed over
            yield _logged(body)


def _logged(body: bytes) -> Logged:
    line, numbers = body.split(b"\n", 1)
    header = json.loads(line.decode(errors="surrogatepass"))
    values = np.frombuffer(numbers, dtype="<f4").astype(np.float32)
    d, ids = int(header["d"]), [str(id) for id in header["ids"]]
    chances = np.array(header["chances"], np.float32) if "chances" in header else None
    if d < 0 or d + len(ids) != len(values) or (chances is not None and chances.shape != (len(ids),)):
        raise ValueError(f"{len(values)} numbers for a vector of {d} and {len(ids)} items")
    query, models, when = str(header["query"]), str(header["models"]), float(header["time"])
    return Logged(query, models, when, ids, values[:d], values[d:], chances)


def _checksum(body: bytes) -> bytes:
    return hashlib.blake2b(body, digest_size=8).digest()


def _newest(records: Sequence[bytes], room: int) -> list[bytes]:
    """The last records that fit."""
    kept: list[bytes] = []
    for record in reversed(records):
        room -= len(record)
        if room < 0:
            break
        kept.append(record)
    return kept[::-1]
