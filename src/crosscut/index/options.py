"""Keywords of searching, loading and building an `Index`, as types for the functions that pass them on."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypedDict

import numpy.typing as npt

from crosscut.datasets.columns import ColumnNames
from crosscut.datasets.storable import valid_text
from crosscut.errors import InputError
from crosscut.index.items import Filter
from crosscut.methods import Method
from crosscut.search.ranking import Order
from crosscut.search.stopping import Stop
from crosscut.types import Progress

if TYPE_CHECKING:
    from crosscut.index.build import Brought
    from crosscut.index.passages import Passages
    from crosscut.score_store.engines import EngineChoice
    from crosscut.scorers.caching import ScoreCache
    from crosscut.search.hits import Price

SpaceName = Literal["auto", "encoder", "cur", "als", "transductive", "inductive"]


class Options(TypedDict, total=False):
    """For one query as for many."""

    method: str | Method | None
    filter: Filter | None
    stop: str | Stop | None
    target_recall: float | None
    deadline: float | None
    threshold: float | None
    order: str | Order | None
    trace: bool


class OneQuery(Options, total=False):
    """Of `search`."""

    candidates: Sequence[str] | None
    query_vector: npt.ArrayLike | None


class ManyQueries(Options, total=False):
    """Of `search_many`: one list of ids and one vector a query."""

    candidates: Sequence[Sequence[str] | None] | None
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


def checked_queries(queries: Iterable[str]) -> list[str]:
    """Queries one by one; a text in place of a list, no text and an empty one are mistakes."""
    if isinstance(queries, str):
        raise InputError(f"queries are a list of texts, and {queries!r} is one text: put it into a list")
    asked = list(queries)
    wrong = [query for query in asked if not isinstance(query, str)]
    if wrong:
        raise InputError(f"a query is a text; got {wrong[0]!r}")
    if any(not query.strip() for query in asked):
        raise InputError("a query is empty: there is nothing to search for")
    for query in asked:
        valid_text(query, "a query")
    return asked
