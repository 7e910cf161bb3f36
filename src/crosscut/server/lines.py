"""Connections: uvicorn, told how long a client may take and how many there may be.

A connection that sends half a request, or does not read its answer, costs its sender nothing. So each has its time, and
when there are too many, the one that has kept the server waiting longest makes room for the newest.
"""

from __future__ import annotations

import asyncio
import time
from typing import Any

import h11
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from crosscut.server.settings import Settings


def configuration(app: Any, settings: Settings, *, host: str = "127.0.0.1", port: int = 8000) -> uvicorn.Config:
    """How uvicorn serves the application."""

    class Bounded(Line):
        limits = settings

    return uvicorn.Config(
        app,
        host=host,
        port=port,
        http=Bounded,  # by h11, which bounds headers; httptools does not
        ws="none",
        lifespan="on",
        log_config=None,
        access_log=False,
        server_header=False,
        timeout_keep_alive=30,
        timeout_graceful_shutdown=int(settings.max_deadline) + 5,
        h11_max_incomplete_event_size=16 << 10,
    )


class Line(H11Protocol):
    """One connection, HTTP/1.1."""

    limits: Settings

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.since = time.monotonic()  # when it was last heard of
        self._timer: asyncio.TimerHandle | None = None

    @property
    def idle(self) -> bool:
        """Whether it is the client that the server waits for: to send a whole request, or to read its answer."""
        asked = self.cycle is not None and not self.cycle.response_complete and not self.cycle.more_body
        return not asked or self.flow.write_paused

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._allow(self.limits.header_seconds)
        lines = [line for line in self.connections if isinstance(line, Line)]
        if len(lines) > self.limits.max_connections:
            min((line for line in lines if line.idle), key=lambda line: line.since).transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        self._allow(None)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        try:
            super().data_received(data)
        except h11.LocalProtocolError:  # more of a request that was already refused
            self.transport.abort()
            return
        if self.cycle is not None and not self.cycle.response_complete:
            self._allow(None)  # its headers are here; the guard waits for the body
            self.since = time.monotonic()
        elif self._timer is None:  # the beginning of the next request
            self._allow(self.limits.header_seconds)

    def pause_writing(self) -> None:
        super().pause_writing()
        self.since = time.monotonic()
        self._allow(self.limits.read_seconds)

    def resume_writing(self) -> None:
        super().resume_writing()
        self._allow(None)

    def _allow(self, seconds: float | None) -> None:
        """Close the connection after so many seconds; None: take that back."""
        if self._timer is not None:
            self._timer.cancel()
        self._timer = None if seconds is None else self.loop.call_later(seconds, self.transport.abort)
