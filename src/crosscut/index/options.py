"""What a search, a load and a build may be told, in one place: the keywords of `Index`, for all who pass them on."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypedDict

import numpy.typing as npt

from crosscut.datasets.columns import ColumnNames
from crosscut.index.items import Filter
from crosscut.methods import Method
from crosscut.search.ranking import Rank
from crosscut.search.stopping import Stop
from crosscut.types import Progress

if TYPE_CHECKING:
    import numpy as np

    from crosscut.datasets.columnar import FiledItems
    from crosscut.datasets.records import ItemList
    from crosscut.encoders.known import KnownItems
    from crosscut.encoders.words import Lexicon
    from crosscut.index.building import Brought
    from crosscut.index.later import LaterLists
    from crosscut.index.passages import Passages
    from crosscut.retrievers.bm25 import BM25
    from crosscut.retrievers.filed import FiledBM25
    from crosscut.scorers.base import BoundScorer
    from crosscut.scorers.meter import ScoreCache
    from crosscut.scores.engines import EngineChoice
    from crosscut.search.price import Price
    from crosscut.search.prior import Prior
    from crosscut.spaces.factorization.factors import Factors
    from crosscut.spaces.rows import FiledVectors
    from crosscut.storage import Saved, Touched, Unread
    from crosscut.types import Array

SpaceName = Literal["auto", "encoder", "cur", "als", "transductive", "inductive"]


class Options(TypedDict, total=False):
    """For one query as for many."""

    method: str | Method | None
    filter: Filter | None
    stop: str | Stop | None
    target_recall: float | None
    deadline: float | None
    threshold: float | None
    rank: str | Rank | None
    trace: bool


class OneQuery(Options, total=False):
    """Of `search`."""

    first_ids: Sequence[str] | None
    query_vector: npt.ArrayLike | None


class ManyQueries(Options, total=False):
    """Of `search_many`: one list of ids and one vector a query."""

    first_ids: Sequence[Sequence[str] | None] | None
    query_vectors: Sequence[npt.ArrayLike | None] | None


class Loading(TypedDict, total=False):
    """Of `Index.load`."""

    scorer: Any
    encoder: Any
    any_scorer: bool
    trust_remote: bool
    cache: ScoreCache | None
    store: str | Path | None
    verify: bool


class Building(ColumnNames, total=False):
    """Of `Index.build`."""

    scorer: Any
    encoder: Any
    vectors: Brought | None
    passages: Passages | int | bool | None
    queries: Iterable[str] | None
    anchors: int
    calls: int | None
    space: SpaceName
    per_query: int
    bm25: bool
    method: str | Method
    cache: ScoreCache | None
    store: str | Path | None
    dtype: npt.DTypeLike
    seed: int
    engine: EngineChoice
    device: str | None
    price: Price | None
    progress: Progress | None
    path: str | Path | None


class StateParts(TypedDict, total=False):
    """Of `State.with_parts`: its fields."""

    items: ItemList | FiledItems
    alive: npt.NDArray[np.bool_]
    scorer: BoundScorer | None
    vectors: Array | FiledVectors | None
    centroids: npt.NDArray[np.float32] | None
    starts: npt.NDArray[np.int64] | None
    arrival: Touched | None
    later: LaterLists | None
    bm25: BM25 | FiledBM25 | None
    lexicon: Lexicon | None
    known: KnownItems | None
    anchors: npt.NDArray[Any] | None
    measured: npt.NDArray[np.bool_] | None
    factors: Factors | None
    prior: Prior | None
    cache: ScoreCache | None
    seed: int
    saved: Saved | None
    purge: bool
    unread: Unread
