"""Two scorers, one search: a cheap one in front of a dear one, each with a budget of its own.

The cheap score is evidence, not a filter. The cheap scorer is searched first, c(i) is its score of what it scored and
its prediction of everything else (`hits.trace`), and c is one more coordinate of the space that the dear search
regresses its scores on:

    dear(i) ≈ level + β · c(i) + v_i · u,       β ~ N(0, w²),  u ~ N(0, I)

Every dear call says how far c can be trusted: β grows with what c explains, and stays near 0 where it explains nothing.
Half of round one are the best items of c, the other half the caller's, or those of the method's own first stage, so
that a poor c costs next to nothing, and an item that the cheap scorer dislikes is found once dear calls near it come
out high.
"""

from __future__ import annotations

import copy
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from crosscut.ann.base import TopK, Within
from crosscut.ann.flat import Flat
from crosscut.errors import InputError, ScorerError
from crosscut.methods.base import Method, Parts
from crosscut.methods.weights import spread_of
from crosscut.retrievers.first import Retriever
from crosscut.scorers.adapters import AnyBound
from crosscut.search.hits import Bought, Hits
from crosscut.search.stopping import Stop, parse_stop
from crosscut.searcher import Allow, Searcher
from crosscut.spaces.base import Space, Stacked, Vectors
from crosscut.types import Floats, Positions

TRUST = 0.3
"""w: how much of a dear score c may explain at first, against all that the vectors may; 0.2 … 0.5 do alike."""
SHARE = 0.5
"""Of round one, for the best of the cheap scorer."""
NAMES = ("cheap", "dear")


@dataclass(frozen=True, eq=False)
class TwoScorerHits(Hits):
    """Hits by the dear scorer; `calls` are its calls, and `cheap` is the search of the cheap one."""

    cheap: Hits | None = None

    @property
    def all_calls(self) -> dict[str, int]:
        """The calls of both."""
        return {"cheap": 0 if self.cheap is None else self.cheap.calls, "dear": self.calls}


class TwoScorers:
    """A search by two scorers over the same items.

    Parameters
    ----------
    cheap, dear
        Bound scorers, or callables `f(query, positions) -> scores`.
    method
        Of both searches, unless `cheap_method` says otherwise.
    vectors, space, words, ids, texts, n, seed, parts
        As `Searcher` takes them. The items are in memory: every one of them gets a guess.

    Examples
    --------
    >>> both = TwoScorers(cheap=box, dear=judge, vectors=V)
    >>> hits = both.search(query, k=10, budget={"cheap": 500, "dear": 50}, query_vector=u0)
    >>> hits.all_calls
    {'cheap': 500, 'dear': 50}
    """

    def __init__(
        self,
        *,
        cheap: AnyBound,
        dear: AnyBound,
        method: str | Method = "crosscut",
        cheap_method: str | Method | None = None,
        vectors: npt.ArrayLike | Space | TopK | None = None,
        space: Space | npt.ArrayLike | Sequence[Space] | None = None,
        words: Retriever | None = None,
        ids: Sequence[Any] | None = None,
        texts: Sequence[str] | None = None,
        n: int | None = None,
        seed: int = 0,
        parts: Parts | None = None,
    ) -> None:
        self.cheap = Searcher(
            cheap,
            method=cheap_method or method,
            vectors=vectors,
            space=space,
            words=words,
            ids=ids,
            texts=texts,
            n=n,
            seed=seed,
            parts=parts,
        )
        # what past searches taught is of the scorer that they were made with
        own = replace(self.cheap.parts, prior=None)
        self.dear = Searcher(dear, method=method, parts=own, ids=ids, texts=texts)
        if not self.dear.plan.corrects or self.dear.plan.space is None:
            raise InputError(f"{self.dear.method} does not take what is known beforehand: use crosscut")
        if own.n is None:
            raise InputError("two scorers need every item at hand, and these vectors stay in their store: copy them")
        self._spread = spread_of(self.dear.plan.space, own.seed)

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
    ) -> TwoScorerHits:
        """The k best items by the dear scorer, with at most `budget["cheap"]` and `budget["dear"]` calls.

        `candidates` begin the cheap search, and the dear one beside the best of the cheap scorer; `stop` ends the dear
        search; `deadline` is for both; all else is as in `Searcher.search`.
        """
        return self.search_many(
            [query],
            k,
            budget,
            query_vectors=None if query_vector is None else [query_vector],
            candidates=None if candidates is None else [candidates],
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
    ) -> list[TwoScorerHits]:
        """What `search` returns, for every query.

        The cheap searches run side by side, the dear ones one after another: each has a space of its own. When a scorer
        fails, the error has the hits of every query so far, and `error.calls` are those of both scorers.
        """
        calls = _calls(budget)
        stop = None if stop is None else parse_stop(stop)  # a wrong one is an error before anything is paid for
        started = time.monotonic()
        within = None if allow is None else self.dear._allowed(allow)
        try:
            found = self.cheap.search_many(
                queries,
                k,
                calls["cheap"],
                query_vectors=query_vectors,
                candidates=candidates,
                within=within,
                deadline=deadline,
                trace=True,
            )
        except ScorerError as error:
            error.hits = [*_not_begun(error.hits, calls["dear"])]
            raise
        made: list[TwoScorerHits] = []
        vectors = [None] * len(found) if query_vectors is None else query_vectors
        given = [None] * len(found) if candidates is None else candidates
        for query, vector, own, first in zip(queries, vectors, given, found, strict=True):
            # what is left of the time; a search whose time is over still makes its first batch
            left = None if deadline is None else max(deadline - (time.monotonic() - started), 1e-6)
            searcher, best = self._informed(self._guess(first), calls["dear"], within)
            try:
                (hits,) = searcher.search_many(
                    [query],
                    k,
                    calls["dear"],
                    query_vectors=None if vector is None else [vector],
                    candidates=[best if own is None else [*best, *own]],
                    within=within,
                    stop=stop,
                    deadline=left,
                    trace=trace,
                )
            except ScorerError as error:
                (failed,) = error.hits
                error.hits = [*made, _beside(failed, first), *_not_begun(found[len(made) + 1 :], calls["dear"])]
                error.calls += sum(hits.calls for hits in made) + sum(hits.calls for hits in found)
                raise
            made.append(_beside(hits, first))
        return made

    def _guess(self, first: Hits) -> Floats:
        """c (n): what the cheap scorer said, or is expected to say."""
        kept = [made.predictions for made in first.trace if made.predictions is not None]
        if kept:
            guess = np.array(kept[-1], np.float64)
        else:
            told = Bought.of(first.trace).scores  # none, if time was over
            guess = np.full(self.cheap.n, told.min() if len(told) else 0.0)
        for made in first.trace:
            guess[made.positions] = made.scores
        return guess

    def _informed(self, guess: Floats, calls: int, within: Within) -> tuple[Searcher, list[Any]]:
        """The dear search of one query, with c among its coordinates, and the best of c for its first round."""
        plan = self.dear.plan
        assert plan.space is not None
        column = (guess - guess.mean()) / max(float(guess.std()), 1e-12)  # (n)
        space = Stacked([plan.space, Vectors(column[:, None])], [1.0, TRUST * self._spread])
        searcher = copy.copy(self.dear)
        searcher.plan = replace(plan, space=space, topk=Flat(space, plan.offset.base))
        count = max(1, round(SHARE * plan.schedule.sizes(calls, self.dear.scorer.concurrency)[0]))
        there = np.arange(len(guess)) if within is None else within
        best: Positions = there[np.argsort(-guess[there], kind="stable")[:count]]
        places: list[Any] = best.tolist()
        return searcher, places if self.dear.ids is None else [self.dear.ids[place] for place in places]


def _beside(dear: Hits, cheap: Hits) -> TwoScorerHits:
    return TwoScorerHits(**{**vars(dear), "cheap": cheap})


def _not_begun(found: Sequence[Hits], budget: int) -> list[TwoScorerHits]:
    """Of queries whose dear search was not begun when a scorer failed."""
    return [TwoScorerHits(cheap.query, (), 0, 0, budget, "scorer failed", cheap=cheap) for cheap in found]


def _calls(budget: Mapping[str, int] | None) -> dict[str, int]:
    given = {"cheap": 500, "dear": 50} if budget is None else dict(budget) if isinstance(budget, Mapping) else {}
    if set(given) != set(NAMES) or any(isinstance(n, bool) or not isinstance(n, int) or n < 1 for n in given.values()):
        raise InputError(f'a budget of two scorers is {{"cheap": 500, "dear": 50}}, calls of each; got {budget!r}')
    return given
