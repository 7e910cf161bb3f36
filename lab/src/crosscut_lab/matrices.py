"""The committed score matrices (benchmarks/matrices), by name."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from crosscut.errors import InputError
from crosscut.evaluation.replay import ScoreData
from crosscut.search.prior import Past
from crosscut.types import Array
from crosscut_lab.papers.data import data_of, load_arrays

FOLDER = Path(os.environ.get("CROSSCUT_LAB_MATRICES", Path(__file__).parents[3] / "benchmarks" / "matrices"))
NAMES = ("wordnet-verb-emotion", "wordnet-feeling", "wordnet-time", "squad-sentences", "squad-13k", "wordnet-30k")
"""Those with vectors of their items, smallest first."""


@dataclass(frozen=True)
class Matrix:
    """A data set by name, and past searches where they were logged apart from the train queries."""

    name: str
    data: ScoreData
    past: list[Past]

    @property
    def n(self) -> int:
        return int(self.data.test.shape[1])

    def vectors(self) -> tuple[Any, Array, Array]:
        """Return the item vectors, those of test queries and those of train queries."""
        data = self.data
        if data.vectors is None or data.query_vectors is None or data.anchor_query_vectors is None:
            raise InputError(f"{self.name} has no vectors of items, test queries and train queries")
        return data.vectors, data.query_vectors, data.anchor_query_vectors


def path_of(name: str) -> Path:
    """Return the file of a matrix, by its name or by a path."""
    for path in (Path(name), FOLDER / f"{name}.npz"):
        if path.suffix == ".npz" and path.is_file():
            return path
    known = ", ".join(sorted(path.stem for path in FOLDER.glob("*.npz")))
    raise InputError(f"there is no matrix {name!r} in {str(FOLDER)!r}: name a file, or one of {known or 'none'}")


def load(name: str) -> Matrix:
    """Load a matrix and its log of past searches."""
    path = path_of(name)
    arrays = load_arrays(path)
    lexical = path.with_name(f"{path.stem}-words.npz")
    if lexical.is_file():
        with np.load(lexical, allow_pickle=False) as archive:
            arrays["words"] = archive["words"].astype(np.float32)
    logged = path.with_name(f"{path.stem}-past.npz")
    return Matrix(path.stem, data_of(arrays)[0], read_log(logged) if logged.is_file() else [])


def read_log(path: Path) -> list[Past]:
    """Return the past searches of an archive."""
    with np.load(path, allow_pickle=False) as archive:
        parts = [archive[f"past_{name}"] for name in ("vectors", "items", "scores")]
    return [
        Past(vector.astype(np.float64), items.astype(np.int64), scores.astype(np.float64))
        for vector, items, scores in zip(*parts, strict=True)
    ]
