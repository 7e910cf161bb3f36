"""Probabilities instead of a scorer's own numbers: which calibration applies, and how one is learned for an index."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from crosscut.errors import InputError
from crosscut.index.corpus import Corpus, View
from crosscut.index.options import checked_queries
from crosscut.scorers.base import Scorer
from crosscut.scorers.calibration import (
    LEAST,
    Calibration,
    JudgedScores,
    against_random,
    calibrate,
)
from crosscut.scorers.meter import Meter, QueryLedger
from crosscut.search.hits import Hits
from crosscut.search.ranking import Order
from crosscut.types import Floats

EACH = 8  # random items a query
WORDS = 12  # of an item, in the place of a query
Judgements = Mapping[str, Mapping[Any, float]]


def calibration_for(
    own: Calibration | None, scorer: Scorer | None, order: Order, threshold: float | None
) -> Calibration | None:
    """The index's own calibration, if it is for hits in this order.

    With a `threshold` one is required, and an error says how to get it.
    """
    fingerprint = "none" if scorer is None else scorer.fingerprint
    if threshold is None:
        fits = own is not None and own.fingerprint == fingerprint and own.order == str(order)
        return own if fits else None
    number = isinstance(threshold, int | float | np.number) and not isinstance(threshold, bool)
    if not (number and 0 <= threshold <= 1):
        raise InputError(f"a threshold is a probability, 0 … 1; got {threshold!r}")
    found = required(own, fingerprint, f"threshold={threshold}")
    if found.order != str(order):
        raise InputError(
            f"threshold={threshold} needs a calibration for order={str(order)!r}, and this index has one for "
            f"{found.order!r}: index.calibrate(…, order={str(order)!r}), or crosscut calibrate … --order {order}"
        )
    return found


def required(found: Calibration | None, fingerprint: str, what: str) -> Calibration:
    """A calibration of the scorer with this fingerprint, or an error that says how to get one."""
    if found is None:
        raise InputError(
            f"{what} needs an index that is calibrated: index.calibrate({{query: {{id: 1}}, …}}), or "
            "crosscut calibrate my.index"
        )
    found.check(fingerprint)
    return found


def calibrate_by_judgements(
    judgements: Judgements, search: Callable[[list[str]], list[Hits]], scorer: Scorer, order: Order
) -> Calibration:
    """Learn from judged queries: of the best hits of each, those judged relevant are, all others are not."""
    right = sum(any(gain > 0 for gain in each.values()) for each in judgements.values())
    if len(judgements) < LEAST or not right:
        raise InputError(
            f"{len(judgements)} judged queries, {right} of them with something relevant, are too few to "
            f"calibrate on: {LEAST} queries are needed, and relevant items"
        )
    found = search(list(judgements))
    judged = [
        JudgedScores(hits.values, np.array([float(gains.get(hit.id, 0) > 0) for hit in hits]), hits.cut)
        for hits, gains in zip(found, judgements.values(), strict=True)
    ]
    return calibrate(judged, scorer.fingerprint, sum(hits.calls for hits in found), str(order))


def calibrate_by_random_pairs(
    corpus: Corpus, view: View, scorer: Scorer, queries: Sequence[str] | None, pairs: int, order: Order
) -> Calibration:
    """A rougher guess, from the scores of random pairs."""
    scores, calls = _random_scores(corpus, view, queries, pairs)
    return replace(against_random(scores, scorer.fingerprint, calls), order=str(order))


def _random_scores(corpus: Corpus, view: View, queries: Sequence[str] | None, pairs: int) -> tuple[Floats, int]:
    """Scores of random pairs, and the calls they took; those of anchor queries are known."""
    rng = np.random.default_rng(corpus.seed)
    there = view.sample(pairs, rng)
    if queries is None and corpus.anchors is not None:
        rows = rng.integers(len(corpus.anchors), size=pairs)
        return np.asarray(corpus.anchors[rows, rng.choice(there, pairs)], np.float64), 0
    if queries is None:
        some = rng.choice(there, min(len(there), -(-pairs // EACH)), replace=False)
        texts = [item.title or " ".join(item.text.split()[:WORDS]) for item in view.items(some)]
        queries = [text for text in texts if text.strip()]
    queries = checked_queries(queries)[:pairs]
    if not queries or not len(there):
        raise InputError("random pairs need queries and items: pass queries=, or judgements")
    sizes = [pairs // len(queries) + (j < pairs % len(queries)) for j in range(len(queries))]
    picks = [rng.choice(there, min(size, len(there)), replace=False) for size in sizes]
    accounts = [QueryLedger(query, len(pick)) for query, pick in zip(queries, picks, strict=True)]
    meter = Meter(view.searcher.scorer, cache=view.searcher.cache)
    meter.score(accounts, picks)
    return np.concatenate([account.scores for account in accounts]), meter.calls
