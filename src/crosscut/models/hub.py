"""Sources of models: folders, a hub, and a cache of exported graphs.

    <cache>/models/<key>/   model.onnx, tokenizer.json, record.json

The key is a digest of what scores depend on: configuration, tokenizer, weights, the limit of tokens, precision. The
cache is `CROSSCUT_CACHE`, or `crosscut` in the user's cache folder; it may be deleted at any time.

The folder of a model may come from a stranger: of the modules that a sentence-transformers folder names only classes of
the library itself are imported, and only what lies in the folder is read.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any
from uuid import uuid4

from crosscut.errors import InputError, needing
from crosscut.storage import make_folder, write_file

VERSION = 4
"""Of the graphs that are written; a higher one makes every model anew."""
MODULES = "modules.json"
_CLASS = re.compile(r"sentence_transformers(\.[a-z][a-z_]*)*(\.[A-Z][A-Za-z0-9]*){1,2}")


def cache_folder() -> Path:
    """Return where exported models are kept."""
    given = os.environ.get("CROSSCUT_CACHE")
    if given:
        return Path(given)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "crosscut"


def local_folder(name: str | Path) -> Path:
    """Return the folder of a model: itself, or what a hub has under that name."""
    if Path(name).is_dir():
        return Path(name)
    with needing("models of a hub are fetched by huggingface_hub", "torch"):
        from huggingface_hub import snapshot_download
    wanted = ["*.json", "*.txt", "*.model", "onnx/model.onnx"]
    try:
        found = Path(snapshot_download(str(name), allow_patterns=wanted))
        if not (found / "onnx" / "model.onnx").is_file():
            found = Path(snapshot_download(str(name), allow_patterns=[*wanted, "*.safetensors"]))
            if not any(found.glob("*.safetensors")):
                found = Path(snapshot_download(str(name), allow_patterns=[*wanted, "pytorch_model.bin"]))
    except Exception as error:  # of the hub's client, of the network, of the disk
        raise InputError(
            f"no model can be loaded from {str(name)!r} ({error}); pass a hub id or a folder of save_pretrained"
        ) from error
    return found


def check_modules(folder: str | Path) -> None:
    """Refuse a folder whose modules are not to be loaded; a hub id is the library's own matter."""
    path = Path(folder) / MODULES
    if not path.is_file():
        return
    try:
        named = [(str(one["type"]), str(one["path"])) for one in json.loads(path.read_text("utf-8"))]
    except (OSError, ValueError, TypeError, KeyError, RecursionError) as error:
        raise InputError(f"{str(path)!r} does not say what the model is made of ({error!r}); save it again") from error
    for kind, place in named:
        if not _CLASS.fullmatch(kind):
            raise InputError(
                f"{str(path)!r} wants {kind!r} imported, which is no class of sentence-transformers: code that a model "
                "folder brings or chooses is not run; load the model yourself and pass it, if you trust it"
            )
        if not (path.parent / place).resolve().is_relative_to(path.parent.resolve()):
            raise InputError(f"{str(path)!r} points to {place!r}, which is not in that folder; save it again")


def digest_of(files: Mapping[str, Path], settings: Mapping[str, Any]) -> str:
    """Return a short name for files and settings together."""
    digest = hashlib.sha256(json.dumps({"version": VERSION, **settings}, sort_keys=True).encode())
    for name, path in sorted(files.items()):
        digest.update(name.encode())
        with path.open("rb") as file:
            while block := file.read(1 << 22):
                digest.update(block)
    return digest.hexdigest()[:16]


def cached_model(
    key: str, make: Callable[[], tuple[Mapping[str, bytes], Mapping[str, Any]]]
) -> tuple[Path, dict[str, Any]]:
    """Return the folder of a key and its record; where there is none `make()` gives its files and facts.

    Two processes may make the same at once: each writes a folder of its own, and the first one stays.
    """
    home = cache_folder() / "models" / key
    record = home / "record.json"
    if record.is_file():
        return home, dict(json.loads(record.read_text("utf-8")))
    files, facts = make()
    make_folder(home.parent)
    place = home.parent / f".{key}-{uuid4().hex[:8]}"
    try:
        place.mkdir()
        for name, content in files.items():
            write_file(place / name, [content])
        write_file(place / "record.json", [json.dumps(dict(facts), indent=1).encode()])
        try:
            place.rename(home)
        except OSError:
            if not record.is_file():
                raise
    except OSError as error:
        raise InputError(
            f"the exported model cannot be kept in {str(home)!r} ({error}); CROSSCUT_CACHE names another folder"
        ) from error
    finally:
        shutil.rmtree(place, ignore_errors=True)
    return home, dict(json.loads(record.read_text("utf-8")))
