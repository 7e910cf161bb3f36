"""The addresses of the server, and what each of them does."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fastapi import APIRouter, FastAPI, Request
from fastapi.responses import Response
from pydantic import BaseModel
from starlette.convertors import StringConvertor, register_url_convertor
from starlette.exceptions import HTTPException

import crosscut
from crosscut.methods import parse
from crosscut.server import reference, reranking, schemas
from crosscut.server.files import POLICY
from crosscut.server.problems import PROBLEMS
from crosscut.server.service import RIVAL, Caller, Service


class AnyText(StringConvertor):
    """An id in a path: slashes and line breaks too."""

    regex = r"(?s:.*)"


register_url_convertor("any", AnyText())


def searching(service: Service) -> APIRouter:
    """What asks the scorer."""
    router = APIRouter(responses={status: PROBLEMS[status] for status in PROBLEMS if status != 404})

    async def search(request: schemas.SearchRequest, http: Request) -> schemas.SearchResponse:
        return await service.search(request, _client(http))

    _post(router, "/search", search, schemas.search_request(service.settings))
    for path, (shape, answer) in reranking.SHAPES.items():
        model = reranking.limited(shape, service.settings)
        _post(router, path, _rerank(service, path), model, response_model=answer, response_model_exclude_none=True)
    return router


def _rerank(service: Service, path: str) -> Callable[..., Any]:
    async def rerank(request: reranking.AnyRequest, http: Request) -> Any:
        return await service.rerank(path, request, _client(http))

    return rerank


def looking(service: Service) -> APIRouter:
    """What the index and the process tell of themselves."""
    router = APIRouter(responses={status: PROBLEMS[status] for status in (401, 408, 413, 421, 503)})
    hosting, settings = service.hosting, service.settings

    @router.get("/items/{id:any}", responses={status: PROBLEMS[status] for status in (404, 422)})
    def item(id: str, index: str | None = None) -> schemas.ItemModel:  # in a thread: it may ask a vector store
        if id not in hosting[index]:
            raise HTTPException(404, "there is no item with this id in the index")
        found = hosting[index][id]
        return schemas.ItemModel(id=found.id, title=found.title, text=found.text, metadata=dict(found.metadata))

    @router.get("/info", responses={404: PROBLEMS[404]})
    async def info(index: str | None = None) -> schemas.Info:
        chosen = hosting[index]
        return schemas.Info(
            version=crosscut.__version__,
            indexes=list(hosting),
            items=hosting.size(index),
            passages=chosen.passages is not None,
            method=str(chosen.method),
            methods=[name for name in chosen.methods if not parse(name).prepares or name == chosen.method.name],
            rival=str(RIVAL),
            max_k=settings.max_k,
            max_budget=settings.max_budget,
            default_budget=settings.budget(chosen),
            max_deadline=settings.max_deadline,
            call_price=None if chosen.price is None else chosen.price.per_thousand_calls / 1000 or None,
            currency=None if chosen.price is None else chosen.price.currency,
            examples=list(settings.examples),
            target_recall=None if chosen.recall_model is None else chosen.recall_model.k,
            evaluation=[schemas.Measured.model_validate(record) for record in settings.evaluation],
        )

    @router.get("/health")
    async def health() -> schemas.Status:
        return schemas.Status(status="alive", items=hosting.size(None))

    @router.get("/ready")
    async def ready() -> schemas.Status:
        _ = service.batcher  # raises, if it is not
        return schemas.Status(status="ready", items=hosting.size(None))

    @router.get("/metrics", responses={200: {"content": {"text/plain": {}}}}, response_class=Response)
    async def metrics() -> Response:
        return Response(service.metrics.text(), media_type="text/plain; version=0.0.4; charset=utf-8")

    return router


def changing(service: Service) -> APIRouter:
    """What adds and removes items; the guard has asked for the token of those who may."""
    router = APIRouter(responses={status: PROBLEMS[status] for status in (400, 401, 403, 404, 408, 413, 421, 422, 503)})

    @router.post("/items")
    async def add(request: schemas.AddRequest) -> schemas.Changed:
        return await service.add(request)

    @router.delete("/items/{id:any}")
    async def remove(id: str, index: str | None = None, forget: bool = False) -> schemas.Changed:
        """`forget=true`: it is in no file of the index, its score store and its log of searches when this answers."""
        return await service.remove(index, id, forget)

    return router


def describing(app: FastAPI) -> APIRouter:
    """/docs."""
    router = APIRouter(include_in_schema=False)

    @router.get("/docs")
    async def docs() -> Response:
        headers = {"content-security-policy": POLICY}
        return Response(reference.page(app.openapi()), media_type="text/html; charset=utf-8", headers=headers)

    return router


def _post(router: APIRouter, path: str, handler: Callable[..., Any], model: type[BaseModel], **options: Any) -> None:
    handler.__annotations__["request"] = model  # the same fields, under the limits of this server
    router.add_api_route(path, handler, methods=["POST"], **options)


def _client(http: Request) -> Caller:
    return Caller(http.state.gone, http.state.facts)
