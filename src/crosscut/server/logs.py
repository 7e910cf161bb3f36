"""Structured logs: one JSON object a line, of bounded length and number.

Queries, documents and headers are never logged, nor the text of an exception: it may quote any of them. An exception is
told by its kind and by the places in the code that it came through.
"""

from __future__ import annotations

import json
import logging
import sys
import time
import traceback
from pathlib import Path
from typing import Any, TextIO

from crosscut.errors import InputError

LOGGER = logging.getLogger("crosscut.server")
LEVELS = ("debug", "info", "warning", "error")
LONGEST = 500  # characters of an event
LINES = 100.0  # a second, on average, of those that tell of no calls
BURST = 1000.0


def outline(error: BaseException) -> list[str]:
    """Kind and places of an exception and of its causes, without what they say."""
    told: list[str] = []
    seen: BaseException | None = error
    while seen is not None and len(told) < 5:
        frames = traceback.extract_tb(seen.__traceback__)[-8:]
        places = " < ".join(f"{Path(frame.filename).name}:{frame.lineno} {frame.name}" for frame in reversed(frames))
        told.append(f"{type(seen).__name__} at {places or '?'}")
        seen = seen.__cause__ or seen.__context__
    return told


class JsonFormatter(logging.Formatter):
    """A record as one line of JSON; `extra={"fields": {…}}` adds to it."""

    def format(self, record: logging.LogRecord) -> str:
        entry: dict[str, Any] = {
            "time": time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created)) + f".{int(record.msecs):03d}Z",
            "level": record.levelname.lower(),
            "event": record.getMessage().partition("\n")[0][:LONGEST],  # asyncio quotes exceptions on further lines
        }
        entry |= getattr(record, "fields", {})
        if record.exc_info and record.exc_info[1] is not None:
            entry["traceback"] = outline(record.exc_info[1])
        return json.dumps(entry, default=str)


class Limit(logging.Filter):
    """Lets through what tells of calls that were paid for, and of the rest no more than `LINES` a second."""

    def __init__(self) -> None:
        super().__init__()
        self._stock, self._at, self._dropped = BURST, time.monotonic(), 0

    def filter(self, record: logging.LogRecord) -> bool:
        fields: dict[str, Any] = getattr(record, "fields", {})
        now = time.monotonic()
        self._stock, self._at = min(self._stock + LINES * (now - self._at), BURST), now
        if self._stock < 1 and not fields.get("calls"):
            self._dropped += 1
            return False
        self._stock = max(self._stock - 1, 0.0)
        if self._dropped:
            record.fields = {**fields, "lines_dropped_before": self._dropped}
            self._dropped = 0
        return True


def configure(level: str = "info", stream: TextIO | None = None) -> None:
    """Send the server's, uvicorn's and asyncio's logs to `stream` (standard error) as JSON."""
    if level.lower() not in LEVELS:
        raise InputError(f"the level of the log is debug, info, warning or error; got {level!r}")
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(JsonFormatter())
    handler.addFilter(Limit())
    for name in ("crosscut", "uvicorn.error", "asyncio"):
        logger = logging.getLogger(name)
        logger.handlers = [handler]
        logger.setLevel(level.upper())
        logger.propagate = False
    logging.getLogger("uvicorn.access").disabled = True  # the server writes its own, with the calls spent
