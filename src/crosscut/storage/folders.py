"""A folder whose record is replaced as a whole, and whose files are never changed.

    <folder>/
      <record>.json          format, version, generation, facts, and of every file its size and checksum; a checksum of
                             the record itself
      lock                   held by the process that is changing the folder
      000007-1f0c9e5a/       the files of the generation that the record names
      000003-87ab12cd/       parts of earlier generations that are still used: segments of an index
        .crosscut            says that this folder is ours to delete
        …                    its files, never changed once they are written

Replacing the record is the one step that counts. Before it the old generation is what is there, after it the new one,
and nothing is ever deleted but marked folders that the record on disk does not name.

Sizes and headers are compared before a byte is used, checksums of files up to `SMALL` bytes on load, and those of all
files by `verify`.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar
from uuid import uuid4

from crosscut.errors import CrosscutError, FolderError, InputError
from crosscut.storage.files import TEMPORARY, Lock, make_folder, regular, sync, write_synced, writing
from crosscut.storage.generations import MARK, Files, Saved, digest

T = TypeVar("T")
_HOME = re.compile(r"\d{6,}-[0-9a-f]{8}")


@dataclass(frozen=True)
class Kind:
    """A kind of folder: its name, the file of its record, its version, and the remedy for damage."""

    noun: str
    record: str
    version: int
    remedy: str = "build it again"
    how_to_make: str = ""
    """A hint for errors where there is no such folder."""

    @property
    def format(self) -> str:
        return f"crosscut {self.noun}"


class Folder:
    """A folder that is replaced as a whole. `known` are the generations that this object has read or written."""

    def __init__(self, path: str | Path, kind: Kind) -> None:
        self.path = Path(path)
        self.kind = kind
        self.known: set[str] = set()

    def check(self) -> None:
        """Refuse a place that cannot be saved to, a file or a folder that holds something else; nothing is changed."""
        if self.path.exists() and not self.path.is_dir():
            raise FolderError(
                f"{str(self.path)!r} is a file, and the {self.kind.noun} is to be a folder: give another name"
            )
        with writing(self.path):
            if self.path.exists():
                self._next()

    def lock(self) -> Lock:
        return Lock(self.path, self.kind.noun)

    def record(self) -> dict[str, Any]:
        """Read the record of the folder and check it."""
        noun, path = self.kind.noun, self.path / self.kind.record
        if not self.path.is_dir():
            file = " (that is a file, not the folder of one)" if self.path.is_file() else ""
            raise FolderError(f"there is no {noun} at {str(self.path)!r}{file}{self.kind.how_to_make}")
        try:
            record = json.loads(regular(path).read_bytes())
        except FileNotFoundError:
            raise FolderError(f"{str(self.path)!r} is no crosscut {noun}: it has no {path.name}") from None
        except (OSError, ValueError, RecursionError) as error:
            raise FolderError(
                f"{str(path)!r} cannot be read ({error}); restore the {noun} or {self.kind.remedy}"
            ) from error
        if not isinstance(record, dict) or record.get("format") != self.kind.format:
            raise FolderError(f"{str(self.path)!r} is no crosscut {noun}: its {path.name} belongs to something else")
        version = record.get("version")
        if version != self.kind.version:
            raise FolderError(
                f"the {noun} at {str(self.path)!r} has version {version}, this crosscut reads {self.kind.version}; "
                f"update crosscut or {self.kind.remedy}"
            )
        checksum = record.pop("checksum", None)
        parts = record.get("parts")
        named = isinstance(parts, dict) and all(map(_HOME.fullmatch, [str(record.get("folder")), *parts]))
        if checksum != checksum_of(record) or not named:
            raise FolderError(
                f"the {noun} at {str(self.path)!r} is damaged: {path.name} does not match its checksum; "
                f"restore it or {self.kind.remedy}"
            )
        return record

    def load(self, read: Callable[[Saved], T], *, verify: bool = False) -> T:
        """Return `read` of the current generation; read again if another process saved meanwhile.

        With `verify`, all files are compared with their checksums, not only small ones.
        """
        while True:
            record = self.record()
            try:
                made = read(Saved(self.path, self.kind.noun, self.kind.remedy, record, verify))
            except (CrosscutError, OSError):
                if self.record()["folder"] == record["folder"]:
                    raise
                continue
            except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError) as error:
                raise FolderError(
                    f"the {self.kind.noun} at {str(self.path)!r} cannot be used: what {self.kind.record} says does not "
                    f"fit the rest ({type(error).__name__}: {error}); restore it or {self.kind.remedy}"
                ) from error
            self.known = {record["folder"]}
            return made

    def unchanged(self) -> None:
        """Refuse a folder that holds another generation than was read or written here."""
        record = self.record()
        if record["folder"] not in self.known:
            raise FolderError(
                f"the {self.kind.noun} at {str(self.path)!r} was changed since it was loaded (it is generation "
                f"{record['generation']} now); load it again, or save to another folder"
            )

    def verify(self) -> list[str]:
        """Read every file, compare every checksum; a sentence for each that does not fit."""

        def read(saved: Saved) -> list[str]:
            found = [error for part in (saved, *saved.parts) for error in part.check()]
            if found and self.record()["folder"] != saved.facts["folder"]:
                raise FolderError(found[0])  # somebody saved meanwhile: look at that
            return found

        return self.load(read)

    def save(self, facts: Mapping[str, Any], fill: Callable[[Files], None]) -> None:
        """`write`, under the lock."""
        with self.lock():
            self.write(facts, fill)

    def write(self, facts: Mapping[str, Any], fill: Callable[[Files], None]) -> None:
        """Make the folder hold a new generation, whose files `fill` writes. The caller holds the lock."""
        with writing(self.path):
            make_folder(self.path)
            number = self._next()
            there = f"the new {self.kind.noun} is there, and may be gone after a power failure"
            home = self.path / f"{number:06d}-{uuid4().hex[:8]}"
            try:
                files = Files(home, self.kind.format.encode())
                fill(files)
                files.close()
                header = {"format": self.kind.format, "version": self.kind.version, "generation": number}
                record = {**header, "folder": home.name, **facts, "files": files.described, "parts": files.parts}
                record = json.loads(json.dumps(record))  # as a reader will see it
                text = json.dumps({**record, "checksum": checksum_of(record)}, indent=1)
                write_synced(home / (self.kind.record + TEMPORARY), [text.encode(), b"\n"])
                sync(home)
                sync(self.path)
                self.known.add(home.name)
                os.replace(home / (self.kind.record + TEMPORARY), self.path / self.kind.record)
            except BaseException as error:
                self._sweep()
                if isinstance(error, OSError) and home.exists():  # it was replaced all the same
                    with writing(self.path, there):
                        raise
                raise
        with writing(self.path, there):
            sync(self.path)
        self._sweep()

    def _next(self) -> int:
        """The number of the next generation; a folder that holds something else is refused."""
        there = [path.name for path in self.path.iterdir()]
        ours = {path.name for path in self._generations()}
        foreign = sorted(name for name in there if name not in ours and name != "lock")
        number = max((int(name.partition("-")[0]) for name in ours), default=0)
        if self.kind.record in there:
            try:
                number = max(number, self.record()["generation"])
            except InputError as error:
                if not ours:  # damaged, or of another version, or somebody else's
                    raise FolderError(f"{error}, and save to an empty folder") from error
        elif foreign:
            raise FolderError(
                f"{str(self.path)!r} holds something else ({', '.join(foreign[:3])} …); save to an empty folder"
            )
        return number + 1

    def _generations(self) -> list[Path]:
        """The folders of generations that are ours: marked, or made and not marked yet."""
        try:
            named = [path for path in self.path.iterdir() if _HOME.fullmatch(path.name)]
            named = [path for path in named if path.is_dir() and not path.is_symlink()]  # a link leads elsewhere
            return [path for path in named if (path / MARK).is_file() or not any(path.iterdir())]
        except OSError:
            return []

    def _sweep(self) -> None:
        """Delete our generations that the record on disk does not name; none if it cannot be read."""
        named: set[str] = set()
        if (self.path / self.kind.record).exists():
            try:
                record = self.record()
                named = {record["folder"], *record["parts"]}
            except InputError:
                return
        for home in self._generations():
            if home.name not in named:
                with contextlib.suppress(OSError):
                    for path in sorted(home.iterdir(), key=lambda path: path.name == MARK):  # the mark goes last
                        path.unlink()
                    home.rmdir()


def checksum_of(record: Mapping[str, Any]) -> str:
    """Of a JSON object: of its compact text with sorted keys, so that two texts of one meaning have the same."""
    return str(digest(json.dumps(record, sort_keys=True, separators=(",", ":")).encode()).hexdigest())
