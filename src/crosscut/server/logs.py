"""Structured logs: one JSON object a line. Queries, documents and headers are never logged."""

from __future__ import annotations

import json
import logging
import sys
import time
from typing import Any, TextIO

LOGGER = logging.getLogger("crosscut.server")


class JsonFormatter(logging.Formatter):
    """A record as one line of JSON; `extra={"fields": {…}}` adds to it."""

    def format(self, record: logging.LogRecord) -> str:
        entry: dict[str, Any] = {
            "time": time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created)) + f".{int(record.msecs):03d}Z",
            "level": record.levelname.lower(),
            "event": record.getMessage(),
        }
        entry |= getattr(record, "fields", {})
        if record.exc_info:
            entry["traceback"] = self.formatException(record.exc_info)
        return json.dumps(entry, default=str)


def configure(level: str = "info", stream: TextIO | None = None) -> None:
    """Send the server's and uvicorn's logs to `stream` (standard error) as JSON."""
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(JsonFormatter())
    for name in ("crosscut.server", "uvicorn.error"):
        logger = logging.getLogger(name)
        logger.handlers = [handler]
        logger.setLevel(level.upper())
        logger.propagate = False
    logging.getLogger("uvicorn.access").disabled = True  # the server writes its own, with the calls spent
