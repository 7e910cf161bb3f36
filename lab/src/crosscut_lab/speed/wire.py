"""A metered soak over HTTP scorers: pairs are counted on the wire, and reported = sent.

An endpoint in a process of its own counts the pairs that it receives for every search; it is slow, refuses, hangs up
and asks to come again. Searches with every method and budget run against it: with and without a deadline, some of them
interrupted by SIGINT, some cancelled. Of each, the calls that are reported (in the hits, or with the exception) are
compared with the pairs that have arrived.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import multiprocessing
import os
import random
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

import crosscut
from crosscut.errors import CrosscutError
from crosscut.scorers.rerank_api import RerankEndpoint

ITEMS, DIMENSIONS = 600, 16
METHODS = ("rerank", "axn@rounds=4", "axn@rounds=10", "crosscut", "adacur@first=random,rounds=5")
FAULTS = {"good": 0.9, "error": 0.03, "later": 0.03, "hang up": 0.02, "slow": 0.02}
INTERRUPTED, CANCELLED, ASYNC = 0.1, 0.06, 0.01
"""Shares of the searches."""


@dataclass
class Tally:
    """Results of the searches."""

    searches: int = 0
    pairs: int = 0
    interrupts: int = 0
    cancellations: int = 0
    failures: int = 0
    not_reported: int = 0  # interrupts outside the search itself: they carry no calls
    reported_wrongly: int = 0  # reported calls are not the pairs that arrived
    over_budget: int = 0
    sent_afterwards: int = 0
    examples: list[dict[str, Any]] = field(default_factory=list)


class Endpoint:
    """The server's side: counts the pairs of each search, named by the first word of the query."""

    def __init__(self, seed: int) -> None:
        self.counts: Counter[str] = Counter()
        self.chance = random.Random(seed)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                size = next(
                    int(line.partition(b":")[2])
                    for line in head.split(b"\r\n")
                    if line.lower().startswith(b"content-length")
                )
                body = json.loads(await reader.readexactly(size))
                if not await self.answer(body, writer):
                    break
        writer.close()

    async def answer(self, body: dict[str, Any], writer: asyncio.StreamWriter) -> bool:
        """Count and answer one request; False hangs up."""
        if "counts" in body:
            self.reply(writer, 200, {name: self.counts[name] for name in body["counts"]})
            return True
        texts = body["documents"]
        self.counts[body["query"].partition(" ")[0]] += len(texts)
        fault = self.chance.choices(list(FAULTS), list(FAULTS.values()))[0]
        if fault == "hang up":
            return False
        if fault == "error":
            self.reply(writer, 500, {"message": "no"})
        elif fault == "later":
            self.reply(writer, 429, {"message": "later"}, "retry-after: 0\r\n")
        else:
            await asyncio.sleep(0.05 if fault == "slow" else 0.001)
            results = [{"index": j, "relevance_score": (hash(text) % 1000) / 1000} for j, text in enumerate(texts)]
            self.reply(writer, 200, {"results": results})
        await writer.drain()
        return True

    @staticmethod
    def reply(writer: asyncio.StreamWriter, status: int, answer: Any, more: str = "") -> None:
        content = json.dumps(answer).encode()
        head = f"HTTP/1.1 {status} X\r\ncontent-type: application/json\r\n{more}content-length: {len(content)}\r\n\r\n"
        writer.write(head.encode() + content)


def run_endpoint(seed: int, pipe: Any) -> None:
    """Serve until the process is terminated."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)

    async def main() -> None:
        server = await asyncio.start_server(Endpoint(seed).serve, "127.0.0.1", 0)
        pipe.send(server.sockets[0].getsockname()[1])
        await server.serve_forever()

    asyncio.run(main())


@contextlib.contextmanager
def endpoint(seed: int) -> Iterator[str]:
    """Run an endpoint in a process of its own and give its address."""
    context = multiprocessing.get_context("spawn")
    here, there = context.Pipe()
    process = context.Process(target=run_endpoint, args=(seed, there), daemon=True)
    process.start()
    try:
        yield f"http://127.0.0.1:{here.recv()}/v2/rerank"
    finally:
        process.terminate()
        process.join()


class Client:
    """Makes searches and compares what they report with what has arrived."""

    def __init__(self, url: str, seed: int) -> None:
        import httpx2

        self.url, self.chance, self.tally = url, random.Random(seed), Tally()
        self.counter = httpx2.Client()
        rng = np.random.default_rng(seed)
        self.vectors = rng.normal(size=(ITEMS, DIMENSIONS))
        texts = [f"item {j}" for j in range(ITEMS)]
        self.scorers = [
            RerankEndpoint(url, batch_size=size, concurrency=at_once, first_wait=0.001, retries=2, timeout=5.0)
            for size, at_once in ((4, 2), (8, 4), (16, 1))
        ]
        anchors = crosscut.CUR(rng.normal(size=(12, DIMENSIONS)) @ self.vectors.T)
        self.searchers = [
            crosscut.Searcher(scorer.bind(texts), vectors=self.vectors, space=anchors, method=method)
            for scorer in self.scorers
            for method in METHODS
        ]
        self.index = crosscut.Index.build(texts, scorer=self.scorers[0], vectors=self.vectors, bm25=False)

    def close(self) -> None:
        """Close all connections."""
        self.counter.close()
        for scorer in self.scorers:
            scorer.close()

    def arrived(self, names: list[str]) -> int:
        """Return the pairs of these searches that the endpoint has counted."""
        counts: dict[str, int] = self.counter.post(self.url, json={"counts": names}).json()
        return sum(counts.values())

    def one(self, number: int) -> None:
        """Make one search, or a batch of three, and compare."""
        chance = self.chance
        names = [f"s{number}x{j}" for j in range(3 if chance.random() < 0.2 else 1)]
        budget, draw = chance.randrange(5, 60), chance.random()
        interrupted, cancelled = draw < INTERRUPTED, INTERRUPTED <= draw < INTERRUPTED + CANCELLED
        if draw > 1 - ASYNC:
            self.cancel_async(names[0], budget)
            return
        after = chance.random() * 0.03
        end = time.monotonic() + after if cancelled else None
        halts = [(lambda: "cancelled" if end is not None and time.monotonic() > end else None)] * len(names)
        timer = threading.Timer(after, os.kill, (os.getpid(), signal.SIGINT))
        calls: int | None = None
        ended: BaseException | None = None
        try:
            if interrupted:
                timer.start()
            hits = chance.choice(self.searchers).search_many(
                [f"{name} a query" for name in names],
                5,
                budget,
                query_vectors=np.random.default_rng(number).normal(size=(len(names), DIMENSIONS)),
                deadline=chance.choice([None, None, 0.01, 0.05, 2.0]),
                halts=halts,
            )
            calls = sum(one.calls for one in hits)
            self.tally.cancellations += any(one.stop_reason == "cancelled" for one in hits)
        except (KeyboardInterrupt, CrosscutError) as error:
            calls, ended = getattr(error, "calls", None), error
            self.tally.failures += isinstance(error, CrosscutError)
        finally:
            with contextlib.suppress(KeyboardInterrupt):  # one that comes after the end of the search
                timer.cancel()
                if interrupted:
                    timer.join()
                    time.sleep(0.001)
        self.compare(names, budget * len(names), calls, ended)

    def compare(self, names: list[str], budget: int, calls: int | None, ended: BaseException | None) -> None:
        tally, arrived = self.tally, self.arrived(names)
        if calls is not None and calls != arrived:
            time.sleep(0.1)  # written before the search ended, and not read yet
            arrived = self.arrived(names)
        tally.searches += len(names)
        tally.pairs += arrived
        tally.over_budget += arrived > budget
        tally.interrupts += isinstance(ended, KeyboardInterrupt)
        if calls is None:
            tally.not_reported += 1
        elif calls != arrived:
            tally.reported_wrongly += 1
            tally.examples.append({"reported": calls, "arrived": arrived, "ended": type(ended).__name__})
        if ended is not None and self.chance.random() < 0.05:
            time.sleep(0.02)
            tally.sent_afterwards += self.arrived(names) - arrived

    def cancel_async(self, name: str, budget: int) -> None:
        """Cancel the task of an asynchronous search: nothing leaves afterwards."""

        async def leave() -> None:
            vector = self.vectors[0]
            task = asyncio.create_task(self.index.search_async(f"{name} a query", 5, budget, query_vector=vector))
            await asyncio.sleep(self.chance.random() * 0.03)
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError, CrosscutError):
                await task

        asyncio.run(leave())
        time.sleep(0.1)  # what was on the wire
        arrived = self.arrived([name])
        time.sleep(0.05)
        self.tally.searches += 1
        self.tally.pairs += arrived
        self.tally.cancellations += 1
        self.tally.over_budget += arrived > budget
        self.tally.sent_afterwards += self.arrived([name]) - arrived


def run(searches: int, seed: int, say: Callable[[str], None]) -> dict[str, int]:
    """Make so many searches and return what came of them."""
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs ignore it
    with endpoint(seed) as url, contextlib.closing(Client(url, seed)) as client:
        number = 0
        while client.tally.searches < searches:
            with contextlib.suppress(KeyboardInterrupt):
                client.one(number)
            number += 1
            if number % 1000 == 0:
                say(f"{client.tally.searches} searches, {client.tally.pairs} pairs")
    for example in client.tally.examples:
        say(str(example))
    return {name.replace("_", " "): value for name, value in vars(client.tally).items() if name != "examples"}
