"""What an index knows at one moment.

States are never changed, only replaced: a search goes on with the one it began on.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from crosscut.ann import clustered, clusters
from crosscut.ann.ivf import IVF
from crosscut.datasets.records import Item, ItemList
from crosscut.encoders.known import KnownItems
from crosscut.encoders.late import TokenVectors
from crosscut.encoders.words import Lexicon
from crosscut.errors import InputError
from crosscut.index.items import Metadata
from crosscut.index.knowing import bound, tell
from crosscut.index.passages import OF
from crosscut.linalg.arrays import finite
from crosscut.methods.base import Method, Parts
from crosscut.retrievers.bm25 import BM25
from crosscut.scorers.base import BoundScorer, Scorer
from crosscut.scorers.meter import ScoreCache
from crosscut.scores.cache import StoreCache
from crosscut.search.prior import Prior
from crosscut.searcher import Searcher
from crosscut.spaces.base import Vectors
from crosscut.spaces.cur import CUR
from crosscut.spaces.extension import extended_scores, extension_error
from crosscut.spaces.factorization.factors import Factors
from crosscut.storage import Unread
from crosscut.types import Array

SEARCHERS = 16  # of different methods or settings, kept
WAYS = {
    "encoder": "build the index with an encoder",
    "anchors": "build the index with train queries (queries=…)",
    "factors": "build the index with train queries and space='als', 'transductive' or 'inductive'",
    "item_scores": "an index keeps none, use crosscut.Searcher(…, space=ItemScores(…))",
    "words": "build the index with bm25=True",
    "n": "the items must be countable",
}
"""How somebody with an index provides the parts of a method."""


@dataclass(frozen=True, eq=False)
class State:
    """Items and everything that is kept about them, position by position."""

    items: ItemList
    alive: npt.NDArray[np.bool_]  # (n) False: removed
    scorer: BoundScorer | None  # bound to items.growing; None: nothing can be scored yet
    vectors: npt.NDArray[Any] | None = None  # (n × d)
    centroids: npt.NDArray[np.float32] | None = None  # (lists × d) of a large index's vectors
    home: npt.NDArray[np.int64] | None = None  # (n) the list of each
    bm25: BM25 | None = None
    lexicon: Lexicon | None = None  # how common words were when the index was built, for a scorer that weighs them
    known: KnownItems | None = None  # what the scorer knows of every item without a call
    anchors: npt.NDArray[Any] | None = None  # (k_q × n) scores of anchor queries
    measured: npt.NDArray[np.bool_] | None = None  # (n) False: that column of anchors is an estimate
    factors: Factors | None = None  # (n × d) of a sparse score matrix
    prior: Prior | None = None  # of query vectors, learned from past searches
    cache: ScoreCache | None = None
    seed: int = 0
    unread: Unread = field(default_factory=Unread, repr=False)  # maps whose checksums wait for their first use
    _searchers: dict[Method, Searcher] = field(default_factory=dict, repr=False)
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)

    @cached_property
    def places(self) -> dict[str, int]:
        """Id → position, of items that are there."""
        return {item.id: j for j, (item, alive) in enumerate(zip(self.items, self.alive, strict=True)) if alive}

    def place(self, id: str) -> int:
        """The position of an item."""
        if id not in self.places:
            raise InputError(f"item id {id!r} is not among the {len(self.places)} items of the index")
        return self.places[id]

    @cached_property
    def documents(self) -> dict[str, list[int]]:
        """Document → positions of its passages, of those that are there."""
        made: dict[str, list[int]] = {}
        for position, (item, alive) in enumerate(zip(self.items, self.alive, strict=True)):
            if alive and OF in item.metadata:
                made.setdefault(str(item.metadata[OF]), []).append(position)
        return made

    def all_of(self, id: str) -> list[int]:
        """The position of an item; of a document, those of its passages."""
        return self.documents[id] if id in self.documents else [self.place(id)]

    def given(self, ids: Sequence[str] | None) -> list[int] | None:
        """Positions of items that a caller names for round one."""
        return None if ids is None else [place for id in ids for place in self.all_of(id)]

    @cached_property
    def columns(self) -> Metadata:
        """The items' metadata, for filters."""
        return Metadata(self.items)

    @cached_property
    def encoder_space(self) -> Vectors | IVF | None:
        """The encoder's vectors; by lists where there are many of them and nothing else is searched with them."""
        if self.vectors is None:
            return None
        if self.centroids is None or self.home is None or self.anchors is not None or self.factors is not None:
            return Vectors(self.vectors)
        return IVF.from_assignment(self.vectors, self.centroids, self.home)

    @cached_property
    def anchor_space(self) -> CUR | None:
        if self.anchors is None:
            return None
        if self.measured is None or self.measured.all():
            return CUR(self.anchors)
        error = extension_error(self.anchors, self.vectors, self.measured)
        return CUR(self.anchors, errors=np.where(self.measured, 0.0, error))

    def changed(self, **parts: Any) -> State:
        """Another state with these parts replaced; of what was derived, only the encoder's space may be kept."""
        new = replace(self, **parts, _searchers={}, _lock=threading.Lock())
        if "encoder_space" in self.__dict__ and not {"vectors", "centroids", "home", "anchors", "factors"} & {*parts}:
            new.__dict__["encoder_space"] = self.encoder_space
        return new

    def clustered(self) -> State:
        """With lists of its vectors, if there are enough of them that rounds should not read them all."""
        if self.vectors is None or len(self.items) < clustered.SMALL:
            return self
        finite(self.vectors, "vectors")
        centroids, home = clusters.partition(self.vectors, seed=self.seed)
        return self.changed(centroids=centroids, home=home)

    def extended(
        self, items: list[Item], vectors: npt.NDArray[Any] | None, known: tuple[Array, TokenVectors] | None = None
    ) -> State:
        """With more items at the end: no scorer is called, and all of them can be found at once."""
        self.unread.check()
        parts: dict[str, Any] = {}
        if self.vectors is not None and vectors is not None:
            parts["vectors"] = np.concatenate([self.vectors, vectors.astype(self.vectors.dtype)])
            if self.centroids is not None and self.home is not None:
                finite(vectors, "new vectors")
                parts["home"] = np.append(self.home, clusters.assign(vectors, self.centroids))
        if self.anchors is not None and self.measured is not None:
            more = extended_scores(self.anchors, self.vectors, vectors, self.measured, len(items))
            parts["anchors"] = np.concatenate([self.anchors, more.astype(self.anchors.dtype)], axis=1)
            parts["measured"] = np.append(self.measured, np.zeros(len(items), np.bool_))
        if self.factors is not None and vectors is not None:
            parts["factors"] = self.factors.extended(vectors)
        if isinstance(self.cache, StoreCache):
            self.cache.flush()
            parts["cache"] = self.cache.store.cache([*self.items, *items])
        if self.known is not None:
            parts["known"] = None if known is None else self.known.extended(*known)
        made = self.changed(
            alive=np.append(self.alive, np.ones(len(items), np.bool_)),
            bm25=None if self.bm25 is None else self.bm25.extended(items),
            **parts,
            items=self.items.grown(items),  # last: what fails before leaves the list as it was
        )
        tell(made.scorer, made.known, made.vectors, made.bm25)
        return made

    @cached_property
    def parts(self) -> Parts:
        """What methods are made from."""
        return Parts(
            encoder=self.encoder_space,
            anchors=self.anchor_space,
            factors=self.factors,
            words=self.bm25,
            prior=self.prior,
            n=len(self.items),
            seed=self.seed,
            ways=WAYS,
        )

    def removed(self, positions: Sequence[int]) -> State:
        """Without some items, at once: positions stay as they are, so that searches and caches go on."""
        alive = self.alive.copy()
        alive[list(positions)] = False
        return self.changed(alive=alive, bm25=None if self.bm25 is None else self.bm25.among(alive))

    @property
    def movable(self) -> bool:
        """Whether items may change their positions: not while a cache of the caller's knows scores by them."""
        return self.cache is None or isinstance(self.cache, StoreCache)

    def compacted(self, scorer: Scorer | None) -> State:
        """Of the items that are there, with positions of their own: nothing is left of those that were removed."""
        if self.alive.all():
            return self
        self.unread.check()
        there = np.flatnonzero(self.alive)
        items = ItemList(self.items[position] for position in there.tolist())
        cache = self.cache
        if isinstance(cache, StoreCache):
            cache.flush()
            cache = cache.store.cache(items)
        vectors = None if self.vectors is None else self.vectors[there]
        bm25 = None if self.bm25 is None else self.bm25.taken(there)
        known = None if self.known is None else self.known.taken(there)
        return self.changed(
            items=items,
            alive=np.ones(len(items), np.bool_),
            scorer=bound(scorer, items, known, vectors, bm25),
            vectors=vectors,
            home=None if self.home is None else self.home[there],
            anchors=None if self.anchors is None else self.anchors[:, there],
            measured=None if self.measured is None else self.measured[there],
            bm25=bm25,
            known=known,
            factors=None if self.factors is None else self.factors.taken(there),
            prior=None if self.prior is None else self.prior.taken(there),
            cache=cache,
        )

    def searcher(self, method: Method) -> Searcher:
        """The searcher of a method, made once; the last few are kept."""
        if self.scorer is None:
            raise InputError("this index has no scorer: load it with scorer=…")
        self.unread.check()
        with self._lock:
            known = self._searchers.pop(method, None)
            if known is None:
                known = Searcher(self.scorer, method=method, cache=self.cache, parts=self.parts)
            self._searchers[method] = known  # the latest stands last
            if len(self._searchers) > SEARCHERS:
                self._searchers.pop(next(iter(self._searchers)))
            return known
