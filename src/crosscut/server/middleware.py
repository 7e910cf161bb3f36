"""One ASGI middleware around every request: token, limits on its body and its client, security headers, log line."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import json
import re
import time
import uuid
from collections import Counter
from collections.abc import Collection
from typing import Any

from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from crosscut.server.observability import LOGGER, Metrics, outline
from crosscut.server.settings import Settings

PROBES = {"/health", "/ready", "/favicon.ico"}
SAFE_METHODS = {"GET", "HEAD", "OPTIONS"}
METHODS = {*SAFE_METHODS, "POST", "PUT", "PATCH", "DELETE"}
REQUEST_ID = re.compile(r"[A-Za-z0-9._-]{1,64}")
CLIENT_LEFT = 499  # in logs and metrics: the client disconnected, and no answer was sent
HEADERS = [
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cache-control", b"no-store"),
]


class Refusal(Exception):
    """A request that is refused before a route sees it."""

    def __init__(self, status: int, error: str, message: str) -> None:
        super().__init__(message)
        self.status, self.error, self.message = status, error, message


class RequestGuard:
    """Admit requests, bound their bodies, and record what they cost."""

    def __init__(self, app: ASGIApp, settings: Settings, metrics: Metrics, open_paths: Collection[str]) -> None:
        self.app, self.settings, self.metrics = app, settings, metrics
        self.open_paths = PROBES | set(open_paths)
        self.read_token, self.write_token = _digest(settings.token()), _digest(settings.write_token())
        self.running: Counter[str] = Counter()  # requests by address of the client

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        started, status = time.perf_counter(), 0
        headers = {name.lower(): value for name, value in scope["headers"]}
        given = headers.get(b"x-request-id", b"").decode("latin-1")
        request_id = given if REQUEST_ID.fullmatch(given) else uuid.uuid4().hex[:16]
        facts: dict[str, Any] = {}  # what a route adds to the log line
        gone = asyncio.Event()  # set when the client disconnects
        scope.setdefault("state", {}).update(facts=facts, gone=gone)

        async def answer(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = CLIENT_LEFT if gone.is_set() else message["status"]
                more = [*message["headers"], (b"x-request-id", request_id.encode()), *HEADERS]
                message = {**message, "headers": more}
            await send(message)

        client = str((scope.get("client") or ("",))[0])
        limited = self.settings.per_client is not None and _path(scope) not in self.open_paths
        self.running[client] += limited
        try:
            self._admit(scope, headers, self.running[client] if limited else 0)
            await self.app(scope, self._bounded(headers, receive), answer)
        except Refusal as refusal:
            await _refuse(answer, refusal)
        except Exception as error:
            facts["traceback"] = outline(error)
            if status == 0:
                await _refuse(answer, Refusal(500, "Unexpected", "the server failed; its log says where"))
        finally:
            self.running[client] -= limited
            self.running += Counter()  # drops zeros
            self._record(scope, status or CLIENT_LEFT, time.perf_counter() - started, request_id, facts)

    def _admit(self, scope: Scope, headers: dict[bytes, bytes], running: int) -> None:
        """Raise a refusal unless the request carries the token that it needs."""
        path = _path(scope)
        writing = scope["method"] not in SAFE_METHODS and path.startswith("/items")
        scheme, _, text = headers.get(b"authorization", b"").partition(b" ")
        token = _digest(text.strip().decode("latin-1")) if scheme.lower() == b"bearer" else None
        reads, writes = _equal(token, self.read_token), _equal(token, self.write_token)
        if writing and self.write_token is None:
            raise Refusal(403, "ReadOnly", "this server takes no changes: it was started without a token for them")
        if writing and reads and not writes:
            raise Refusal(403, "ReadOnly", "this token may search, and may not change items")
        if (writing or (self.read_token is not None and path not in self.open_paths)) and not (
            writes or (reads and not writing)
        ):
            raise Refusal(401, "Unauthorized", "this server requires a bearer token")
        if running > (self.settings.per_client or running):
            most = self.settings.per_client
            raise Refusal(429, "TooMany", f"a client may have {most} concurrent requests; wait for the others")

    def _bounded(self, headers: dict[bytes, bytes], receive: Receive) -> Receive:
        """Return `receive` under the limits on size and time of a body."""
        most, seconds = self.settings.max_body, self.settings.body_seconds
        end = asyncio.get_running_loop().time() + seconds
        length = headers.get(b"content-length", b"")
        size = int(length) if length.isdigit() and len(length) < 20 else 0
        if size > most:
            raise Refusal(413, "TooLarge", f"the body is larger than the {most} bytes that this server allows")
        received, more = 0, True

        async def bounded() -> Message:
            nonlocal received, more
            try:
                async with asyncio.timeout_at(end if more else None):
                    message = await receive()
            except TimeoutError:
                raise HTTPException(408, f"the body did not arrive within {seconds:g} s", _CLOSE) from None
            more = message.get("more_body", False)
            received += len(message.get("body", b""))
            if received > most:
                raise HTTPException(413, f"the body is larger than the {most} bytes that this server allows", _CLOSE)
            return message

        return bounded

    def _record(self, scope: Scope, status: int, seconds: float, request_id: str, facts: dict[str, Any]) -> None:
        route = getattr(scope.get("route"), "path", "other")  # the template: a raw path may hold anything
        self.metrics.requests.labels(route, str(status)).inc()
        self.metrics.latency.labels(route).observe(seconds)
        quiet = route in ("/health", "/ready", "/metrics") and status == 200
        method = scope["method"] if scope["method"] in METHODS else "other"
        fields = {"request_id": request_id, "method": method, "route": route, "status": status}
        fields |= {"ms": round(1000 * seconds, 2), **facts}
        LOGGER.log(10 if quiet else 20 if status < 500 else 40, "request", extra={"fields": fields})


_CLOSE = {"connection": "close"}  # what is left of the body is not read


def _path(scope: Scope) -> str:
    """Return the path as routes see it: without the one that the application is mounted under."""
    path, mount = str(scope["path"]), str(scope.get("root_path", ""))
    inside = path.removeprefix(mount)
    return inside if not inside or inside.startswith("/") else path


def _digest(token: str | None) -> bytes | None:
    """Return a digest of a token: of equal length, so that comparing two takes the same time for all."""
    return None if token is None else hashlib.sha256(token.encode()).digest()


def _equal(token: bytes | None, wanted: bytes | None) -> bool:
    return token is not None and wanted is not None and hmac.compare_digest(token, wanted)


async def _refuse(send: Send, refusal: Refusal) -> None:
    content = json.dumps({"error": refusal.error, "message": refusal.message}).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(content)).encode())]
    headers.append((b"connection", b"close"))
    if refusal.status == 401:
        headers.append((b"www-authenticate", b"Bearer"))
    if refusal.status == 429:
        headers.append((b"retry-after", b"1"))
    await send({"type": "http.response.start", "status": refusal.status, "headers": headers})
    await send({"type": "http.response.body", "body": content})
