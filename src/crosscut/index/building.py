"""What an index is made of: vectors of texts, scores of queries with every item."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from crosscut.ann.flat import top_items
from crosscut.datasets.records import Item
from crosscut.encoders.named import DualEncoder
from crosscut.errors import InputError
from crosscut.index.state import State
from crosscut.scorers.base import Scorer
from crosscut.scores.buy import Terms, buy_matrix
from crosscut.scores.engines import EngineChoice
from crosscut.spaces.factorization import Factors, factorize
from crosscut.spaces.sparse import SparseScores, items_per_query
from crosscut.types import Positions, Progress


@dataclass(frozen=True)
class Seller:
    """Who scores for an index while nobody waits: its scorer, by name where workers can load it, and an engine."""

    scorer: Scorer | None
    name: str | None = None
    engine: EngineChoice = "local"
    progress: Progress | None = None

    def terms(self, state: State, what: str) -> tuple[Scorer, Terms]:
        """The scorer, and how `crosscut.scores.buy` is to use it."""
        if state.scorer is None or self.scorer is None:
            raise InputError("this index has no scorer: load it with scorer=…")
        return self.scorer, Terms(
            cache=state.cache,
            engine=self.engine,
            load=self.name,
            bound=state.scorer,
            progress=self.progress,
            what=what,
        )

    def scores(self, state: State, queries: Sequence[str], positions: Positions) -> tuple[npt.NDArray[np.float32], int]:
        """Scores (q × m) of queries with items, and the calls they took."""
        scorer, terms = self.terms(state, "scoring train queries with every item")
        bought = buy_matrix(scorer, queries, state.items, positions=positions, **terms)
        return bought.scores, bought.calls


def factorized(
    state: State, encoder: DualEncoder | None, queries: Sequence[str], per_query: int, solver: Any, seller: Seller
) -> Factors:
    """Item factors from `per_query` scores of each train query: half of its nearest items, half drawn (AXN §2.1)."""
    if encoder is None or state.vectors is None:
        raise InputError(f"space={solver!r} starts from an encoder's vectors, and this index has none")
    vectors = encoder.encode_queries(queries)
    ranked = top_items(per_query, state.vectors, vectors)
    pairs = items_per_query(per_query, (len(queries), len(state.items)), ranked=ranked, random=0.5, seed=state.seed)
    scorer, terms = seller.terms(state, "scoring train queries with some items")
    scores = SparseScores.buy(scorer, queries, pairs, items=state.items, **terms)
    return factorize(scores, state.vectors, vectors, solver=solver)


def encoded(
    encoder: DualEncoder, items: Sequence[Item], dtype: npt.DTypeLike, progress: Progress | None
) -> npt.NDArray[Any]:
    """Vectors (n × d) of items, in the precision they are kept in."""
    if np.dtype(dtype) not in (np.dtype(np.float16), np.dtype(np.float32)):
        raise InputError(f"vectors are kept as float16 or float32; got {np.dtype(dtype)}")
    done = 0

    def advance(count: int) -> None:
        nonlocal done
        done += count
        if progress is not None:
            progress("encoding items", done, len(items))

    return encoder.encode_items(items, progress=advance).astype(dtype)


def distinct(items: Sequence[Item]) -> None:
    """Refuse an id that stands twice."""
    seen: set[str] = set()
    for item in items:
        if item.id in seen:
            raise InputError(f"the id {item.id!r} stands twice among {len(items)} items; ids must be unique")
        seen.add(item.id)
