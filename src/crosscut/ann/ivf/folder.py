"""A clustered index on disk: a folder that is replaced as a whole (`crosscut.storage.folders`).

ivf.json            its record, with the metric and the exit rule
vectors.npy         (n × d) float16 or float32, list by list
starts.npy          (lists + 1) where each list begins
ids.npy             (n) their names
centroids.npy       (lists × d)
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from crosscut.ann.ivf.layout import Layout
from crosscut.ann.ivf.rules import USUAL, Rule, from_json
from crosscut.ann.results import METRICS
from crosscut.errors import InputError
from crosscut.storage import Files, Folder, Kind, Saved, Unread, divides

MOST = 1 << 62  # behind the largest id there is room for more
KIND = Kind("clustered index", "ivf.json", 2)


def save(path: Path, layout: Layout, rule: Rule) -> None:
    """Write a layout and its rule; the folder is replaced in one step."""

    def fill(files: Files) -> None:
        for name in ("centroids", "vectors", "starts", "ids"):
            files.array(name, getattr(layout, name))

    Folder(path, KIND).save({"metric": layout.metric, "rule": None if rule is USUAL else rule.json()}, fill)


def load(path: Path, *, memory_map: bool) -> tuple[Layout, Rule, Unread]:
    """What `save` wrote, and the checks that wait for the first search: until then mapped vectors stay on disk.

    Memory maps are copy-on-write: the compiled search wants arrays it could write to. It goes by starts and ids
    without looking, so these are looked at here.
    """

    def read(saved: Saved) -> tuple[Layout, Rule, Unread]:
        vectors = saved.array("vectors", "<f2 <f4", (None, None), mapped="c" if memory_map else None)
        n, d = vectors.shape
        centroids = saved.numbers("centroids", "<f4", (None, d))
        starts = saved.array("starts", "<i8", (len(centroids) + 1,))
        ids = saved.array("ids", "<i8", (n,))
        if not divides(starts, n):
            raise saved.damaged("starts.npy", f"does not divide {n} vectors among {len(centroids)} lists")
        if n and (ids.min() < 0 or ids.max() > MOST or len(np.unique(ids)) < n):
            raise saved.damaged("ids.npy", f"does not hold distinct numbers from 0 to {MOST}")
        told, metric = saved.facts["rule"], saved.facts["metric"]
        rule = USUAL if told is None else from_json(told)
        if metric not in METRICS:
            raise InputError(f"the metric of a clustered index is {' or '.join(METRICS)}, and not {metric!r}")
        return Layout(centroids, vectors, starts, ids, metric), rule, saved.unread

    return Folder(path, KIND).load(read)
