"""An index on disk: a folder with `ivf.json` (format, metric, rule) and one `.npy` per array of its layout."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from crosscut.ann.files import read, write
from crosscut.ann.ivf.layout import Layout
from crosscut.ann.ivf.rules import USUAL, Rule, from_json
from crosscut.ann.results import METRICS
from crosscut.errors import InputError
from crosscut.storage import Unread
from crosscut.types import Array

ARRAYS = ("centroids", "vectors", "starts", "ids")


def save(path: Path, layout: Layout, rule: Rule) -> None:
    """Write a layout and its rule; the folder is replaced in one step."""
    arrays = {name: getattr(layout, name) for name in ARRAYS}
    write(path, {"metric": layout.metric, "rule": None if rule is USUAL else rule.json()}, arrays)


def load(path: Path, *, memory_map: bool) -> tuple[Layout, Rule, Unread]:
    """What `save` wrote, and the checks that wait for the first search: until then mapped vectors stay on disk."""

    def made(record: dict[str, Any], arrays: dict[str, Array], unread: Unread) -> tuple[Layout, Rule, Unread]:
        rule = USUAL if record["rule"] is None else from_json(record["rule"])
        if record["metric"] not in METRICS:
            raise InputError(f"the metric of a clustered index is {' or '.join(METRICS)}, and not {record['metric']!r}")
        centroids, vectors, starts, ids = (arrays[name] for name in ARRAYS)
        return Layout(centroids, vectors, starts, ids, record["metric"]), rule, unread

    return read(path, made, memory_map=memory_map)
