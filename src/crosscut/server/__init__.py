"""The HTTP API and the web page: `serve(index)`, `crosscut serve my.index`; `make_app(index)` for any ASGI server."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from crosscut.errors import needing
from crosscut.server.settings import LOCAL, Settings

if TYPE_CHECKING:
    from fastapi import FastAPI

    from crosscut.index import Index

__all__ = ["Settings", "make_app", "serve"]


def make_app(index: Index | Mapping[str, Index], settings: Settings | None = None) -> FastAPI:
    """A FastAPI application over an index, or over several by name, for uvicorn or any other ASGI server."""
    with needing("the server needs {}", "serve"):
        from crosscut.server.app import make_app as make
    return make(index, settings)


def serve(
    index: Index | Mapping[str, Index],
    settings: Settings | None = None,
    *,
    host: str = "127.0.0.1",
    port: int = 8000,
    log_level: str = "info",
) -> None:
    """Serve an index, or several by name, until interrupted, as `crosscut serve` does.

    This is for an index that no folder holds, such as one over a vector store. uvicorn is told how long a client may
    take and how many there may be, which `make_app` cannot tell it.

    Parameters
    ----------
    settings
        Limits, tokens, the page; by default those of `crosscut serve`.
    host, port
        The address to listen on; 0.0.0.0 is every network: set a token then (`Settings.token_env`).
    log_level
        debug, info, warning or error.
    """
    from crosscut.server.logs import configure

    configure(log_level)
    settings = settings or Settings(hosts=LOCAL if host in LOCAL else ())
    listen(make_app(index, settings), settings, host, port)


def listen(app: FastAPI, settings: Settings, host: str, port: int) -> None:
    """Run an application until interrupted."""
    with needing("the server needs uvicorn", "serve"):
        import uvicorn

        from crosscut.server.lines import configuration
    from crosscut.server.logs import LOGGER

    if settings.token() is None and host not in LOCAL:
        told = f"anyone who reaches {host} may search; set {settings.token_env} to ask for a token"
        LOGGER.warning("open", extra={"fields": {"message": told}})
    uvicorn.Server(configuration(app, settings, host=host, port=port)).run()
