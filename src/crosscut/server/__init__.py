"""The HTTP API and the web page: `serve(index)`, `crosscut serve my.index`; `make_app(index)` for any ASGI server."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from crosscut.errors import needing
from crosscut.server.settings import LOCAL, Settings

if TYPE_CHECKING:
    from fastapi import FastAPI

    from crosscut.index import Index

__all__ = ["Settings", "make_app", "serve"]


def make_app(index: Index | Mapping[str, Index], settings: Settings | None = None) -> FastAPI:
    """Return a FastAPI application over an index, or over several by name, for uvicorn or any other ASGI server."""
    with needing("the server needs {}", "serve"):
        from crosscut.server.app import make_app as make
    return make(index, settings or Settings())


def serve(
    index: Index | Mapping[str, Index],
    settings: Settings | None = None,
    *,
    host: str = "127.0.0.1",
    port: int = 8000,
    log_level: str = "info",
) -> None:
    """Serve an index, or several by name, until interrupted, as `crosscut serve` does.

    Use it for an index that no folder holds, such as one over a vector store.

    Parameters
    ----------
    settings
        Limits, tokens, the page; by default those of `crosscut serve`.
    host, port
        The address to listen on; 0.0.0.0 is every network: set a token then (`Settings.token_env`).
    log_level
        debug, info, warning or error.
    """
    with needing("the server needs uvicorn", "serve"):
        import uvicorn
    from crosscut.server.observability import LOGGER, configure_logs

    configure_logs(log_level)
    settings = settings or Settings()
    if host not in LOCAL and not settings.allow_host:
        settings = replace(settings, allow_host=("*",))
        if settings.token() is None:
            message = f"anyone who reaches {host} may search; set {settings.token_env} to require a token"
            LOGGER.warning("open", extra={"fields": {"message": message}})
    config = uvicorn.Config(
        make_app(index, settings),
        host=host,
        port=port,
        ws="none",
        lifespan="on",
        log_config=None,
        access_log=False,
        server_header=False,
        limit_concurrency=settings.max_connections,
        timeout_keep_alive=30,
        timeout_graceful_shutdown=int(settings.max_deadline) + 5,
        h11_max_incomplete_event_size=16 << 10,
    )
    uvicorn.Server(config).run()
