"""A folder of arrays and one JSON record: written beside its place, flushed, renamed there."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from crosscut.errors import InputError

FORMAT = 1
RECORD = "ivf.json"


def write(path: Path, record: Mapping[str, Any], arrays: Mapping[str, npt.NDArray[Any]]) -> None:
    """`ivf.json` and one `.npy` per array. An index that was there before is replaced; anything else is refused."""
    if path.exists() and not (path / RECORD).is_file():
        raise InputError(f"{str(path)!r} exists and is not an index: choose another place")
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = Path(tempfile.mkdtemp(prefix=path.name + ".", dir=path.parent))
    try:
        for name, array in arrays.items():
            with open(beside / f"{name}.npy", "wb") as file:
                np.save(file, array, allow_pickle=False)
                _flush(file)
        with open(beside / RECORD, "w", encoding="utf-8") as text:
            json.dump({"format": FORMAT, **record}, text)
            _flush(text)
        old = beside.with_name(beside.name + ".old")
        if path.exists():
            path.rename(old)  # a memory map of the old files stays valid
        beside.rename(path)
        shutil.rmtree(old, ignore_errors=True)
    finally:
        shutil.rmtree(beside, ignore_errors=True)


def read(path: Path, names: Sequence[str], *, memory_map: bool) -> tuple[dict[str, Any], dict[str, npt.NDArray[Any]]]:
    """What `write` wrote. Memory maps are copy-on-write: the compiled search wants arrays it could write to."""
    try:
        record = json.loads((path / RECORD).read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise InputError(f"there is no index in {str(path)!r}: {RECORD} is missing") from None
    except json.JSONDecodeError as error:
        raise InputError(f"{str(path / RECORD)!r} is damaged: {error}") from None
    if record.get("format") != FORMAT:
        raise InputError(
            f"the index in {str(path)!r} has format {record.get('format')!r} and this version reads {FORMAT}: "
            "build it again"
        )
    arrays = {}
    for name in names:
        file = path / f"{name}.npy"
        try:
            arrays[name] = np.load(file, mmap_mode="c" if memory_map else None, allow_pickle=False)
        except (OSError, ValueError, EOFError) as error:
            raise InputError(f"{str(file)!r} is missing or damaged: {error}") from None
    return record, arrays


def _flush(file: Any) -> None:
    file.flush()
    os.fsync(file.fileno())
