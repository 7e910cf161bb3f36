"""The bundled data set: one lexicographer file of WordNet, with scores of its anchor queries.

    corpus.jsonl.gz, queries.jsonl.gz, qrels.tsv.gz     a BEIR folder
    scores.npz                                          train_ids (a,), train (a × n) float16: their scores,
                                                        test_ids (t,), vectors (n × D) float16, fingerprint

`crosscut-lab wordnet noun.cognition` rebuilds the texts; the notice of WordNet is in
`WORDNET-LICENSE`.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from crosscut.datasets.beir import read_beir
from crosscut.datasets.records import Collection
from crosscut.errors import InputError

BUNDLED = "wordnet-cognition"


@dataclass(frozen=True)
class WorldScores:
    """Precomputed vectors and scores of a data set, by the model with this `fingerprint`."""

    anchor_ids: list[str]
    anchor_scores: npt.NDArray[np.float16]  # (anchors × items)
    test_ids: list[str]
    vectors: npt.NDArray[np.float16]  # (items × D), of the bundled dual encoder
    fingerprint: str


def world_folder(name: str = BUNDLED) -> Path:
    """Return the folder of a bundled data set."""
    folder = Path(__file__).parent.parent / "data" / "worlds" / name
    if not folder.is_dir():
        known = sorted(path.name for path in folder.parent.iterdir() if path.is_dir())
        raise InputError(f"there is no bundled world {name!r}; there is {', '.join(known)}")
    return folder


def load_world(name: str = BUNDLED) -> Collection:
    """Items, queries and judgements of a bundled world."""
    return read_beir(world_folder(name), name=name)


def load_scores(name: str = BUNDLED) -> WorldScores:
    """Anchor scores, item vectors and the test queries that neither saw."""
    with np.load(world_folder(name) / "scores.npz", allow_pickle=False) as saved:
        return WorldScores(
            anchor_ids=[str(id) for id in saved["train_ids"]],
            anchor_scores=saved["train"],
            test_ids=[str(id) for id in saved["test_ids"]],
            vectors=saved["vectors"],
            fingerprint=str(saved["fingerprint"]),
        )
