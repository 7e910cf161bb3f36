"""Somebody else's model as an ONNX file of our own, made once and kept in the user's cache.

    <cache>/models/<key>/   model.onnx, tokenizer.json, record.json

The key is a digest of what scores depend on: configuration, tokenizer, weights, the limit of tokens, precision. The
cache is `CROSSCUT_CACHE`, or `crosscut` in the user's cache folder; it may be deleted at any time.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any
from uuid import uuid4

from crosscut.errors import InputError, needing
from crosscut.storage import make_folder, write_file

VERSION = 3
"""Of the graphs that are written; a higher one makes every model anew."""


def cache_folder() -> Path:
    """Where exported models are kept."""
    given = os.environ.get("CROSSCUT_CACHE")
    if given:
        return Path(given)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "crosscut"


def local_folder(name: str | Path) -> Path:
    """The folder of a model: itself, or what a hub has under that name."""
    if Path(name).is_dir():
        return Path(name)
    with needing("models of a hub are fetched by huggingface_hub", "torch"):
        from huggingface_hub import snapshot_download
    wanted = ["*.json", "*.txt", "*.model", "*.safetensors", "model.config", "model.torch", "*.ckpt"]
    try:
        found = Path(snapshot_download(str(name), allow_patterns=wanted))
        if not any(found.glob("*.safetensors")):
            found = Path(snapshot_download(str(name), allow_patterns=[*wanted, "pytorch_model.bin"]))
    except Exception as error:  # of the hub's client, of the network, of the disk
        raise InputError(
            f"no model can be loaded from {str(name)!r} ({error}); pass a hub id or a folder of save_pretrained"
        ) from error
    return found


def digest_of(files: Mapping[str, Path], settings: Mapping[str, Any]) -> str:
    """A short name for files and settings together."""
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
    """The folder of a key and its record; where there is none `make()` gives its files and facts.

    Two processes may make the same at once: each writes a folder of its own, and whoever is first gives it its name.
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
