"""Metered searches with HTTP scorers on loopback: are as many pairs reported as were sent, and never over budget?

A server in this process counts the pairs of every request as it arrives; some requests it fails, answers late or cuts.
Searches run with deadlines, interrupts (SIGINT at a random moment) and cancellations among them.
"""

from __future__ import annotations

import asyncio
import json
import random
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import numpy as np

import crosscut
from crosscut.errors import CrosscutError

METHODS = ("rerank", "axn", "crosscut", "crosscut@rounds=20")
N = 80


class Counted(ThreadingHTTPServer):
    """A rerank endpoint that counts pairs; `misbehave` says how often it fails, and how often it is late."""

    daemon_threads = True

    def __init__(self, misbehave: float, seed: int) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.misbehave, self.rng, self.lock = misbehave, random.Random(seed), threading.Lock()
        self.pairs = 0

    def handle_error(self, *_: Any) -> None:
        """Say nothing of clients that hang up: they are a part of the test."""

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/rerank"


class Handler(BaseHTTPRequestHandler):
    server: Counted
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        texts = body.get("documents") or body.get("texts") or []
        with self.server.lock:
            self.server.pairs += len(texts)
            chance = self.server.rng.random()
        if chance < self.server.misbehave / 2:
            self.send_response(503)
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        if chance < self.server.misbehave:
            time.sleep(0.02)
        scores = [{"index": n, "relevance_score": (hash(text) % 1000) / 1000} for n, text in enumerate(texts)]
        data = json.dumps({"results": scores}).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_: Any) -> None:
        """Print nothing."""


def run(searches: int, seed: int, tell: Callable[[str], None], misbehave: float = 0.1) -> dict[str, int]:
    """Make so many searches; return the counts, of which the wrong ones are to be 0."""
    rng = random.Random(seed)
    server = Counted(misbehave, seed)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    outcomes: Counter[str] = Counter()
    vectors = np.random.default_rng(seed).normal(size=(N, 6)).astype(np.float32)

    def encode(texts: Any) -> Any:
        return np.asarray([vectors[hash(text) % N] for text in texts])

    index = crosscut.Index.build([f"text {n}" for n in range(N)], scorer=server.url, encoder=encode)
    try:
        for number in range(searches):
            kind = rng.choices(("plain", "deadline", "interrupt", "cancel"), (0.75, 0.1, 0.1, 0.05))[0]
            outcomes["searches"] += 1
            outcomes[kind] += 1
            budget = rng.choice((10, 40, 70))
            before = server.pairs
            reported = one_search(index, f"query {number}", rng, kind, budget)
            count = settled(server)
            if kind in ("interrupt", "cancel"):
                time.sleep(0.1)
                outcomes["sent afterwards"] += server.pairs - count
            sent = server.pairs - before
            outcomes["pairs"] += sent
            outcomes["over budget"] += int(sent > budget)
            outcomes["reported wrongly"] += int(reported is not None and reported != sent)
            outcomes["not reported"] += int(reported is None and sent > 0 and kind != "cancel")
            if number % 1000 == 999:
                tell(str(dict(outcomes)))
    finally:
        server.shutdown()
        server.server_close()
    return dict(outcomes)


def settled(server: Counted) -> int:
    """Return the pairs counted, once no request has arrived for some milliseconds."""
    count = -1
    while count != server.pairs:
        count = server.pairs
        time.sleep(0.004)
    return count


def one_search(index: Any, query: str, rng: random.Random, kind: str, budget: int) -> int | None:
    """Make one search; return the calls that it reports."""
    method = rng.choice(METHODS)
    how: dict[str, Any] = {"deadline": rng.uniform(0.001, 0.05)} if kind == "deadline" else {}
    try:
        if kind == "cancel":

            async def cancelled() -> Any:
                task = asyncio.ensure_future(index.search_async(query, 5, budget, method=method))
                await asyncio.sleep(rng.uniform(0, 0.02))
                task.cancel()
                return await task

            return int(asyncio.run(cancelled()).calls)
        if kind == "interrupt":
            signal.signal(signal.SIGALRM, interrupt)
            signal.setitimer(signal.ITIMER_REAL, rng.uniform(0.001, 0.02))
        try:
            return int(index.search(query, 5, budget, method=method, **how).calls)
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
    except (CrosscutError, KeyboardInterrupt, asyncio.CancelledError) as error:
        calls = getattr(error, "calls", None)
        return None if calls is None else int(calls)


def interrupt(*_: Any) -> None:
    raise KeyboardInterrupt
