"""The body of a request: read within limits, and looked at before it becomes objects.

A few megabytes of `[[], [], …]` are gigabytes of objects and of complaints about them. Brackets and commas outside
strings say how many values a body holds, at the speed of a scan.
"""

from __future__ import annotations

import asyncio
import re

from starlette.types import Receive

from crosscut.server.settings import Settings

STRINGS = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+(?:"|\\?\Z)', re.DOTALL)  # possessive: one pass, whatever it is given
PARTS = 1000  # lists, objects and their members: a request needs a few for each condition of its filter


class Refusal(Exception):
    """A body that is not taken: a status, the kind of error, and a sentence."""

    def __init__(self, status: int, error: str, message: str) -> None:
        super().__init__(message)
        self.status, self.error, self.message = status, error, message


class Bodies:
    """Reads bodies, and knows how much of them is held at a time."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.held = 0  # bytes

    async def read(self, headers: dict[bytes, bytes], receive: Receive) -> bytes | None:
        """The whole body, which counts as held until `release`; None when the client left before its end."""
        settings = self.settings
        length = headers.get(b"content-length", b"0")
        if length.isdigit() and int(length) > settings.max_body:
            raise self._too_large()
        parts: list[bytes] = []
        size, more = 0, True
        try:
            async with asyncio.timeout(settings.body_seconds):
                while more:
                    message = await receive()
                    if message["type"] == "http.disconnect":
                        self.held -= size
                        return None
                    parts.append(message.get("body", b""))
                    more = message.get("more_body", False)
                    size += len(parts[-1])
                    self.held += len(parts[-1])
                    if size > settings.max_body:
                        raise self._too_large()
                    if self.held > settings.max_held:
                        told = f"{settings.max_held} bytes of requests are under way, as many as this server holds"
                        raise Refusal(503, "Busy", f"{told}; try again later")
        except TimeoutError:
            self.held -= size
            raise Refusal(408, "Timeout", f"the body did not arrive within {settings.body_seconds:g} s") from None
        except Refusal:
            self.held -= size
            raise
        return b"".join(parts)

    def release(self, body: bytes) -> None:
        """The request of this body is answered."""
        self.held -= len(body)

    def check(self, body: bytes) -> None:
        """Refuse a body with more values than any request has use for."""
        most = self.settings.max_values
        if _within(body, most):
            return
        strings = (body.count(b'"') - body.count(b'\\"')) // 2  # at least
        if strings > 2 * most or not _within(STRINGS.sub(b"", body), most):
            told = f"the body holds more than {PARTS} lists, objects and members, or more than {most} values"
            raise Refusal(413, "TooLarge", f"{told}, which this server allows")

    def _too_large(self) -> Refusal:
        limit = self.settings.max_body
        return Refusal(413, "TooLarge", f"the body is larger than {limit} bytes, which this server allows")


def _within(text: bytes, most: int) -> bool:
    return sum(map(text.count, (b"[", b"{", b":"))) <= PARTS and text.count(b",") <= most
