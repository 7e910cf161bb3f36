"""What a search may be told, in one place: the keywords of `Index.search` and `Index.search_many`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypedDict

import numpy.typing as npt

from crosscut.index.items import Filter
from crosscut.methods import Method
from crosscut.search.ranking import Rank
from crosscut.search.stopping import Stop


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
