"""What the scorer of an index knows of every item without a call, kept with the index.

Items are read once, when they come: one pass of the dual encoder gives the vectors of round one and those of the tokens
(`crosscut.encoders.known`), and what the layers that both encoders share make of them is kept for the cross-encoder.
The words are those that the index counts for BM25. How common words are is frozen when the index is built and belongs
to the scorer from then on, by its fingerprint too: items that come and go void no score.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from crosscut.datasets.columnar import FiledItems
from crosscut.datasets.records import Item, ItemList, plain_text
from crosscut.encoders.dual import Keep
from crosscut.encoders.known import Known, KnownItems
from crosscut.encoders.named import DualEncoder
from crosscut.encoders.words import Lexicon, Words
from crosscut.errors import InputError
from crosscut.retrieval.bm25 import BM25
from crosscut.retrievers.late import Late
from crosscut.scorers.adapters import as_bound
from crosscut.scorers.base import BoundScorer, Scorer
from crosscut.scorers.onnx import BoundOnnxCrossEncoder, OnnxCrossEncoder
from crosscut.spaces.rows import FiledVectors
from crosscut.types import Array


def knowing(scorer: Scorer | None) -> OnnxCrossEncoder | None:
    """The scorer, if it corrects what is known of items that were read before."""
    return scorer if isinstance(scorer, OnnxCrossEncoder) and scorer.corrects else None


def under(scorer: Scorer, lexicon: Lexicon | None) -> Scorer:
    """A scorer with words weighed by a lexicon, if it weighs words and brings none along."""
    model = knowing(scorer)
    return scorer if model is None or model.lexicon is not None else model.under(lexicon)


def of_the_box(scorer: Scorer) -> Scorer:
    """A scorer that weighs words by the lexicon of its model, for texts that are not of an index."""
    model = knowing(scorer)
    return scorer if model is None else model.under(None)


def lexicon_of(scorer: Scorer | None) -> Lexicon | None:
    """What is frozen with an index of this scorer."""
    model = knowing(scorer)
    return None if model is None else model.lexicon


def of_its_own(scorer: Scorer, items: Iterable[Item | str]) -> Scorer:
    """A scorer that weighs words as they are common among these items; as it is, if it weighs none."""
    model = knowing(scorer)
    if model is None or model.lexicon is not None:
        return scorer
    return model.under(Lexicon.of(map(plain_text, items)))


def shared(scorer: Scorer | None, encoder: DualEncoder | None) -> bool:
    """Whether the index's vectors are those that the scorer knows items by."""
    model = knowing(scorer)
    return model is not None and encoder is not None and model.encoder.fingerprint == encoder.fingerprint


def reader(scorer: Scorer | None, known: KnownItems | None) -> Scorer | None:
    """Who reads items that join those of which this is known; None: nobody needs to."""
    if known is None:
        return None
    model = knowing(scorer)
    if model is None or model.encoder.fingerprint != known.encoder:
        raise InputError(
            f"this index keeps what its scorer knows of every item, read by the encoder {known.encoder}: load it with "
            "the scorer that it was built with to add items"
        )
    return model


def bound(
    scorer: Scorer | None,
    items: ItemList | FiledItems,
    known: KnownItems | None = None,
    vectors: Array | FiledVectors | None = None,
    bm25: BM25 | None = None,
) -> BoundScorer | None:
    """A scorer over the items of an index, with what is known of them."""
    if scorer is None:
        return None
    made = as_bound(scorer.bind(items.shared))
    tell(made, known, vectors, bm25)
    return made


def keeper(scorer: BoundScorer | None) -> Keep | None:
    """Who keeps, for the cross-encoder, what the pass of the dual encoder makes of items on the way."""
    return scorer.items.keep if isinstance(scorer, BoundOnnxCrossEncoder) and scorer.model.corrects else None


def tell(
    scorer: BoundScorer | None,
    known: KnownItems | None,
    vectors: Array | FiledVectors | None,
    bm25: BM25 | None,
) -> None:
    """Let a scorer know what an index keeps of its items; nothing: it knows of candidates only."""
    if not isinstance(scorer, BoundOnnxCrossEncoder) or not scorer.model.corrects:
        return
    rows = None if known is None else vectors if known.vectors is None else known.vectors
    if known is None or rows is None or bm25 is None or known.encoder != scorer.model.encoder.fingerprint:
        scorer.keep(None)
    else:
        words = Words(bm25, scorer.model.weighing)
        scorer.keep(Known(scorer.model.encoder, words, np.asarray(rows), known.tokens, known.titles))


def late_of(scorer: BoundScorer | None, known: KnownItems | None) -> Late | None:
    """Late interaction of queries with items, where an index keeps their token vectors."""
    if known is None or not isinstance(scorer, BoundOnnxCrossEncoder) or not scorer.model.corrects:
        return None
    encoder = scorer.model.encoder
    return Late(encoder, known.tokens, encoder.folder.known.token_idf) if known.encoder == encoder.fingerprint else None
