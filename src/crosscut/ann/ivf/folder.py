"""An index on disk: a folder with `ivf.json` (format, metric, rule) and one `.npy` per array of its layout."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from crosscut.ann.files import read, write
from crosscut.ann.ivf.layout import Layout
from crosscut.ann.ivf.rules import USUAL, Rule, from_json

ARRAYS = ("centroids", "vectors", "starts", "ids")


def save(path: Path, layout: Layout, rule: Rule) -> None:
    """Write a layout and its rule, beside their place and then renamed there."""
    arrays = {name: getattr(layout, name) for name in ARRAYS}
    write(path, {"metric": layout.metric, "rule": None if rule is USUAL else rule.json()}, arrays)


def load(path: Path, *, memory_map: bool) -> tuple[Layout, Rule]:
    """What `save` wrote; with a memory map the vectors stay on disk until a search visits them."""
    record, arrays = read(path, ARRAYS, memory_map=memory_map)
    centroids, starts, ids = (np.asarray(arrays[name]) for name in ("centroids", "starts", "ids"))
    layout = Layout(centroids, arrays["vectors"], starts, ids, record["metric"])
    return layout, USUAL if record["rule"] is None else from_json(record["rule"])
