"""What an experiment is made on: score matrices and vectors that fit together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import numpy.typing as npt

from crosscut.ann.base import TopK, as_vectors
from crosscut.errors import InputError
from crosscut.methods import Method, Parts
from crosscut.retrievers.first import Retriever
from crosscut.scorers.adapters import MatrixScorer
from crosscut.search.hits import Hits
from crosscut.search.prior import Prior
from crosscut.search.stopping import Stop
from crosscut.searcher import Searcher
from crosscut.spaces.base import Space
from crosscut.spaces.cur import CUR
from crosscut.spaces.items import ItemScores
from crosscut.types import Array, Floats, Positions

WAYS = {
    "encoder": "give vectors, the item vectors of a dual encoder (n × d)",
    "anchors": "give anchors, the scores of anchor queries with every item (k_q × n)",
    "factors": "a replay has none, use crosscut.Searcher(…, space=factors)",
    "item_scores": "give item_scores (k_ind × n) and item_anchors (k_ind)",
    "words": "give words, the scores of BM25 or TF-IDF (q × n)",
    "late": "give late, late interactions (q × n)",
    "n": "the items must be countable",
}
"""How somebody with a replay provides the parts of a method."""


@dataclass(frozen=True)
class KnownWords(Retriever):
    """A retriever of texts whose scores are known; its query is a row number, as that of `MatrixScorer`."""

    scored: Array  # (q × n)

    def scores(self, query: str) -> npt.NDArray[np.float32]:
        return np.array(self.scored[int(query)], dtype=np.float32)


@dataclass(frozen=True)
class KnownPairs:
    """Late interactions that are known; the query is a row number."""

    scored: Array  # (q × n)

    def at(self, query: str, positions: Positions) -> Floats:
        return np.array(self.scored[int(query), positions], dtype=np.float64)


@dataclass(frozen=True)
class World:
    """Matrices and vectors of one experiment."""

    test: Array  # (q × n)
    anchors: Array | None = None  # (k_q × n)
    vectors: Space | None = None  # (n × d)
    query_vectors: Array | None = None  # (q × d)
    anchor_query_vectors: Array | None = None  # (k_q × d)
    item_scores: Array | None = None  # (k_ind × n)
    item_anchors: Array | None = None  # (k_ind)
    words: Array | None = None  # (q × n) scores of a retriever of texts
    late: Array | None = None  # (q × n) late interaction
    prior: Prior | None = None  # of query vectors, learned from past searches
    stop: str | Stop | None = None  # of searches that are told no other

    @cached_property
    def parts(self) -> Parts:
        """What methods are made from."""
        items = None
        if self.item_scores is not None and self.item_anchors is not None:
            items = ItemScores(self.item_scores, self.item_anchors)
        anchors = None if self.anchors is None else CUR(self.anchors)
        words = None if self.words is None else KnownWords(self.words)
        late = None if self.late is None else KnownPairs(self.late)
        n = self.test.shape[1]
        parts = Parts(self.vectors, anchors, item_scores=items, words=words, late=late, n=n, ways=WAYS)
        return replace(parts, prior=self.prior)

    def searcher(self, method: str | Method, seed: int = 0) -> Searcher:
        """A searcher of this world's test queries."""
        return Searcher(MatrixScorer(self.test), method=method, parts=replace(self.parts, seed=seed))

    def search(
        self,
        searcher: Searcher,
        k: int,
        budget: int | None,
        *,
        candidates: Sequence[Positions] | None = None,
        stop: str | Stop | None = None,
    ) -> list[Hits]:
        """Search every test query."""
        queries = range(len(self.test))
        vectors = self.query_vectors if self.vectors is not None else None
        return searcher.search_many(
            queries, k, budget, query_vectors=vectors, candidates=candidates, stop=stop or self.stop
        )

    def held_out(self, folds: int = 4, share: float = 0.1, seed: int = 0) -> list[World]:
        """Worlds whose test queries are a tenth of the anchor queries, held out of the anchors: for tuning."""
        count = 0 if self.anchors is None else len(self.anchors)
        if self.anchors is None or count < 2 * folds:
            raise InputError(f"tuning holds anchor queries out and needs at least {2 * folds} of them; got {count}")
        order = np.random.default_rng(seed).permutation(count)
        size = max(1, round(share * count))
        vectors = self.anchor_query_vectors
        worlds = []
        for fold in range(folds):
            held = np.sort(order[fold * size : (fold + 1) * size])
            rest = np.setdiff1d(order, held)
            worlds.append(
                replace(
                    self,
                    test=self.anchors[held],
                    anchors=self.anchors[rest],
                    words=None,
                    late=None,
                    query_vectors=None if vectors is None else vectors[held],
                    anchor_query_vectors=None if vectors is None else vectors[rest],
                )
            )
        return worlds


def make_world(
    test: npt.ArrayLike | World,
    anchors: npt.ArrayLike | None = None,
    vectors: npt.ArrayLike | Space | TopK | None = None,
    query_vectors: npt.ArrayLike | None = None,
    anchor_query_vectors: npt.ArrayLike | None = None,
    item_scores: npt.ArrayLike | None = None,
    item_anchors: npt.ArrayLike | None = None,
    words: npt.ArrayLike | None = None,
    late: npt.ArrayLike | None = None,
    stop: str | Stop | None = None,
) -> World:
    """A world whose parts fit together, or an error that says which do not; a world is itself."""
    if isinstance(test, World):
        return test

    def array(values: npt.ArrayLike | None) -> Array | None:
        return None if values is None else np.asanyarray(values)

    matrix = np.asanyarray(test)
    if matrix.ndim != 2 or 0 in matrix.shape:
        raise InputError(f"the test matrix must be (queries × items) and not empty; got shape {matrix.shape}")
    world = World(
        matrix,
        array(anchors),
        None if vectors is None else as_vectors(vectors),
        array(query_vectors),
        array(anchor_query_vectors),
        array(item_scores),
        array(item_anchors),
        array(words),
        array(late),
        stop=stop,
    )
    queries, items = matrix.shape
    for name, part, axis, size in (
        ("anchors", world.anchors, 1, items),
        ("query vectors", world.query_vectors, 0, queries),
        ("item scores", world.item_scores, 1, items),
        ("scores of words", world.words, 1, items),
        ("late interactions", world.late, 1, items),
    ):
        if part is not None and (part.ndim != 2 or part.shape[axis] != size):
            what = "items" if axis else "queries"
            raise InputError(f"the {name} have shape {part.shape}, and the test matrix has {size} {what}")
    if world.vectors is not None and world.vectors.n != items:
        raise InputError(f"{world.vectors.n} item vectors for {items} items of the test matrix")
    count = 0 if world.anchors is None else len(world.anchors)
    if world.anchor_query_vectors is not None and len(world.anchor_query_vectors) != count:
        raise InputError(f"{len(world.anchor_query_vectors)} anchor query vectors for {count} anchor queries")
    return world
