"""An index that changes: items come and go."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Unpack

import numpy as np

from crosscut.datasets.columns import ColumnNames
from crosscut.datasets.records import Item
from crosscut.errors import InputError
from crosscut.index.building import Brought, Reading, distinct, read, separate
from crosscut.index.items import Source, as_items
from crosscut.index.keeping import Keeping
from crosscut.index.knowing import reader
from crosscut.index.learning import Learning
from crosscut.index.passages import document_of
from crosscut.index.state import State
from crosscut.score_store.engines import EngineChoice
from crosscut.types import Progress

GONE = 0.125  # of a large index in its folder: the share of removed items past which its files are written anew


class Growing(Learning, Keeping):
    """The role of holding items."""

    def __len__(self) -> int:
        return self._state.size

    def __contains__(self, id: object) -> bool:
        return id in self._state.places or id in self._state.documents

    def __getitem__(self, id: str) -> Item:
        state = self._state
        if id not in state.places and id in state.documents:
            return document_of([state.items[place] for place in state.documents[id]])
        return state.items[state.place(id)]

    @property
    def items(self) -> list[Item]:
        """The items that are there, in the order they came."""
        state = self._state
        return [state.items[place] for place in state.order.tolist() if state.alive[place]]

    def add(
        self,
        source: Source,
        *,
        vectors: Brought | None = None,
        progress: Progress | None = None,
        **columns: Unpack[ColumnNames],
    ) -> int:
        """More items, searchable at once; they are embedded, not scored. Returns how many.

        `vectors` and `columns` are as in `build`.
        """
        with self._writing:
            self._claim()
            state = self._state
            items = as_items(source, taken=len(state.items), progress=progress, **columns)
            distinct(items)
            known = [item.id for item in items if item.id in self]
            if known:
                raise InputError(
                    f"{len(known)} of {len(items)} ids are in the index already, the first is {known[0]!r}; "
                    "remove them first, or give new ids"
                )
            made = items if self.passages is None else list(self.passages.cut(items))
            if self.passages is not None:
                separate(items, made)
                known = [passage.id for passage in made if passage.id in self]
                if known:
                    raise InputError(f"a passage would have the id {known[0]!r}, which is in the index: rename one")
            if made:
                state = state.extended(made, *self._reading(state, made, vectors, progress))
                self._state = state.clustered(self.scorer)
            return len(items)

    def _reading(self, state: State, items: list[Item], vectors: Brought | None, progress: Progress | None) -> Reading:
        """Vectors of new items, brought or encoded, and what the scorer knows of them, where the index keeps such."""
        scorer = reader(self.scorer, state.known)
        if state.vectors is None:
            if vectors is not None:
                raise InputError("this index has no vectors: build it with vectors=…, or add without them")
            return read(items, scorer, None, np.float16, progress)
        if self.encoder is None and vectors is None:
            raise InputError("this index has vectors and no encoder: load it with encoder=…, or add with vectors=…")
        reading = read(items, scorer, self.encoder, state.vectors.dtype, progress, vectors)
        d = state.vectors.shape[1]
        if reading.vectors is not None and reading.vectors.shape[1] != d:
            raise InputError(f"the index has {d} dimensions, these vectors {reading.vectors.shape[1]}")
        return reading

    def remove(self, ids: Iterable[str]) -> int:
        """Take items out, at once; an unknown id is an error and nothing is removed. Returns how many.

        `save` writes nothing of them, except of a large index in its folder: there they leave the files once an eighth
        of all items is gone, or with `compact` or `forget`. Memory is given up once most of it is of removed items.
        """
        with self._writing:
            self._claim()
            chosen = list(dict.fromkeys([ids] if isinstance(ids, str) else ids))
            gone = [place for id in chosen for place in self._state.all_of(id)]
            self._state = self._state.removed(gone)
            gone_for_good = GONE if self._state.in_files else 0.5
            if len(self._state.items) - len(self) > gone_for_good * len(self._state.items) and self._state.movable:
                self.compact()
            return len(chosen)

    def compact(self) -> int:
        """Keep nothing of items that were removed, in memory now and on disk after `save`; returns how many they were.

        Positions (`hit.position`) change, ids do not.
        """
        with self._writing:
            self._movable()
            gone = len(self._state.items) - len(self)
            self._state = self._state.compacted(self.scorer)
            return gone

    def _movable(self) -> None:
        if not self._state.movable:
            raise InputError("scores in this index's cache are kept by position: save the index and load it again")

    def forget(self, ids: Iterable[str]) -> int:
        """`remove`, and no trace when it returns: not in memory, not in the files of the index's folder, which is
        saved (with all that was changed), not in its score store, and not in its log of searches; what was learned is
        learned again without them. Returns how many.

        The files are written anew, whatever their size: forget many items in one call. If it fails, on a full disk say,
        the items are still in the index: call it again.
        """
        with self._writing:
            self._movable()
            chosen = list(dict.fromkeys([ids] if isinstance(ids, str) else ids))
            items = [self._state.items[place] for id in chosen for place in self._state.all_of(id)]
            before, claimed = self._state, self._lock is not None
            try:
                count = self.remove(chosen)
                self.compact()
                if self._state.score_store is not None:
                    self._state.flush()
                    self._state.score_store.forget(items)
                self._unlearn(ids=[item.id for item in items])
                if self._folder is not None:
                    self.save()
            except BaseException:  # as if it had not begun, so that it can be repeated
                self._state = before
                if not claimed:
                    self._release()
                raise
            self._state = self._state.fresh()
            return count

    @property
    def completing_calls(self) -> int:
        """The calls that `complete` would make at most."""
        state = self._state
        return 0 if state.measured is None else len(self.anchor_queries) * int((~state.measured & state.alive).sum())

    def complete(
        self, *, max_calls: int | None = None, engine: EngineChoice = "local", progress: Progress | None = None
    ) -> int:
        """Score the anchor queries with items that were added since; returns the calls that took.

        It refuses to spend more than `max_calls`, if that is given.
        """
        with self._writing:
            state = self._state
            if state.anchors is None or state.measured is None:
                raise InputError("this index has no anchor queries: build it with queries=… to have them")
            if max_calls is not None and self.completing_calls > max_calls:
                raise InputError(
                    f"completing would make up to {self.completing_calls} calls and may make {max_calls}: allow more, "
                    "or leave the estimates"
                )
            self._claim()
            missing = np.flatnonzero(~state.measured & state.alive)
            calls = 0
            if len(missing):
                anchors = np.array(state.anchors)
                anchors[:, missing], calls = self._seller(engine, progress).scores(state, self.anchor_queries, missing)
                self._state = replace(
                    state, anchors=anchors, measured=state.measured | np.isin(np.arange(len(state.measured)), missing)
                )
                self.build_calls += calls
            return calls
