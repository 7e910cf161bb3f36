"""Data of an index for a scorer that uses the vectors and words of its items (`CorpusScorer`).

How common words are is frozen when the index is built and belongs to the scorer from then on, by its fingerprint too:
items that come and go change no score.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

import numpy as np

from crosscut.datasets.records import Item
from crosscut.datasets.tables import CorpusItems
from crosscut.errors import InputError
from crosscut.models.bi_encoder import DualEncoder
from crosscut.retrieval.bm25 import BM25
from crosscut.scorers.adapters import as_bound
from crosscut.scorers.base import BoundScorer, CorpusScorer, Scorer
from crosscut.spaces.rows import Rows
from crosscut.storage import Files, Saved
from crosscut.types import Array, Positions


class ScorerVectors(NamedTuple):
    """By which encoder the scorer's vectors of the items were made, and the vectors (n × d) if the index has others."""

    encoder: str
    rows: Array | None = None

    def extended(self, rows: Array) -> ScorerVectors:
        """Return these and the vectors of more items."""
        return self if self.rows is None else self._replace(rows=np.concatenate([self.rows, rows.astype(np.float16)]))

    def taken(self, positions: Positions) -> ScorerVectors:
        """Return the vectors of some of the items."""
        return self if self.rows is None else self._replace(rows=self.rows[positions])

    def write(self, files: Files) -> None:
        files.json("scorer", {"encoder": self.encoder})
        if self.rows is not None:
            files.array("scorer-vectors", self.rows)

    @classmethod
    def read(cls, saved: Saved, n: int) -> ScorerVectors:
        about = saved.json("scorer")
        if not (isinstance(about, dict) and isinstance(about.get("encoder"), str)):
            raise saved.damaged("scorer.json", "does not name the encoder of the scorer's vectors")
        own = "scorer-vectors.npy" in saved
        return cls(about["encoder"], saved.array("scorer-vectors", "<f2 <f4", (n, None)) if own else None)


def corpus_scorer(scorer: Scorer | None) -> CorpusScorer | None:
    """Return the scorer, if it uses the vectors and words of a corpus."""
    return scorer if isinstance(scorer, CorpusScorer) else None


def with_statistics(scorer: Scorer, arrays: Mapping[str, Array]) -> Scorer:
    """Return a scorer with statistics that were saved, if it has none of its own."""
    model = corpus_scorer(scorer)
    return scorer if model is None or model.statistics else model.with_statistics(arrays)


def without_statistics(scorer: Scorer) -> Scorer:
    """Return a scorer for texts that belong to no corpus."""
    model = corpus_scorer(scorer)
    return scorer if model is None else model.with_statistics({})


def fitted_to(scorer: Scorer, items: Iterable[Item | str]) -> Scorer:
    """Return a scorer with the statistics of these items, as an index of them has it."""
    model = corpus_scorer(scorer)
    return scorer if model is None else model.fitted(BM25(items))


def same_encoder(scorer: CorpusScorer, encoder: DualEncoder | None) -> bool:
    """Return whether the index's vectors are those that the scorer uses."""
    return encoder is not None and scorer.encoder_fingerprint == encoder.fingerprint


def reader(scorer: Scorer | None, known: ScorerVectors | None) -> Scorer | None:
    """Return the scorer that reads items which are added; None: the index keeps nothing for it."""
    if known is None:
        return None
    model = corpus_scorer(scorer)
    if model is None or model.encoder_fingerprint != known.encoder:
        raise InputError(
            f"this index holds vectors of its scorer's encoder {known.encoder}: load it with the scorer that it was "
            "built with to add items"
        )
    return model


def bound(
    scorer: Scorer | None,
    items: CorpusItems,
    known: ScorerVectors | None = None,
    vectors: Array | Rows | None = None,
    bm25: BM25 | None = None,
) -> BoundScorer | None:
    """Return a scorer over the items of an index, with what is kept for it."""
    model = corpus_scorer(scorer)
    if model is None:
        return None if scorer is None else as_bound(scorer.bind(items.shared))
    rows, words = corpus_parts(known, vectors, bm25)
    if known is None or known.encoder != model.encoder_fingerprint:
        rows = words = None
    return model.bind(items.shared, rows, words)


def corpus_parts(
    known: ScorerVectors | None, vectors: Array | Rows | None, bm25: BM25 | None
) -> tuple[Array | None, BM25 | None]:
    """Return the vectors and the words of all items that a scorer may use."""
    rows = None if known is None else vectors if known.rows is None else known.rows
    if rows is None or bm25 is None:
        return None, None
    return np.asarray(rows), bm25
