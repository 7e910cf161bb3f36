"""First stages: pickers for round one, before anything is known."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Protocol

import numpy as np
import numpy.typing as npt

from crosscut.ann.baseline import masked
from crosscut.ann.topk import Ask, Found, Pool, TopK
from crosscut.errors import InputError
from crosscut.linalg.top import ranked
from crosscut.search.loop import Picker, Query
from crosscut.types import NO_HANDLES, Handles

WIDER = 8  # times as many candidates are looked at as are wanted, where only of candidates base scores are known


def unpredicted(handles: Handles) -> Found:
    """Return items of which nothing is expected."""
    return Found(handles, np.full(len(handles), np.nan))


class Stage(Picker):
    """A first stage. One of your own inherits from it and says what it ranks for one query."""

    @property
    def ranks(self) -> int | None:
        """The number of items that the stage ranks; None: all."""
        return None

    def pick(self, queries: Sequence[Query], counts: Sequence[int]) -> list[Found]:
        return [
            unpredicted(self.rank(query, count) if count > 0 else NO_HANDLES)
            for query, count in zip(queries, counts, strict=True)
        ]

    def rank(self, query: Query, count: int) -> Handles:
        """Return at most `count` items for one query, best first, none of them excluded or not allowed."""
        raise NotImplementedError


@dataclass(frozen=True, eq=False)
class Random(Stage):
    """Items drawn uniformly at random, from the seed and the query."""

    draws: ClassVar[bool] = True

    pool: Pool

    def rank(self, query: Query, count: int) -> Handles:
        return self.pool.sample(count, query.rng, query.exclude, query.allowed)


@dataclass(frozen=True, eq=False)
class Given(Random):
    """The caller's candidates, which there must be; chance fills up what they leave."""

    draws: ClassVar[bool] = True

    def start(self, query: Query) -> None:
        if not len(query.candidates):
            raise InputError(
                "there is nothing to retrieve by: pass candidates, or vectors and a query_vector, or rank by words "
                "(method='rnr@first=lexical')"
            )


@dataclass(frozen=True, eq=False)
class Dense(Stage):
    """The items closest to the encoder's query vector; `otherwise` for queries without one (None: an error)."""

    topk: TopK
    otherwise: Picker | None = None

    def start(self, query: Query) -> None:
        if query.vector is None and self.otherwise is not None:
            self.otherwise.start(query)

    def pick(self, queries: Sequence[Query], counts: Sequence[int]) -> list[Found]:
        found = [unpredicted(NO_HANDLES)] * len(queries)
        asks: dict[int, Ask] = {}
        for j, (query, count) in enumerate(zip(queries, counts, strict=True)):
            if count > 0 and query.vector is not None:
                asks[j] = Ask(query.vector, count, query.exclude, query.allowed)
            elif count > 0 and self.otherwise is not None:
                (found[j],) = self.otherwise.pick([query], [count])
            elif count > 0:
                raise InputError(
                    "the first stage ranks by the query vector, and this query has none: "
                    "pass query_vector, or candidates, or first='random'"
                )
        for j, one in zip(asks, self.topk.top(list(asks.values())), strict=True):
            found[j] = unpredicted(one.handles)
        return found


class Retriever(Protocol):
    """Anything that ranks items for a query's text, as BM25 does. One of your own inherits from it."""

    @abstractmethod
    def scores(self, query: str) -> npt.NDArray[np.float32]:
        """Return one score per item (n); 0 or less where it has nothing to say."""

    def top(self, query: str, count: int, exclude: Handles = NO_HANDLES, within: Handles | None = None) -> Handles:
        """Return at most `count` items of a score above 0, best first, ties to the lower position.

        `exclude` are not among them; `within` are the only ones that may be, sorted.
        """
        values = masked(self.scores(query).copy(), exclude, within)
        places = ranked(values, count)
        return places[values[places] > 0]


@dataclass(frozen=True, eq=False)
class Lexical(Stage):
    """The items that a retriever of texts ranks first. Items it knows nothing of are not picked."""

    retriever: Retriever

    def rank(self, query: Query, count: int) -> Handles:
        return self.retriever.top(str(query.account.query), count, query.exclude, query.allowed)


@dataclass(frozen=True, eq=False)
class HighestBase(Stage):
    """The items of highest base score; `otherwise` for scorers that have none."""

    otherwise: Picker

    def start(self, query: Query) -> None:
        self.otherwise.start(query)

    def pick(self, queries: Sequence[Query], counts: Sequence[int]) -> list[Found]:
        if any(query.base is None for query in queries):
            return self.otherwise.pick(queries, counts)
        return super().pick(queries, counts)

    def rank(self, query: Query, count: int) -> Handles:
        assert query.base is not None
        if query.base.wider == 1:
            return query.base.tops(count, query.exclude, query.allowed)
        (pool,) = self.otherwise.pick([query], [WIDER * count])
        return pool.handles[np.lexsort((pool.handles, -np.asarray(query.base.at(pool.handles))))[:count]]


@dataclass(frozen=True, eq=False)
class Fixed(Stage):
    """The same items for every query, in this order: ANNCUR's anchor items; every item, for `exact`."""

    order: Handles

    def rank(self, query: Query, count: int) -> Handles:
        order = self.order
        if query.allowed is not None:
            order = order[np.isin(order, query.allowed)]
        if len(query.exclude):
            order = order[~np.isin(order, query.exclude)]
        return order[:count]


@dataclass(frozen=True, eq=False)
class Union(Stage):
    """Several first stages in turn: the best of each, then the second of each, …"""

    stages: tuple[Picker, ...]

    def pick(self, queries: Sequence[Query], counts: Sequence[int]) -> list[Found]:
        rankings = [[found.handles.tolist() for found in stage.pick(queries, counts)] for stage in self.stages]
        found = []
        for count, *lists in zip(counts, *rankings, strict=True):
            longest = max(map(len, lists))
            turns = [ranking[turn] for turn in range(longest) for ranking in lists if turn < len(ranking)]
            found.append(unpredicted(np.array(list(dict.fromkeys(turns))[:count], dtype=np.int64)))
        return found


@dataclass(frozen=True, eq=False)
class Filled(Stage):
    """A first stage, and another for what it leaves open."""

    stage: Picker
    rest: Picker

    def start(self, query: Query) -> None:
        self.stage.start(query)

    def pick(self, queries: Sequence[Query], counts: Sequence[int]) -> list[Found]:
        picks = [found.handles for found in self.stage.pick(queries, counts)]
        left = [count - len(pick) for count, pick in zip(counts, picks, strict=True)]
        more = self.rest.pick([query.without(pick) for query, pick in zip(queries, picks, strict=True)], left)
        return [unpredicted(np.concatenate([pick, rest.handles])) for pick, rest in zip(picks, more, strict=True)]


@dataclass(frozen=True, eq=False)
class FirstRound(Picker):
    """The caller's candidates, then those of a first stage; where no round follows, chance fills up what is left."""

    stage: Picker
    pool: Pool

    def start(self, query: Query) -> None:
        self.stage.start(query)

    def pick(self, queries: Sequence[Query], counts: Sequence[int]) -> list[Found]:
        picks = [query.candidates[:count] for query, count in zip(queries, counts, strict=True)]
        last = all(count == query.account.left for query, count in zip(queries, counts, strict=True))
        for stage in (self.stage, Random(self.pool)) if last else (self.stage,):
            left = [count - len(pick) for count, pick in zip(counts, picks, strict=True)]
            if any(left):
                more = stage.pick([query.without(pick) for query, pick in zip(queries, picks, strict=True)], left)
                picks = [np.concatenate([pick, rest.handles]) for pick, rest in zip(picks, more, strict=True)]
        return [
            unpredicted(pick) if query.base is None else Found(pick, np.asarray(query.base.at(pick)))
            for query, pick in zip(queries, picks, strict=True)
        ]
