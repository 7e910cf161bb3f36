"""The HTTP API and the web page: `make_app(index, settings)`, or `crosscut serve my.index`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from crosscut.errors import MissingDependency
from crosscut.server.settings import Settings

if TYPE_CHECKING:
    from fastapi import FastAPI

    from crosscut.index import Index

__all__ = ["Settings", "make_app"]


def make_app(index: Index | Mapping[str, Index], settings: Settings | None = None) -> FastAPI:
    """A FastAPI application over an index, or over several by name, for uvicorn or any other ASGI server."""
    try:
        from crosscut.server.app import make_app as make
    except ImportError as error:
        if (error.name or "").split(".")[0] in ("fastapi", "starlette", "pydantic", "prometheus_client"):
            raise MissingDependency(f"the server needs {error.name}", "serve") from error
        raise
    return make(index, settings)
