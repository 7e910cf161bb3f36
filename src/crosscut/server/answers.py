"""Hits as the API tells them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from crosscut.search.hits import Hit, Hits, Round, Scored
from crosscut.server.schemas import Comparison, Histogram, HitModel, RoundModel, ScoredItem, TraceModel
from crosscut.types import Positions

BINS = 48
MOST_NUMBERS = 200_000  # predictions of scored items, over all rounds of one trace


def hit_models(hits: Sequence[Hit]) -> list[HitModel]:
    """Hits with their items, as they were when the search began."""
    return [HitModel(**hit.json()) for hit in hits if hit.item is not None]


def comparison(hits: Hits, reranked: Hits) -> Comparison:
    """What retrieve-and-rerank returned, and which of the best k of both together either of them lacks."""
    together = {hit.id: hit.score for hit in [*reranked, *hits]}
    best = sorted(together, key=lambda id: -together[id])[: max(len(hits), len(reranked))]
    own, other = set(hits.ids), set(reranked.ids)
    return Comparison(
        hits=hit_models(reranked),
        calls=reranked.calls,
        missed=[str(id) for id in best if id not in other],
        extra=[str(id) for id in best if id not in own],
    )


def trace(items: Sequence[Any], hits: Hits, reranked: Hits | None) -> TraceModel:
    """Every round; `items[position]` has an id and a title."""
    own, other = Scored.of(hits.trace), Scored.of(() if reranked is None else reranked.trace)
    rounds = dict(zip(own.positions.tolist(), own.rounds.tolist(), strict=True))
    scores = dict(zip(own.positions.tolist(), own.scores.tolist(), strict=True))
    others = dict(zip(other.positions.tolist(), other.scores.tolist(), strict=True))
    scores = {**scores, **others, **scores}  # in the order of own items, then of those that only reranking scored
    places = {position: place for place, position in enumerate(scores)}
    scored = [
        ScoredItem(
            id=str(items[position].id),
            title=items[position].title or items[position].text[:60],
            score=score,
            round=rounds.get(position),
            reranked=position in others,
        )
        for position, score in scores.items()
    ]
    every = np.fromiter(scores, np.int64, len(scores)) if len(scores) * hits.rounds <= MOST_NUMBERS else None
    return TraceModel(
        scored=scored,
        rounds=[_round(number, entry, places, every) for number, entry in enumerate(hits.trace, 1)],
    )


def _round(number: int, entry: Round, places: dict[int, int], every: Positions | None) -> RoundModel:
    seen = entry.predictions
    return RoundModel(
        round=number,
        calls=entry.calls,
        cached=entry.cached,
        picks=[places[position] for position in entry.positions.tolist()],
        estimates=[_number(value) for value in entry.estimates.tolist()],
        predictions=None if seen is None or every is None else [round(float(value), 4) for value in seen[every]],
        histogram=None if seen is None else _histogram(seen),
    )


def _histogram(values: npt.NDArray[np.float32]) -> Histogram:
    allowed = values[np.isfinite(values)]  # a filter's others have none
    counts, edges = np.histogram(allowed.astype(np.float64), bins=BINS)
    return Histogram(low=float(edges[0]), high=float(edges[-1]), counts=counts.tolist())


def _number(value: float) -> float | None:
    return float(value) if np.isfinite(value) else None
