"""Round one: which items to score before anything is known."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from crosscut.ann.base import Ask, Pool, TopK, Within
from crosscut.ann.flat import masked
from crosscut.ann.known import WIDER, Known, KnownOfCandidates
from crosscut.errors import InputError
from crosscut.linalg.top import ranked
from crosscut.types import NO_HANDLES, Floats, Handles


@dataclass(frozen=True, slots=True)
class FirstRequest:
    """What a first stage is told of one query. It is only read."""

    query: Any
    count: int
    seeded: Callable[[], np.random.Generator]  # the query's own, for who draws
    vector: Floats | None = None  # the encoder's query vector
    exclude: Handles = field(default_factory=lambda: NO_HANDLES)
    within: Within = None
    given: bool = False  # whether the caller named items for round one
    known: Known | None = None  # what is known of items without a call

    @property
    def rng(self) -> np.random.Generator:
        """What random draws of this query come from."""
        return self.seeded()


@runtime_checkable
class FirstStage(Protocol):
    """A rule for round one. `draws`: it draws at random, so that it has no best items."""

    draws: ClassVar[bool] = False

    @property
    def ranks(self) -> int | None:
        """How many items it ranks; None: whatever there is."""
        return None

    def through(self, topk: TopK) -> FirstStage:
        """The same, by this index where it ranks by the query vector."""
        return self

    @abstractmethod
    def pick(self, requests: Sequence[FirstRequest]) -> list[Handles]:
        """For each query at most `count` items, best first, none of them excluded or not allowed."""


@dataclass(frozen=True)
class Drawn(FirstStage):
    """Items drawn uniformly at random, from the seed and the query."""

    draws: ClassVar[bool] = True

    pool: Pool

    def pick(self, requests: Sequence[FirstRequest]) -> list[Handles]:
        return [self.pool.sample(r.count, r.rng, r.exclude, r.within) for r in requests]


@dataclass(frozen=True)
class Nothing(FirstStage):
    """No item: what another stage has nothing to say about stays open."""

    def pick(self, requests: Sequence[FirstRequest]) -> list[Handles]:
        return [NO_HANDLES] * len(requests)


@dataclass(frozen=True)
class Listed(Drawn):
    """The caller's `candidates`, which there must be; chance fills up what they leave."""

    def pick(self, requests: Sequence[FirstRequest]) -> list[Handles]:
        if not all(request.given for request in requests):
            raise InputError(
                "there is nothing to retrieve by: pass candidates, or vectors and a query_vector, or rank by words "
                "(method='rerank@first=lexical')"
            )
        return super().pick(requests)


@dataclass(frozen=True)
class Dense(FirstStage):
    """The items closest to the encoder's query vector; `otherwise` for queries without one (None: an error)."""

    topk: TopK
    otherwise: FirstStage | None = None

    def through(self, topk: TopK) -> Dense:
        return replace(self, topk=topk)

    def pick(self, requests: Sequence[FirstRequest]) -> list[Handles]:
        picks: list[Handles] = [NO_HANDLES] * len(requests)
        asks: dict[int, Ask] = {}
        lack: list[int] = []
        for j, request in enumerate(requests):
            if request.count and request.vector is not None:
                asks[j] = Ask(request.vector, request.count, request.exclude, request.within)
            elif request.count:
                lack.append(j)
        if lack and self.otherwise is None:
            raise InputError(
                "the first stage ranks by the query vector, and this query has none: "
                "pass query_vector, or candidates, or first='random'"
            )
        if lack and self.otherwise is not None:
            for j, pick in zip(lack, self.otherwise.pick([requests[j] for j in lack]), strict=True):
                picks[j] = pick
        for j, found in zip(asks, self.topk.top(list(asks.values())), strict=True):
            picks[j] = found.handles
        return picks


class Retriever(Protocol):
    """Anything that ranks items for a query's text: BM25, TF-IDF. One of your own inherits from it."""

    @abstractmethod
    def scores(self, query: str) -> npt.NDArray[np.float32]:
        """One score per item (n); 0 or less where it has nothing to say."""

    def top(self, query: str, count: int, exclude: Handles = NO_HANDLES, within: Handles | None = None) -> Handles:
        """At most `count` items of a score above 0, best first, ties to the lower position.

        `exclude` are not among them; `within` are the only ones that may be, sorted.
        """
        values = masked(self.scores(query).copy(), exclude, within)
        places = ranked(values, count)
        return places[values[places] > 0]


@dataclass(frozen=True)
class Lexical(FirstStage):
    """The items that a retriever of texts ranks first. Items it knows nothing of are not picked."""

    retriever: Retriever

    def pick(self, requests: Sequence[FirstRequest]) -> list[Handles]:
        return [
            self.retriever.top(str(one.query), one.count, one.exclude, one.within) if one.count else NO_HANDLES
            for one in requests
        ]


@dataclass(frozen=True)
class MostKnown(FirstStage):
    """The items of which most is known without a call; `otherwise` for scorers that know nothing."""

    otherwise: FirstStage

    def through(self, topk: TopK) -> MostKnown:
        return MostKnown(self.otherwise.through(topk))

    def pick(self, requests: Sequence[FirstRequest]) -> list[Handles]:
        if any(request.known is None for request in requests):
            return self.otherwise.pick(requests)
        return [
            ranked(masked(request.known.copy(), request.exclude, request.within), request.count)
            if isinstance(request.known, np.ndarray)
            else self._among_candidates(request, request.known)
            for request in requests
            if request.known is not None
        ]

    def _among_candidates(self, request: FirstRequest, known: KnownOfCandidates) -> Handles:
        """Of a store: of some more that `otherwise` finds."""
        (pool,) = self.otherwise.pick([replace(request, count=WIDER * request.count)])
        return pool[np.lexsort((pool, -known[pool]))[: request.count]]


@dataclass(frozen=True)
class FixedOrder(FirstStage):
    """The same items for every query, in this order: ANNCUR's anchor items; every item, for `exact`."""

    order: Handles

    def pick(self, requests: Sequence[FirstRequest]) -> list[Handles]:
        picks = []
        for request in requests:
            order = self.order
            if request.within is not None:
                order = order[np.isin(order, request.within)]
            if len(request.exclude):
                order = order[~np.isin(order, request.exclude)]
            picks.append(order[: request.count])
        return picks


@dataclass(frozen=True)
class Union(FirstStage):
    """Several first stages in turn: the best of each, then the second of each, …"""

    stages: tuple[FirstStage, ...]

    def pick(self, requests: Sequence[FirstRequest]) -> list[Handles]:
        rankings = [stage.pick(requests) for stage in self.stages]
        picks = []
        for j, request in enumerate(requests):
            longest = max((len(ranking[j]) for ranking in rankings), default=0)
            turns = [ranking[j][turn] for turn in range(longest) for ranking in rankings if turn < len(ranking[j])]
            picks.append(np.array(list(dict.fromkeys(turns))[: request.count], dtype=np.int64))
        return picks


@dataclass(frozen=True)
class Filled(FirstStage):
    """A first stage, and another for what it leaves open."""

    stage: FirstStage
    rest: FirstStage

    def pick(self, requests: Sequence[FirstRequest]) -> list[Handles]:
        picks = self.stage.pick(requests)
        more = self.rest.pick(
            [
                replace(request, count=request.count - len(pick), exclude=np.concatenate([request.exclude, pick]))
                for request, pick in zip(requests, picks, strict=True)
            ]
        )
        return [np.concatenate(pair) for pair in zip(picks, more, strict=True)]
