"""Lines of plain or gzipped files, and what can be wrong with them."""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from crosscut.errors import InputError


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


def lines(path: str | Path) -> Iterator[tuple[int, str]]:
    """Numbered lines of a UTF-8 file, streamed; `.gz` is unpacked on the way, blank lines are skipped."""
    path = Path(path)
    number = 0
    try:
        with gzip.open(path, "rt", encoding="utf-8") if path.suffix == ".gz" else path.open(encoding="utf-8") as file:
            for number, line in enumerate(file, 1):
                if line.strip():
                    yield number, line.rstrip("\r\n")
    except FileNotFoundError as error:
        raise InputError(f"there is no file {str(path)!r}") from error
    except UnicodeDecodeError as error:
        raise InputError(f"{path} is not UTF-8 after line {number} ({error}); convert it first") from error
    except (OSError, EOFError, zlib.error) as error:
        raise InputError(f"{path} cannot be read after line {number} ({error})") from error


def records(path: str | Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """Numbered JSON objects, one a line."""
    for number, line in lines(path):
        try:
            record = json.loads(line)
        except json.JSONDecodeError as error:
            raise InputError(f"{path} line {number} is broken JSON ({error})") from error
        if not isinstance(record, dict):
            raise InputError(f"{path} line {number} is a JSON {type(record).__name__}; expected an object")
        yield number, record


def text_of(record: dict[str, Any], keys: tuple[str, ...], path: str | Path, number: int) -> str:
    """The first of `keys` that the record has, as text."""
    for key in keys:
        if key in record:
            value = record[key]
            if isinstance(value, str):
                return value
            if isinstance(value, int) and not isinstance(value, bool):
                return str(value)
            raise InputError(f"{path} line {number}: {key!r} is a {type(value).__name__}; expected a string")
    raise InputError(f"{path} line {number} has no {' or '.join(map(repr, keys))}; its keys are {sorted(record)}")


def metadata_of(record: dict[str, Any], used: tuple[str, ...]) -> dict[str, Any]:
    """What a record holds besides the `used` keys; an object under "metadata" is taken apart."""
    rest = {key: value for key, value in record.items() if key not in used}
    inner = rest.pop("metadata", None)
    if isinstance(inner, dict):
        rest.update(inner)
    elif inner is not None:
        rest["metadata"] = inner
    return rest


class Unique:
    """Refuses an id that was seen before, and says where."""

    def __init__(self, path: str | Path) -> None:
        self.path = path
        self.seen: dict[str, int] = {}

    def check(self, id: str, number: int) -> str:
        if id in self.seen:
            raise InputError(
                f"{self.path} line {number} repeats the id {id!r} of line {self.seen[id]}; ids must be unique"
            )
        self.seen[id] = number
        return id
