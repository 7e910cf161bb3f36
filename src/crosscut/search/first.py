"""Round one: which items to score before anything is known."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Protocol

import numpy as np
import numpy.typing as npt

from crosscut.ann.flat import best, predictions, rerank, slack_for
from crosscut.errors import InputError
from crosscut.search.candidates import Candidates, candidates
from crosscut.search.walk import Walk
from crosscut.spaces.base import Space
from crosscut.types import NO_HANDLES, Positions


class FirstStage(Protocol):
    """A rule for round one."""

    def pick(self, walks: Sequence[Walk], counts: Sequence[int], taken: Sequence[Positions], n: int) -> list[Positions]:
        """For each query at most `count` of n items, best first, none of them `taken` or not allowed."""
        ...


@dataclass(frozen=True)
class Drawn:
    """Items drawn uniformly at random, from the seed and the query."""

    def pick(self, walks: Sequence[Walk], counts: Sequence[int], taken: Sequence[Positions], n: int) -> list[Positions]:
        return [_draw(walk, count, gone, n) for walk, count, gone in zip(walks, counts, taken, strict=True)]


def _draw(walk: Walk, count: int, taken: Positions, n: int) -> Positions:
    if not count:  # nothing drawn, nothing taken from the generator: batch-mates must not matter
        return NO_HANDLES
    closed = np.concatenate([taken, walk.account.positions])
    if walk.allowed is None and count + len(closed) < n // 4:
        # a few out of many: draw with room to spare, instead of a permutation of all
        drawn = walk.rng.choice(n, size=count + len(closed), replace=False, shuffle=True)
        return np.asarray(drawn[~np.isin(drawn, closed)][:count], dtype=np.int64)
    pool = np.setdiff1d(np.arange(n) if walk.allowed is None else walk.allowed, closed)
    return np.asarray(walk.rng.permutation(pool)[:count], dtype=np.int64)


@dataclass(frozen=True)
class Listed(Drawn):
    """The caller's `first_ids`, which there must be; chance fills up what they leave."""

    def pick(self, walks: Sequence[Walk], counts: Sequence[int], taken: Sequence[Positions], n: int) -> list[Positions]:
        if any(not len(walk.given) for walk in walks):
            raise InputError("there is nothing to retrieve by: pass first_ids, or vectors and a query_vector")
        return super().pick(walks, counts, taken, n)


@dataclass(frozen=True)
class Dense:
    """The items closest to the encoder's query vector; `otherwise` for queries without one (None: an error).

    `index` finds them without reading every vector; when not given, the one that the space brings along, if it does.
    """

    space: Space
    otherwise: FirstStage | None = field(default_factory=Drawn)
    index: Candidates | None = None

    def __post_init__(self) -> None:
        if self.index is None:
            object.__setattr__(self, "index", candidates(self.space))

    def pick(self, walks: Sequence[Walk], counts: Sequence[int], taken: Sequence[Positions], n: int) -> list[Positions]:
        picks: list[Positions] = [NO_HANDLES] * len(walks)
        have = [j for j, walk in enumerate(walks) if walk.vector is not None and counts[j]]
        lack = [j for j, walk in enumerate(walks) if walk.vector is None and counts[j]]
        if lack and self.otherwise is None:
            raise InputError(
                "the first stage ranks by the query vector, and this query has none: "
                "pass query_vector, or first_ids, or first='random'"
            )
        if lack and self.otherwise is not None:
            drawn = self.otherwise.pick(
                [walks[j] for j in lack], [counts[j] for j in lack], [taken[j] for j in lack], n
            )
            for j, pick in zip(lack, drawn, strict=True):
                picks[j] = pick
        vectors = [vector for j in have if (vector := walks[j].vector) is not None]
        if self.index is not None and have:
            gone = [np.concatenate([walks[j].account.positions, taken[j]]) for j in have]
            wanted = [counts[j] + slack_for(counts[j]) for j in have]
            found = self.index.top(vectors, wanted, gone, walks[have[0]].allowed)
            for j, vector, places in zip(have, vectors, found, strict=True):
                picks[j] = rerank(self.space, vector, places, 0.0, counts[j])[0]
            return picks
        for j, vector, row in zip(have, vectors, chain.from_iterable(predictions(self.space, vectors)), strict=True):
            values = walks[j].mask(row, taken[j])
            places = best(values, counts[j], slack_for(counts[j]))
            picks[j] = rerank(self.space, vector, places, 0.0, counts[j])[0]
        return picks


class Retriever(Protocol):
    """Anything that ranks items for a query's text."""

    def scores(self, query: str) -> npt.NDArray[np.float32]:
        """One score per item (n); 0 or less where it has nothing to say."""
        ...


@dataclass(frozen=True)
class Lexical:
    """The items that a retriever of texts ranks first: BM25. Items it knows nothing of are not picked."""

    retriever: Retriever

    def pick(self, walks: Sequence[Walk], counts: Sequence[int], taken: Sequence[Positions], n: int) -> list[Positions]:
        picks: list[Positions] = []
        for walk, count, gone in zip(walks, counts, taken, strict=True):
            if not count:
                picks.append(NO_HANDLES)
                continue
            values = walk.mask(self.retriever.scores(str(walk.account.query)), gone)
            places = best(values, count)
            places = places[np.lexsort((places, -values[places]))]
            picks.append(places[values[places] > 0][:count])
        return picks


@dataclass(frozen=True)
class Fixed:
    """The same items for every query, in this order: ANNCUR's anchor items; every item, for `exact`."""

    order: Positions

    def pick(self, walks: Sequence[Walk], counts: Sequence[int], taken: Sequence[Positions], n: int) -> list[Positions]:
        picks = []
        for walk, count, gone in zip(walks, counts, taken, strict=True):
            order = self.order
            if walk.allowed is not None:
                order = order[np.isin(order, walk.allowed)]
            if len(gone):
                order = order[~np.isin(order, gone)]
            picks.append(order[:count])
        return picks


@dataclass(frozen=True)
class Union:
    """Several first stages in turn: the best of each, then the second of each, …"""

    stages: tuple[FirstStage, ...]

    def pick(self, walks: Sequence[Walk], counts: Sequence[int], taken: Sequence[Positions], n: int) -> list[Positions]:
        rankings = [stage.pick(walks, counts, taken, n) for stage in self.stages]
        picks = []
        for j, count in enumerate(counts):
            longest = max((len(ranking[j]) for ranking in rankings), default=0)
            turns = [ranking[j][turn] for turn in range(longest) for ranking in rankings if turn < len(ranking[j])]
            picks.append(np.array(list(dict.fromkeys(turns))[:count], dtype=np.int64))
        return picks


@dataclass(frozen=True)
class Filled:
    """A first stage, and another for what it leaves open."""

    stage: FirstStage
    rest: FirstStage

    def pick(self, walks: Sequence[Walk], counts: Sequence[int], taken: Sequence[Positions], n: int) -> list[Positions]:
        picks = self.stage.pick(walks, counts, taken, n)
        missing = [count - len(pick) for count, pick in zip(counts, picks, strict=True)]
        gone = [np.concatenate(pair) for pair in zip(taken, picks, strict=True)]
        more = self.rest.pick(walks, missing, gone, n)
        return [np.concatenate(pair) for pair in zip(picks, more, strict=True)]
