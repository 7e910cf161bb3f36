"""The addresses of the server, and what each of them does."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import Response
from pydantic import BaseModel
from starlette.convertors import StringConvertor, register_url_convertor
from starlette.exceptions import HTTPException

import crosscut
from crosscut.server import schemas
from crosscut.server.problems import PROBLEMS
from crosscut.server.service import RIVAL, Client, Service


class AnyText(StringConvertor):
    """An id in a path: slashes and line breaks too."""

    regex = r"(?s:.*)"


register_url_convertor("any", AnyText())


def searching(service: Service) -> APIRouter:
    """What asks the scorer."""
    router = APIRouter(responses={status: PROBLEMS[status] for status in PROBLEMS if status != 404})

    async def search(request: schemas.SearchRequest, http: Request) -> schemas.SearchResponse:
        return await service.search(request, _client(http))

    async def rerank(request: schemas.RerankRequest, http: Request) -> schemas.RerankResponse:
        return await service.rerank(request, _client(http))

    _post(router, "/search", search, schemas.search_request(service.settings))
    _post(router, "/v2/rerank", rerank, schemas.rerank_request(service.settings), response_model_exclude_none=True)
    return router


def looking(service: Service) -> APIRouter:
    """What the index and the process tell of themselves."""
    router = APIRouter(responses={status: PROBLEMS[status] for status in (401, 408, 413, 421, 503)})
    index, settings = service.index, service.settings

    @router.get("/items/{id:any}", responses={status: PROBLEMS[status] for status in (404, 422)})
    async def item(id: str) -> schemas.ItemModel:
        if id not in index:
            raise HTTPException(404, "there is no item with this id in the index")
        found = index[id]
        return schemas.ItemModel(id=found.id, title=found.title, text=found.text, metadata=dict(found.metadata))

    @router.get("/info")
    async def info() -> schemas.Info:
        return schemas.Info(
            version=crosscut.__version__,
            items=len(index),
            method=str(index.method),
            methods=index.methods,
            rival=str(RIVAL),
            max_k=settings.max_k,
            max_budget=settings.max_budget,
            default_budget=settings.default_budget,
            max_deadline=settings.max_deadline,
            examples=list(settings.examples),
            target_recall=None if index.recall_model is None else index.recall_model.k,
            evaluation=[schemas.Measured.model_validate(record) for record in settings.evaluation],
        )

    @router.get("/health")
    async def health() -> schemas.Status:
        return schemas.Status(status="alive", items=len(index))

    @router.get("/ready")
    async def ready() -> schemas.Status:
        _ = service.batcher  # raises, if it is not
        return schemas.Status(status="ready", items=len(index))

    @router.get("/metrics", responses={200: {"content": {"text/plain": {}}}}, response_class=Response)
    async def metrics() -> Response:
        return Response(service.metrics.text(), media_type="text/plain; version=0.0.4; charset=utf-8")

    return router


def _post(router: APIRouter, path: str, handler: Callable[..., Any], model: type[BaseModel], **options: Any) -> None:
    handler.__annotations__["request"] = model  # the same fields, under the limits of this server
    router.add_api_route(path, handler, methods=["POST"], **options)


def _client(http: Request) -> Client:
    return Client(http.state.gone, http.state.facts)
