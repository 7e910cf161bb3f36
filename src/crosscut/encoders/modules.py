"""`modules.json` of a sentence-transformers folder: what a model is made of, and where its parts lie.

The library imports the classes that the file names and reads the folders that it names. A folder may come from a
stranger: only classes of the library itself are imported, and only what lies in the folder is read or written.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import NamedTuple

from crosscut.errors import InputError

FILE = "modules.json"
_CLASS = re.compile(r"sentence_transformers(\.[a-z][a-z_]*)*(\.[A-Z][A-Za-z0-9]*){1,2}")


class Module(NamedTuple):
    """One step of a model."""

    kind: str  # Transformer, Pooling, Normalize …
    folder: Path


def check_modules(model: str | Path) -> None:
    """Refuse a folder whose modules are not to be loaded; a hub id is the library's own matter."""
    if (Path(model) / FILE).is_file():
        read_modules(Path(model))


def read_modules(folder: Path) -> list[Module]:
    """The steps of a model, in order."""
    path = folder / FILE
    try:
        told = json.loads(path.read_text("utf-8"))
        named = [(str(one["type"]), str(one["path"])) for one in told]
    except (OSError, ValueError, TypeError, KeyError, RecursionError) as error:
        raise InputError(f"{str(path)!r} does not say what the model is made of ({error!r}); save it again") from error
    for kind, _ in named:
        if not _CLASS.fullmatch(kind):
            raise InputError(
                f"{str(path)!r} wants {kind!r} imported, which is no class of sentence-transformers: code that a model "
                "folder brings or chooses is not run; load the model yourself and pass it, if you trust it"
            )
    return [Module(kind.rpartition(".")[2], _within(folder, place)) for kind, place in named]


def _within(folder: Path, place: str) -> Path:
    found = folder / place
    if not found.resolve().is_relative_to(folder.resolve()):
        raise InputError(f"{str(folder / FILE)!r} points to {place!r}, which is not in that folder; save it again")
    return found
