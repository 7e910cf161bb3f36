"""What an index over a vector store learns from its own searches.

A log knows items by id, a store shows their vectors when it is asked for them. What is learned is a vector space's: it
goes into the questions that the store is asked. What single items had of their own is kept by id; in a search it orders
what the store answers, and the items that have most of it join (`ann/linear.py`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from crosscut.ann.baseline import JOIN, Baseline
from crosscut.errors import InputError
from crosscut.index.log import Logged
from crosscut.linalg.arrays import without
from crosscut.search.prior import Prior
from crosscut.stores.base import Session, Store
from crosscut.stores.filters import conditions
from crosscut.types import NO_HANDLES, NO_SCORES, Array, Floats, Handles

NEWEST = 4_000  # searches that are learned from
AT_ONCE = 1_000  # items that a store is asked for in a trip


@dataclass(frozen=True)
class StoreLearned:
    """What past searches have taught: a prior of query vectors, and by id what items had of their own."""

    prior: Prior
    own: Mapping[str, float]
    highest: tuple[str, ...]

    @staticmethod
    def of(prior: Prior, ids: Sequence[str]) -> StoreLearned:
        """From a prior whose handles are places in `ids`."""
        own = {ids[place]: value for place, value in zip(prior.seen.tolist(), prior.residuals.tolist(), strict=True)}
        highest = sorted(own, key=lambda id: -own[id])[:JOIN]
        return StoreLearned(replace(prior, seen=NO_HANDLES, residuals=NO_SCORES), own, tuple(highest))


class StoreResiduals(Baseline):
    """Residuals of a store's items, in one session of it."""

    wider = 4

    def __init__(self, session: Session, taught: StoreLearned) -> None:
        self._session, self._taught = session, taught
        self._joining: dict[str, Handles] = {}  # by filter

    def at(self, handles: Handles) -> Floats:
        own, name = self._taught.own, self._session.name
        return np.array([own.get(str(name(handle)), 0.0) for handle in handles.tolist()], dtype=np.float64)

    def tops(self, count: int, exclude: Handles, allowed: Any) -> Handles:
        if isinstance(allowed, np.ndarray):  # the search stays among items that it has seen
            return NO_HANDLES
        where = conditions(allowed)
        if repr(where) not in self._joining:
            self._joining[repr(where)] = self._session.there(self._taught.highest, where)
        return without(self._joining[repr(where)], exclude)


def rows_of(store: Store, searches: Sequence[Logged]) -> tuple[list[str], Array]:
    """The items of logged searches that are still in a store: their ids, and their vectors (m × d)."""
    wanted = []
    for id in dict.fromkeys(id for search in searches for id in search.ids):
        try:
            wanted.append(store.named(id))
        except InputError:  # an id of another kind of store
            continue
    ids: list[str] = []
    blocks: list[Array] = [np.empty((0, store.d), np.float32)]
    for start in range(0, len(wanted), AT_ONCE):
        with store.reaching():
            rows = store.fetch(wanted[start : start + AT_ONCE])
        ids += [str(store.name(key, payload)) for key, payload in zip(rows.keys, rows.payloads, strict=True)]
        blocks.append(np.asarray(rows.vectors, np.float32).reshape(-1, store.d))
    return ids, np.concatenate(blocks)
