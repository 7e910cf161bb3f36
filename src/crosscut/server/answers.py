"""Hits as the API tells them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from crosscut.datasets.records import Item
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


def trace(hits: Hits, reranked: Hits | None) -> TraceModel:
    """Every round, with the items that it scored and those that only reranking scored."""
    items: dict[str, Item] = {}
    scores: dict[str, float] = {}
    own, other = _scored(hits, items, scores), {} if reranked is None else _scored(reranked, items, scores)
    scored = [
        ScoredItem(
            id=id, title=items[id].title or items[id].text[:60], score=score, round=own.get(id), reranked=id in other
        )
        for id, score in scores.items()
    ]
    places = {id: place for place, id in enumerate(scores)}
    ids = iter(own)
    rounds = []
    for number, entry in enumerate(hits.trace, 1):
        picks = [places[next(ids)] for _ in range(len(entry.positions))]
        rounds.append(_round(number, entry, picks, _positions(hits, reranked, len(scores))))
    return TraceModel(scored=scored, rounds=rounds)


def _scored(hits: Hits, items: dict[str, Item], scores: dict[str, float]) -> dict[str, int]:
    """The round of every item that a search scored, by id; its items and scores are added."""
    scored = Scored.of(hits.trace)
    found = [] if hits.items_at is None else hits.items_at(scored.positions)
    rounds: dict[str, int] = {}
    for item, score, number in zip(found, scored.scores.tolist(), scored.rounds.tolist(), strict=True):
        items.setdefault(item.id, item)
        scores.setdefault(item.id, score)
        rounds[item.id] = number
    return rounds


def _positions(hits: Hits, reranked: Hits | None, size: int) -> Positions | None:
    """The positions of the items of a trace, for their predictions; None if there are too many numbers."""
    if size * hits.rounds > MOST_NUMBERS or not any(entry.predictions is not None for entry in hits.trace):
        return None
    positions = hits.scored if reranked is None else np.concatenate([hits.scored, reranked.scored])
    return positions[np.sort(np.unique(positions, return_index=True)[1])]


def _round(number: int, entry: Round, picks: list[int], every: Positions | None) -> RoundModel:
    seen = entry.predictions
    return RoundModel(
        round=number,
        calls=entry.calls,
        cached=entry.cached,
        picks=picks,
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
