"""The files of the web page."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path

from fastapi import APIRouter
from fastapi.responses import Response

PAGE = Path(__file__).parent / "page"
FILES = {
    "/": ("index.html", "text/html; charset=utf-8"),
    **{
        f"/page/{name}.js": (f"{name}.js", "text/javascript; charset=utf-8")
        for name in ("app", "curves", "filters", "picture", "rows", "words")
    },
    "/page/style.css": ("style.css", "text/css; charset=utf-8"),
}
POLICY = "default-src 'self'; img-src 'self' data:; base-uri 'none'; form-action 'self'; frame-ancestors 'none'"


def page() -> APIRouter:
    """The files of the web page."""
    router = APIRouter(include_in_schema=False)
    for path, (name, kind) in FILES.items():
        router.add_api_route(path, _file((PAGE / name).read_bytes(), kind))
    return router


def _file(content: bytes, kind: str) -> Callable[[], Awaitable[Response]]:
    async def show() -> Response:
        return Response(content, media_type=kind, headers={"content-security-policy": POLICY})

    return show
