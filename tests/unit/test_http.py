"""HTTP scorers: what is sent after an interrupt or a cancellation, and within a deadline."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import crosscut
from crosscut.errors import ScorerError
from crosscut.scorers.rerank_api import RerankEndpoint
from tests.fake_endpoint import Endpoint, cohere, served, status

ITEMS = [f"{'x' * (j % 37)} {j}" for j in range(400)]
VECTORS = np.random.default_rng(0).standard_normal((400, 8))


@pytest.fixture
def endpoint() -> Iterator[Endpoint]:
    with served(cohere) as fake:
        yield fake


def pairs_received(endpoint: Endpoint) -> int:
    return sum(len(body["documents"]) for body in endpoint.bodies)


def scorer_of(endpoint: Endpoint, **settings: Any) -> RerankEndpoint:
    return RerankEndpoint(endpoint.url, **{"first_wait": 0.001, "batch_size": 8, "concurrency": 2, **settings})


def interrupt_after(endpoint: Endpoint, requests: int) -> None:
    while len(endpoint.bodies) < requests:
        time.sleep(0.005)
    os.kill(os.getpid(), signal.SIGINT)


@pytest.mark.parametrize("deadline", [None, 30.0])
def test_an_interrupt_stops_the_requests_and_reports_the_calls(endpoint: Endpoint, deadline: float | None) -> None:
    endpoint.delay = 0.05
    with scorer_of(endpoint) as scorer:
        searcher = crosscut.Searcher(vectors=VECTORS, scorer=scorer.bind(ITEMS), method="rnr")
        threading.Thread(target=interrupt_after, args=(endpoint, 8)).start()
        with pytest.raises(KeyboardInterrupt) as caught:
            searcher.search("a query", 5, 400, query_vector=np.ones(8), deadline=deadline)
        received = pairs_received(endpoint)
        time.sleep(0.3)
    assert pairs_received(endpoint) == received < 200
    assert caught.value.calls == received  # type: ignore[attr-defined]
    (hits,) = caught.value.hits  # type: ignore[attr-defined]
    assert hits.calls == received
    assert len(hits) == 5


def test_a_cancelled_search_sends_no_further_batches(endpoint: Endpoint) -> None:
    endpoint.delay = 0.05
    world = np.random.default_rng(1).standard_normal((400, 4))

    class Encoder:
        fingerprint, dimension = "e", 4

        def encode_items(self, items: Any, progress: Any = None) -> Any:
            return world[: len(items)]

        def encode_queries(self, texts: Any) -> Any:
            return np.ones((len(texts), 4))

    with scorer_of(endpoint) as scorer:
        index = crosscut.Index.build(ITEMS, scorer=scorer, encoder=Encoder(), method="rnr", bm25=False)
        before = pairs_received(endpoint)

        async def leave() -> None:
            task = asyncio.create_task(index.search_async("a query", 5, 400))
            await asyncio.sleep(0.2)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task

        asyncio.run(leave())
        left = pairs_received(endpoint) - before
        time.sleep(0.4)
    assert pairs_received(endpoint) - before <= left + 2 * 8 < 200  # what was on the wire


@pytest.mark.parametrize("deadline", [None, 20.0])
@pytest.mark.parametrize("fault", [status(500), status(429, retry_after="0"), status(0)])
def test_pairs_that_are_sent_again_stay_within_the_budget(
    endpoint: Endpoint, fault: Any, deadline: float | None
) -> None:
    endpoint.faults = [fault, fault]
    with scorer_of(endpoint, batch_size=5, concurrency=1) as scorer:
        searcher = crosscut.Searcher(vectors=VECTORS, scorer=scorer.bind(ITEMS), method="axn@first=random,rounds=2")
        try:
            calls = searcher.search("a query", 5, 40, deadline=deadline).calls
        except ScorerError as error:
            calls = error.calls
    assert calls == pairs_received(endpoint) <= 40
