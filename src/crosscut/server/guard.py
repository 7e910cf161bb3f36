"""What happens before and after every request: its id, the token, the size of its body, the log line, the metrics."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import json
import re
import time
import uuid
from typing import Any

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from crosscut.server.logs import LOGGER
from crosscut.server.metrics import Metrics
from crosscut.server.settings import Settings

OPEN = {"/health", "/ready", "/", "/page/app.js", "/page/picture.js", "/page/style.css", "/favicon.ico"}
REQUEST_ID = re.compile(r"[A-Za-z0-9._-]{1,64}")
HEADERS = [
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cache-control", b"no-store"),
]


class Guard:
    """Pure ASGI, around the whole application."""

    def __init__(self, app: ASGIApp, settings: Settings, metrics: Metrics) -> None:
        self.app = app
        self.settings = settings
        self.metrics = metrics
        token = settings.token()
        self._token = None if token is None else _digest(token.encode())

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        started = time.perf_counter()
        headers = {name.lower(): value for name, value in scope["headers"]}
        given = headers.get(b"x-request-id", b"").decode("latin-1")
        request_id = given if REQUEST_ID.fullmatch(given) else uuid.uuid4().hex[:16]
        facts: dict[str, Any] = {}
        scope.setdefault("state", {})["facts"] = facts  # what a route wants in the log line
        status = 500

        async def answer(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message = {
                    **message,
                    "headers": [*message["headers"], (b"x-request-id", request_id.encode()), *HEADERS],
                }
            await send(message)

        try:
            if self._token is not None and scope["path"] not in OPEN and not self._allowed(headers):
                extra = [(b"www-authenticate", b"Bearer")]
                await _refuse(answer, 401, "Unauthorized", "this server asks for a bearer token", extra)
                return
            body = await self._body(headers, receive, answer)
            if body is not None:
                await self.app(scope, _replay(body, receive), answer)
        finally:
            self._record(scope, status, time.perf_counter() - started, request_id, facts)

    def _allowed(self, headers: dict[bytes, bytes]) -> bool:
        scheme, _, token = headers.get(b"authorization", b"").partition(b" ")
        same = hmac.compare_digest(_digest(token.strip()), self._token or b"")
        return same and scheme.lower() == b"bearer"

    async def _body(self, headers: dict[bytes, bytes], receive: Receive, answer: Send) -> bytes | None:
        """The whole body, or None when it was refused."""
        limit = self.settings.max_body
        too_large = f"the body is larger than {limit} bytes, which this server allows"
        length = headers.get(b"content-length", b"0")
        if length.isdigit() and int(length) > limit:
            await _refuse(answer, 413, "TooLarge", too_large)
            return None
        parts: list[bytes] = []
        size, more = 0, True
        try:
            async with asyncio.timeout(self.settings.body_seconds):
                while more:
                    message = await receive()
                    if message["type"] == "http.disconnect":
                        return None
                    parts.append(message.get("body", b""))
                    size += len(parts[-1])
                    more = message.get("more_body", False)
                    if size > limit:
                        await _refuse(answer, 413, "TooLarge", too_large)
                        return None
        except TimeoutError:
            message_ = f"the body did not arrive within {self.settings.body_seconds:g} s"
            await _refuse(answer, 408, "Timeout", message_)
            return None
        return b"".join(parts)

    def _record(self, scope: Scope, status: int, seconds: float, request_id: str, facts: dict[str, Any]) -> None:
        route = getattr(scope.get("route"), "path", "other")  # the template: a raw path may hold anything
        self.metrics.requests.labels(route, str(status)).inc()
        self.metrics.latency.labels(route).observe(seconds)
        quiet = route in ("/health", "/ready", "/metrics") and status == 200
        LOGGER.log(
            10 if quiet else 20 if status < 500 else 40,
            "request",
            extra={
                "fields": {
                    "request_id": request_id,
                    "method": scope["method"],
                    "route": route,
                    "status": status,
                    "ms": round(1000 * seconds, 2),
                    **facts,
                }
            },
        )


def _digest(text: bytes) -> bytes:
    return hashlib.sha256(text).digest()  # of equal length, so that comparing takes the same time for all


def _replay(body: bytes, receive: Receive) -> Receive:
    """A channel that hands the body out once, and then says what the client does."""
    sent = False

    async def channel() -> Message:
        nonlocal sent
        if sent:
            return await receive()
        sent = True
        return {"type": "http.request", "body": body, "more_body": False}

    return channel


async def _refuse(
    send: Send, status: int, error: str, message: str, headers: list[tuple[bytes, bytes]] | None = None
) -> None:
    content = json.dumps({"error": error, "message": message}).encode()
    await send(
        {
            "type": "http.response.start",
            "status": status,
            "headers": [
                (b"content-type", b"application/json"),
                (b"content-length", str(len(content)).encode()),
                (b"connection", b"close"),  # what is left of the body is not read
                *(headers or []),
            ],
        }
    )
    await send({"type": "http.response.body", "body": content})
