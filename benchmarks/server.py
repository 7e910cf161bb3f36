"""The server under load: latency, the share outside the scorer, searches per second, errors, memory.

    python benchmarks/server.py CORPUS QUERIES [--index FOLDER] [--json benchmarks/results/server.json]

CORPUS and QUERIES are corpus.jsonl(.gz) and queries.jsonl(.gz) of a BEIR folder; a sample of 20,000 items is indexed
with the models in the box (kept in --index, if given). Three measurements, on one machine:

1. one client: `POST /search`, k = 10, budget = 100 spent to the end, one request after another: p50, p95, and what is
   spent outside the scorer (by the server's own account, and by the clock of the client);
2. sixteen clients for 60 s in four slices: searches per second, errors by status, growth of memory;
3. raw, before every slice: pairs per second of the scorer alone, on the very pairs that searches ask for. The bar is
   searches per second ≥ 0.85 × raw ÷ budget.

The server is a process of its own, started by `crosscut serve --preload`; the clients are another, and their processor
time is taken from the same cores.
"""

from __future__ import annotations

import argparse
import asyncio
import gzip
import json
import os
import platform
import random
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import httpx
import numpy as np

import crosscut
from crosscut.index import Index

ITEMS, K, BUDGET, CLIENTS, SLICES = 20_000, 10, 100, 16, 4


def records(path: Path) -> list[dict[str, Any]]:
    data = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    return [json.loads(line) for line in data.splitlines()]


def build(corpus: Path, folder: Path) -> None:
    items = records(corpus)
    random.Random(0).shuffle(items)
    chosen = [{"_id": item["_id"], "title": item.get("title", ""), "text": item["text"]} for item in items[:ITEMS]]
    print(f"building an index of {len(chosen)} items", flush=True)
    Index.build(chosen).save(folder)


class Raw:
    """The bound scorer alone, on the pairs of real searches, whose items are encoded before."""

    def __init__(self, folder: Path, queries: list[str]) -> None:
        index = Index.load(folder)
        scorer = index.corpus.scorer
        assert scorer is not None
        self.scorer = scorer
        found = index.search_many(queries, K, BUDGET, stop="never")
        # as searches ask: a round of 16 queries is one batch
        rounds = range(max(hits.rounds for hits in found))
        self.asked = {
            "as searches ask": [
                [(hits.query, hits.trace[number].positions) for hits in found[start : start + CLIENTS]]
                for start in range(0, len(found), CLIENTS)
                for number in rounds
            ],
            "a query's 100 pairs at once": [[(hits.query, hits.scored)] for hits in found],
        }
        self.pairs = sum(len(hits.scored) for hits in found)

    def measure(self) -> dict[str, float]:
        """Pairs per second."""
        rates = {}
        for name, batches in self.asked.items():
            started = time.perf_counter()
            for batch in batches:
                self.scorer.score_many(batch)
            rates[name] = self.pairs / (time.perf_counter() - started)
        return rates


def memory(process: int) -> int:
    """Resident bytes of a process."""
    return int(Path(f"/proc/{process}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


class Server:
    def __init__(self, folder: Path) -> None:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        command = [sys.executable, "-c", "from crosscut.cli import main; main()", "serve", str(folder), "--preload"]
        self.process = subprocess.Popen([*command, "--port", str(self.port)], stderr=subprocess.DEVNULL)
        end = time.monotonic() + 300
        while time.monotonic() < end:
            try:
                if httpx.get(f"{self.url}/ready").status_code == 200:
                    return
            except httpx.TransportError:
                time.sleep(0.2)
        raise SystemExit("the server did not start")

    def stop(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(60)


def one_client(server: Server, queries: list[str]) -> dict[str, Any]:
    latencies, outside_server, outside_all = [], [], []
    with httpx.Client(base_url=server.url, timeout=60) as client:
        for number, query in enumerate(queries):
            started = time.perf_counter()
            answer = client.post("/search", json={"query": query, "k": K, "budget": BUDGET, "stop": "never"})
            elapsed = time.perf_counter() - started
            body = answer.json()
            assert body["calls"] == BUDGET
            if number < 5:  # warm-up
                continue
            spent = body["seconds"]
            latencies.append(elapsed)
            outside_server.append((spent["fit"] + spent["select"]) / (spent["scorer"] + spent["fit"] + spent["select"]))
            outside_all.append(1 - spent["scorer"] / elapsed)
    return {
        "searches": len(latencies),
        "p50_ms": 1000 * float(np.percentile(latencies, 50)),
        "p95_ms": 1000 * float(np.percentile(latencies, 95)),
        "share_outside_scorer_in_the_loop": float(np.mean(outside_server)),
        "share_outside_scorer_of_the_whole_request": float(np.mean(outside_all)),
    }


async def many_clients(server: Server, queries: list[str], seconds: float) -> dict[str, Any]:
    """Closed loop: every client asks again as soon as it is answered. Plain sockets: the clients should be cheap."""
    statuses: dict[int, int] = {}
    latencies: list[float] = []
    end = time.perf_counter() + seconds

    async def client(number: int) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        turn = number
        while time.perf_counter() < end:
            asked = {"query": queries[turn % len(queries)], "k": K, "budget": BUDGET, "stop": "never"}
            body = json.dumps(asked).encode()
            turn += CLIENTS
            head = "POST /search HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\n"
            head += f"content-length: {len(body)}\r\n"
            started = time.perf_counter()
            writer.write(head.encode() + b"\r\n" + body)
            top = await reader.readuntil(b"\r\n\r\n")
            length = next(
                int(line.split(b":")[1]) for line in top.lower().split(b"\r\n") if line.startswith(b"content-len")
            )
            await reader.readexactly(length)
            status = int(top.split(b" ")[1])
            statuses[status] = statuses.get(status, 0) + 1
            latencies.append(time.perf_counter() - started)
        writer.close()

    begun = time.perf_counter()
    processor = time.process_time()
    await asyncio.gather(*(client(number) for number in range(CLIENTS)))
    elapsed = time.perf_counter() - begun
    return {
        "clients": CLIENTS,
        "seconds": elapsed,
        "searches": statuses.get(200, 0),
        "searches_per_second": statuses.get(200, 0) / elapsed,
        "statuses": {str(status): count for status, count in sorted(statuses.items())},
        "p50_ms": 1000 * float(np.percentile(latencies, 50)),
        "p95_ms": 1000 * float(np.percentile(latencies, 95)),
        "clients_processor_seconds": time.process_time() - processor,
    }


def machine() -> dict[str, Any]:
    text = Path("/proc/cpuinfo").read_text() if Path("/proc/cpuinfo").is_file() else ""
    name = next((line.split(":")[1].strip() for line in text.splitlines() if line.startswith("model name")), "?")
    return {"processor": name, "cores": os.cpu_count(), "python": platform.python_version()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("corpus", type=Path)
    parser.add_argument("queries", type=Path)
    parser.add_argument("--index", type=Path, default=None)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--json", type=Path, default=None)
    arguments = parser.parse_args()
    texts = [record["text"] for record in records(arguments.queries)]
    random.Random(1).shuffle(texts)
    with tempfile.TemporaryDirectory() as place:
        folder = arguments.index or Path(place) / "index"
        if not (folder / "index.json").is_file():
            build(arguments.corpus, folder)
        alone = Raw(folder, texts[: 4 * CLIENTS])
        server = Server(folder)
        try:
            single = one_client(server, texts[100:205])
            print(json.dumps(single, indent=1), flush=True)
            # warm-up: the states of queries fill their cache
            asyncio.run(many_clients(server, texts[300:], min(45.0, arguments.seconds)))
            before = memory(server.process.pid)
            slices = []
            for number in range(SLICES):  # in turns: the machine's speed drifts
                rates = alone.measure()
                part = texts[2000 + 500 * number :]
                load = asyncio.run(many_clients(server, part, arguments.seconds / SLICES))
                share = load["searches_per_second"] * BUDGET / max(rates.values())
                slices.append({"raw_pairs_per_second": rates, **load, "share_of_raw": share})
                print(json.dumps(slices[-1], indent=1), flush=True)
            after = memory(server.process.pid)
            metrics = httpx.get(f"{server.url}/metrics").text
        finally:
            code = server.stop()
    told = {line.split()[0]: float(line.split()[1]) for line in metrics.splitlines() if not line.startswith("#")}
    load = {
        "clients": CLIENTS,
        "mean_batch": told["crosscut_batch_size_sum"] / told["crosscut_batch_size_count"],
        "memory_before_bytes": before,
        "memory_after_bytes": after,
        "memory_growth": after / before - 1,
        "slices": slices,
    }
    reached = float(np.median([part["share_of_raw"] for part in slices]))
    report = {
        "machine": machine(),
        "versions": {"crosscut": crosscut.__version__, "numpy": np.__version__},
        "setting": {"items": ITEMS, "k": K, "budget": BUDGET, "method": "crosscut", "anchors": 0},
        "timing": "one client: the client's clock, sequential; sixteen clients: closed loop from another process on "
        "the same cores, whose processor time is given, in slices between which the bound scorer is measured alone, "
        "its items encoded before, on the pairs of 64 searches; a slice's share is against the faster way of asking",
        "one_client": single,
        "sixteen_clients": load,
        "bar": {"wanted_share_of_raw": 0.85, "reached": reached, "exit_code": code},
    }
    print(json.dumps({"memory_growth": load["memory_growth"], "bar": report["bar"]}, indent=1))
    if arguments.json:
        arguments.json.write_text(json.dumps(report, indent=1) + "\n", "utf-8")


if __name__ == "__main__":
    main()
