"""Prometheus metrics of one server."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from crosscut.scorers.http import RemoteScorer

LATENCIES = (0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60)


class Metrics:
    """Counters in a registry of their own, so that several servers fit in one process."""

    def __init__(self) -> None:
        self.registry = registry = CollectorRegistry()
        self._endpoint = False  # whether there are metrics of the scorer's endpoint
        self.requests = Counter("crosscut_requests", "Requests answered.", ["route", "status"], registry=registry)
        self.latency = Histogram(
            "crosscut_request_seconds", "Time to answer.", ["route"], buckets=LATENCIES, registry=registry
        )
        self.searches = Counter("crosscut_searches", "Searches made.", ["method", "stop_reason"], registry=registry)
        self.calls = Counter("crosscut_scorer_calls", "Pairs handed to the scorer.", ["route"], registry=registry)
        self.cost = Counter(
            "crosscut_cost", "Money spent on the scorer, where it has a price.", ["route"], registry=registry
        )
        self.cached = Counter("crosscut_cached_pairs", "Pairs whose score was known.", registry=registry)
        self.errors = Counter("crosscut_scorer_errors", "Failures of the scorer.", ["error"], registry=registry)
        self.waiting_seconds = Histogram(
            "crosscut_queue_seconds", "Time in the queue.", buckets=LATENCIES, registry=registry
        )
        self.batches = Histogram(
            "crosscut_batch_size", "Searches in a batch.", buckets=(1, 2, 4, 8, 16, 32, 64), registry=registry
        )
        self.queue = Gauge("crosscut_queue_length", "Requests that wait.", registry=registry)
        self.items = Gauge("crosscut_items", "Items in the index.", registry=registry)

    def watch(self, queue: Callable[[], int], items: Callable[[], int], scorers: Sequence[object]) -> None:
        """Read these when metrics are asked for."""
        self.queue.set_function(queue)
        self.items.set_function(items)
        sent = list({id(one): one.sent for one in scorers if isinstance(one, RemoteScorer)}.values())  # each once
        if sent and not self._endpoint:
            self._endpoint = True
            for name, text in (("requests", "Requests sent to the scorer."), ("retries", "Requests sent again.")):
                gauge = Gauge(f"crosscut_endpoint_{name}", text, registry=self.registry)
                gauge.set_function(partial(_sum, sent, name))

    def text(self) -> bytes:
        return generate_latest(self.registry)


def _sum(sent: Sequence[object], name: str) -> float:
    return float(sum(getattr(one, name) for one in sent))
