"""Errors of the server, and what a client reads of an error.

A scorer's own message may quote the query, a document or the address of its endpoint, and searches of several clients
share their calls: clients read a sentence of ours for each kind of error instead.
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from fastapi import Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, Response
from starlette.exceptions import HTTPException

from crosscut import errors
from crosscut.errors import BudgetError, CrosscutError, FolderError, InputError, ScorerError, StoreUnavailable
from crosscut.search.hits import Hits
from crosscut.server.observability import LOGGER, outline
from crosscut.server.schemas import Problem

SENTENCES: dict[type[ScorerError] | type[StoreUnavailable], tuple[int, str]] = {
    errors.ScorerTimeout: (504, "the scorer did not answer in time; ask for fewer calls, or give a longer deadline"),
    errors.ScorerRateLimited: (503, "the scorer's endpoint asks for fewer requests; try again later"),
    errors.ScorerBusy: (503, "earlier calls of the scorer have not returned; try again later"),
    errors.ScorerUnavailable: (502, "the scorer's endpoint is down, or kept failing; try again later"),
    errors.ScorerRefused: (502, "the scorer's endpoint refused the request: check its key, model and address"),
    errors.ScorerAnswerError: (502, "the scorer's endpoint answered in an unexpected shape"),
    errors.ScoreCountError: (502, "the scorer returned another number of scores than it was given pairs"),
    errors.ScoreValueError: (502, "the scorer returned a score that is no real number"),
    ScorerError: (502, "the scorer failed"),
    StoreUnavailable: (503, "the vector store does not answer; try again later"),
}
RESPONSES: dict[int | str, dict[str, Any]] = {
    status: {"model": Problem, "description": text}
    for status, text in {
        400: "The body is not JSON, or the Host header is not allowed.",
        401: "The bearer token is missing or wrong.",
        403: "The token may not change items, or the server takes no changes.",
        404: "There is no such item or index.",
        408: "The body took too long.",
        413: "The body is too large.",
        422: "A field is wrong, unknown or over a limit.",
        429: "Too many requests are waiting.",
        502: "The scorer failed.",
        503: "The scorer, or this server, is not available.",
        504: "The scorer, or the queue, took longer than the deadline.",
    }.items()
}


def responses(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """Return the documented errors of a route."""
    return {status: RESPONSES[status] for status in statuses}


class ServerError(CrosscutError):
    """The server refuses a request: a status, a message for the client, and the calls already made for it."""

    status = 503

    def __init__(self, message: str, *, calls: int = 0, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.calls, self.retry_after = calls, retry_after


class NoSuchIndex(ServerError):
    """A request names an index that is not served here."""

    status = 404


class QueueFull(ServerError):
    """More requests are waiting than the server allows."""

    status = 429


class NotReady(ServerError):
    """The server is starting or shutting down, or what it needs is not available."""


class ClientLeft(ServerError):
    """The client has disconnected: nobody reads the answer."""


class TooLate(ServerError):
    """The deadline has passed before the work was done."""

    status = 504


def problem(status: int, error: str, message: str, headers: dict[str, str] | None = None, **more: Any) -> JSONResponse:
    text = message.encode("utf-8", "replace").decode()[:1000]
    return JSONResponse({"error": error, "message": text, **more}, status, headers)


def public_kind(error: BaseException) -> type[ScorerError] | type[StoreUnavailable]:
    """Return the kind of a failure that clients may know."""
    return next((kind for kind in SENTENCES if isinstance(error, kind)), ScorerError)


def split_failure(error: Exception, count: int) -> list[Hits | Exception]:
    """Return what each of the searches of a failed batch gets: its hits if it had ended, else its own error."""
    hits: Sequence[Hits] = getattr(error, "hits", None) or ()
    calls = int(getattr(error, "calls", 0))
    if len(hits) != count:
        return [own_error(error, (), calls if count == 1 else 0) for _ in range(count)]
    failed = ("scorer failed", "store failed", "failed")
    own = getattr(error, "failures", None) or [None] * count
    return [
        one if one.stop_reason not in failed else own_error(failure or error, [one], one.calls)
        for one, failure in zip(hits, own, strict=True)
    ]


def own_error(error: Exception, hits: Sequence[Hits], calls: int) -> Exception:
    """Return the error of one search of a batch, without what it says about the others."""
    if not isinstance(error, ScorerError | StoreUnavailable):
        return error
    kind = public_kind(error)
    own = kind(SENTENCES[kind][1], hits=list(hits), calls=calls)
    own.__cause__ = error  # for the outline in the log
    return own


async def invalid(request: Request, error: RequestValidationError) -> Response:
    found = error.errors()
    if "json" not in request.headers.get("content-type", "") and request.method == "POST":
        return problem(422, "InvalidRequest", "send JSON, with the header content-type: application/json")
    broken = any(one["type"] == "json_invalid" for one in found)
    return problem(400 if broken else 422, "InvalidRequest", "; ".join(_sentence(one) for one in found[:5]))


def _sentence(error: dict[str, Any]) -> str:
    field = ".".join(str(part) for part in error["loc"][1:])[:100] or "the body"
    match error["type"]:
        case "missing":
            return f"{field} is missing"
        case "extra_forbidden":
            return f"there is no field {field}"
        case "json_invalid":
            return f"the body is not JSON, at character {error['loc'][-1]}"
        case _:
            return f"{field}: {error['msg'].removeprefix('Value error, ')}"


async def refused(request: Request, error: HTTPException) -> Response:
    headers = dict(error.headers or {})
    message = str(error.detail)
    if message == "Not Found":
        message = "there is nothing at this address; GET /docs lists the addresses"
    elif error.status_code == 405:
        allowed = headers.get("allow", headers.get("Allow", "other methods"))
        message = f"this address takes {allowed}, not {request.method}"
    return problem(error.status_code, "Refused", message, headers)


async def server_error(request: Request, error: ServerError) -> Response:
    headers = None if error.retry_after is None else {"retry-after": str(max(1, math.ceil(error.retry_after)))}
    _count(request, error, error.calls)
    return problem(error.status, type(error).__name__, str(error), headers, calls=error.calls)


async def failed(request: Request, error: ScorerError | StoreUnavailable) -> Response:
    kind = public_kind(error)
    status, sentence = SENTENCES[kind]
    _count(request, error, error.calls)
    request.state.facts["causes"] = outline(error)
    hits = [hit.to_json() for found in error.hits[:1] for hit in found]
    headers = {"retry-after": "10"} if status == 503 else None
    return problem(status, kind.__name__, sentence, headers, hits=hits, calls=error.calls)


def _count(request: Request, error: Exception, calls: int) -> None:
    """Count a failure and the calls that it had made until then."""
    metrics, facts = request.app.state.service.metrics, request.state.facts
    metrics.errors.labels(type(error).__name__).inc()
    metrics.calls.labels(request.scope["route"].path).inc(calls)
    facts |= {"error": type(error).__name__, "calls": facts.get("calls", 0) + calls}


async def wrong(request: Request, error: CrosscutError) -> Response:
    """Answer a mistake of the client with its sentence; anything else is the server's own matter."""
    name, calls = type(error).__name__, int(getattr(error, "calls", 0))
    if calls:
        _count(request, error, calls)
    if isinstance(error, InputError | BudgetError) and not isinstance(error, FolderError):
        return problem(422, name, str(error))
    LOGGER.error("unavailable", extra={"fields": {"causes": outline(error)}})
    return problem(503, name, "the server cannot do this now; its log names the kind of error")


HANDLERS: dict[type[Exception], Callable[..., Awaitable[Response]]] = {
    RequestValidationError: invalid,
    HTTPException: refused,
    ServerError: server_error,
    ScorerError: failed,
    StoreUnavailable: failed,
    CrosscutError: wrong,
}
"""Any other exception is answered 500 by the middleware."""
