"""What an index knows at one moment.

States are never changed, only replaced: a search goes on with the one it began on.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from crosscut.ann import clusters
from crosscut.ann.ivf import IVF
from crosscut.datasets.records import Item
from crosscut.errors import InputError
from crosscut.linalg.arrays import finite
from crosscut.retrievers.bm25 import BM25
from crosscut.scorers.meter import ScoreCache
from crosscut.scorers.segments import Segments
from crosscut.scores.cache import StoreCache
from crosscut.search import candidates
from crosscut.search.first import Dense, Drawn, Filled, FirstStage, Lexical, Union
from crosscut.search.searcher import Searcher
from crosscut.spaces.base import Space, Vectors
from crosscut.spaces.cur import CUR
from crosscut.spaces.extension import extended_scores
from crosscut.spaces.factorization.factors import Factors

FirstChoice = Literal["auto", "dense", "lexical", "union", "random"]
TAKES_FIRST = ("rnr", "adacur", "axn", "crosscut")
NEEDS_ANCHORS = ("anncur", "adacur")


class Texts(Sequence[str]):
    """Full texts of items, made when asked for."""

    def __init__(self, items: list[Item]) -> None:
        self.items = items

    def __len__(self) -> int:
        return len(self.items)

    def __getitem__(self, position: Any) -> Any:
        return self.items[position].full_text


@dataclass(frozen=True, eq=False)
class State:
    """Items and everything that is kept about them, position by position."""

    items: list[Item]
    alive: npt.NDArray[np.bool_]  # (n) False: removed
    scorer: Segments | None  # None: nothing can be scored yet
    vectors: npt.NDArray[Any] | None = None  # (n × d)
    centroids: npt.NDArray[np.float32] | None = None  # (lists × d) of a large index's vectors
    home: npt.NDArray[np.int64] | None = None  # (n) the list of each
    bm25: BM25 | None = None
    anchors: npt.NDArray[Any] | None = None  # (k_q × n) scores of anchor queries
    measured: npt.NDArray[np.bool_] | None = None  # (n) False: that column of anchors is an estimate
    factors: Factors | None = None  # (n × d) of a sparse score matrix
    cache: ScoreCache | None = None
    seed: int = 0
    _searchers: dict[tuple[Any, ...], Searcher] = field(default_factory=dict, repr=False)
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)

    @cached_property
    def places(self) -> dict[str, int]:
        """Id → position, of items that are there."""
        return {item.id: j for j, (item, alive) in enumerate(zip(self.items, self.alive, strict=True)) if alive}

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
        return None if self.anchors is None else CUR(self.anchors)

    def changed(self, **parts: Any) -> State:
        """Another state with these parts replaced; of what was derived, only the encoder's space may be kept."""
        new = replace(self, **parts, _searchers={}, _lock=threading.Lock())
        if "encoder_space" in self.__dict__ and not {"vectors", "centroids", "home", "anchors", "factors"} & {*parts}:
            new.__dict__["encoder_space"] = self.encoder_space
        return new

    def clustered(self) -> State:
        """With lists of its vectors, if there are enough of them that rounds should not read them all."""
        if self.vectors is None or len(self.items) < candidates.SMALL:
            return self
        finite(self.vectors, "vectors")
        centroids, home = clusters.partition(self.vectors, seed=self.seed)
        return self.changed(centroids=centroids, home=home)

    def extended(self, items: list[Item], vectors: npt.NDArray[Any] | None) -> State:
        """With more items at the end: no scorer is called, and all of them can be found at once."""
        texts = [item.full_text for item in items]
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
            parts["cache"] = self.cache.store.cache([*(item.full_text for item in self.items), *texts])
        return self.changed(
            items=self.items + items,
            alive=np.append(self.alive, np.ones(len(items), np.bool_)),
            scorer=None if self.scorer is None else self.scorer.extended(texts),
            bm25=None if self.bm25 is None else self.bm25.extended(texts),
            **parts,
        )

    def searcher(self, method: str, first: FirstChoice, settings: dict[str, Any]) -> Searcher:
        """The searcher of a method, made once."""
        if self.scorer is None:
            raise InputError("this index has no scorer: load it with scorer=…")
        key = (method, first, *sorted(settings.items()))
        with self._lock:
            if key not in self._searchers:
                if method in TAKES_FIRST:
                    settings = {"first": self.first_stage(first), **settings}
                if method == "axn" and self.factors is not None:  # scores as the factors were fitted to them
                    normal = self.factors.normalisation
                    settings = {"alpha": normal.alpha, "beta": normal.beta, **settings}
                self._searchers[key] = Searcher(
                    self.scorer,
                    vectors=self.encoder_space,
                    space=self._space(method),
                    method=method,
                    texts=Texts(self.items),
                    n=len(self.items),
                    cache=self.cache,
                    seed=self.seed,
                    **settings,
                )
            return self._searchers[key]

    def _space(self, method: str) -> Space | None:
        """What a method searches beside the encoder's vectors."""
        if method in NEEDS_ANCHORS:
            return self.anchor_space
        if method == "crosscut":
            return self.anchor_space or self.factors
        return self.factors if method == "axn" else None

    def first_stage(self, first: FirstChoice) -> FirstStage:
        """Round one: by query vector, by words, by both in turn, or by chance."""
        dense = None if self.encoder_space is None else Dense(self.encoder_space)
        lexical = None if self.bm25 is None else Lexical(self.bm25)
        if first not in ("auto", "dense", "lexical", "union", "random"):
            raise InputError(f"first takes auto, dense, lexical, union or random; got {first!r}")
        if (first == "dense" and dense is None) or (first == "lexical" and lexical is None):
            raise InputError(f"first={first!r} asks for what this index was built without; use first='auto'")
        wanted = {"dense": (dense,), "lexical": (lexical,), "random": ()}.get(first, (dense, lexical))
        stages = tuple(stage for stage in wanted if stage is not None)
        return Filled(Union(stages), Drawn())
