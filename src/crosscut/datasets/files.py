"""Lines of plain or gzipped files, and what can be wrong with them."""

from __future__ import annotations

import contextlib
import gzip
import io
import itertools
import json
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

import numpy as np

from crosscut.errors import InputError
from crosscut.types import Progress

REPORTED = 1 << 12  # lines between two calls of a progress function
LONGEST = 1 << 28  # characters of a line, or of a value
RECENT = 1 << 18  # ids that are compared one by one


def find(folder: Path, *names: str) -> Path:
    """The first of the named files that exists, plain or gzipped."""
    for name in names:
        for path in (folder / name, folder / f"{name}.gz"):
            if path.is_file():
                return path
    raise InputError(
        f"{str(folder)!r} has no {names[0]} (nor {names[0]}.gz); "
        f"it holds {sorted(path.name for path in folder.iterdir()) if folder.is_dir() else 'nothing'}"
    )


class Opened:
    """A UTF-8 file while it is read, plain or gzipped; what goes wrong is said with the last line that was read.

    Lines end in "\\n" or "\\r\\n". A "\\r" elsewhere is a character like any other: MS MARCO's passages have some.
    """

    def __init__(self, path: str | Path, progress: Progress | None = None) -> None:
        self.path = Path(path)
        self.number = 0  # of the line that was read last
        self._progress = progress

    @contextlib.contextmanager
    def text(self, newline: str = "\n") -> Iterator[IO[str]]:
        try:
            with self.path.open("rb") as raw:
                plain: Any = gzip.GzipFile(fileobj=raw) if self.path.suffix == ".gz" else raw
                self._raw, self._size = raw, self.path.stat().st_size
                with io.TextIOWrapper(plain, encoding="utf-8-sig", newline=newline) as file:
                    yield file
        except FileNotFoundError as error:
            raise InputError(f"there is no file {str(self.path)!r}") from error
        except UnicodeDecodeError as error:
            raise InputError(
                f"{self.path} is not UTF-8 (byte 0x{error.object[error.start]:02x} in "
                f"{error.object[max(error.start - 10, 0) : error.end + 10]!r}); convert it first: "
                "iconv -f latin1 -t utf-8"
            ) from error
        except (OSError, EOFError, zlib.error) as error:
            raise InputError(f"{self.path} cannot be read after line {self.number} ({error})") from error

    def report(self, *, end: bool = False) -> None:
        """Report how many bytes of the file were read, now and then."""
        if self._progress is not None and (end or not self.number % REPORTED):
            self._progress(f"reading {self.path.name} (bytes)", self._raw.tell() if not end else self._size, self._size)

    def bounded(self, file: IO[str]) -> Iterator[str]:
        """Lines as they are; one that does not end is refused, before it fills the memory."""
        for number in itertools.count(1):
            line = file.readline(LONGEST + 1)
            if len(line) > LONGEST:
                raise InputError(f"{self.path} line {number} has more than {LONGEST:,} characters: is it a text?")
            if not line:
                return
            yield line

    def lines(self) -> Iterator[tuple[int, str]]:
        with self.text() as file:
            for number, line in enumerate(self.bounded(file), 1):
                self.number = number
                self.report()
                if line.strip():
                    yield self.number, line.rstrip("\r\n")
            self.report(end=True)


def lines(path: str | Path, progress: Progress | None = None) -> Iterator[tuple[int, str]]:
    """Numbered lines of a UTF-8 file, streamed; `.gz` is unpacked on the way, blank lines are skipped."""
    return Opened(path, progress).lines()


def records(path: str | Path, progress: Progress | None = None) -> Iterator[tuple[int, dict[str, Any]]]:
    """Numbered JSON objects, one a line."""
    for number, line in lines(path, progress):
        try:
            record = json.loads(line)
        except (ValueError, RecursionError) as error:  # a number of thousands of digits is no JSONDecodeError
            raise InputError(f"{path} line {number} is broken JSON ({error})") from error
        if not isinstance(record, dict):
            raise InputError(f"{path} line {number} is a JSON {type(record).__name__}; expected an object")
        yield number, record


def text_of(record: dict[str, Any], keys: tuple[str, ...], path: str | Path, number: int) -> str:
    """The first of `keys` that the record has, as text."""
    for key in keys:
        if key in record:
            return as_text(record[key], key, f"{path} line {number}")
    raise InputError(f"{path} line {number} has no {' or '.join(map(repr, keys))}; its keys are {sorted(record)}")


def as_text(value: Any, key: str, where: str) -> str:
    """A value that is a text, or a whole number."""
    if isinstance(value, str):
        return value
    if isinstance(value, int | np.integer) and not isinstance(value, bool):
        return str(value)
    if value is None:
        raise InputError(f"{where}: {key!r} is missing; leave such records out, or give them an empty text")
    raise InputError(f"{where}: {key!r} is a {type(value).__name__}; expected a string")


class Unique:
    """Refuses an id that was seen before, and says where.

    Of ids beyond the last `RECENT` only a hash and the line are kept, 16 bytes each, and those are compared many at a
    time: `close` compares the rest.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = path
        self._recent: dict[str, int] = {}
        self._runs: list[tuple[Any, Any]] = []  # sorted hashes and their lines, long ones first

    def check(self, id: str, number: int) -> str:
        first = self._recent.setdefault(id, number)
        if first != number:
            raise self._twice(id, number, first)
        if len(self._recent) >= RECENT:
            self.close()
        return id

    def close(self) -> None:
        """Compare the recent ids with all before them."""
        if not self._recent:
            return
        ids = list(self._recent)
        hashes = np.fromiter(map(hash, ids), np.int64, len(ids))
        numbers = np.fromiter(self._recent.values(), np.int64, len(ids))
        for known, where in self._runs:
            places = np.minimum(np.searchsorted(known, hashes), len(known) - 1)
            same = np.flatnonzero(known[places] == hashes)
            if len(same):
                raise self._twice(ids[same[0]], int(numbers[same[0]]), int(where[places[same[0]]]))
        order = np.argsort(hashes)
        self._runs.append((hashes[order], numbers[order]))
        self._recent = {}
        while len(self._runs) > 1 and len(self._runs[-1][0]) >= len(self._runs[-2][0]):  # few runs, of many sizes
            joined = [np.concatenate(pair) for pair in zip(self._runs.pop(), self._runs.pop(), strict=True)]
            order = np.argsort(joined[0], kind="stable")
            self._runs.append((joined[0][order], joined[1][order]))

    def _twice(self, id: str, number: int, first: int) -> InputError:
        return InputError(f"{self.path} line {number} repeats the id {id!r} of line {first}; ids must be unique")
