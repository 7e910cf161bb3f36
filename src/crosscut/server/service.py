"""Requests of the server: one search or one rerank through the batcher, with its cost counted."""

from __future__ import annotations

import asyncio
import json
import uuid
from collections.abc import Mapping, Sequence
from functools import partial
from math import isfinite
from typing import Any

from fastapi import Request

from crosscut.errors import InputError
from crosscut.index import Index
from crosscut.index.knowing import without_statistics
from crosscut.methods import Method, parse
from crosscut.score_store.rerank import Ranking, Reranker
from crosscut.search.hits import Hits, Round
from crosscut.search.stopping import parse_stop
from crosscut.server.batching import Batcher, Job, Outcome
from crosscut.server.errors import NotReady, TooLate
from crosscut.server.indexes import Indexes, warm_up
from crosscut.server.observability import LOGGER, Metrics, outline
from crosscut.server.schemas import SearchRequest
from crosscut.server.settings import Settings

RIVAL = parse("hybrid")
"""The baseline method of `compare`."""


class Service:
    """Indexes behind a queue."""

    def __init__(self, indexes: Indexes, settings: Settings, metrics: Metrics) -> None:
        self.indexes, self.settings, self.metrics = indexes, settings, metrics
        self._batcher: Batcher | None = None

    async def start(self) -> None:
        """Load what local models load on first use, then accept requests."""
        indexes = {name: self.indexes[name] for name in self.indexes}
        try:
            for index in indexes.values():
                await asyncio.to_thread(warm_up, index)
        except Exception as error:
            LOGGER.error("not started", extra={"fields": {"causes": outline(error)}})
            raise
        batcher = self._batcher = Batcher(self.settings, self.metrics.batches.observe)
        self.metrics.watch(
            lambda: len(batcher.waiting),
            lambda: sum(map(self.indexes.size, self.indexes)),
            [index.scorer for index in indexes.values()],
        )
        self.indexes.start()
        await self.indexes.count()
        items = {name: self.indexes.size(name) for name in indexes}
        LOGGER.info("ready", extra={"fields": {"indexes": items, "token": self.settings.token() is not None}})

    async def stop(self) -> None:
        """Finish what was accepted."""
        batcher, self._batcher = self._batcher, None
        if batcher is not None:
            await batcher.close()
            await self.indexes.stop()

    @property
    def batcher(self) -> Batcher:
        if self._batcher is None:
            raise NotReady("the server is not ready")
        return self._batcher

    # -- searching ---------------------------------------------------------------------------------------------------

    async def search(self, request: SearchRequest, http: Request, gone: asyncio.Event) -> dict[str, Any]:
        """Return the answer to a search, as JSON."""
        index = self.indexes[request.index]
        method = index.method if request.method is None else requested_method(index, request.method)
        searches = [self._search(index, request, method, gone)]
        if request.compare:
            searches.append(self._search(index, request, RIVAL, gone))
        found = await asyncio.gather(*searches, return_exceptions=True)  # one that fails does not end the other
        outcomes = [outcome for outcome in found if isinstance(outcome, Outcome)]
        failures = [outcome for outcome in found if isinstance(outcome, BaseException)]
        calls = sum(outcome.value.calls for outcome in outcomes)
        calls += sum(getattr(failure, "calls", 0) for failure in failures[1:])  # the handler counts those of the first
        costs = [outcome.value.cost for outcome in outcomes if outcome.value.cost is not None]
        self._pay(http, calls, costs)
        if failures:
            raise failures[0]
        hits: Hits = outcomes[0].value
        rival: Hits | None = outcomes[1].value if request.compare else None
        cached = sum(outcome.value.cached for outcome in outcomes)
        waited, batch = outcomes[0].waited, outcomes[0].batch
        http.state.facts |= {"cached": cached, "rounds": hits.rounds, "search": str(method), "k": request.k}
        http.state.facts |= {"stop_reason": hits.stop_reason, "budget": hits.budget, "compared": request.compare}
        http.state.facts |= {"queue_ms": round(1000 * waited, 2), "batch": batch}
        self.metrics.cached.inc(cached)
        self.metrics.searches.labels(method.name, hits.stop_reason).inc()
        self.metrics.waiting_seconds.observe(waited)
        answer = hits.to_json()
        answer["seconds"]["waiting"] = waited
        return answer | {
            "method": str(method),
            "cost": sum(costs) if costs else None,
            "trace": trace(hits) if request.trace else None,
            "comparison": None if rival is None else comparison(hits, rival),
        }

    async def _search(self, index: Index, request: SearchRequest, method: Method, gone: asyncio.Event) -> Outcome:
        """Search in a batch with others that ask for the same."""
        own = method is not RIVAL
        options: dict[str, Any] = {
            "k": request.k,
            "budget": request.budget or self.settings.budget_of(index, request.method),
            "target_recall": request.target_recall if own else None,
            "threshold": request.threshold if own else None,
            "order": request.order if own else "scorer",
            "filter": request.filter,
        }
        stop = None if request.stop is None else parse_stop(request.stop)
        deadline = request.deadline or self.settings.deadline or self.settings.max_deadline
        key = json.dumps([id(index), options, str(method), str(stop), deadline], sort_keys=True)
        work = partial(search_batch, index, options | {"method": method, "stop": stop})
        payload = (request.query, request.candidates)
        return await self.batcher.submit(key, payload, work, deadline, gone, self.indexes.lane(index))

    def _pay(self, http: Request, calls: int, costs: Sequence[float]) -> None:
        """Count calls and money of a request."""
        route, facts = http.scope["route"].path, http.state.facts
        self.metrics.calls.labels(route).inc(calls)
        facts["calls"] = facts.get("calls", 0) + calls
        if costs:
            self.metrics.cost.labels(route).inc(sum(costs))
            facts["cost"] = round(sum(costs), 9)

    # -- reranking ---------------------------------------------------------------------------------------------------

    async def rerank(
        self, name: str | None, query: str, texts: Sequence[str], http: Request, gone: asyncio.Event
    ) -> tuple[Ranking, float | None]:
        """Return the texts ordered by the scorer of an index, and the cost in money."""
        index, settings = self.indexes[name], self.settings
        work = partial(rerank_batch, index, settings.max_budget)
        outcome = await self.batcher.submit(
            uuid.uuid4(), (query, texts), work, settings.max_deadline, gone, self.indexes.lane(index)
        )
        ranking: Ranking = outcome.value
        cost = None if index.price is None else index.price.of(query, texts, ranking.calls)
        http.state.facts["queue_ms"] = round(1000 * outcome.waited, 2)
        self._pay(http, ranking.calls, [] if cost is None else [cost])
        return ranking, cost


def requested_method(index: Index, name: str) -> Method:
    """Return the method that a request names; what goes through every item first must be the index's own."""
    method = parse(name)
    if method.prepares and method != index.method:
        raise InputError(f"{method.name} goes through every item first: serve an index whose own method it is")
    usual = index.method if type(index.method) is type(method) else type(method)()
    for setting in method.prepared:
        asked, own = getattr(method, setting), getattr(usual, setting)
        if asked != own:
            raise InputError(
                f"{method.name} with {setting}={asked} goes through every item first, and is prepared for {own}: leave "
                f"{setting} out, or serve an index whose own method it is"
            )
    return method


def search_batch(index: Index, options: Mapping[str, Any], jobs: Sequence[Job], seconds: float) -> list[Hits]:
    """Search for every job, in the worker thread."""
    return index.search_many(
        [job.payload[0] for job in jobs],
        candidates=[job.payload[1] for job in jobs],
        deadline=seconds,
        halts=[job.halt for job in jobs],
        **options,
    )


def rerank_batch(index: Index, budget: int, jobs: Sequence[Job], seconds: float) -> list[Ranking | TooLate]:
    """Rerank for the one job of a batch; pairs that a scorer sends again are within the budget, too."""
    if index.scorer is None:
        raise InputError("this index has no scorer: load it with scorer=…")
    (job,) = jobs
    query, texts = job.payload
    reranker = Reranker(without_statistics(index.scorer), budget=budget, calibration=index.calibration)
    ranking = reranker.rank(query, texts, deadline=seconds, halt=job.halt)
    if len(ranking.order) < len(texts):
        message = f"{len(ranking.order)} of {len(texts)} documents were scored before the deadline; send fewer"
        return [TooLate(message, calls=ranking.calls)]
    return [ranking]


# -- answers ---------------------------------------------------------------------------------------------------------


def comparison(hits: Hits, rival: Hits) -> dict[str, Any]:
    """Return what retrieve-and-rerank found, and which of the best k of both together either of them lacks."""
    together = {hit.id: hit.score for hit in [*rival, *hits]}
    best = sorted(together, key=lambda id: -together[id])[: max(len(hits), len(rival))]
    own, other = set(hits.ids), set(rival.ids)
    return {
        "hits": [hit.to_json() for hit in rival],
        "calls": rival.calls,
        "missed": [str(id) for id in best if id not in other],
        "extra": [str(id) for id in best if id not in own],
    }


def trace(hits: Hits) -> list[dict[str, Any]]:
    """Return every round: what it scored, and what had been predicted of that."""
    places = {hit.position: place for place, hit in enumerate(hits, 1)}
    return [_round(number, one, hits, places) for number, one in enumerate(hits.trace, 1)]


def _round(number: int, one: Round, hits: Hits, places: Mapping[int, int]) -> dict[str, Any]:
    found = [] if hits.items_at is None else hits.items_at(one.positions)
    scored = zip(found, one.positions.tolist(), one.scores.tolist(), one.estimates.tolist(), strict=True)
    items = [
        {"id": str(item.id), "title": item.title or item.text[:60], "hit": places.get(position), "score": score}
        | {"estimate": estimate if isfinite(estimate) else None}
        for item, position, score, estimate in scored
    ]
    return {"round": number, "calls": one.calls, "cached": one.cached, "items": items}
