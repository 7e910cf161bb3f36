"""A small index, its server in process or behind uvicorn, and a scorer that counts and waits."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import numpy as np
from starlette.testclient import TestClient

import crosscut
from crosscut.server import Settings, make_app

WORDS = [
    *("bank", "river", "money", "cat", "dog", "tree", "house", "blue", "red", "sea"),
    *("wind", "stone", "glass", "road", "night", "day", "bird", "fish", "salt", "rain"),
]


def score_words(query: str, texts: Any) -> list[float]:
    """Words in common, and a little for every pair of letters: no two texts tie by much."""
    wanted = query.split()
    return [sum(text.count(word) for word in wanted) + 0.01 * text.count("e") - 0.001 * len(text) for text in texts]


def small_items(n: int, rng: np.random.Generator) -> list[dict[str, Any]]:
    return [
        {"_id": f"i{j}", "title": str(rng.choice(WORDS)), "text": " ".join(rng.choice(WORDS, 8)), "number": j}
        for j in range(n)
    ]


def small_index(scorer: Any = None, n: int = 400, **settings: Any) -> crosscut.Index:
    """Texts of random words, with anchor queries: searches take many rounds and no model.

    A function scores searches only: the anchor queries are scored by `score_words`. A scorer behind HTTP has none.
    """
    rng = np.random.default_rng(0)
    items = small_items(n, rng)
    if hasattr(scorer, "bind"):
        return crosscut.Index.build(items, scorer=scorer, encoder=None, method="hybrid", **settings)
    current: list[Any] = [score_words]
    queries = [" ".join(rng.choice(WORDS, 3)) for _ in range(24)]
    model = crosscut.TextScorer(lambda query, texts: current[0](query, texts), fingerprint="words")
    index = crosscut.Index.build(items, scorer=model, encoder=None, queries=queries, **settings)
    current[0] = scorer or score_words
    return index


def client(app: Any, **options: Any) -> TestClient:
    """The application in process, under a name that it answers to; use it as a context manager."""
    return TestClient(app, base_url="http://localhost", **options)


def small_client(scorer: Any = None, **settings: Any) -> TestClient:
    return client(make_app(small_index(scorer), Settings(**settings)))


def together(client: TestClient, bodies: list[dict[str, Any]], path: str = "/search") -> list[Any]:
    """The answers to requests that are sent at the same time."""
    with ThreadPoolExecutor(len(bodies)) as pool:
        return list(pool.map(lambda body: client.post(path, json=body), bodies))


def until(condition: Callable[[], bool], seconds: float = 30) -> None:
    """Wait for something that happens in another thread."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.02)


def metric(client: TestClient, name: str) -> float:
    lines = [line for line in client.get("/metrics").text.splitlines() if line.startswith(name + " ")]
    return float(lines[0].split()[-1]) if lines else 0.0


class Gate:
    """A scorer that counts pairs by query; queries that begin with "slow" wait while it is closed."""

    def __init__(self) -> None:
        self.pairs: dict[str, int] = {}
        self.entered, self.open = threading.Event(), threading.Event()
        self.open.set()

    def __call__(self, query: str, texts: Any) -> list[float]:
        self.pairs[query] = self.pairs.get(query, 0) + len(texts)
        if query.startswith("slow"):
            self.entered.set()
            self.open.wait(30)
        return score_words(query, texts)


@contextmanager
def running(app: Any) -> Iterator[str]:
    """The application behind uvicorn in a thread; yields its address."""
    import uvicorn

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    server = uvicorn.Server(
        uvicorn.Config(app, port=port, log_config=None, access_log=False, timeout_graceful_shutdown=10)
    )
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    until(lambda: server.started or not thread.is_alive(), 20)
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        server.should_exit = True
        thread.join(20)
