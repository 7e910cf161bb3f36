"""`Searcher`: bring your own vectors and your own scorer; nothing is indexed, nothing is trained."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from crosscut.ann.baseline import Baseline, OfCandidates, PerItem
from crosscut.ann.ivf.rules import Rule
from crosscut.ann.linear import Clustering
from crosscut.ann.results import each
from crosscut.ann.topk import Allowed, TopK, as_vectors
from crosscut.errors import InputError, StoreUnavailable
from crosscut.methods.base import Method, Parts, parse
from crosscut.scorers.adapters import AnyBound, as_bound
from crosscut.scorers.caching import ScoreCache
from crosscut.scorers.meter import Halt, Meter, QueryLedger
from crosscut.scorers.validation import validate_base_scores
from crosscut.search.hits import Hits
from crosscut.search.loop import Plan, Query, run
from crosscut.search.stages import Retriever
from crosscut.search.stopping import Stop, parse_stop
from crosscut.spaces.base import Space, as_space, known_count
from crosscut.threads import in_thread
from crosscut.types import NO_HANDLES, Floats, Handles, Positions, whole

Allow: TypeAlias = Callable[[Any], bool] | Iterable[Any] | npt.NDArray[Any] | Mapping[str, Any]
"""Items a search may score: ids, a mask over all items, a predicate on ids; over a store, conditions on metadata."""


class Searcher:
    """k-NN search over n items under a scorer too expensive to run on all of them.

    Parameters
    ----------
    scorer
        A bound scorer, or any callable `f(query, positions) -> scores`, sync or async.
    vectors
        (n × d) item vectors of a dual encoder, in the space of the query vectors, an array or a tensor of torch, which
        stays on its GPU; or an index or a store of them.
    space
        Another space, or several: `CUR(anchor_scores)`, factors, or one whose `slot` a method of your own knows.
    words
        A retriever of texts for round one: `BM25(texts)`, TF-IDF.
    method
        A name with settings, `"axn@rounds=10,mix=0.8"`, or a value, `AXN(rounds=10, mix=0.8)`.
    ids
        (n) names of the items; without them an item is its position.
    texts
        (n) texts, passed on to the hits.
    n
        The number of items, when neither vectors nor space nor scorer has a length.
    cache
        Known scores: found there, a pair is free.
    seed
        Of all random draws.
    parts
        What methods are made from, instead of vectors, space and words: for methods of your own.

    Examples
    --------
    >>> searcher = Searcher(lambda query, ids: my_model(query, ids), vectors=V, method="axn")
    >>> hits = searcher.search("how do vaccines work", k=10, budget=100, query_vector=u0)
    """

    def __init__(
        self,
        scorer: AnyBound,
        *,
        vectors: npt.ArrayLike | Space | TopK | None = None,
        space: Space | npt.ArrayLike | Sequence[Space] | None = None,
        words: Retriever | None = None,
        method: str | Method = "crosscut",
        ids: Sequence[Any] | None = None,
        texts: Sequence[str] | None = None,
        n: int | None = None,
        cache: ScoreCache | None = None,
        seed: int = 0,
        parts: Parts | None = None,
    ) -> None:
        self.scorer = as_bound(scorer)
        self.method = parse(method)
        self.cache = cache
        self.texts = texts
        self.ids = None if ids is None else list(ids)
        sizes = {"n": n, "ids": _size(ids), "texts": _size(texts), "scorer": self.scorer.n_items}
        self.parts = parts or _parts(vectors, space, words, sizes, whole("seed", seed))
        self._place = None if self.ids is None else {name: j for j, name in enumerate(self.ids)}
        if self._place is not None and len(self._place) != self.parts.n:
            raise InputError(f"ids must be distinct: {self.parts.n} ids name {len(self._place)} items")
        self.plan: Plan = self.method.made(self.parts)

    @property
    def n(self) -> int:
        """The number of items; raise an error if a store does not know it."""
        return known_count(self.parts.n)

    def cluster(self, *, lists: int | None = None, rule: Rule | int | None = None) -> Searcher:
        """Search rounds through a clustered index over this method's own space, instead of reading every item.

        For items by the million: the index takes minutes to build and n × d float16 numbers to hold, and the rounds of
        a search then visit some of its lists (`rule`, see `crosscut.IVF`). Where the vectors alone are searched, pass
        an `IVF` as `vectors` instead: it needs no second copy of them. Returns self.
        """
        if self.plan.then is None:
            raise InputError(f"{self.method} makes one round and searches no space: there is nothing to cluster")
        self.parts = replace(self.parts, topk=Clustering(lists, rule, self.parts.seed))
        self.plan = self.method.made(self.parts)
        return self

    def search(
        self,
        query: Any,
        k: int = 10,
        budget: int | None = None,
        *,
        query_vector: npt.ArrayLike | None = None,
        candidates: Sequence[Any] | None = None,
        allow: Allow | None = None,
        stop: str | Stop | None = None,
        deadline: float | None = None,
        trace: bool = False,
    ) -> Hits:
        """The k best items for one query, with at most `budget` calls of the scorer.

        Parameters
        ----------
        query_vector
            (d) the encoder's vector of this query, in the space of `vectors`.
        candidates
            Items for round one, in order; what they leave of its share is filled by the method's first stage.
        allow
            The items that may be scored and returned; see `Allow`.
        stop
            A stopping rule: `Patience(rounds)` ends the search once the top k has stopped changing. See `Stop` for
            rules of your own.
        deadline
            Seconds after which no further batch of calls is made. In `search_many` all queries run side by side, and
            the clock is the same for all.
        trace
            Keep every round's predictions of all items in `hits.trace`, for plots; over a store the rounds have none.
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
        budget: int | None = None,
        *,
        query_vectors: Sequence[npt.ArrayLike | None] | npt.NDArray[Any] | None = None,
        candidates: Sequence[Sequence[Any] | Positions | None] | None = None,
        allow: Allow | None = None,
        stop: str | Stop | None = None,
        deadline: float | None = None,
        trace: bool = False,
        halts: Sequence[Halt] | None = None,
        within: Handles | None = None,
        columns: Sequence[Floats] | None = None,
    ) -> list[Hits]:
        """Search with many queries; each round of all queries is one batch of calls.

        A query that is twice in the list is searched, and paid for, twice; a `cache` makes the second free.
        `halts` has one function a query, asked before every batch of its calls: a reason ends that search, and is its
        `stop_reason`. `within` is what `allow` comes to, for callers that know it: sorted positions.
        `columns` are further coordinates of every item (n × m) for each query: what something else says of them.
        """
        started = time.monotonic()
        within = within if allow is None else self.allowed(allow)
        size = self.parts.pool.count(within)
        budget = self._budget(budget, k, size)
        vectors = [self._vector(one) for one in each("query vectors", query_vectors, len(queries))]
        given = each("lists of candidates", candidates, len(queries))
        halting = each("halts", halts, len(queries))
        checked_deadline(deadline)
        deadline = None if deadline == np.inf else deadline
        rule = None if stop is None else parse_stop(stop)
        states = [
            Query(
                QueryLedger(query, budget, halt=halt),
                k,
                self.parts.seed,
                vector=vector,
                candidates=self._given(first, within),
                base=base,
                columns=column,
                allowed=within,
                size=size,
                watch=None if rule is None else rule.watch(k),
                reason="" if rule is None else rule.reason,
                trace=trace,
            )
            for query, vector, first, halt, base, column in zip(
                queries,
                vectors,
                given,
                halting,
                self._bases(queries, vectors, deadline),
                each("columns", columns, len(queries)),
                strict=True,
            )
        ]
        left = None if deadline is None else max(deadline - (time.monotonic() - started), 1e-9)
        meter = Meter(self.scorer, cache=self.cache, deadline=left)
        try:
            run(self.plan, states, meter)
            for state in states:
                if state.account.error is not None:
                    raise state.account.error
        except BaseException as error:  # whatever ends a search carries what was found and paid for
            failed = "store failed" if isinstance(error, StoreUnavailable) else "scorer failed"
            for state in states:
                state.stop = state.stop or failed
            vars(error).update(
                hits=[state.hits(self.ids, self.texts) for state in states],
                calls=meter.calls,
                failures=[state.account.error for state in states],
            )
            raise
        return [state.hits(self.ids, self.texts) for state in states]

    def _bases(
        self, queries: Sequence[Any], vectors: Sequence[Floats | None], deadline: float | None
    ) -> Sequence[Baseline | None]:
        """Return what the scorer knows of items without a call, if it does, the method takes it and there is time."""
        nothing: list[Baseline | None] = [None] * len(queries)
        if not (self.method.takes_base and self.scorer.has_base_scores):
            return nothing
        if self.parts.n is not None:
            compute = partial(validate_base_scores, self.scorer, queries, self.parts.n)
            try:
                scores = compute() if deadline is None else in_thread(compute, deadline, owner=self.scorer)
            except TimeoutError:
                return nothing
            return [PerItem(row) for row in scores]
        encoder = self.parts.encoder
        assert encoder is not None  # only an encoder space can lack the number of items
        return [
            OfCandidates(partial(self._known_of, query), encoder.rows, vector)
            for query, vector in zip(queries, vectors, strict=True)
        ]

    def _known_of(self, query: Any, handles: Handles) -> Floats:
        return validate_base_scores(self.scorer, [query], len(handles), handles)[0]

    def _budget(self, budget: int | None, k: int, size: int | None) -> int:
        whole("k", k, 1)
        return self.method.budget(None if budget is None else whole("budget", budget, 1), size)

    def _vector(self, vector: npt.ArrayLike | None) -> Floats | None:
        if vector is None:
            return None
        try:
            values = np.asarray(vector, dtype=np.float64).reshape(-1)
        except (TypeError, ValueError) as error:
            raise InputError(f"a query vector is a list of numbers ({error})") from error
        if self.parts.encoder is None:
            raise InputError("a query vector was given, but no item vectors to compare it with: pass vectors=")
        if len(values) != self.parts.encoder.d:
            raise InputError(f"the query vector has {len(values)} dimensions, the items have {self.parts.encoder.d}")
        if not np.isfinite(values).all():
            raise InputError("the query vector contains NaN or infinities")
        return values

    def _given(self, names: Sequence[Any] | Positions | None, allowed: Allowed) -> Positions:
        if names is None:
            return NO_HANDLES
        positions = self._positions(names)
        _, first = np.unique(positions, return_index=True)
        positions = positions[np.sort(first)]
        # what a store's filter lets through only the store knows: its caller names items that pass
        return positions[np.isin(positions, allowed)] if isinstance(allowed, np.ndarray) else positions

    def allowed(self, allow: Allow) -> Allowed:
        if isinstance(allow, Mapping):
            if self.parts.n is not None:
                raise InputError(f"conditions on metadata are for a store, which knows it; got allow={allow!r}")
            return allow
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

    def _positions(self, names: Sequence[Any] | Positions) -> Positions:
        if self._place is None:
            given = np.asarray(names).reshape(-1)
            if len(given) and not np.issubdtype(given.dtype, np.integer):
                raise InputError(
                    f"items are named by position, 0 … {self.n - 1}; got {given[0]!r} (pass ids= to name them)"
                )
            positions = given.astype(np.int64)
            if self.parts.n is None:  # handles of a store, given out by itself
                return positions
            if len(positions) and not (positions.min() >= 0 and positions.max() < self.n):
                wrong = positions.min() if positions.min() < 0 else positions.max()
                raise InputError(f"item {wrong} is not one of the {self.n} items (0 … {self.n - 1})")
            return positions
        try:
            return np.array([self._place[name] for name in names], dtype=np.int64)
        except KeyError as error:
            raise InputError(f"item id {error.args[0]!r} is not among the {self.n} items") from None


def _size(things: Sequence[Any] | None) -> int | None:
    return None if things is None else len(things)


def _parts(
    vectors: npt.ArrayLike | Space | TopK | None,
    space: Space | npt.ArrayLike | Sequence[Space] | None,
    words: Retriever | None,
    sizes: dict[str, int | None],
    seed: int,
) -> Parts:
    """Return the inputs of the user as parts of methods."""
    several = isinstance(space, list | tuple) and all(isinstance(one, Space) for one in space)
    given: Sequence[Any] = [] if space is None else space if several else [space]  # type: ignore[assignment]
    others = [as_space(one) for one in given]
    encoder = None if vectors is None else as_vectors(vectors)
    slots: dict[str, Space] = {} if encoder is None else {"encoder": encoder}
    for other in others:  # vectors beside those of an encoder are another space
        slot = "factors" if other.slot == "encoder" and encoder is not None else other.slot
        slots[slot] = other
    if "encoder" not in slots and "factors" in slots:
        slots["encoder"] = slots["factors"]  # the only vectors there are: query vectors live among them
    known = {**sizes, **{slot: one.n for slot, one in slots.items() if one.readable}}
    open_ended = any(not one.readable for one in slots.values())
    named = {slot: slots.pop(slot) for slot in list(slots) if slot not in ("encoder", "anchors", "factors")}
    return Parts(**slots, words=words, n=_count(known, open_ended), seed=seed, own=named)  # type: ignore[arg-type]


def _count(sources: dict[str, int | None], open_ended: bool) -> int | None:
    known = {name: size for name, size in sources.items() if size is not None}
    if not known and open_ended:
        return None
    if not known:
        raise InputError("how many items are there? pass vectors=, space=, ids= or n=")
    if len(set(known.values())) > 1:
        listed = ", ".join(f"{name}: {size}" for name, size in known.items())
        raise InputError(f"the number of items is not the same everywhere ({listed})")
    return next(iter(known.values()))


def checked_deadline(deadline: float | None) -> None:
    """Refuse what is no number of seconds above 0."""
    number = isinstance(deadline, int | float | np.number) and not isinstance(deadline, bool)
    if deadline is not None and not (number and deadline > 0):
        raise InputError(f"a deadline is a number of seconds above 0, or None; got {deadline!r}")
