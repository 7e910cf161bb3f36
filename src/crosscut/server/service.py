"""What the server does: searches and reranks through the batcher, and keeps count."""

from __future__ import annotations

import asyncio
import functools
import json
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from starlette.exceptions import HTTPException

from crosscut.errors import Closing, InputError, TooLate
from crosscut.index import Index
from crosscut.index.knowing import without_statistics
from crosscut.methods import Method, parse
from crosscut.score_store.rerank import Ranking, Reranker
from crosscut.search.hits import Hits
from crosscut.search.stopping import parse_stop
from crosscut.server import answers, reranking, schemas
from crosscut.server.batcher import Answered, Batcher, QueuedRequest
from crosscut.server.hosting import Hosting, warm_up
from crosscut.server.logs import LOGGER, outline
from crosscut.server.metrics import Metrics
from crosscut.server.settings import Settings

RIVAL = parse("hybrid")
"""What `compare` compares with."""


@dataclass
class Caller:
    """The other side of one request."""

    gone: asyncio.Event  # set when it hangs up
    facts: dict[str, Any]  # for the log line


class Service:
    """Indexes behind a queue."""

    def __init__(self, indexes: Index | Mapping[str, Index], settings: Settings, metrics: Metrics) -> None:
        self.hosting = Hosting(indexes, settings)
        self.settings = settings
        self.metrics = metrics
        self._batcher: Batcher | None = None

    async def start(self) -> None:
        """Load what is loaded on first use, then take requests."""
        settings = self.settings
        batcher = Batcher(
            queue=settings.queue, batch=settings.batch, linger=settings.linger, on_batch=self.metrics.batches.observe
        )
        batcher.start()
        indexes = {name: self.hosting[name] for name in self.hosting}
        self.metrics.watch(
            lambda: len(batcher.waiting),
            lambda: sum(map(self.hosting.size, self.hosting)),
            [index.scorer for index in indexes.values()],
        )
        try:
            for index in indexes.values():
                await asyncio.to_thread(warm_up, index)
        except Exception as error:
            LOGGER.error("not started", extra={"fields": {"causes": outline(error)}})
            raise
        self._batcher = batcher
        self.hosting.start()
        await self.hosting.count()
        items = {name: self.hosting.size(name) for name in indexes}
        fields = {"items": sum(items.values()), "indexes": items, "token": settings.token() is not None}
        LOGGER.info("ready", extra={"fields": fields})

    async def stop(self) -> None:
        """Finish what was accepted."""
        batcher, self._batcher = self._batcher, None
        if batcher is not None:
            await batcher.close()
            await self.hosting.stop()
        LOGGER.info("stopped")

    @property
    def index(self) -> Index:
        """The first index."""
        return self.hosting[None]

    @property
    def batcher(self) -> Batcher:
        if self._batcher is None:
            raise Closing("the server is not ready")
        return self._batcher

    async def search(self, request: schemas.SearchRequest, client: Caller) -> schemas.SearchResponse:
        index = self.hosting[request.index]
        method = index.method if request.method is None else _asked(index, request.method)
        wanted = [self._find(index, request, method, client)]
        if request.compare:
            wanted.append(self._find(index, request, RIVAL, client))
        found = await asyncio.gather(*wanted, return_exceptions=True)  # neither is left alone when the other fails
        outcomes = [outcome for outcome in found if isinstance(outcome, Answered)]
        errors = [outcome for outcome in found if isinstance(outcome, BaseException)]
        unsaid = sum(getattr(error, "calls", 0) for error in errors[1:])  # the first error tells of its own
        costs = [outcome.value.cost for outcome in outcomes if outcome.value.cost is not None]
        self._pay("/search", client, sum(outcome.value.calls for outcome in outcomes) + unsaid, costs)
        if errors:
            raise errors[0]
        self._count(request, method, outcomes, client)
        hits: Hits = outcomes[0].value
        reranked: Hits | None = outcomes[1].value if request.compare else None
        return schemas.SearchResponse(
            hits=answers.hit_models(hits),
            calls=hits.calls,
            cached=hits.cached,
            budget=hits.budget,
            rounds=hits.rounds,
            method=str(method),
            stop_reason=hits.stop_reason,
            seconds=schemas.SecondsModel(**asdict(hits.seconds), waiting=outcomes[0].waited),
            cost=sum(costs) if costs else None,
            trace=answers.trace(hits, reranked) if request.trace else None,
            comparison=None if reranked is None else answers.comparison(hits, reranked),
        )

    async def _find(self, index: Index, request: schemas.SearchRequest, method: Method, client: Caller) -> Answered:
        """One search, in company of others that want the same of it."""
        own, stored = method is not RIVAL, index.store is not None
        budget = request.budget or self.settings.budget(index, request.method)
        numbers = self.hosting.size(request.index) * method.rounds_of(budget)
        how: dict[str, Any] = {
            "k": request.k,
            "budget": budget,
            "target_recall": request.target_recall if own else None,
            "threshold": request.threshold if own else None,
            "order": request.order if own else "scorer",
            "filter": request.filter,
            "trace": own and request.trace and not stored and numbers <= self.settings.trace_numbers,
        }
        stop = None if request.stop is None else parse_stop(request.stop)
        deadline = request.deadline or self.settings.max_deadline
        key = json.dumps([id(index), how, str(method), str(stop), deadline], sort_keys=True)
        how |= {"method": method, "stop": stop}
        work = functools.partial(_search, index, how)
        payload, lane = (request.query, request.candidates), self.hosting.lane(index)
        return await self.batcher.submit(key, payload, work, deadline, client.gone, lane)

    def _count(
        self, request: schemas.SearchRequest, method: Method, outcomes: Sequence[Answered], client: Caller
    ) -> None:
        hits: Hits = outcomes[0].value
        cached = sum(outcome.value.cached for outcome in outcomes)
        client.facts |= {
            "cached": cached,
            "rounds": hits.rounds,
            "search": str(method),
            "stop_reason": hits.stop_reason,
            "k": request.k,
            "budget": hits.budget,
            "queue_ms": round(1000 * outcomes[0].waited, 2),
            "batch": outcomes[0].batch,
            "compared": request.compare,
        }
        self.metrics.cached.inc(cached)
        self.metrics.searches.labels(method.name, hits.stop_reason).inc()
        self.metrics.waiting_seconds.observe(outcomes[0].waited)

    def _pay(self, route: str, client: Caller, calls: int, costs: Sequence[float]) -> None:
        self.metrics.calls.labels(route).inc(calls)
        client.facts["calls"] = client.facts.get("calls", 0) + calls
        if costs:
            self.metrics.cost.labels(route).inc(sum(costs))
            client.facts["cost"] = round(sum(costs), 9)

    async def rerank(self, route: str, request: reranking.AnyRequest, client: Caller) -> Any:
        """Documents of the request, ordered, in the shape that it came in."""
        index, texts = self.hosting[request.index], request.texts_of()
        work = functools.partial(_rerank, index, self.settings.max_budget)
        outcome = await self.batcher.submit(
            ("rerank", uuid.uuid4()),
            (request.query, texts),
            work,
            self.settings.max_deadline,
            client.gone,
            self.hosting.lane(index),
        )
        client.facts["queue_ms"] = round(1000 * outcome.waited, 2)
        ranking: Ranking = outcome.value
        cost = None if index.price is None else index.price.of(request.query, texts, ranking.calls)
        self._pay(route, client, ranking.calls, [] if cost is None else [cost])
        return reranking.answered(request, texts, ranking, index, cost)

    async def add(self, request: schemas.AddRequest) -> schemas.Changed:
        count = await self.hosting.add(request.index, [item.model_dump() for item in request.items])
        return schemas.Changed(changed=count, items=self.hosting.size(request.index))

    async def remove(self, name: str | None, id: str, forget: bool) -> schemas.Changed:
        if not await asyncio.to_thread(self.hosting[name].__contains__, id):
            raise HTTPException(404, "there is no item with this id in the index")
        count = await self.hosting.remove(name, [id], forget=forget)
        return schemas.Changed(changed=count, items=self.hosting.size(name))


def _asked(index: Index, name: str) -> Method:
    """The method that a request names; what takes long before it searches is the index's own, or refused."""
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


def _search(index: Index, how: dict[str, Any], jobs: Sequence[QueuedRequest], seconds: float) -> list[Any]:
    """The hits of every job, in the worker thread."""
    return list(
        index.search_many(
            [job.payload[0] for job in jobs],
            candidates=[job.payload[1] for job in jobs],
            deadline=seconds,
            halts=[job.halt for job in jobs],
            **how,
        )
    )


def _rerank(index: Index, budget: int, jobs: Sequence[QueuedRequest], seconds: float) -> list[Any]:
    """The ranking of one request, with what a scorer sends again within `budget`."""
    if index.scorer is None:
        raise InputError("this index has no scorer: load it with scorer=…")
    (job,) = jobs
    query, documents = job.payload
    reranker = Reranker(without_statistics(index.scorer), budget=budget)
    ranking = reranker.rank(query, documents, deadline=seconds, halt=job.halt)
    if len(ranking.order) < len(documents):
        told = f"{len(ranking.order)} of {len(documents)} documents were scored before the deadline; send fewer"
        return [TooLate(told, ranking.calls)]
    return [ranking]
