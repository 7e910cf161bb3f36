"""What a search over a store answers: the store's own ids, whole items, what was scored."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import numpy.typing as npt

from crosscut.ann.stores.base import Session
from crosscut.search.hits import Bought, Hits, chances_of
from crosscut.search.ranking import Evidence
from crosscut.types import Floats


def evidence(session: Session, hits: Hits, vector: npt.ArrayLike | None) -> Evidence:
    """What vectors say of everything that was scored; words stay in the store."""
    handles = hits.scored
    if vector is None or not len(handles):
        return {}
    return {"dense": np.asarray(np.einsum("md,d->m", session.rows(handles), np.asarray(vector, np.float64)))}


def told(session: Session, hits: Hits, k: int) -> Hits:
    """Hits with the store's ids and whole items; ties go by id."""
    scored = Bought.of(hits.trace)
    values = (scored.scores if hits.ranking is None else hits.ranking).tolist()
    names = [session.name(handle) for handle in scored.positions.tolist()]
    order = sorted(range(len(names)), key=lambda j: (-values[j], type(names[j]).__name__, names[j]))[:k]
    best = np.array(order, dtype=np.int64)
    found = zip(order, scored.hits(best), session.get(scored.positions[best]), strict=True)
    return replace(hits, items=tuple(replace(hit, id=names[j], text=item.text, item=item) for j, hit, item in found))


def scored_in(session: Session, query: str, hits: Hits) -> tuple[list[str], Floats, Floats]:
    """What a search has scored: ids, scores, and the chance that each had."""
    scored = Bought.of(hits.trace)
    finite = np.isfinite(scored.scores)
    ids = [str(session.name(handle)) for handle in scored.positions[finite].tolist()]
    return ids, scored.scores[finite], chances_of(hits.trace)[finite]
