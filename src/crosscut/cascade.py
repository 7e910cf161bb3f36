"""A cascade: a cheap scorer in front of an expensive one, each with a budget of its own.

The cheap score is evidence, not a filter. The cheap scorer is searched first, c(i) is its score of what it scored and
its prediction of everything else (`hits.trace`), and c is one more coordinate of the space that the expensive search
regresses its scores on:

    expensive(i) ≈ level + β · c(i) + v_i · u,       β ~ N(0, w²),  u ~ N(0, I)

Every expensive call says how far c can be trusted: β grows with what c explains, and stays near 0 where it explains
nothing. Half of round one are the best items of c, the other half the caller's candidates, or those of the method's
first stage, so that a poor c costs next to nothing.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from crosscut.errors import InputError, ScorerError
from crosscut.methods.weights import spread_of
from crosscut.search.hits import Hits, Scored
from crosscut.search.stopping import Stop, parse_stop
from crosscut.searcher import Allow, Searcher
from crosscut.types import Floats, Positions

TRUST = 0.3
"""w: how much of an expensive score c may explain at first, against all that the vectors may; 0.2 … 0.5 do alike."""
SHARE = 0.5
"""Of round one, for the best of the cheap scorer."""


@dataclass(frozen=True, eq=False)
class CascadeHits(Hits):
    """Hits by the expensive scorer; `calls` are its calls, and `cheap` is the search of the cheap one."""

    cheap: Hits | None = None

    @property
    def all_calls(self) -> dict[str, int]:
        """The calls of both."""
        return {"cheap": 0 if self.cheap is None else self.cheap.calls, "expensive": self.calls}


class CascadeSearcher:
    """A search by two scorers over the same items, which are in memory: every one of them gets a guess.

    >>> both = CascadeSearcher(cheap=Searcher(small, vectors=V), expensive=Searcher(judge, vectors=V))
    >>> hits = both.search(query, k=10, budget={"cheap": 500, "expensive": 50}, query_vector=u0)
    >>> hits.all_calls
    {'cheap': 500, 'expensive': 50}
    """

    def __init__(self, *, cheap: Searcher, expensive: Searcher) -> None:
        self.cheap, self.expensive = cheap, expensive
        then = expensive.plan.then
        space = None if then is None else then.predicts_in()
        if not expensive.method.takes_base or space is None:
            raise InputError(f"{expensive.method} does not take what is known beforehand: use crosscut")
        if cheap.parts.n is None or cheap.parts.n != expensive.parts.n:
            raise InputError(
                f"a cascade needs every item at hand, the same for both scorers; got {cheap.parts.n} items and "
                f"{expensive.parts.n} (None: they stay in their store, copy their vectors)"
            )
        self._scale = TRUST * spread_of(space, expensive.parts.seed)

    def search(
        self,
        query: Any,
        k: int = 10,
        budget: Mapping[str, int] | None = None,
        *,
        query_vector: npt.ArrayLike | None = None,
        candidates: Sequence[Any] | None = None,
        allow: Allow | None = None,
        stop: str | Stop | None = None,
        deadline: float | None = None,
        trace: bool = False,
    ) -> CascadeHits:
        """Return the k best items by the expensive scorer, with at most `budget["cheap"]` and `budget["expensive"]`
        calls (500 and 50).

        `candidates` begin the cheap search, and the expensive one beside the best of the cheap scorer; `stop` ends the
        expensive search; `deadline` is for both; all else is as in `Searcher.search`.
        """
        vectors = None if query_vector is None else [query_vector]
        given = None if candidates is None else [candidates]
        return self.search_many(
            [query],
            k,
            budget,
            query_vectors=vectors,
            candidates=given,
            allow=allow,
            stop=stop,
            deadline=deadline,
            trace=trace,
        )[0]

    def search_many(
        self,
        queries: Sequence[Any],
        k: int = 10,
        budget: Mapping[str, int] | None = None,
        *,
        query_vectors: Sequence[npt.ArrayLike | None] | npt.NDArray[Any] | None = None,
        candidates: Sequence[Sequence[Any] | Positions | None] | None = None,
        allow: Allow | None = None,
        stop: str | Stop | None = None,
        deadline: float | None = None,
        trace: bool = False,
    ) -> list[CascadeHits]:
        """Return what `search` returns, for every query.

        When a scorer fails, the error has the hits of every query so far, and `error.calls` are those of both scorers.
        """
        calls = _calls(budget)
        stop = None if stop is None else parse_stop(stop)  # a wrong one is an error before anything is paid for
        started = time.monotonic()
        same: dict[str, Any] = {"query_vectors": query_vectors, "allow": allow}
        try:
            found = self.cheap.search_many(
                queries, k, calls["cheap"], candidates=candidates, deadline=deadline, trace=True, **same
            )
        except ScorerError as error:
            error.hits = [
                CascadeHits(hits.query, (), 0, 0, calls["expensive"], "scorer failed", cheap=hits)
                for hits in error.hits
            ]
            raise
        guesses = [self._guess(hits) for hits in found]
        own = [()] * len(found) if candidates is None else [() if one is None else one for one in candidates]
        # what is left of the time; a search whose time is over still makes its first batch
        left = None if deadline is None else max(deadline - (time.monotonic() - started), 1e-6)
        try:
            hits = self.expensive.search_many(
                queries,
                k,
                calls["expensive"],
                candidates=[
                    [*self._best(guess, calls["expensive"], allow), *one]
                    for guess, one in zip(guesses, own, strict=True)
                ],
                columns=[self._column(guess) for guess in guesses],
                stop=stop,
                deadline=left,
                trace=trace,
                **same,
            )
        except ScorerError as error:
            error.hits = [*_beside(error.hits, found)]
            error.calls += sum(one.calls for one in found)
            raise
        return _beside(hits, found)

    def _guess(self, first: Hits) -> Floats:
        """Return c (n): what the cheap scorer said, or is expected to say."""
        kept = [entry.predictions for entry in first.trace if entry.predictions is not None]
        scores = Scored.of(first.trace).scores  # none, if time was over
        lowest = scores.min() if len(scores) else 0.0
        guess = np.array(kept[-1], np.float64) if kept else np.full(self.cheap.n, lowest)
        for entry in first.trace:
            guess[entry.positions] = entry.scores
        return guess

    def _column(self, guess: Floats) -> Floats:
        return np.asarray(self._scale * (guess - guess.mean()) / max(float(guess.std()), 1e-12))

    def _best(self, guess: Floats, calls: int, allow: Allow | None) -> list[Any]:
        """Return the names of the best items of c, for round one."""
        searcher = self.expensive
        count = max(1, round(SHARE * searcher.plan.schedule.sizes(calls, searcher.scorer.concurrency)[0]))
        there = np.arange(len(guess)) if allow is None else searcher.allowed(allow)
        places: list[Any] = there[np.argsort(-guess[there], kind="stable")[:count]].tolist()
        return places if searcher.ids is None else [searcher.ids[place] for place in places]


def _beside(expensive: Sequence[Hits], cheap: Sequence[Hits]) -> list[CascadeHits]:
    return [CascadeHits(**{**vars(one), "cheap": other}) for one, other in zip(expensive, cheap, strict=True)]


def _calls(budget: Mapping[str, int] | None) -> dict[str, int]:
    given = {"cheap": 500, "expensive": 50} if budget is None else dict(budget) if isinstance(budget, Mapping) else {}
    wrong = [n for n in given.values() if isinstance(n, bool) or not isinstance(n, int) or n < 1]
    if set(given) != {"cheap", "expensive"} or wrong:
        raise InputError(f'a budget of a cascade is {{"cheap": 500, "expensive": 50}}, calls of each; got {budget!r}')
    return given
