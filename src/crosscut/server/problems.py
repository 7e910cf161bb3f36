"""What a client is told when something goes wrong.

A scorer's error may quote the query, a document or the address of its endpoint, and searches of several clients share
their calls: so none of its text is passed on, only its kind, with a sentence of our own.
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable
from typing import Any

from fastapi import Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, Response
from starlette.exceptions import HTTPException

from crosscut import errors
from crosscut.errors import (
    BudgetError,
    ClientLeft,
    Closing,
    CrosscutError,
    FolderError,
    InputError,
    NoSuchIndex,
    QueueFull,
    ScorerError,
    StoreUnavailable,
    TooLate,
)
from crosscut.search.hits import Hits
from crosscut.server import answers, schemas
from crosscut.server.logs import LOGGER, outline

SENTENCES: dict[type[ScorerError] | type[StoreUnavailable], tuple[int, str]] = {
    errors.ScorerTimeout: (504, "the scorer did not answer in time; ask for fewer calls, or give a longer deadline"),
    errors.ScorerBusy: (503, "earlier calls of the scorer have not returned; try again later"),
    errors.ScorerRateLimited: (503, "the scorer's endpoint asks for fewer requests than were made; try again later"),
    errors.ScorerUnavailable: (502, "the scorer's endpoint is down, or kept failing; try again later"),
    errors.ScorerRefused: (502, "the scorer's endpoint refused the request: check its key, model and address"),
    errors.ScorerAnswerError: (502, "the scorer's endpoint answered in another shape than it should"),
    errors.ScoreCountError: (502, "the scorer returned another number of scores than it was given pairs"),
    errors.ScoreValueError: (502, "the scorer returned a score that is no real number"),
    ScorerError: (502, "the scorer failed"),
    StoreUnavailable: (503, "the vector store does not answer; try again later"),
}
PROBLEMS: dict[int | str, dict[str, Any]] = {
    status: {"model": schemas.ProblemDetails, "description": text}
    for status, text in {
        400: "The body is no JSON.",
        401: "The bearer token is missing or wrong.",
        403: "This server takes no changes.",
        404: "There is no such item or index.",
        408: "The body took too long.",
        413: "The body is too large, or holds too many values.",
        421: "The server is not asked by a name of its own.",
        422: "The request asks for what cannot be done.",
        429: "Too many requests are waiting.",
        502: "The scorer failed.",
        503: "The scorer, or this server, is not available.",
        504: "The scorer, or the queue, took longer than the deadline.",
    }.items()
}


def retold(error: ScorerError | StoreUnavailable, hits: list[Hits], calls: int) -> ScorerError | StoreUnavailable:
    """The error of a search that others took part in, as one of them may see it."""
    kind = next(known for known in SENTENCES if isinstance(error, known))
    own = kind(SENTENCES[kind][1], hits=hits, calls=calls)
    own.__cause__ = error  # for the outline in the log
    return own


def problem(status: int, error: str, message: str, headers: dict[str, str] | None = None, **more: Any) -> JSONResponse:
    content = {"error": error, "message": message.encode("utf-8", "replace").decode()[:1000], **more}
    return JSONResponse(content, status, headers)


async def invalid(request: Request, error: RequestValidationError) -> Response:
    found = error.errors()
    broken = any(one["type"] == "json_invalid" for one in found)
    typed = "json" in request.headers.get("content-type", "")
    told = [_told(one) for one in found[:5]] if typed else ["send JSON, with the header content-type: application/json"]
    return problem(400 if broken else 422, "InvalidRequest", "; ".join(told))


def _told(one: dict[str, Any]) -> str:
    """What is wrong with one field, in words."""
    place = ".".join(str(part) for part in one["loc"] if part != "body")[:100]
    if one["type"] == "json_invalid":
        return f"the body is not JSON, at character {place}: {one.get('ctx', {}).get('error', one['msg'])}"
    if one["type"] == "missing":
        return f"{place or 'the body'} is missing"
    if one["type"] == "extra_forbidden":
        return f"there is no field {place}"
    return f"{place or 'the body'}: {one['msg']}"


async def refused(request: Request, error: HTTPException) -> Response:
    headers = dict(error.headers or {})
    told = str(error.detail)
    if told == "Not Found":
        told = "there is nothing at this address; GET /docs tells what there is"
    elif error.status_code == 405:
        told = f"this address takes {headers.get('allow', headers.get('Allow', 'other methods'))}, not {request.method}"
    return problem(error.status_code, "Refused", told, headers)


async def full(request: Request, error: QueueFull) -> Response:
    return problem(429, "QueueFull", str(error), {"retry-after": str(max(1, math.ceil(error.seconds)))})


async def late(request: Request, error: TooLate) -> Response:
    _count(request, "ScorerTimeout", error.calls)
    return problem(504, "ScorerTimeout", str(error), calls=error.calls, hits=[])


async def failed(request: Request, error: ScorerError | StoreUnavailable) -> Response:
    told = retold(error, error.hits[:1], error.calls)
    name = type(told).__name__
    _count(request, name, error.calls)
    request.state.facts["causes"] = outline(error)
    status, sentence = SENTENCES[type(told)]
    hits = [model.model_dump() for found in told.hits for model in answers.hit_models(found)]
    headers = {"retry-after": "10"} if status == 503 else None
    return problem(status, name, sentence, headers, hits=hits, calls=error.calls)


def _count(request: Request, name: str, calls: int) -> None:
    metrics, facts = request.app.state.service.metrics, request.state.facts
    metrics.errors.labels(name).inc()
    metrics.calls.labels(request.scope["route"].path).inc(calls)
    facts |= {"error": name, "calls": facts.get("calls", 0) + calls}


async def wrong(request: Request, error: CrosscutError) -> Response:
    name = type(error).__name__
    if isinstance(error, InputError | BudgetError) and not _about_the_server(request, error):
        return problem(422, name, str(error))
    if isinstance(error, Closing | ClientLeft):
        return problem(503, name, str(error))
    if isinstance(error, NoSuchIndex):
        return problem(404, name, str(error))
    LOGGER.error("unavailable", extra={"fields": {"causes": outline(error)}})
    return problem(503, name, "the server cannot do this now; its log says what kind of error stood in the way")


def _about_the_server(request: Request, error: CrosscutError) -> bool:
    """Whether it is about folders of whoever runs this: no fault of the one who asks, and none of their business."""
    named = str(error)
    return isinstance(error, FolderError) or any(place in named for place in request.app.state.service.hosting.places)


HANDLERS: dict[type[Exception], Callable[..., Awaitable[Response]]] = {
    RequestValidationError: invalid,
    HTTPException: refused,
    QueueFull: full,
    TooLate: late,
    ScorerError: failed,
    StoreUnavailable: failed,
    CrosscutError: wrong,
}
"""What is left is answered 500, by the guard."""


def forgetting(handler: Callable[..., Awaitable[Response]]) -> Callable[..., Awaitable[Response]]:
    """The same handler, after which the exception lets go of the frames that it came through.

    They hold it in turn, and a body of megabytes, until the collector of cycles comes by.
    """

    async def handle(request: Request, error: BaseException | None) -> Response:
        try:
            return await handler(request, error)
        finally:
            while error is not None:
                error.__traceback__, cause = None, error.__cause__ or error.__context__
                error.__cause__ = error.__context__ = None
                error = cause

    return handle
