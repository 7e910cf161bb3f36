"""The addresses of the server, but for reranking."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Request, Security
from fastapi.responses import JSONResponse, Response
from fastapi.security import HTTPBearer
from starlette.convertors import StringConvertor, register_url_convertor
from starlette.exceptions import HTTPException

import crosscut
from crosscut.methods import parse
from crosscut.server.errors import responses
from crosscut.server.schemas import AddRequest, Changed, Info, ItemModel, SearchRequest, SearchResponse, Status
from crosscut.server.service import RIVAL, Service
from crosscut.server.settings import read_evaluation


class AnyText(StringConvertor):
    """An id in a path: slashes and line breaks too."""

    regex = r"(?s:.*)"


register_url_convertor("any", AnyText())

bearer = Security(HTTPBearer(auto_error=False, description="CROSSCUT_TOKEN, or for changes CROSSCUT_WRITE_TOKEN"))
"""States the token in the schema; the middleware checks it before a body is read."""


async def disconnection(http: Request) -> AsyncIterator[asyncio.Event]:
    """Yield an event that is set when the client disconnects."""
    gone: asyncio.Event = http.state.gone

    async def watch() -> None:
        while (await http.receive())["type"] != "http.disconnect":
            pass
        gone.set()

    task = asyncio.ensure_future(watch())
    try:
        yield gone
    finally:
        task.cancel()


Gone = Annotated[asyncio.Event, Depends(disconnection)]


def search_router(service: Service) -> APIRouter:
    """Return the route that searches."""
    router = APIRouter(tags=["search"], dependencies=[bearer])
    statuses = responses(400, 401, 408, 413, 422, 429, 502, 503, 504)

    @router.post("/search", response_model=SearchResponse, responses=statuses)
    async def search(request: SearchRequest, http: Request, gone: Gone) -> Any:
        request.check(service.settings)
        return JSONResponse(await service.search(request, http, gone))

    return router


def read_router(service: Service) -> APIRouter:
    """Return the routes that read the state of indexes and of the process."""
    router = APIRouter(dependencies=[bearer])
    indexes, settings = service.indexes, service.settings
    evaluation = [] if settings.evaluation is None else read_evaluation(settings.evaluation)

    @router.get("/items/{id:any}", tags=["items"], responses=responses(401, 404, 422, 503))
    def get_item(id: str, index: str | None = None) -> ItemModel:  # in a thread: it may ask a vector store
        if id not in indexes[index]:
            raise HTTPException(404, "there is no item with this id in the index")
        item = indexes[index][id]
        return ItemModel(id=str(item.id), title=item.title, text=item.text, metadata=dict(item.metadata))

    @router.get("/info", tags=["server"], responses=responses(401, 404))
    async def info(index: str | None = None) -> Info:
        chosen = indexes[index]
        return Info(
            version=crosscut.__version__,
            indexes=list(indexes),
            items=indexes.size(index),
            passages=chosen.passages is not None,
            method=str(chosen.method),
            methods=[name for name in chosen.methods if not parse(name).prepares or name == chosen.method.name],
            rival=str(RIVAL),
            max_k=settings.max_k,
            max_budget=settings.max_budget,
            default_budget=settings.budget_of(chosen),
            max_deadline=settings.max_deadline,
            call_price=None if chosen.price is None else chosen.price.per_thousand_calls / 1000 or None,
            currency=None if chosen.price is None else chosen.price.currency,
            examples=list(settings.example),
            target_recall=None if chosen.recall_model is None else chosen.recall_model.k,
            evaluation=evaluation,
        )

    @router.get("/health", tags=["server"])
    async def health() -> Status:
        return Status(status="alive", items=indexes.size(None))

    @router.get("/ready", tags=["server"], responses=responses(503))
    async def ready() -> Status:
        _ = service.batcher  # raises, if it is not
        return Status(status="ready", items=indexes.size(None))

    @router.get("/metrics", tags=["server"], responses={200: {"content": {"text/plain": {}}}}, response_class=Response)
    async def metrics() -> Response:
        return Response(service.metrics.text(), media_type="text/plain; version=0.0.4; charset=utf-8")

    return router


def write_router(service: Service) -> APIRouter:
    """Return the routes that add and remove items, with the token that may."""
    statuses = responses(400, 401, 403, 404, 408, 413, 422, 503)
    router = APIRouter(tags=["items"], dependencies=[bearer], responses=statuses)
    indexes = service.indexes

    @router.post("/items")
    async def add_items(request: AddRequest) -> Changed:
        count = await indexes.add(request.index, [item.model_dump() for item in request.items])
        return Changed(changed=count, items=indexes.size(request.index))

    @router.delete("/items/{id:any}")
    async def remove_item(id: str, index: str | None = None, forget: bool = False) -> Changed:
        """Remove an item; with `forget=true` no file of the index, its score store and its log holds it afterwards."""
        if not forget and not await asyncio.to_thread(indexes[index].__contains__, id):
            raise HTTPException(404, "there is no item with this id in the index")
        count = await indexes.remove(index, [id], forget=forget)
        return Changed(changed=count, items=indexes.size(index))

    return router
