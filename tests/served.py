"""A small index, its server in a thread, and scorers that fail when they are told to."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np

import crosscut
from crosscut.scorers import as_bound
from crosscut.server import Settings, make_app

WORDS = [
    *("bank", "river", "money", "cat", "dog", "tree", "house", "blue", "red", "sea"),
    *("wind", "stone", "glass", "road", "night", "day", "bird", "fish", "salt", "rain"),
]


def small_index(scorer: Any = None, n: int = 400, **settings: Any) -> crosscut.Index:
    """Texts of random words, with anchor queries: searches take many rounds and no model."""
    rng = np.random.default_rng(0)
    items = [
        {"_id": f"i{j}", "title": str(rng.choice(WORDS)), "text": " ".join(rng.choice(WORDS, 8)), "number": j}
        for j in range(n)
    ]
    queries = [" ".join(rng.choice(WORDS, 3)) for _ in range(24)]
    index = crosscut.Index.build(items, scorer=score_words, encoder=None, queries=queries, **settings)
    if scorer is not None:
        state = index.corpus
        index.scorer = crosscut.TextScorer(scorer) if not hasattr(scorer, "bind") else scorer
        index.corpus = replace(state, scorer=as_bound(index.scorer.bind(state.items.shared)))
    return index


def score_words(query: str, texts: Any) -> list[float]:
    """Words in common, and a little for every pair of letters: no two texts tie by much."""
    wanted = query.split()
    return [sum(text.count(word) for word in wanted) + 0.01 * text.count("e") - 0.001 * len(text) for text in texts]


@contextmanager
def running(app: Any) -> Iterator[str]:
    """The application behind uvicorn, as `crosscut serve` runs it, in a thread; yields its address."""
    import uvicorn

    from crosscut.server.lines import configuration

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    config = configuration(app, app.state.service.settings, port=port)
    config.timeout_graceful_shutdown = 10
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    end = time.monotonic() + 20
    while not server.started and thread.is_alive() and time.monotonic() < end:
        time.sleep(0.01)
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        server.should_exit = True
        thread.join(20)


def small_app(scorer: Any = None, **settings: Any) -> Any:
    return make_app(small_index(scorer), Settings(**settings))
