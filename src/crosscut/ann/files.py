"""A clustered index on disk: a folder that is replaced as a whole (`crosscut.storage.folders`).

ivf.json            its record, with the metric and the exit rule
vectors.npy         (n × d) float16 or float32, list by list
starts.npy          (lists + 1) where each list begins
ids.npy             (n) their names
centroids.npy       (lists × d)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from crosscut.storage import Files, Folder, Kind, Saved, Unread, divides
from crosscut.types import Array

T = TypeVar("T")
MOST = 1 << 62  # behind the largest id there is room for more
KIND = Kind("clustered index", "ivf.json", 2)


def write(path: Path, facts: Mapping[str, Any], arrays: Mapping[str, Array]) -> None:
    """Replace what the folder holds."""

    def fill(files: Files) -> None:
        for name, array in arrays.items():
            files.array(name, array)

    Folder(path, KIND).save(facts, fill)


def read(path: Path, made: Callable[[dict[str, Any], dict[str, Array], Unread], T], *, memory_map: bool) -> T:
    """What is made of the facts and arrays that `write` wrote, and of the checks that wait for the first search.

    Memory maps are copy-on-write: the compiled search wants arrays it could write to. It goes by starts and ids
    without looking, so these are looked at here.
    """

    def arrays(saved: Saved) -> T:
        vectors = saved.array("vectors", "<f2 <f4", (None, None), mapped="c" if memory_map else None)
        n, d = vectors.shape
        centroids = saved.numbers("centroids", "<f4", (None, d))
        starts = saved.array("starts", "<i8", (len(centroids) + 1,))
        ids = saved.array("ids", "<i8", (n,))
        if not divides(starts, n):
            raise saved.damaged("starts.npy", f"does not divide {n} vectors among {len(centroids)} lists")
        if n and (ids.min() < 0 or ids.max() > MOST or len(np.unique(ids)) < n):
            raise saved.damaged("ids.npy", f"does not hold distinct numbers from 0 to {MOST}")
        found = {"centroids": centroids, "vectors": vectors, "starts": starts, "ids": ids}
        return made(saved.facts, found, saved.unread)

    return Folder(path, KIND).load(arrays)
