"""Structured logs, one JSON object a line, and Prometheus metrics.

Queries, documents and headers are never logged, nor the text of an exception, which may quote any of them: an exception
is logged by its type and by the places in the code that it came through.
"""

from __future__ import annotations

import json
import logging
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, TextIO

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from crosscut.errors import InputError

LOGGER = logging.getLogger("crosscut.server")
LEVELS = ("debug", "info", "warning", "error")
LONGEST_EVENT = 500  # characters
LATENCIES = (0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60)


def outline(error: BaseException) -> list[str]:
    """Return types and places of an exception and of its causes, without their messages."""
    causes: list[str] = []
    cause: BaseException | None = error
    while cause is not None and len(causes) < 5:
        frames = traceback.extract_tb(cause.__traceback__)[-8:]
        places = " < ".join(f"{Path(frame.filename).name}:{frame.lineno} {frame.name}" for frame in reversed(frames))
        causes.append(f"{type(cause).__name__} at {places or '?'}")
        cause = cause.__cause__ or cause.__context__
    return causes


class JsonFormatter(logging.Formatter):
    """Format a record as one line of JSON; `extra={"fields": {…}}` adds to it."""

    def format(self, record: logging.LogRecord) -> str:
        entry: dict[str, Any] = {
            "time": time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created)) + f".{int(record.msecs):03d}Z",
            "level": record.levelname.lower(),
            "event": record.getMessage().partition("\n")[0][:LONGEST_EVENT],  # asyncio quotes exceptions below
        }
        entry |= getattr(record, "fields", {})
        if record.exc_info and record.exc_info[1] is not None:
            entry["traceback"] = outline(record.exc_info[1])
        return json.dumps(entry, default=str)


def configure_logs(level: str = "info", stream: TextIO | None = None) -> None:
    """Send the logs of the server, uvicorn and asyncio to `stream` (standard error) as JSON."""
    if level.lower() not in LEVELS:
        raise InputError(f"the level of the log is debug, info, warning or error; got {level!r}")
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(JsonFormatter())
    for name in ("crosscut", "uvicorn.error", "asyncio"):
        logger = logging.getLogger(name)
        logger.handlers = [handler]
        logger.setLevel(level.upper())
        logger.propagate = False
    logging.getLogger("uvicorn.access").disabled = True  # the server writes its own, with the calls made


class Metrics:
    """Counters in a registry of their own, so that several servers fit in one process."""

    def __init__(self) -> None:
        self.registry = registry = CollectorRegistry()
        make = partial(Counter, registry=registry)
        times = partial(Histogram, buckets=LATENCIES, registry=registry)
        self.requests = make("crosscut_requests", "Requests answered.", ["route", "status"])
        self.latency = times("crosscut_request_seconds", "Time to answer.", ["route"])
        self.searches = make("crosscut_searches", "Searches made.", ["method", "stop_reason"])
        self.calls = make("crosscut_scorer_calls", "Pairs handed to the scorer.", ["route"])
        self.cost = make("crosscut_cost", "Money spent on the scorer, where it has a price.", ["route"])
        self.cached = make("crosscut_cached_pairs", "Pairs whose score was known.")
        self.errors = make("crosscut_errors", "Searches that failed.", ["error"])
        self.waiting_seconds = times("crosscut_queue_seconds", "Time in the queue.")
        self.batches = Histogram(
            "crosscut_batch_size", "Searches in a batch.", buckets=(1, 2, 4, 8, 16, 32, 64), registry=registry
        )
        self.queue = Gauge("crosscut_queue_length", "Requests that wait.", registry=registry)
        self.items = Gauge("crosscut_items", "Items in the indexes.", registry=registry)

    def watch(self, queue: Callable[[], int], items: Callable[[], int], scorers: Sequence[Any]) -> None:
        """Read these when metrics are asked for; of scorers behind HTTP also the requests sent."""
        self.queue.set_function(queue)
        self.items.set_function(items)
        sent = list({id(scorer): scorer.sent for scorer in scorers if hasattr(scorer, "sent")}.values())
        for name, text in (("requests", "Requests sent to the scorer."), ("retries", "Requests sent again.")):
            if sent:
                gauge = Gauge(f"crosscut_endpoint_{name}", text, registry=self.registry)
                gauge.set_function(lambda name=name: float(sum(getattr(one, name) for one in sent)))  # type: ignore[misc]

    def text(self) -> bytes:
        return generate_latest(self.registry)
