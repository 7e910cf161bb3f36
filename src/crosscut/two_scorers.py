"""Two scorers, one search: a cheap one in front of a dear one, each with a budget of its own.

The cheap score is evidence, not a filter. The cheap scorer is searched first, c(i) is its score of what it scored and
its prediction of everything else (`hits.trace`), and a pilot of a few dear calls on the best of c tells for this query

    dear(i) ≈ a + b · c(i)        least squares, b drawn towards that of the queries before

That is what is known of every item without a further dear call. The dear search regresses only what it leaves over
(`search/loop.py`): an item that the cheap scorer dislikes is found all the same, once dear calls near it come out high.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from crosscut.errors import InputError
from crosscut.methods.base import Method, Parts
from crosscut.scorers.base import Answer, BoundScorer, Request
from crosscut.scorers.callable import AnyBound
from crosscut.scorers.meter import Account, MemoryCache, Meter
from crosscut.search.hits import Hits
from crosscut.searcher import Searcher
from crosscut.types import Floats, Handles, Positions

PILOT = 0.2
"""Share of the dear budget that is spent on the best of the cheap scorer, to learn what its scores mean."""
CAUTION = 5.0
"""Pairs that the scale of earlier queries is worth."""
NAMES = ("cheap", "dear")


@dataclass(frozen=True, eq=False)
class TwoScorerHits(Hits):
    """Hits by the dear scorer; `calls` are its calls, and `cheap` is the search of the cheap one."""

    cheap: Hits | None = None

    @property
    def all_calls(self) -> dict[str, int]:
        """The calls of both."""
        return {"cheap": 0 if self.cheap is None else self.cheap.calls, "dear": self.calls}


class _Based(BoundScorer):
    """The dear scorer with what the cheap one lets expect of every item."""

    def __init__(self, dear: BoundScorer, base: Floats) -> None:
        self.dear, self.base = dear, base  # (n) of the one query that is searched
        self.n_items, self.pairs_at_once, self.knows = dear.n_items, dear.pairs_at_once, True

    def known(self, query: Any, handles: Handles | None = None) -> Floats:
        return self.base if handles is None else self.base[handles]

    def score_many(self, requests: Sequence[Request]) -> list[Answer]:
        return self.dear.score_many(requests)

    def within(self, seconds: float) -> BoundScorer:
        return self.dear.within(seconds)


class TwoScorers:
    """A search by two scorers over the same items.

    Parameters
    ----------
    cheap, dear
        Bound scorers, or callables `f(query, positions) -> scores`.
    method
        Of both searches, unless `cheap_method` says otherwise.
    how
        What `Searcher` takes: vectors, space, words, ids, texts, seed.

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
        parts: Parts | None = None,
        **how: Any,
    ) -> None:
        self.cheap = Searcher(cheap, method=cheap_method or method, parts=parts, **how)
        ids, texts = how.get("ids"), how.get("texts")
        self.dear = Searcher(dear, method=method, parts=self.cheap.parts, ids=ids, texts=texts)
        if not self.dear.plan.corrects:
            raise InputError(f"{self.dear.method} does not take what is known beforehand: use crosscut")
        self._slopes: list[float] = []  # b of the queries before

    def search(
        self,
        query: Any,
        k: int = 10,
        budget: Mapping[str, int] | None = None,
        *,
        query_vector: npt.ArrayLike | None = None,
        **how: Any,
    ) -> TwoScorerHits:
        """The k best items by the dear scorer, with at most `budget["cheap"]` and `budget["dear"]` calls."""
        calls = _calls(budget)
        pairs = max(2, round(PILOT * calls["dear"]))
        if pairs >= calls["dear"]:
            raise InputError(f"{calls['dear']} dear calls are too few: a pilot alone takes {pairs}")
        first = self.cheap.search(query, k, calls["cheap"], query_vector=query_vector, trace=True)
        guess = self._guess(first)
        pilot = np.lexsort((np.arange(len(guess)), -guess))[:pairs]
        account = Account(query, len(pilot))
        Meter(self.dear.scorer).buy([account], [pilot])
        cache = MemoryCache()
        cache.put(query, account.positions, account.scores)
        searcher = copy.copy(self.dear)  # one for this query: searches may run side by side
        searcher.scorer = _Based(self.dear.scorer, self._base(guess, account.positions, account.scores))
        searcher.cache = cache
        left = calls["dear"] - account.calls
        places: list[Any] = account.positions.tolist()
        ids = places if searcher.ids is None else [searcher.ids[place] for place in places]
        hits = searcher.search(query, k, left, query_vector=query_vector, first_ids=ids, **how)
        told = {**vars(hits), "calls": hits.calls + account.calls, "cached": 0, "budget": calls["dear"], "cheap": first}
        return TwoScorerHits(**told)

    def _guess(self, first: Hits) -> Floats:
        """c (n): what the cheap scorer said, or is expected to say."""
        kept = [made.predictions for made in first.trace if made.predictions is not None]
        if kept:
            guess = np.array(kept[-1], np.float64)
        else:
            guess = np.full(self.cheap.n, min(float(made.scores.min()) for made in first.trace))
        for made in first.trace:
            guess[made.positions] = made.scores
        return guess

    def _base(self, guess: Floats, positions: Positions, scores: Floats) -> Floats:
        """a + b · c: the cheap scorer's guess in units of the dear one."""
        cheap = guess[positions]
        middle, level = cheap.mean(), scores.mean()
        spread = max(float(guess.var()), 1e-12)
        usual = float(np.mean(self._slopes)) if self._slopes else float(scores.std() / max(cheap.std(), 1e-9))
        weight = CAUTION * max(float(cheap.var()), 0.05 * spread)
        slope = (float((cheap - middle) @ (scores - level)) + weight * usual) / (
            float(((cheap - middle) ** 2).sum()) + weight
        )
        self._slopes.append(slope)
        return np.asarray(level + slope * (guess - middle))


def _calls(budget: Mapping[str, int] | None) -> dict[str, int]:
    given = {"cheap": 500, "dear": 50} if budget is None else dict(budget)
    if set(given) != set(NAMES) or any(isinstance(n, bool) or not isinstance(n, int) or n < 1 for n in given.values()):
        raise InputError(f'a budget of two scorers is {{"cheap": 500, "dear": 50}}, calls of each; got {budget!r}')
    return given
