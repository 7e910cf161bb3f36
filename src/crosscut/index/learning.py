"""Learning from the log of searches of an index."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from crosscut.index.corpus import Corpus, View
from crosscut.index.log import Logged, SearchLog, query_hash
from crosscut.methods.learning import FEWEST, Learned, learn
from crosscut.scorers.base import BoundScorer
from crosscut.search.hits import Hits, Scored, chances_of
from crosscut.search.prior import Past
from crosscut.types import Floats, Handles

HALF_LIFE = 2000  # searches after which an old one counts half


def learn_from(
    corpus: Corpus, log: SearchLog, models: str, anchor_queries: Sequence[str], correction: float
) -> tuple[Learned, Corpus]:
    """Return what the searches in a log teach, and the corpus that uses it.

    Searches of other models and of the anchor queries do not count. What a corpus has learned before stays while a log
    is too short to learn anything from; what was learned while the index was built stays until a log of as many
    searches teaches something.
    """
    anchors = set(map(query_hash, anchor_queries)) if corpus.anchors is not None else set()
    searches = [one for one in log.read() if one.models == models and one.query not in anchors]
    space = corpus.learning_space(searches)
    past = past_of([one for one in searches if len(one.vector) == space.space.d], space.handle_of, correction)
    got = learn(past, space.space, anchors=space.anchors, n=space.n, weights=fading(len(past)), seed=corpus.seed)
    old = corpus.prior
    if old is not None and old.bought and (got.prior is None or got.searches < old.searches):
        why = f"{got.why}; what {old.searches} searches taught while the index was built stays"
        return replace(got, prior=old, why=why), corpus
    if old is not None and got.prior is None and got.searches < FEWEST and not log.forgot:
        return replace(got, prior=old, why=f"{got.why}; what {old.searches} others taught before stays"), corpus
    return got, corpus.with_prior(got.prior, space)


def logged(view: View, query: str, vector: npt.ArrayLike, hits: Hits, models: str) -> Logged:
    """A search as the log keeps it: scores without the base scores, and the chance with which each item was picked."""
    handles, scores, chances = scored_by(view.searcher.scorer, query, hits)
    drawn = chances.astype(np.float32) if (chances < 1).any() else None
    values = np.asarray(vector, dtype=np.float32), scores.astype(np.float32)
    return Logged(query_hash(query), models, time.time(), list(map(str, view.ids(handles))), *values, drawn)


def scored_by(scorer: BoundScorer | None, query: str, hits: Hits) -> tuple[Handles, Floats, Floats]:
    """Return the scores of a search less the base scores, and the probability with which each item was picked."""
    scored = Scored.of(hits.trace)
    scores = scored.scores
    if scorer is not None and scorer.has_base_scores:
        scores = scores - scorer.base_scores(query, scored.positions)
    finite = np.isfinite(scores)
    return scored.positions[finite], scores[finite], chances_of(hits.trace)[finite]


def past_of(searches: Sequence[Logged], handle_of: Callable[[str], int | None], correction: float) -> list[Past]:
    """Logged searches with handles, without items that are gone."""
    past = []
    for search in searches:
        found = [(place, handle) for place, id in enumerate(search.ids) if (handle := handle_of(id)) is not None]
        if len(found) > 1:
            there, handles = np.array(found, np.int64).T
            weights = None if search.chances is None else _weights(search.chances[there], correction)
            scores = search.scores[there].astype(np.float64)
            past.append(Past(search.vector.astype(np.float64), handles, scores, weights))
    return past


def fading(count: int) -> Floats:
    """Return the weight of each search, oldest first."""
    return np.asarray(0.5 ** (np.arange(count)[::-1] / HALF_LIFE))


def _weights(chances: npt.NDArray[np.float32], correction: float) -> Floats:
    """For how many pairs each counts; where the number of items is not known, for itself."""
    known = np.where(np.isfinite(chances), chances, 1.0).astype(np.float64)
    return np.asarray(np.minimum(1 / np.maximum(known, 1e-12), correction))
