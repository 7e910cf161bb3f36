"""The application: `make_app(index, settings)`.

POST /search      the items that the scorer would rank first, within a budget of calls
POST /v2/rerank   documents of the request, ordered by the scorer (/v1/rerank, /rerank: other clients' shapes)
GET  /items/{id}  one item                   POST /items, DELETE /items/{id}   with the token of those who may
GET  /info        what this server holds and allows
GET  /health      the process lives          GET /ready   it can search
GET  /metrics     Prometheus                 GET /        the web page          GET /docs   this, as a page

    guard.py     before and after every request    bodies.py    what a body may be
    routes.py    addresses                         schemas.py   requests and answers
    service.py   searches and reranks              batcher.py   the queue
    reranking.py shapes of Cohere, Jina, TEI       hosting.py   indexes by name, changes, reloads
    problems.py  errors                            lines.py     connections (uvicorn)
    files.py     the page
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Mapping

from fastapi import FastAPI
from starlette.middleware.cors import CORSMiddleware

import crosscut
from crosscut.index import Index
from crosscut.server import files, routes
from crosscut.server.guard import Guard
from crosscut.server.metrics import Metrics
from crosscut.server.problems import HANDLERS, forgetting
from crosscut.server.service import Service
from crosscut.server.settings import Settings


def make_app(index: Index | Mapping[str, Index], settings: Settings | None = None) -> FastAPI:
    """A server over an index, or over several by name."""
    settings = settings or Settings()
    service = Service(index, settings, Metrics())

    @contextlib.asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        await service.start()
        try:
            yield
        finally:
            await service.stop()

    app = FastAPI(
        title="crosscut",
        version=crosscut.__version__,
        description="k-nearest-neighbour search when the similarity is expensive.",
        docs_url=None,  # the usual pages load scripts from elsewhere
        redoc_url=None,
        redirect_slashes=False,  # a redirect would quote the client's Host
        lifespan=lifespan,
    )
    app.state.service = service
    app.add_middleware(Guard, settings=settings, metrics=service.metrics)
    if settings.origins:  # outermost: a browser's question whether it may ask carries no token
        app.add_middleware(
            CORSMiddleware,
            allow_origins=list(settings.origins),
            allow_methods=["GET", "POST", "DELETE"],
            allow_headers=["authorization", "content-type", "x-request-id"],
            expose_headers=["x-request-id", "retry-after"],
        )
    for kind, handler in HANDLERS.items():
        app.exception_handler(kind)(forgetting(handler))
    app.include_router(routes.searching(service))
    app.include_router(routes.changing(service))
    app.include_router(routes.looking(service))
    app.include_router(routes.describing(app))
    if settings.page:
        app.include_router(files.page())
    return app
