"""What a search over a store answers: the store's own ids, whole items, what was scored."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import numpy.typing as npt

from crosscut.ann.stores.base import Session
from crosscut.search.hits import Hit, Hits
from crosscut.search.ranking import Evidence, scored
from crosscut.types import Floats


def evidence(session: Session, hits: Hits, vector: npt.ArrayLike | None) -> Evidence:
    """What vectors say of everything that was scored; words stay in the store."""
    handles, _ = scored(hits)
    if vector is None or not len(handles):
        return {}
    return {"dense": np.asarray(np.einsum("md,d->m", session.rows(handles), np.asarray(vector, np.float64)))}


def told(session: Session, hits: Hits, k: int) -> Hits:
    """Hits with the store's ids and whole items; ties go by id."""
    handles = [handle for made in hits.trace for handle in made.positions.tolist()]
    scores = [score for made in hits.trace for score in made.scores.tolist()]
    rounds = [number for number, made in enumerate(hits.trace, 1) for _ in made.positions]
    estimates = [value for made in hits.trace for value in made.estimates.tolist()]
    values = scores if hits.ranking is None else hits.ranking.tolist()
    names = [session.name(handle) for handle in handles]
    order = sorted(range(len(handles)), key=lambda j: (-values[j], type(names[j]).__name__, names[j]))[:k]
    items = session.get(np.array([handles[j] for j in order], dtype=np.int64))
    return replace(
        hits,
        items=tuple(
            Hit(names[j], scores[j], rounds[j], estimates[j], handles[j], item.text, item)
            for j, item in zip(order, items, strict=True)
        ),
    )


def scored_in(session: Session, query: str, hits: Hits) -> tuple[list[str], Floats, Floats]:
    """What a search has scored: ids, scores, and the chance that each had."""
    scores = np.concatenate([made.scores for made in hits.trace])
    chances = [np.ones(len(made.scores)) if made.chances is None else made.chances for made in hits.trace]
    finite = np.isfinite(scores)
    ids = [str(session.name(handle)) for handle in hits.scored[finite].tolist()]
    return ids, np.asarray(scores[finite], np.float64), np.concatenate(chances)[finite]
