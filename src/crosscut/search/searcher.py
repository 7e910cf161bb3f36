"""`Searcher`: bring your own vectors and your own scorer; nothing is indexed, nothing is trained."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from crosscut.ann.early_exit import Rule
from crosscut.errors import BudgetError, InputError, ScorerError
from crosscut.scorers.base import BoundScorer
from crosscut.scorers.callable import as_bound
from crosscut.scorers.meter import Account, Halt, Meter, ScoreCache
from crosscut.search.candidates import Candidates, cluster, of_block
from crosscut.search.first import Dense, FirstStage
from crosscut.search.hits import Hits
from crosscut.search.loop import Plan, run
from crosscut.search.methods import Materials, plan_for
from crosscut.search.recall import TargetRecall
from crosscut.search.stopping import Patience
from crosscut.search.walk import Walk, generator
from crosscut.spaces.base import Space, Stacked, Vectors, as_space
from crosscut.spaces.cur import CUR
from crosscut.types import NO_HANDLES, Floats, Positions

Allow: TypeAlias = Callable[[Any], bool] | Iterable[Any] | npt.NDArray[Any]
"""Items a search may score: ids, a boolean mask over all items, or a predicate on ids."""


class Searcher:
    """k-NN search over n items under a scorer too expensive to run on all of them.

    Parameters
    ----------
    scorer
        A bound scorer, or any callable `f(query, positions) -> scores`, sync or async.
    vectors
        (n × d) item vectors of a dual encoder, in the space of the query vectors.
    space
        Another space: `CUR(anchor_scores)`, `ItemScores(…)`, factors.
    method
        `exact`, `rnr`, `anncur`, `adacur`, `axn`, `tour`, `fixed-item`, `item-cur` or `crosscut`.
    ids
        (n) names of the items; without them an item is its position.
    texts
        (n) texts, passed on to the hits.
    n
        The number of items, when neither vectors nor space nor scorer tells it.
    cache
        Known scores: found there, a pair is free.
    seed
        Of all random draws.
    plan
        Parts of your own (`crosscut.search.loop.Plan`) instead of a named method.
    settings
        The method's own: `rounds`, `mix`, `split`, `first`, …

    Examples
    --------
    >>> searcher = Searcher(lambda query, ids: my_model(query, ids), vectors=V, method="axn")
    >>> hits = searcher.search("how do vaccines work", k=10, budget=100, query_vector=u0)
    """

    def __init__(
        self,
        scorer: BoundScorer | Callable[[Any, Positions], Any],
        *,
        vectors: npt.ArrayLike | Space | None = None,
        space: Space | npt.ArrayLike | None = None,
        method: str = "crosscut",
        ids: Sequence[Any] | None = None,
        texts: Sequence[str] | None = None,
        n: int | None = None,
        cache: ScoreCache | None = None,
        seed: int = 0,
        plan: Plan | None = None,
        **settings: Any,
    ) -> None:
        self.scorer = as_bound(scorer)
        self.method = method
        self.cache = cache
        self.seed = seed
        self.texts = texts
        encoder = None if vectors is None else as_space(vectors)
        other = None if space is None else as_space(space)
        if encoder is None and isinstance(other, Vectors) and not isinstance(other, CUR):
            encoder = other  # the only vectors there are: query vectors live among them
        self.n = _count(
            {
                "n": n,
                "vectors": None if encoder is None else encoder.n,
                "space": None if other is None else other.n,
                "ids": None if ids is None else len(ids),
                "texts": None if texts is None else len(texts),
                "scorer": getattr(self.scorer, "n_items", None),
            }
        )
        self.ids = None if ids is None else list(ids)
        self._place = None if self.ids is None else {name: j for j, name in enumerate(self.ids)}
        if self._place is not None and len(self._place) != self.n:
            raise InputError(f"ids must be distinct: {self.n} ids name {len(self._place)} items")
        self._width = None if encoder is None else encoder.d
        if not isinstance(seed, int | np.integer) or seed < 0:
            raise InputError(f"a seed is a whole number of 0 or more; got {seed!r}")
        if plan is not None and (plan.n != self.n or settings):
            told = f"settings {', '.join(settings)}" if settings else f"{plan.n} items, the searcher has {self.n}"
            raise InputError(f"a plan of your own is searched as it is; got {told}")
        made = plan or plan_for(method, Materials(self.n, encoder, other, int(seed)), settings)
        self.plan: Plan = made

    def cluster(self, *, lists: int | None = None, rule: Rule | int | None = None) -> Searcher:
        """Search rounds through a clustered index over this method's own space, instead of reading every item.

        For items by the million: the index takes minutes to build and n × d float16 numbers to hold, and the rounds of
        a search then visit some of its lists (`rule`, see `crosscut.IVF`). Where the vectors alone are searched, pass
        an `IVF` as `vectors` instead: it needs no second copy of them. Returns self.
        """
        plan = self.plan
        if plan.space is None:
            raise InputError(f"{self.method} makes one round and searches no space: there is nothing to cluster")
        index = cluster(plan.space, plan.offset.base, lists=lists, rule=rule, seed=int(self.seed))
        first = plan.first
        if isinstance(first, Dense):
            first = _clustered(first, plan.space, index)
        self.plan = replace(plan, index=index, first=first)
        return self

    def search(
        self,
        query: Any,
        k: int = 10,
        budget: int | None = None,
        *,
        query_vector: npt.ArrayLike | None = None,
        first_ids: Sequence[Any] | None = None,
        allow: Allow | None = None,
        stop: Patience | TargetRecall | None = None,
        deadline: float | None = None,
        keep_predictions: bool = False,
    ) -> Hits:
        """The k best items for one query, with at most `budget` calls of the scorer.

        Parameters
        ----------
        query_vector
            (d) the encoder's vector of this query, in the space of `vectors`.
        first_ids
            Items for round one, in order; what they leave of its share is filled by the method's first stage.
        allow
            The items that may be scored and returned; see `Allow`.
        stop
            `Patience(rounds)` ends the search once the top k has stopped changing, `TargetRecall` once enough of it is
            expected to be found.
        deadline
            Seconds after which no further batch of calls is made. In `search_many` all queries run side by side, and
            the clock is the same for all.
        keep_predictions
            Keep every round's predictions of all items in `hits.trace`, for plots.
        """
        return self.search_many(
            [query],
            k,
            budget,
            query_vectors=None if query_vector is None else [query_vector],
            first_ids=None if first_ids is None else [first_ids],
            allow=allow,
            stop=stop,
            deadline=deadline,
            keep_predictions=keep_predictions,
        )[0]

    def search_many(
        self,
        queries: Sequence[Any],
        k: int = 10,
        budget: int | None = None,
        *,
        query_vectors: Sequence[npt.ArrayLike | None] | npt.NDArray[Any] | None = None,
        first_ids: Sequence[Sequence[Any] | None] | None = None,
        allow: Allow | None = None,
        stop: Patience | TargetRecall | None = None,
        deadline: float | None = None,
        keep_predictions: bool = False,
        halts: Sequence[Halt] | None = None,
    ) -> list[Hits]:
        """What `search` returns, for every query; each round of all queries is one batch of calls.

        A query that stands twice in the list is searched, and paid for, twice; a `cache` makes the second free.
        `halts` has one function a query, asked before every batch of its calls: a reason ends that search, and is its
        `stop_reason`.
        """
        allowed = None if allow is None else self._allowed(allow)
        size = self.n if allowed is None else len(allowed)
        budget = self._budget(budget, k, size)
        _same_length("query vectors", query_vectors, queries)
        _same_length("lists of first ids", first_ids, queries)
        _same_length("halts", halts, queries)
        checked_deadline(deadline)
        if stop is not None and not isinstance(stop, Patience | TargetRecall):
            raise InputError(f"stop takes a rule such as Patience(2); got {stop!r}")
        walks = [
            Walk(
                Account(query, budget, halt=None if halts is None else halts[j]),
                generator(self.seed, query),
                vector=None if query_vectors is None else self._vector(query_vectors[j]),
                given=NO_HANDLES if first_ids is None else self._given(first_ids[j], allowed),
                allowed=allowed,
                watch=stop.watch(k) if isinstance(stop, Patience) else None,
                expecting=stop.watch(k) if isinstance(stop, TargetRecall) else None,
            )
            for j, query in enumerate(queries)
        ]
        meter = Meter(self.scorer, cache=self.cache, deadline=None if deadline == np.inf else deadline)
        try:
            run(self.plan, walks, meter, k, keep=keep_predictions)
        except ScorerError as error:
            for walk in walks:
                walk.stop = walk.stop or "scorer failed"
            error.hits = [walk.hits(k, self.ids, self.texts) for walk in walks]
            error.calls = meter.calls
            raise
        return [walk.hits(k, self.ids, self.texts) for walk in walks]

    def _budget(self, budget: int | None, k: int, size: int) -> int:
        for name, number in (("k", k), ("budget", budget)):
            unlimited = name == "budget" and number is None
            if not unlimited and (not isinstance(number, int | np.integer) or isinstance(number, bool)):
                raise InputError(f"{name} must be a whole number; got {number!r}")
        if k < 1:
            raise InputError(f"k must be at least 1; got {k}")
        if self.method == "exact":
            if budget is not None and budget < size:
                raise BudgetError(
                    f"exact scores all {size} items and the budget is {budget}: raise it, or use another method"
                )
            return size if budget is None else budget
        if budget is None:
            raise InputError(f"{self.method} needs a budget: the number of calls a query may make")
        if budget < 1:
            raise InputError(f"the budget must be at least 1 call; got {budget}")
        return budget

    def _vector(self, vector: npt.ArrayLike | None) -> Floats | None:
        if vector is None:
            return None
        values = np.asarray(vector, dtype=np.float64).reshape(-1)
        if self._width is None:
            raise InputError("a query vector was given, but no item vectors to compare it with: pass vectors=")
        if len(values) != self._width:
            raise InputError(f"the query vector has {len(values)} dimensions and the items have {self._width}")
        if not np.isfinite(values).all():
            raise InputError("the query vector contains NaN or infinities")
        return values

    def _given(self, names: Sequence[Any] | None, allowed: Positions | None) -> Positions:
        if names is None:
            return NO_HANDLES
        positions = self._positions(names)
        _, first = np.unique(positions, return_index=True)
        positions = positions[np.sort(first)]
        return positions if allowed is None else positions[np.isin(positions, allowed)]

    def _allowed(self, allow: Allow) -> Positions:
        if callable(allow):
            names = range(self.n) if self.ids is None else self.ids
            return np.array([j for j, name in enumerate(names) if allow(name)], dtype=np.int64)
        if isinstance(allow, np.ndarray) and allow.dtype == np.bool_ and allow.shape == (self.n,):
            return np.flatnonzero(allow)
        names = list(allow)
        if names and all(isinstance(name, bool | np.bool_) for name in names):
            if len(names) != self.n:
                raise InputError(f"the allow mask has {len(names)} entries for {self.n} items")
            return np.flatnonzero(names)
        return np.unique(self._positions(names))

    def _positions(self, names: Sequence[Any]) -> Positions:
        if self._place is None:
            given = np.asarray(names).reshape(-1)
            if len(given) and not np.issubdtype(given.dtype, np.integer):
                raise InputError(
                    f"items are named by position, 0 … {self.n - 1}; got {given[0]!r} (pass ids= to name them)"
                )
            positions = given.astype(np.int64)
            if len(positions) and not (positions.min() >= 0 and positions.max() < self.n):
                wrong = positions.min() if positions.min() < 0 else positions.max()
                raise InputError(f"item {wrong} is not one of the {self.n} items (0 … {self.n - 1})")
            return positions
        try:
            return np.array([self._place[name] for name in names], dtype=np.int64)
        except KeyError as error:
            raise InputError(f"item id {error.args[0]!r} is not among the {self.n} items") from None


def _clustered(first: Dense, space: Space, index: Candidates) -> FirstStage:
    """The first stage through the same index, if the encoder's vectors are a block of it."""
    blocks, weights = (space.blocks, space.weights) if isinstance(space, Stacked) else ([space], [1.0])
    start = 0
    for block, weight in zip(blocks, weights, strict=True):
        if block is first.space and weight:
            return replace(first, index=of_block(index, start, block.d, weight))
        start += block.d
    return first


def _count(sources: dict[str, int | None]) -> int:
    known = {name: size for name, size in sources.items() if size is not None}
    if not known:
        raise InputError("how many items are there? pass vectors=, space=, ids= or n=")
    if len(set(known.values())) > 1:
        told = ", ".join(f"{name}: {size}" for name, size in known.items())
        raise InputError(f"the number of items is not the same everywhere ({told})")
    return next(iter(known.values()))


def checked_deadline(deadline: float | None) -> None:
    """Refuse what is no number of seconds above 0."""
    number = isinstance(deadline, int | float | np.number) and not isinstance(deadline, bool)
    if deadline is not None and not (number and deadline > 0):
        raise InputError(f"a deadline is a number of seconds above 0, or None; got {deadline!r}")


def _same_length(what: str, values: Any, queries: Sequence[Any]) -> None:
    if values is not None and len(values) != len(queries):
        raise InputError(
            f"{len(values)} {what} for {len(queries)} queries: give one for each, None where there is none"
        )
