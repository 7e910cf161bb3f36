"""What the demo computed, kept for the next time: the states of the items, and the scores of queries with all of them.

One file in the cache of models (`crosscut.encoders.exported`), named by the model. A file that cannot be read or
written is done without.
"""

from __future__ import annotations

import contextlib
import io
import json
import zipfile
from pathlib import Path

import numpy as np

from crosscut.encoders.exported import cache_folder
from crosscut.errors import WriteError
from crosscut.scorers.onnx import BoundOnnxCrossEncoder
from crosscut.storage import write_file
from crosscut.types import Floats

MOST = 20
"""Queries whose scores are kept."""


def kept_at(fingerprint: str) -> Path:
    """Where the states of a model are kept."""
    return cache_folder() / f"demo-{fingerprint}.npz"


def load(path: Path, scorer: BoundOnnxCrossEncoder) -> dict[str, Floats]:
    """Give the scorer the states that were kept; the scores that were, by query."""
    with contextlib.suppress(OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile):
        with np.load(path, allow_pickle=False) as file:
            lengths, states, truth = file["lengths"], file["states"], file["truth"]
            queries = json.loads(str(file["queries"]))
        if len(lengths) != scorer.n_items or lengths.sum() != len(states) or len(queries) != len(truth):
            return {}
        ends = np.cumsum(lengths)
        for handle, part in enumerate(np.split(states.astype(scorer.items.dtype), ends[:-1])):
            scorer.items.states.keep(handle, part, part.nbytes)
        return dict(zip(queries, truth, strict=True))
    return {}


def save(path: Path, scorer: BoundOnnxCrossEncoder, truth: dict[str, Floats]) -> None:
    """Keep the states of every item, and the scores of the latest queries."""
    held = scorer.items.states
    if len(held) != scorer.n_items:
        return  # they did not all fit into memory
    parts = [held[handle] for handle in range(len(held))]
    latest = dict(list(truth.items())[-MOST:])
    made = io.BytesIO()
    np.savez(
        made,
        lengths=np.array([len(part) for part in parts]),
        states=np.concatenate(parts),
        truth=np.array(list(latest.values())),
        queries=np.array(json.dumps(list(latest))),
    )
    with contextlib.suppress(WriteError):
        write_file(path, [made.getbuffer()])
