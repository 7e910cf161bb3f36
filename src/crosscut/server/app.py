"""The application: `make_app(index, settings)`.

A request passes TrustedHostMiddleware, `middleware.RequestGuard` (token, body limits, log line), a route
(`routes.py`, `rerank.py`), the `batching.Batcher`, and in a worker thread `Index.search_many`.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Mapping
from pathlib import Path

from fastapi import APIRouter, FastAPI
from fastapi.responses import FileResponse, Response
from starlette.middleware.cors import CORSMiddleware
from starlette.middleware.trustedhost import TrustedHostMiddleware

import crosscut
from crosscut.index import Index
from crosscut.server import rerank, routes
from crosscut.server.errors import HANDLERS
from crosscut.server.indexes import Indexes
from crosscut.server.middleware import RequestGuard
from crosscut.server.observability import LOGGER, Metrics
from crosscut.server.service import Service
from crosscut.server.settings import LOCAL, Settings

PAGE = Path(__file__).parent / "page"
POLICY = "default-src 'self'; img-src 'self' data:; base-uri 'none'; form-action 'self'; frame-ancestors 'none'"


def make_app(index: Index | Mapping[str, Index], settings: Settings) -> FastAPI:
    """Return a server over an index, or over several by name."""
    metrics = Metrics()
    service = Service(Indexes(index, settings), settings, metrics)

    @contextlib.asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        await service.start()
        try:
            yield
        finally:
            await service.stop()
            LOGGER.info("stopped")

    app = FastAPI(
        title="crosscut",
        version=crosscut.__version__,
        description="k-nearest-neighbour search when the similarity is expensive.",
        redoc_url=None,
        redirect_slashes=False,  # a redirect would quote the client's Host
        generate_unique_id_function=lambda route: route.name,
        lifespan=lifespan,
    )
    app.state.service = service
    files = {f"/page/{file.name}" for file in PAGE.iterdir()} | {"/"} if settings.page else set()
    app.add_middleware(RequestGuard, settings=settings, metrics=metrics, open_paths=files)
    if settings.token() is None and "*" not in settings.allow_host:
        # a page from elsewhere, whose name suddenly points here, may not send requests
        app.add_middleware(TrustedHostMiddleware, allowed_hosts=[*LOCAL, "[::1]", *settings.allow_host])
    if settings.allow_origin:  # outermost: a browser's preflight request carries no token
        app.add_middleware(
            CORSMiddleware,
            allow_origins=list(settings.allow_origin),
            allow_methods=["GET", "POST", "DELETE"],
            allow_headers=["authorization", "content-type", "x-request-id"],
            expose_headers=["x-request-id", "retry-after"],
        )
    for kind, handler in HANDLERS.items():
        app.exception_handler(kind)(handler)
    app.include_router(routes.search_router(service))
    app.include_router(rerank.router(service))
    app.include_router(routes.write_router(service))
    app.include_router(routes.read_router(service))
    if settings.page:
        app.include_router(page_router())
    return app


def page_router() -> APIRouter:
    """Return the routes of the files of the web page."""
    router = APIRouter(include_in_schema=False)

    @router.get("/")
    async def index() -> Response:
        return FileResponse(PAGE / "index.html", headers={"content-security-policy": POLICY})

    @router.get("/page/{name}")
    async def file(name: str) -> Response:
        if name not in {file.name for file in PAGE.iterdir()}:
            return Response(status_code=404)
        return FileResponse(PAGE / name, headers={"content-security-policy": POLICY})

    return router
