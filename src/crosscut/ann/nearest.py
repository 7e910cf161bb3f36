"""What an index of vectors is, whoever built it: an `IVF`, or one of FAISS."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar, NamedTuple

import numpy as np
import numpy.typing as npt

from crosscut.ann.ivf.index import Single
from crosscut.ann.ivf.rules import Rule, as_rule
from crosscut.ann.results import Metric, Nearest, NearestMany, as_queries, each
from crosscut.spaces.base import Slot, Space

if TYPE_CHECKING:
    from crosscut.ann.topk import TopK


class Lookup(NamedTuple):
    """What an index is asked, checked."""

    points: Single  # (q × d)
    k: int
    rule: Rule
    exclude: Sequence[npt.ArrayLike | None]  # ids to leave out of each
    allow: npt.ArrayLike | None
    starts: Sequence[npt.ArrayLike | None] | None
    threads: int | None


class VectorIndex(Space):
    """Vectors that are found by similarity, some of them read; and a space for the rounds of a search."""

    slot: ClassVar[Slot] = "encoder"
    of_queries: ClassVar[bool] = True

    rule: Rule
    """When a search stops that names no rule."""

    @property
    @abstractmethod
    def metric(self) -> Metric:
        """`ip` or `l2`."""

    @property
    @abstractmethod
    def most(self) -> int:
        """The largest rule that makes sense: every list, a queue of every vector."""

    @property
    def topk(self) -> TopK | None:
        """For the rounds of a search; few items are read whole."""
        from crosscut.ann.clustered import SMALL, Clustered

        return Clustered(self) if self.n >= SMALL else None

    def search(
        self,
        query: npt.ArrayLike,
        k: int = 10,
        *,
        rule: Rule | int | None = None,
        exclude: npt.ArrayLike | None = None,
        allow: npt.ArrayLike | None = None,
    ) -> Nearest:
        """The k closest vectors to one query (d).

        Parameters
        ----------
        rule
            When to stop; that of the index when not given. A number is a fixed number of lists.
        exclude, allow
            Ids that must not be found; the only ids that may be. Lists without an allowed vector are not visited.
        """
        gone = None if exclude is None else [exclude]
        return self.search_many(np.asarray(query).reshape(1, -1), k, rule=rule, exclude=gone, allow=allow).only()

    def search_many(
        self,
        queries: npt.ArrayLike,
        k: int = 10,
        *,
        rule: Rule | int | None = None,
        exclude: Sequence[npt.ArrayLike | None] | None = None,
        allow: npt.ArrayLike | None = None,
        starts: Sequence[npt.ArrayLike | None] | None = None,
        threads: int | None = None,
    ) -> NearestMany:
        """What `search` finds, for every query (q × d).

        `exclude` and `starts` have one entry per query, `allow` holds for all. `starts` are ids to begin with: what an
        earlier search of a query that moves has found. FAISS begins every search anew.
        """
        points = as_queries(queries, self.d, k)
        given = self.rule if rule is None else as_rule(rule)
        gone = each("sets of excluded ids", exclude, len(points))
        return self._nearest(Lookup(points, int(k), given, gone, allow, starts, threads))

    @abstractmethod
    def _nearest(self, asked: Lookup) -> NearestMany:
        """`search_many`, of what fits this index."""
