"""The application: `make_app(index, settings)`.

POST /search      the items that the scorer would rank first, within a budget of calls
POST /v2/rerank   documents of the request, ordered by the scorer; Cohere's shape
GET  /items/{id}  one item
GET  /info        what this server holds and allows
GET  /health      the process lives          GET /ready   it can search
GET  /metrics     Prometheus                 GET /        the web page
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import json
import math
import uuid
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, Response
from starlette.exceptions import HTTPException

import crosscut
from crosscut.datasets.records import ItemList
from crosscut.errors import BudgetError, CrosscutError, InputError, ScorerError, ScorerRateLimited, ScorerTimeout
from crosscut.index import Index
from crosscut.scorers.meter import Account, Meter
from crosscut.scorers.remote import RemoteScorer
from crosscut.search.hits import Hits
from crosscut.search.stopping import Patience
from crosscut.server import answers, schemas
from crosscut.server.batcher import Batcher, Closing, Outcome, QueueFull
from crosscut.server.guard import Guard
from crosscut.server.logs import LOGGER
from crosscut.server.metrics import Metrics
from crosscut.server.settings import Settings

PAGE = Path(__file__).parent / "page"
FILES = {
    "/": ("index.html", "text/html; charset=utf-8"),
    "/page/app.js": ("app.js", "text/javascript; charset=utf-8"),
    "/page/picture.js": ("picture.js", "text/javascript; charset=utf-8"),
    "/page/style.css": ("style.css", "text/css; charset=utf-8"),
}
POLICY = "default-src 'self'; img-src 'self' data:; base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
PROBLEMS: dict[int | str, dict[str, Any]] = {
    status: {"model": schemas.Problem, "description": text}
    for status, text in {
        400: "The body is no JSON.",
        401: "The bearer token is missing or wrong.",
        408: "The body took too long.",
        413: "The body is too large.",
        422: "The request asks for what cannot be done.",
        429: "Too many requests are waiting.",
        502: "The scorer failed.",
        503: "The scorer, or this server, is not available.",
        504: "The scorer did not answer in time.",
    }.items()
}


def make_app(index: Index, settings: Settings | None = None) -> FastAPI:
    """A server over an index."""
    settings = settings or Settings()
    batcher_box: list[Batcher] = []
    ready = False
    metrics = Metrics()
    methods = _methods(index, settings)

    @contextlib.asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        nonlocal ready
        batcher = Batcher(queue=settings.queue, batch=settings.batch, linger=settings.linger)
        batcher.on_batch = lambda size, seconds: metrics.batches.observe(size)
        batcher_box[:] = [batcher]
        batcher.start()
        metrics.watch(lambda: len(batcher.waiting), lambda: len(index), index.scorer)
        await asyncio.to_thread(_warm_up, index)
        ready = True
        LOGGER.info("ready", extra={"fields": {"items": len(index), "token": settings.token() is not None}})
        try:
            yield
        finally:
            ready = False
            await batcher.close()
            LOGGER.info("stopped")

    app = FastAPI(
        title="crosscut",
        version=crosscut.__version__,
        description="k-nearest-neighbour search when the similarity is expensive.",
        docs_url=None,  # the usual pages load scripts from elsewhere
        redoc_url=None,
        lifespan=lifespan,
    )
    app.add_middleware(Guard, settings=settings, metrics=metrics)
    _handle_errors(app, index, metrics)
    search_model: Any = schemas.search_request(settings)
    rerank_model: Any = schemas.rerank_request(settings)

    def state() -> Batcher:
        if not batcher_box or not ready:
            raise Closing("the server is not ready")
        return batcher_box[0]

    async def find(request: Any, method: str | None, keep: bool) -> Outcome:
        how: dict[str, Any] = {
            "k": request.k,
            "budget": request.budget,
            "method": method,
            "stop": None if request.patience is None else Patience(request.patience),
            "target_recall": request.target_recall if method == request.method else None,
            "filter": _filter(request.filter),
            "trace": keep,
        }
        key = json.dumps([{**how, "stop": request.patience}, request.deadline], sort_keys=True)
        work = functools.partial(_search, index, how)
        return await state().submit(key, request.query, work, request.deadline)

    async def search(request: Any, http: Request) -> schemas.SearchResponse:
        if request.method is not None and request.method not in methods:
            raise InputError(f"this server can search with {', '.join(methods)}; got {request.method!r}")
        keep = request.trace and len(index) <= settings.trace_items
        wanted = [find(request, request.method, keep)]
        if request.compare:
            wanted.append(find(request, "rnr", False))
        found = await asyncio.gather(*wanted, return_exceptions=True)
        for outcome in found:
            if isinstance(outcome, BaseException):
                raise outcome
        outcomes = [outcome for outcome in found if isinstance(outcome, Outcome)]
        hits: Hits = outcomes[0].value
        reranked: Hits | None = outcomes[1].value if request.compare else None
        method = request.method or str(index.method)
        facts = http.state.facts
        facts |= {
            "calls": sum(outcome.value.calls for outcome in outcomes),
            "cached": sum(outcome.value.cached for outcome in outcomes),
            "rounds": hits.rounds,
            "search": method,
            "stop_reason": hits.stop_reason,
            "k": request.k,
            "budget": request.budget,
            "queue_ms": round(1000 * outcomes[0].waited, 2),
            "batch": outcomes[0].batch,
            "compared": request.compare,
        }
        metrics.calls.labels("/search").inc(facts["calls"])
        metrics.cached.inc(facts["cached"])
        metrics.searches.labels(method, hits.stop_reason).inc()
        metrics.waiting_seconds.observe(outcomes[0].waited)
        seconds = hits.seconds
        return schemas.SearchResponse(
            hits=answers.hit_models(index, hits),
            calls=hits.calls,
            cached=hits.cached,
            budget=hits.budget,
            rounds=hits.rounds,
            method=method,
            stop_reason=hits.stop_reason,
            seconds=schemas.SecondsModel(
                scorer=seconds.scorer, fit=seconds.fit, select=seconds.select, waiting=outcomes[0].waited
            ),
            trace=answers.trace(index._state.items, hits, reranked) if request.trace else None,
            comparison=None if reranked is None else answers.comparison(index, hits, reranked),
        )

    async def rerank(request: Any, http: Request) -> schemas.RerankResponse:
        work = functools.partial(_rerank, index)
        payload = (request.query, request.documents)
        outcome = await state().submit(("rerank", uuid.uuid4()), payload, work, settings.max_deadline)
        scores = outcome.value
        http.state.facts |= {
            "calls": len(request.documents),
            "queue_ms": round(1000 * outcome.waited, 2),
            "documents": len(request.documents),
        }
        metrics.calls.labels("/v2/rerank").inc(len(request.documents))
        order = np.argsort(-scores, kind="stable")[: request.top_n]
        results = [
            schemas.RerankResult(
                index=int(place),
                relevance_score=float(scores[place]),
                document=schemas.RerankDocument(text=request.documents[place]) if request.return_documents else None,
            )
            for place in order
        ]
        return schemas.RerankResponse(
            id=str(uuid.uuid4()), results=results, meta=schemas.RerankMeta(calls=len(request.documents))
        )

    search.__annotations__["request"] = search_model
    rerank.__annotations__["request"] = rerank_model
    post: dict[str, Any] = {"methods": ["POST"], "responses": PROBLEMS}
    few: dict[int | str, dict[str, Any]] = {status: PROBLEMS[status] for status in (401, 413)}
    app.add_api_route("/search", search, response_model=schemas.SearchResponse, **post)
    app.add_api_route(
        "/v2/rerank", rerank, response_model=schemas.RerankResponse, response_model_exclude_none=True, **post
    )

    @app.get(
        "/items/{id:path}",
        responses={**few, 404: {"model": schemas.Problem, "description": "There is no such item."}, 422: PROBLEMS[422]},
    )
    async def item(id: str) -> schemas.ItemModel:
        if id not in index:
            raise HTTPException(404, "there is no item with this id in the index")
        found = index[id]
        return schemas.ItemModel(id=found.id, title=found.title, text=found.text, metadata=dict(found.metadata))

    @app.get("/info", responses=few)
    async def info() -> schemas.Info:
        return schemas.Info(
            version=crosscut.__version__,
            items=len(index),
            method=str(index.method),
            methods=methods,
            max_k=settings.max_k,
            max_budget=settings.max_budget,
            default_budget=settings.default_budget,
            examples=list(settings.examples),
        )

    @app.get("/health", responses={413: PROBLEMS[413]})
    async def health() -> schemas.Status:
        return schemas.Status(status="alive", items=len(index))

    @app.get("/ready", responses={413: PROBLEMS[413], 503: PROBLEMS[503]})
    async def is_ready() -> schemas.Status:
        state()
        return schemas.Status(status="ready", items=len(index))

    @app.get("/metrics", responses={**few, 200: {"content": {"text/plain": {}}}}, response_class=Response)
    async def show_metrics() -> Response:
        return Response(metrics.text(), media_type="text/plain; version=0.0.4; charset=utf-8")

    if settings.page:
        _serve_page(app)
    return app


def _methods(index: Index, settings: Settings) -> list[str]:
    """The methods that this index can be searched with."""
    methods = ["crosscut", "rnr"]
    if index.encoder is not None:
        methods += ["axn", "tour"]
    if index.anchor_queries:
        methods += ["anncur", "adacur"]
    if len(index) <= settings.max_budget:
        methods.append("exact")
    return methods


def _search(index: Index, how: dict[str, Any], queries: Sequence[str], seconds: float | None) -> list[Any]:
    return list(index.search_many(queries, deadline=seconds, **how))


def _rerank(index: Index, payloads: Sequence[Any], seconds: float | None) -> list[Any]:
    """Scores of the documents of one request, every call through the meter."""
    if index.scorer is None:
        raise InputError("this index has no scorer: load it with scorer=…")
    results = []
    for query, documents in payloads:
        account = Account(query, len(documents))
        meter = Meter(index.scorer.bind(ItemList(documents)), deadline=seconds)
        meter.buy([account], [np.arange(len(documents))])
        if len(account.scores) < len(documents):
            raise ScorerTimeout(
                f"{len(account.scores)} of {len(documents)} documents were scored within {seconds:.3g} s; send fewer",
                calls=account.calls,
            )
        scores = np.empty(len(documents))
        scores[account.positions] = account.scores
        results.append(scores)
    return results


def _warm_up(index: Index) -> None:
    """Load what is loaded on first use; calls that cost money are not made."""
    if len(index) and index.scorer is not None and not isinstance(index.scorer, RemoteScorer):
        with contextlib.suppress(CrosscutError):
            index.search("warm up", k=1, budget=min(10, len(index)))


def _filter(conditions: dict[str, Any] | None) -> dict[str, Any] | None:
    if conditions is None:
        return None
    return {
        key: value.model_dump(exclude_none=True) if isinstance(value, schemas.Bounds) else value
        for key, value in conditions.items()
    }


def _serve_page(app: FastAPI) -> None:
    def file(name: str, kind: str) -> Any:
        content = (PAGE / name).read_bytes()

        async def show() -> Response:
            return Response(content, media_type=kind, headers={"content-security-policy": POLICY})

        return show

    for path, (name, kind) in FILES.items():
        app.add_api_route(path, file(name, kind), include_in_schema=False)


def _handle_errors(app: FastAPI, index: Index, metrics: Metrics) -> None:
    def problem(status: int, error: str, message: str, headers: dict[str, str] | None = None, **more: Any) -> Response:
        content = {"error": error, "message": message.encode("utf-8", "replace").decode(), **more}
        return JSONResponse(content, status, headers)

    @app.exception_handler(RequestValidationError)
    async def invalid(request: Request, error: RequestValidationError) -> Response:
        told = [f"{'.'.join(str(part) for part in one['loc'])}: {one['msg']}" for one in error.errors()[:5]]
        broken = any(one["type"] == "json_invalid" for one in error.errors())
        return problem(400 if broken else 422, "InvalidRequest", "; ".join(told)[:1000])

    @app.exception_handler(HTTPException)
    async def refused(request: Request, error: HTTPException) -> Response:
        headers = dict(error.headers) if error.headers else None
        return problem(error.status_code, "Refused", str(error.detail), headers)

    @app.exception_handler(QueueFull)
    async def full(request: Request, error: QueueFull) -> Response:
        return problem(429, "QueueFull", str(error), {"retry-after": str(max(1, math.ceil(error.seconds)))})

    @app.exception_handler(ScorerError)
    async def failed(request: Request, error: ScorerError) -> Response:
        name = type(error).__name__
        metrics.errors.labels(name).inc()
        metrics.calls.labels(request.url.path).inc(error.calls)
        request.state.facts |= {"error": name, "calls": error.calls, "message": str(error)[:300]}
        hits = [model.model_dump() for found in error.hits[:1] for model in answers.hit_models(index, found)]
        headers = {"retry-after": "10"} if isinstance(error, ScorerRateLimited) else None
        status = 504 if isinstance(error, ScorerTimeout) else 503 if headers else 502
        return problem(status, name, str(error), headers, hits=hits, calls=error.calls)

    @app.exception_handler(CrosscutError)
    async def wrong(request: Request, error: CrosscutError) -> Response:
        status = 422 if isinstance(error, InputError | BudgetError) else 503
        return problem(status, type(error).__name__, str(error))

    @app.exception_handler(Exception)
    async def unexpected(request: Request, error: Exception) -> Response:
        LOGGER.error("unexpected", exc_info=error)
        return problem(500, "Unexpected", "the server failed; its log says why")
