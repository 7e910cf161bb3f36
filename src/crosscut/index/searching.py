"""An index that is asked."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Unpack

import numpy as np
import numpy.typing as npt

from crosscut.datasets.columnar import FiledItems
from crosscut.datasets.records import ItemList
from crosscut.errors import InputError, ScorerError, StoreUnavailable
from crosscut.index.calibrating import Calibrating
from crosscut.index.items import Filter
from crosscut.index.learning import Learning, ScoredBy, scored_of
from crosscut.index.options import ManyQueries, OneQuery, Options, checked_queries
from crosscut.index.passages import OfDocuments, document_at
from crosscut.index.state import State
from crosscut.methods import Method, Parts, methods, parse
from crosscut.methods.rerank import Base
from crosscut.names import check_keywords
from crosscut.scorers.meter import Halt
from crosscut.search.hits import Hits
from crosscut.search.ranking import Evidence, Rank
from crosscut.search.recall import TargetRecall
from crosscut.search.stopping import Confident, Stop, parse_stop
from crosscut.searcher import Allow, Searcher, checked_deadline
from crosscut.types import Floats, Handles, Positions


@dataclass(frozen=True)
class SearchView:
    """The items as one search sees them: those of a state, or of a session of a store."""

    searcher: Searcher
    allow: Allow | None  # what the filter comes to, as conditions of a store
    within: Handles | None  # and as sorted positions
    given: Callable[[Sequence[Any] | None], Sequence[int] | Positions | None]  # ids → items for round one
    scored: ScoredBy | None  # what the log is told; None: there is nothing to learn from
    evidence: Callable[[Hits, npt.ArrayLike | None], Evidence]
    told: Callable[[Hits, int], Hits]  # with whole items and the cost, the best k


class Searching(Learning, Calibrating):
    """The role of being searched."""

    def search(
        self,
        query: str,
        k: int = 10,
        budget: int | None = None,
        *,
        candidates: Sequence[str] | None = None,
        query_vector: npt.ArrayLike | None = None,
        **options: Unpack[Options],
    ) -> Hits:
        """The k best items for one query, with at most `budget` calls of the scorer (100); see `search_many`."""
        check_keywords("search", options, OneQuery.__annotations__)
        return self.search_many(
            [query],
            k,
            budget,
            candidates=None if candidates is None else [candidates],
            query_vectors=None if query_vector is None else [query_vector],
            **options,
        )[0]

    def search_many(
        self,
        queries: Iterable[str],
        k: int = 10,
        budget: int | None = None,
        *,
        method: str | Method | None = None,
        filter: Filter | None = None,
        stop: str | Stop | None = None,
        target_recall: float | None = None,
        deadline: float | None = None,
        threshold: float | None = None,
        rank: str | Rank | None = None,
        candidates: Sequence[Sequence[Any] | None] | None = None,
        query_vectors: Sequence[npt.ArrayLike | None] | npt.NDArray[Any] | None = None,
        trace: bool = False,
        halts: Sequence[Halt] | None = None,
    ) -> list[Hits]:
        """The k best items for every query, each with at most `budget` calls; a round of all queries is one batch.

        Parameters
        ----------
        budget
            None: 100 calls, or every item for `exact`.
        method
            Instead of the index's own: a name with settings, `"axn@rounds=10,first=lexical"`, or a `Method`.
        filter
            Conditions on metadata, or a predicate on items; respected in every round.
        stop
            `Patience(rounds)` ends a search once its top k has stopped changing. A tuned index has a patience of its
            own; with the scorer in the box a search ends once the next items would not change its top k
            (`confident`). `"never"` spends the whole budget.
        target_recall
            Stop once this share of the top k is expected to be found; calibrated by `tune`, for its k and method.
        deadline
            Seconds after which no further batch of calls is made.
        threshold
            Only hits whose probability of being relevant is at least this, 0 … 1; of the model in the
            box, or of a calibrated index.
        rank
            `"scorer"` orders hits by score. `"fused"` orders them by scorer, dual encoder and words together, which
            guards against a scorer that is wrong here; `"fused@scorer=2"` trusts it more.
        candidates
            Items for round one, from elsewhere.
        trace
            Keep every round's predictions in `hits.trace`, for plots.
        halts
            One function a query, asked before every batch of its calls: a reason ends that search.
        """
        started = time.perf_counter()
        checked_deadline(deadline)
        answering = self._answering(threshold, rank)
        budget = self._usual(budget, method)
        queries = checked_queries(queries)
        began = self._began
        chosen, rule = self._way(method, stop, target_recall, budget)
        if self.passages is not None and rule is not None and target_recall is None:
            rule = OfDocuments(parse_stop(rule), partial(document_at, self._state.items))  # as k counts documents
        opened = self._opened(chosen, filter)
        if self._free:
            opened = replace(opened, scored=None, told=partial(_without_calls, opened))
        vectors = self._vectors(queries) if query_vectors is None else query_vectors
        try:
            found = opened.searcher.search_many(
                queries,
                k,
                budget,
                query_vectors=vectors,
                candidates=None if candidates is None else [opened.given(ids) for ids in candidates],
                allow=opened.allow,
                within=opened.within,
                stop=rule,
                deadline=None if deadline is None else max(deadline - (time.perf_counter() - started), 1e-6),
                trace=trace,
                halts=halts,
            )
        except (ScorerError, StoreUnavailable) as error:
            error.hits = [opened.told(hits, k) for hits in error.hits]
            raise
        if opened.scored is not None:
            self._remember(queries, vectors, found, opened.scored, began)
        return answering.answers(found, vectors, k, opened.evidence, lambda hits: opened.told(hits, k))

    def _opened(self, method: Method, filter: Filter | None) -> SearchView:
        """What a search with this method, under this filter, works on."""
        state = self._state
        return SearchView(
            state.searcher(method),
            None,
            state.within(filter),
            state.given,
            None if state.scorer is None else partial(scored_of, state),
            partial(_evidence, state),
            partial(self._told, items=state.items),
        )

    def _told(self, hits: Hits, k: int, items: ItemList | FiledItems) -> Hits:
        """Hits with their items and their cost; of an index of passages, documents with their best passage."""
        if self.price is not None:
            hits = self.price.on(hits, items.get(hits.scored))
        cut = self.passages
        if cut is not None:
            hits = hits.grouped(partial(document_at, items), k, cut.score)
        found = zip(hits, items.get(np.array([hit.position for hit in hits], np.int64)), strict=True)
        named = [replace(hit, id=item.id if cut is None else hit.id, text=item.text, item=item) for hit, item in found]
        return replace(hits, items=tuple(named))

    def default_stop(self, method: str | Method | None = None) -> Stop | None:
        """What ends a search that is told nothing: where the scorer knows part of every score without a call and the
        method takes that as its base (as both in the box do), that the next items would not change the top k."""
        state = self._state
        if state.scorer is None or not state.scorer.has_base_scores:
            return None
        chosen = self.method if method is None else parse(method)
        state.searcher(chosen)  # refuses a method that cannot work here
        return Confident() if chosen.takes_base else None

    def _way(
        self, method: str | Method | None, stop: str | Stop | None, target_recall: float | None, budget: int | None
    ) -> tuple[Method, str | Stop | None]:
        """The method of a search, and what ends it."""
        chosen = self.method if method is None else parse(method)
        if self._free:  # every method finds the same
            return Base(), None
        if target_recall is None:
            return chosen, stop or (self.stop if chosen == self.method else None) or self.default_stop(chosen)
        rule = self._expecting(target_recall, chosen, stop)
        return chosen.with_settings({"rounds": max(2, (budget or 100) // rule.model.step)}), rule

    def _expecting(self, target: float, method: Method, stop: str | Stop | None) -> TargetRecall:
        if stop is not None:
            raise InputError(f"target_recall={target} and stop={stop} are two stopping rules: give one")
        if self.recall_model is None or method != self.method:
            said = (self.tuned or {}).get("notes") if method == self.method else None
            notes = "; ".join(map(str, said)) if isinstance(said, list | tuple) else ""
            raise InputError(
                f"target_recall={target} needs a calibration for method {method}: call index.tune(queries, k, "
                f"budget), crosscut index tune, and search with the method it chose{f' ({notes})' if notes else ''}"
            )
        return TargetRecall(self.recall_model, target)

    @property
    def _free(self) -> bool:
        """Whether the scorer knows every score without a call."""
        return self._state.scorer is not None and self._state.scorer.free

    @property
    def methods(self) -> list[str]:
        """The names of the methods that this index can be searched with."""
        parts = self._made_from()
        return [name for name, method in methods().items() if method().missing(parts) is None]

    def _made_from(self) -> Parts:
        """What the methods of a search that begins now are made from."""
        return self._state.parts

    async def search_async(
        self, query: str, k: int = 10, budget: int | None = None, **options: Unpack[OneQuery]
    ) -> Hits:
        """`search`, beside other work of an event loop."""
        check_keywords("search_async", options, OneQuery.__annotations__)
        first, vector = options.pop("candidates", None), options.pop("query_vector", None)
        found = await self.search_many_async(
            [query],
            k,
            budget,
            candidates=None if first is None else [first],
            query_vectors=None if vector is None else [vector],
            **options,  # type: ignore[misc]
        )
        return found[0]

    async def search_many_async(
        self, queries: Iterable[str], k: int = 10, budget: int | None = None, **options: Unpack[ManyQueries]
    ) -> list[Hits]:
        """`search_many`, beside other work of an event loop; one that is cancelled makes no further calls."""
        gone, queries = threading.Event(), checked_queries(queries)

        def halt() -> str | None:
            return "cancelled" if gone.is_set() else None

        halts = [halt] * len(queries)
        try:
            return await asyncio.to_thread(partial(self.search_many, queries, k, budget, halts=halts, **options))
        finally:
            gone.set()

    def preload(self) -> None:
        """Let the scorer prepare every item now (encode it, say), instead of when it is first scored."""
        if self._state.scorer is not None:
            self._state.scorer.preload(np.flatnonzero(self._state.alive))


def _without_calls(opened: SearchView, hits: Hits, k: int) -> Hits:
    """Hits of a scorer that knows every score without a call."""
    return replace(opened.told(hits, k), stop_reason="base scores", note=opened.searcher.scorer.note)


def _evidence(state: State, hits: Hits, vector: npt.ArrayLike | None) -> Evidence:
    """What vectors and words say of everything that was scored."""
    handles = hits.scored
    made: dict[str, Floats] = {}
    if state.vectors is not None and vector is not None:
        rows = np.asarray(state.vectors[handles], np.float64)
        made["dense"] = np.asarray(np.einsum("md,d->m", rows, np.asarray(vector, np.float64)))
    if state.bm25 is not None:
        made["words"] = np.asarray(state.bm25.scores(str(hits.query)), np.float64)[handles]
    return made
