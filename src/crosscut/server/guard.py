"""What happens before and after every request: its id, host and token, its body, its client's hang-up, the log line."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import json
import re
import time
import uuid
from collections import Counter
from typing import Any

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from crosscut.server.bodies import Bodies, Refusal
from crosscut.server.files import FILES
from crosscut.server.logs import LOGGER, outline
from crosscut.server.metrics import Metrics
from crosscut.server.settings import Settings

OPEN = {"/health", "/ready", "/favicon.ico", *FILES}
READS = {"GET", "HEAD", "OPTIONS"}
VERBS = {"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"}
REQUEST_ID = re.compile(r"[A-Za-z0-9._-]{1,64}")
LEFT = 499  # in logs and metrics: the client hung up, and no answer was sent
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
        self.bodies = Bodies(settings)
        token, write = settings.token(), settings.write_token()
        self._token = None if token is None else _digest(token.encode())
        self._write = None if write is None else _digest(write.encode())
        self._busy: Counter[str] = Counter()  # requests under way, by client
        self._hosts = None if token is not None or not settings.hosts else {name.lower() for name in settings.hosts}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        started = time.perf_counter()
        headers = {name.lower(): value for name, value in scope["headers"]}
        given = headers.get(b"x-request-id", b"").decode("latin-1")
        request_id = given if REQUEST_ID.fullmatch(given) else uuid.uuid4().hex[:16]
        facts: dict[str, Any] = {}  # what a route wants in the log line
        gone = asyncio.Event()  # the client has hung up
        scope.setdefault("state", {}).update(facts=facts, gone=gone)
        status = 0

        async def answer(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = LEFT if gone.is_set() else message["status"]
                message = {
                    **message,
                    "headers": [*message["headers"], (b"x-request-id", request_id.encode()), *HEADERS],
                }
            await send(message)

        client = self._count(scope)
        try:
            self._admit(scope, headers, client)
            body = await self.bodies.read(headers, receive)
            if body is not None:
                await self._pass_on(scope, body, receive, answer, gone)
        except Refusal as refusal:
            await _refuse(answer, refusal)
        except Exception as error:
            facts["traceback"] = outline(error)
            if status == 0:
                await _refuse(answer, Refusal(500, "Unexpected", "the server failed; its log says where"))
        finally:
            self._uncount(client)
            self._record(scope, status or LEFT, time.perf_counter() - started, request_id, facts)

    def _count(self, scope: Scope) -> str | None:
        """One more request of a client, where they are limited."""
        if self.settings.per_client is None or _path(scope) in OPEN:
            return None
        client = str((scope.get("client") or ("",))[0])
        self._busy[client] += 1
        return client

    def _uncount(self, client: str | None) -> None:
        if client is not None:
            self._busy[client] -= 1
            if not self._busy[client]:
                del self._busy[client]

    def _admit(self, scope: Scope, headers: dict[bytes, bytes], client: str | None) -> None:
        """Refuse who asks by a name that is not this server's, without its token, or for too much at a time."""
        if self._hosts is not None and _host(headers.get(b"host", b"")) not in self._hosts:
            told = "this server has no token and is asked by another name than its own; start it with that name allowed"
            raise Refusal(421, "WrongHost", told)
        path = _path(scope)
        changing = scope["method"] not in READS and path.startswith("/items")
        if changing and self._write is None:
            raise Refusal(403, "ReadOnly", "this server takes no changes: it was started without a token for them")
        allowed = [token for token in (self._write, None if changing else self._token) if token is not None]
        if (changing or self._token is not None) and path not in OPEN and not _has(headers, allowed):
            if changing and self._token is not None and _has(headers, [self._token]):
                raise Refusal(403, "ReadOnly", "this token may search, and may not change items")
            raise Refusal(401, "Unauthorized", "this server asks for a bearer token")
        if client is not None and self._busy[client] > (self.settings.per_client or 0):
            told = f"{self.settings.per_client} requests of one client may be under way; wait for the others"
            raise Refusal(429, "TooMany", told)

    async def _pass_on(self, scope: Scope, body: bytes, receive: Receive, answer: Send, gone: asyncio.Event) -> None:
        """Let the application answer, with an eye on the client."""
        watch = asyncio.ensure_future(_watch(receive, gone))
        try:
            self.bodies.check(body)
            await self.app(scope, _replay(body, gone), answer)
        finally:
            watch.cancel()
            self.bodies.release(body)

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
                    "method": scope["method"] if scope["method"] in VERBS else "other",
                    "route": route,
                    "status": status,
                    "ms": round(1000 * seconds, 2),
                    **facts,
                }
            },
        )


def _path(scope: Scope) -> str:
    """The path as routes see it: without the one that the application is mounted under."""
    path, mount = str(scope["path"]), str(scope.get("root_path", ""))
    inside = path.removeprefix(mount)
    return inside if not inside or inside.startswith("/") else path


def _has(headers: dict[bytes, bytes], allowed: list[bytes]) -> bool:
    """Whether a request carries one of these tokens; every one is compared, which takes the same time for all."""
    scheme, _, token = headers.get(b"authorization", b"").partition(b" ")
    given = _digest(token.strip())
    same = [hmac.compare_digest(given, one) for one in allowed]
    return any(same) and scheme.lower() == b"bearer"


def _digest(text: bytes) -> bytes:
    return hashlib.sha256(text).digest()  # of equal length, so that comparing takes the same time for all


def _host(header: bytes) -> str:
    """The name in a Host header, without port and brackets."""
    text = header.decode("latin-1").strip().lower()
    return text[1:].partition("]")[0] if text.startswith("[") else text.partition(":")[0]


async def _watch(receive: Receive, gone: asyncio.Event) -> None:
    """Wait for the client to hang up."""
    while (await receive())["type"] != "http.disconnect":
        pass
    gone.set()


def _replay(body: bytes, gone: asyncio.Event) -> Receive:
    """A channel that hands the body out once, and then waits for the client to hang up."""
    sent = False

    async def channel() -> Message:
        nonlocal sent
        if sent:
            await gone.wait()
            return {"type": "http.disconnect"}
        sent = True
        return {"type": "http.request", "body": body, "more_body": False}

    return channel


async def _refuse(send: Send, refusal: Refusal) -> None:
    content = json.dumps({"error": refusal.error, "message": refusal.message}).encode()
    extra = [(b"www-authenticate", b"Bearer")] if refusal.status == 401 else []
    if refusal.status in (429, 503):
        extra = [(b"retry-after", b"1")]
    await send(
        {
            "type": "http.response.start",
            "status": refusal.status,
            "headers": [
                (b"content-type", b"application/json"),
                (b"content-length", str(len(content)).encode()),
                (b"connection", b"close"),  # what is left of the body is not read
                *extra,
            ],
        }
    )
    await send({"type": "http.response.body", "body": content})
