"""What the server does: searches and reranks through the batcher, and keeps count."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import json
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from crosscut.datasets.records import ItemList
from crosscut.errors import CrosscutError, InputError, ScorerError
from crosscut.index import Index
from crosscut.methods import Method, parse
from crosscut.scorers.meter import Account, Meter
from crosscut.scorers.remote import RemoteScorer
from crosscut.search.hits import Hits
from crosscut.search.stopping import parse_stop
from crosscut.server import answers, schemas
from crosscut.server.batcher import Batcher, Job, Outcome
from crosscut.server.logs import LOGGER, outline
from crosscut.server.metrics import Metrics
from crosscut.server.problems import Closing, TooLate
from crosscut.server.settings import Settings
from crosscut.types import Floats

RIVAL = parse("hybrid")
"""What `compare` compares with."""


@dataclass
class Client:
    """The other side of one request."""

    gone: asyncio.Event  # set when it hangs up
    facts: dict[str, Any]  # for the log line


class Service:
    """An index behind a queue."""

    def __init__(self, index: Index, settings: Settings, metrics: Metrics) -> None:
        self.index = index
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
        self.metrics.watch(lambda: len(batcher.waiting), lambda: len(self.index), self.index.scorer)
        try:
            await asyncio.to_thread(_warm_up, self.index)
        except Exception as error:
            LOGGER.error("not started", extra={"fields": {"causes": outline(error)}})
            raise
        self._batcher = batcher
        fields = {"items": len(self.index), "token": settings.token() is not None}
        LOGGER.info("ready", extra={"fields": fields})

    async def stop(self) -> None:
        """Finish what was accepted."""
        batcher, self._batcher = self._batcher, None
        if batcher is not None:
            await batcher.close()
        LOGGER.info("stopped")

    @property
    def batcher(self) -> Batcher:
        if self._batcher is None:
            raise Closing("the server is not ready")
        return self._batcher

    async def search(self, request: schemas.SearchRequest, client: Client) -> schemas.SearchResponse:
        method = self.index.method if request.method is None else parse(request.method)
        wanted = [self._find(request, method, client)]
        if request.compare:
            wanted.append(self._find(request, RIVAL, client))
        found = await asyncio.gather(*wanted, return_exceptions=True)  # neither is left alone when the other fails
        outcomes = [outcome for outcome in found if isinstance(outcome, Outcome)]
        errors = [outcome for outcome in found if isinstance(outcome, BaseException)]
        unsaid = sum(getattr(error, "calls", 0) for error in errors[1:])  # the first error tells of its own
        self._pay("/search", client, sum(outcome.value.calls for outcome in outcomes) + unsaid)
        if errors:
            raise errors[0]
        self._count(request, method, outcomes, client)
        hits: Hits = outcomes[0].value
        reranked: Hits | None = outcomes[1].value if request.compare else None
        spent = hits.seconds
        return schemas.SearchResponse(
            hits=answers.hit_models(hits),
            calls=hits.calls,
            cached=hits.cached,
            budget=hits.budget,
            rounds=hits.rounds,
            method=str(method),
            stop_reason=hits.stop_reason,
            seconds=schemas.SecondsModel(
                scorer=spent.scorer, fit=spent.fit, select=spent.select, waiting=outcomes[0].waited
            ),
            trace=answers.trace(self.index._state.items, hits, reranked) if request.trace else None,
            comparison=None if reranked is None else answers.comparison(hits, reranked),
        )

    async def _find(self, request: schemas.SearchRequest, method: Method, client: Client) -> Outcome:
        """One search, in company of others that want the same of it."""
        own = method is not RIVAL
        numbers = len(self.index) * min(getattr(method, "rounds", 1), request.budget)
        how: dict[str, Any] = {
            "k": request.k,
            "budget": request.budget,
            "target_recall": request.target_recall if own else None,
            "threshold": request.threshold if own else None,
            "filter": request.filter,
            "trace": own and request.trace and numbers <= self.settings.trace_numbers,
        }
        stop = None if request.stop is None else parse_stop(request.stop)
        deadline = request.deadline or self.settings.max_deadline
        key = json.dumps([how, str(method), str(stop), deadline], sort_keys=True)
        how |= {"method": method, "stop": stop}
        work = functools.partial(_search, self.index, how)
        return await self.batcher.submit(key, (request.query, request.first_ids), work, deadline, client.gone)

    def _count(
        self, request: schemas.SearchRequest, method: Method, outcomes: Sequence[Outcome], client: Client
    ) -> None:
        hits: Hits = outcomes[0].value
        cached = sum(outcome.value.cached for outcome in outcomes)
        client.facts |= {
            "cached": cached,
            "rounds": hits.rounds,
            "search": str(method),
            "stop_reason": hits.stop_reason,
            "k": request.k,
            "budget": request.budget,
            "queue_ms": round(1000 * outcomes[0].waited, 2),
            "batch": outcomes[0].batch,
            "compared": request.compare,
        }
        self.metrics.cached.inc(cached)
        self.metrics.searches.labels(method.name, hits.stop_reason).inc()
        self.metrics.waiting_seconds.observe(outcomes[0].waited)

    def _pay(self, route: str, client: Client, calls: int) -> None:
        self.metrics.calls.labels(route).inc(calls)
        client.facts["calls"] = client.facts.get("calls", 0) + calls

    async def rerank(self, request: schemas.RerankRequest, client: Client) -> schemas.RerankResponse:
        documents = request.documents
        work = functools.partial(_rerank, self.index)
        outcome = await self.batcher.submit(
            ("rerank", uuid.uuid4()), (request.query, documents), work, self.settings.max_deadline, client.gone
        )
        scores: Floats = outcome.value
        client.facts["queue_ms"] = round(1000 * outcome.waited, 2)
        self._pay("/v2/rerank", client, len(documents))
        results = [
            schemas.RerankResult(
                index=int(place),
                relevance_score=float(scores[place]),
                document=schemas.RerankDocument(text=documents[place]) if request.return_documents else None,
            )
            for place in np.argsort(-scores, kind="stable")[: request.top_n]
        ]
        return schemas.RerankResponse(
            id=str(uuid.uuid4()), results=results, meta=schemas.RerankMeta(calls=len(documents))
        )


def _search(index: Index, how: dict[str, Any], jobs: Sequence[Job], seconds: float) -> list[Any]:
    """The hits of every job, in the worker thread."""
    return list(
        index.search_many(
            [job.payload[0] for job in jobs],
            first_ids=[job.payload[1] for job in jobs],
            deadline=seconds,
            halts=[job.halt for job in jobs],
            **how,
        )
    )


def _rerank(index: Index, jobs: Sequence[Job], seconds: float) -> list[Any]:
    """Scores of the documents of one request, every call through the meter."""
    if index.scorer is None:
        raise InputError("this index has no scorer: load it with scorer=…")
    (job,) = jobs
    query, documents = job.payload
    account = Account(query, len(documents), halt=job.halt)
    try:
        Meter(index.scorer.bind(ItemList(documents)), deadline=seconds).buy([account], [np.arange(len(documents))])
    except ScorerError as error:
        error.calls = account.calls
        raise
    if len(account.scores) < len(documents):
        told = f"{len(account.scores)} of {len(documents)} documents were scored before the deadline; send fewer"
        return [TooLate(told, account.calls)]
    scores = np.empty(len(documents))
    scores[account.positions] = account.scores
    return [scores]


def _warm_up(index: Index) -> None:
    """Load what is loaded on first use; calls that cost money are not made."""
    if len(index) and index.scorer is not None and not isinstance(index.scorer, RemoteScorer):
        with contextlib.suppress(CrosscutError):
            index.search("warm up", k=1, budget=min(10, len(index)))
