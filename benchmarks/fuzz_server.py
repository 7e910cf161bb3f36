"""Attacks on the server: malformed and oversized requests, half-sent ones, clients that hang up, endpoints that die.

    python benchmarks/fuzz_server.py [--requests 100000] [--seed 0] [--json benchmarks/results/fuzz_server.json]

The server is a process of its own, as `crosscut serve` runs it, with a token and a scorer behind an HTTP endpoint with
a key. One client, so that the server is idle but for it, sends in turn, 25 requests behind each other on a connection,

    schema      requests that schemathesis draws from the OpenAPI schema, valid and invalid ones
    values      the right fields with wrong values, names of methods with wrong settings among them
    bytes       requests that are cut off, garbled, or no HTTP at all
    large       megabytes of brackets, lists of 100,000 numbers, strings that never end

then come 1,200 half-sent requests at once, clients that hang up, and an endpoint that is slow, fails, echoes or hangs
up. The verdict: no 500, no answer over 2 s (of the server's work; and on the clock, which counts on a machine that does
nothing else), memory within 1.5 × of what it was at rest, no secret, query or address in a log line, calls reported =
pairs that the endpoint saw, the same hits at the end as at the beginning.

    python benchmarks/fuzz_server.py --minutes 10 [--clients 64] [--json benchmarks/results/crowd.json]

is another attack: so many clients at once, each of which asks again as soon as it is answered. No error but 429 (the
queue is shorter than the crowd), and no growth: memory at the end within 5 % of what it was after a fifth of the time.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent))
os.environ["CROSSCUT_TOKEN"] = TOKEN = "fuzz-token-5e1d"
os.environ["FUZZ_KEY"] = KEY = "fuzz-key-9b72"

from tests.fake_endpoint import Endpoint, cohere, served
from tests.served import WORDS

CANARY = "canaryquery"
HEADERS = {"authorization": f"Bearer {TOKEN}", "content-type": "application/json", "host": "localhost"}
SLOW = 2.0
SHARES = {"schema": 0.01, "values": 0.585, "bytes": 0.4, "large": 0.005}
TOGETHER = 25  # requests on their way at a time
NAMES = ("crosscut", "rnr", "hybrid", "anncur", "adacur", "axn", "tour", "exact", "item-cur", "magic", "")
SETTINGS = (
    "rounds",
    "first",
    "select",
    "epsilon",
    "first_share",
    "shortlist",
    "order",
    "stretch",
    "ridge",
    "mix",
    "split",
)
RERANKING = ("/v2/rerank", "/v1/rerank", "/rerank")
FIELDS = ("query", "k", "budget", "method", "first_ids", "filter", "deadline", "stop", "target_recall", "trace")
LARGE: dict[str, Callable[[], bytes]] = {
    "lists in a list": lambda: _filter(b"[]," * 1_300_000 + b"[]"),
    "objects in a list": lambda: _filter(b"{}," * 1_300_000 + b"{}"),
    "numbers": lambda: _filter(b"1," * 1_900_000 + b"1"),
    "100,000 numbers": lambda: _filter(b",".join(b"%d" % j for j in range(100_000))),
    "members": lambda: b'{"query": "a", ' + b",".join(b'"f%d": 1' % j for j in range(300_000)) + b"}",
    "nested": lambda: b"[" * 3_900_000,
    "quotes": lambda: b'"' * 3_900_000,
    "an open string": lambda: b'{"query": "' + b'\\"' * 1_900_000,
    "a long number": lambda: b"9" * 3_900_000,
    "a long query": lambda: b'{"query": "' + b"a[,{:" * 780_000 + b'"}',
    "documents": lambda: b'{"query": "a", "documents": [' + b'"a",' * 900_000 + b'"a"]}',
    "too much": lambda: b" " * (5 << 20),
}


def _filter(values: bytes) -> bytes:
    return b'{"query": "a", "filter": {"number": [' + values + b"]}}"


class Record:
    """What came back."""

    def __init__(self) -> None:
        self.statuses: dict[str, Counter[str]] = {}
        self.slowest: dict[str, float] = {}
        self.late: Counter[str] = Counter()
        self.process = 0  # the server's
        self.work: dict[str, float] = {}  # most processor time of the server for one answer
        self.broken: list[str] = []
        self.leaks = 0
        self.told = 0.0

    def add(self, source: str, status: int, content: bytes, seconds: float, what: bytes = b"") -> None:
        self.statuses.setdefault(source, Counter())[str(status) if status else "closed"] += 1
        self.slowest[source] = max(self.slowest.get(source, 0.0), seconds)
        self.late[source] += seconds > SLOW
        if status == 500 or (status > 500 and source in SHARES and status != 504):
            self.broken.append(f"{source}: {status} {content[:300]!r} for {what[:200]!r}")
        if time.monotonic() > self.told + 20:
            self.told = time.monotonic()
            print(f"{self.requests:,} requests, now {source}", file=sys.stderr, flush=True)
        self.leaks += (TOKEN.encode() in content) + (KEY.encode() in content)

    @property
    def requests(self) -> int:
        return sum(sum(counts.values()) for counts in self.statuses.values())


class Client:
    """One connection after another, each kept as long as the server keeps it."""

    def __init__(self, port: int, record: Record) -> None:
        self.port, self.record = port, record
        self.line: socket.socket | None = None
        self.waiting: list[tuple[str, bytes]] = []

    def ask(self, source: str, method: str, path: str, body: bytes = b"") -> tuple[int, bytes]:
        """One request, and its answer."""
        return self._exchange(source, [(f"{method} {path}", body)])[0]

    def later(self, source: str, path: str, body: bytes) -> None:
        """One request of many that go out together; the answers are read in order."""
        self.waiting.append((f"POST {path}", body))
        if len(self.waiting) == TOGETHER:
            self.flush(source)

    def flush(self, source: str) -> None:
        asked, self.waiting = self.waiting, []
        self._exchange(source, asked)

    def _exchange(self, source: str, asked: list[tuple[str, bytes]]) -> list[tuple[int, bytes]]:
        """The answers to all; the time of all together bounds that of each."""
        started, worked = time.perf_counter(), processor(self.record.process)
        answers: list[tuple[int, bytes]] = []
        while len(answers) < len(asked):
            fresh, before = self.line is None, len(answers)
            self.line = self.line or socket.create_connection(("127.0.0.1", self.port), timeout=120)
            try:
                self._send(self.line, [raw(*request) for request in asked[before:]])
                with self.line.makefile("rb") as file:
                    while len(answers) < len(asked):
                        status, content, last = _answer(file)
                        answers.append((status, content))
                        if last:
                            raise ConnectionResetError
            except OSError:  # a refused body's connection is closed: what came behind it is asked again
                self.line.close()
                self.line = None
                if fresh and len(answers) == before:
                    answers.append((0, b""))
        seconds, work = time.perf_counter() - started, processor(self.record.process) - worked
        self.record.work[source] = max(self.record.work.get(source, 0.0), work)
        if len(asked) > 1 and max(seconds, work) > SLOW / 2:  # which of them was it?
            return [self._exchange(source, [request])[0] for request in asked]
        for (_, body), (status, content) in zip(asked, answers, strict=True):
            self.record.add(source, status, content, seconds, body)
        return answers

    def _send(self, line: socket.socket, requests: list[bytes]) -> None:
        try:
            line.sendall(b"".join(requests))
        except OSError:  # closed in the middle of a body: its answer may have come all the same
            if len(requests) == 1:
                return
            raise


def _answer(file: Any) -> tuple[int, bytes, bool]:
    """Status and content of the next answer, and whether the connection ends with it."""
    head = b""
    while not head.endswith(b"\r\n\r\n"):
        line = file.readline(65536)
        if not line:
            raise ConnectionResetError
        head += line
    head = head.lower()
    size = int(head.partition(b"content-length:")[2].partition(b"\r")[0])
    return int(head[9:12]), file.read(size), b"connection: close" in head


def schema(client: Client, count: int) -> None:
    """Requests that schemathesis draws from the schema of the running server."""
    import schemathesis
    from hypothesis import HealthCheck, Phase, given, settings

    text = client.ask("rest", "GET", "/openapi.json")[1]
    results: list[Any] = list(schemathesis.openapi.from_dict(json.loads(text)).get_all_operations())
    for operation in (result.ok() for result in results):
        if operation.path not in ("/search", *RERANKING):
            continue
        for mode in ("POSITIVE", "NEGATIVE"):

            @settings(
                max_examples=max(count // 4, 1),
                deadline=None,
                database=None,
                phases=[Phase.generate],
                suppress_health_check=list(HealthCheck),
            )
            @given(case=operation.as_strategy(generation_mode=getattr(schemathesis.GenerationMode, mode)))
            def run(case: Any) -> None:
                body = case.body if isinstance(case.body, bytes) else json.dumps(case.body, default=str).encode()
                client.later("schema", case.path, body)

            run()
    client.flush("schema")


def values(client: Client, count: int, chance: random.Random) -> None:
    for _ in range(count):
        body = {
            name: wrong(chance, 3)
            for name in chance.sample((*FIELDS, "compare", "documents", "x"), chance.randrange(6))
        }
        if chance.random() < 0.7:
            body["query"] = "red cat"
        if chance.random() < 0.4:
            told = ",".join(f"{chance.choice(SETTINGS)}={wrong(chance, 0)}" for _ in range(chance.randrange(3)))
            body["method"] = f"{chance.choice(NAMES)}@{told}"
        if chance.random() < 0.3:
            body["filter"] = {chance.choice(("number", "title", "")): wrong(chance, 2)}
        path = chance.choice(("/search", "/search", "/search", chance.choice(RERANKING)))
        client.later("values", path, json.dumps(body if chance.random() < 0.95 else wrong(chance, 4)).encode())
    client.flush("values")


def wrong(chance: random.Random, depth: int) -> Any:
    """Any JSON value."""
    kind = chance.randrange(9 if depth else 6)
    if kind == 0:
        return chance.choice((None, True, False))
    if kind == 1:
        return chance.choice((0, 1, 2, 10, 40, -1, 2**31, 2**63, 10**30, chance.randrange(-50, 400)))
    if kind == 2:
        return chance.choice((0.0, 0.5, 0.999, 1e-300, 1e300, float("nan"), float("inf"), -1.5, chance.random()))
    if kind in (3, 4):
        return chance.choice(
            (*WORDS, *NAMES, "", "i1", "i399", "top", "softmax", "dense", "none", "true", "\ud800", "a\x00b")
        )
    if kind == 5:
        return "".join(chr(chance.randrange(1, 0xD000)) for _ in range(chance.randrange(30)))
    if kind == 6:
        return [wrong(chance, depth - 1) for _ in range(chance.randrange(5))]
    keys = ("gt", "gte", "lt", "lte", "ne", "number", "", "text")
    return {chance.choice(keys): wrong(chance, depth - 1) for _ in range(chance.randrange(4))}


def raw(start: str, body: bytes) -> bytes:
    head = "".join(f"{name}: {value}\r\n" for name, value in HEADERS.items())
    return f"{start} HTTP/1.1\r\n{head}content-length: {len(body)}\r\n\r\n".encode() + body


def garbled(port: int, count: int, record: Record, chance: random.Random) -> None:
    """Requests cut off, garbled or never begun, each on a connection of its own."""
    whole = raw("POST /search", b'{"query": "red cat", "budget": 20}')
    for _ in range(count):
        data = bytearray(whole)
        kind = chance.randrange(3)
        if kind == 0:
            data = data[: chance.randrange(1, len(data))]
        elif kind == 1:
            for _ in range(chance.randrange(1, 12)):
                data[chance.randrange(len(data))] = chance.randrange(256)
        else:
            data = bytearray(chance.randbytes(chance.randrange(1, 400)))
        started = time.perf_counter()
        said = b""
        with socket.create_connection(("127.0.0.1", port), timeout=60) as line:
            try:
                line.sendall(bytes(data))
                line.shutdown(socket.SHUT_WR)
                while part := line.recv(65536):
                    said += part
            except ConnectionError:
                pass
        status = int(said[9:12]) if said.startswith(b"HTTP/1.1 ") else 0
        record.add("bytes", status, said, time.perf_counter() - started, bytes(data))


def large(client: Client, count: int) -> dict[str, Any]:
    """Every kind in turn; the time of each."""
    told: dict[str, Any] = {}
    bodies = {name: make() for name, make in LARGE.items()}
    for number in range(max(count, len(LARGE))):
        name = list(LARGE)[number % len(LARGE)]
        body = bodies[name]
        started = time.perf_counter()
        status, _ = client.ask("large", "POST", "/search", body)
        seconds = time.perf_counter() - started
        old = told.get(name, {"seconds": 0.0})
        told[name] = {"status": status, "megabytes": round(len(body) / 1e6, 1), "seconds": max(old["seconds"], seconds)}
    return told


def half_sent(client: Client, count: int) -> dict[str, Any]:
    whole = raw("POST /search", b'{"query": "red cat", "budget": 20}')
    lines = [socket.create_connection(("127.0.0.1", client.port), timeout=60) for _ in range(count)]
    try:
        for number, line in enumerate(lines):
            try:
                line.sendall([whole[:30], whole[:-3], b"G"][number % 3])
            except ConnectionError:  # it had to make room
                continue
        client.line = None
        seconds = []
        for _ in range(10):
            started = time.perf_counter()
            client.ask("half-sent", "GET", "/health")
            client.ask("half-sent", "POST", "/search", b'{"query": "red cat", "budget": 20}')
            seconds.append(time.perf_counter() - started)
    finally:
        for line in lines:
            line.close()
    return {"connections": count, "health_and_search_seconds": {"median": sorted(seconds)[5], "most": max(seconds)}}


def hang_ups(client: Client, endpoint: Endpoint, count: int) -> dict[str, Any]:
    """Clients that ask for 40 calls each and leave at once, behind one that the endpoint keeps busy."""
    before, paid = len(endpoint.bodies), metric(client, "crosscut_scorer_calls_total")
    endpoint.delay = 0.5
    with ThreadPoolExecutor(1) as pool:
        other = Client(client.port, client.record)
        first = pool.submit(
            other.ask, "hang-ups", "POST", "/search", b'{"query": "red", "budget": 4, "method": "hybrid"}'
        )
        time.sleep(0.2)
        for number in range(count):
            with socket.create_connection(("127.0.0.1", client.port), timeout=60) as line:
                line.sendall(raw("POST /search", b'{"query": "%s %d", "budget": 40}' % (CANARY.encode(), number)))
                time.sleep(0.002)
        assert first.result()[0] == 200
    endpoint.delay = 0.0
    while metric(client, "crosscut_queue_length") > 0:
        time.sleep(0.05)
    client.ask("hang-ups", "POST", "/search", b'{"query": "after", "budget": 20, "method": "hybrid"}')
    time.sleep(1.0)  # the requests of those who left are written down when their searches end
    seen = sum(len(body["documents"]) for body in endpoint.bodies[before:])
    return {
        "clients": count,
        "pairs_if_all_were_searched": 40 * count,
        "pairs_of_those_who_left": sum(len(b["documents"]) for b in endpoint.bodies[before:] if CANARY in b["query"]),
        "pairs_seen": seen,
        "calls_reported": metric(client, "crosscut_scorer_calls_total") - paid,
    }


def dying(client: Client, endpoint: Endpoint, count: int, chance: random.Random) -> dict[str, Any]:
    """Four clients while the endpoint changes its mood all the time."""
    moods: list[Any] = [
        None,
        lambda body: (500, {}, {"echo": body, "key": KEY}),
        lambda body: (429, {"retry-after": "0"}, {"echo": body}),
        lambda body: (401, {}, {"echo": body, "key": KEY}),
        lambda body: (200, {}, {"wrong": body}),
        lambda body: (200, {}, {"results": [{"index": 0, "relevance_score": float("nan")}]}),
        lambda body: (0, {}, None),
    ]
    before, paid = (
        sum(len(body["documents"]) for body in endpoint.bodies),
        metric(client, "crosscut_scorer_calls_total"),
    )
    foreign = 0

    def one(number: int) -> None:
        nonlocal foreign
        body = b'{"query": "%s%dx", "budget": 20, "deadline": 5}' % (CANARY.encode(), number)
        _, content = Client(client.port, client.record).ask("dying", "POST", "/search", body)
        foreign += sum(
            CANARY.encode() in part for part in content.replace(b"%s%dx" % (CANARY.encode(), number), b"").split()
        )
        foreign += endpoint.url.encode() in content

    with ThreadPoolExecutor(4) as pool:
        for start in range(0, count, 20):
            endpoint.always, endpoint.delay = chance.choice(moods), chance.choice((0.0, 0.0, 0.05))
            list(pool.map(one, range(start, start + 20)))
    endpoint.always, endpoint.delay = None, 0.0
    seen = sum(len(body["documents"]) for body in endpoint.bodies) - before
    return {
        "searches": count,
        "answers_with_anothers_query_or_the_address": foreign,
        "pairs_seen_with_retries": seen,
        "calls_reported": metric(client, "crosscut_scorer_calls_total") - paid,
    }


def metric(client: Client, name: str) -> float:
    lines = client.ask("rest", "GET", "/metrics")[1].decode().splitlines()
    return sum(float(line.split()[-1]) for line in lines if line.startswith((f"{name} ", f"{name}{{")))


def processor(process: int) -> float:
    """Seconds of processor time that a process has taken; on Linux."""
    if not process:
        return 0.0
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def memory(process: int, field: str = "VmRSS") -> float:
    """Megabytes; on Linux."""
    lines = Path(f"/proc/{process}/status").read_text().splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith(field))


def serve(port: int, endpoint: str) -> None:
    """The server's process."""
    from tests.served import small_index

    import crosscut.server
    from crosscut.scorers.rerank_api import RerankEndpoint

    scorer = RerankEndpoint(endpoint, key_env="FUZZ_KEY", batch_size=10, concurrency=4, retries=1, first_wait=0.01)
    limits = crosscut.server.Settings(max_budget=40, budget=20, max_k=20, max_deadline=60.0, queue=40)
    crosscut.server.serve(small_index(scorer), limits, port=port, log_level="debug")


def started(port: int, endpoint: str, log: Any) -> Iterator[subprocess.Popen[bytes]]:
    command = [sys.executable, __file__, "--serve", str(port), "--endpoint", endpoint]
    process = subprocess.Popen(command, stderr=log)
    try:
        end = time.monotonic() + 120
        while time.monotonic() < end and process.poll() is None:
            try:
                socket.create_connection(("127.0.0.1", port), timeout=1).close()
                break
            except OSError:
                time.sleep(0.1)
        yield process
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(60)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--requests", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", type=Path, default=None)
    parser.add_argument("--minutes", type=float, default=0.0)
    parser.add_argument("--clients", type=int, default=64)
    parser.add_argument("--serve", type=int, default=None, help=argparse.SUPPRESS)
    parser.add_argument("--endpoint", default="", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.serve is not None:
        serve(arguments.serve, arguments.endpoint)
        return
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    with served(cohere) as endpoint, tempfile.TemporaryFile() as log:
        for process in started(port, endpoint.url, log):
            if arguments.minutes:
                report = crowd(port, process.pid, arguments.clients, arguments.minutes)
            else:
                report = attack(port, process.pid, endpoint, arguments.requests, random.Random(arguments.seed))
        log.seek(0)
        lines = log.read().decode("utf-8", "replace").splitlines()
    text = "\n".join(lines)
    secrets = (TOKEN, KEY, CANARY, endpoint.url.split("/")[2])
    report["log"] = {
        "lines": len(lines),
        "longest": max(map(len, lines)),
        "that_are_json": sum(line.startswith("{") and line.endswith("}") for line in lines),
        "with_a_secret_a_query_or_the_address": sum(any(word in line for word in secrets) for line in lines),
        "errors": sum('"level": "error"' in line and '"status": 50' not in line for line in lines),
    }
    report["seed"], report["python"], report["load"] = arguments.seed, sys.version.split()[0], os.getloadavg()
    report["verdict"] = report.get("verdict") or verdict(report)
    print(json.dumps(report, indent=1))
    if text.count('"traceback"'):
        print(next(line for line in lines if '"traceback"' in line)[:1000])
    if arguments.json:
        arguments.json.write_text(json.dumps(report, indent=1) + "\n", "utf-8")


def attack(port: int, process: int, endpoint: Endpoint, count: int, chance: random.Random) -> dict[str, Any]:
    record, began = Record(), time.perf_counter()
    record.process = process
    client = Client(port, record)
    asked = b'{"query": "red cat sea", "k": 5, "budget": 20, "method": "crosscut@rounds=4"}'
    first = json.loads(client.ask("rest", "POST", "/search", asked)[1])["hits"]
    for _ in range(100):
        client.ask("rest", "POST", "/search", b'{"query": "red cat", "trace": true, "compare": true}')
    rest = memory(process)
    report: dict[str, Any] = {}
    peaks: dict[str, float] = {}
    phases: dict[str, Callable[[], Any]] = {
        "schema": lambda: schema(client, int(count * SHARES["schema"])),
        "values": lambda: values(client, int(count * SHARES["values"]), chance),
        "bytes": lambda: garbled(port, int(count * SHARES["bytes"]), record, chance),
        "large": lambda: large(client, int(count * SHARES["large"])),
        "half_sent": lambda: half_sent(client, 1200),
        "hang_ups": lambda: hang_ups(client, endpoint, 100),
        "dying_endpoint": lambda: dying(client, endpoint, max(200, count // 100), chance),
    }
    for name, phase in phases.items():
        print(f"{time.perf_counter() - began:.0f} s: {name}", file=sys.stderr, flush=True)
        told = phase()
        peaks[name] = memory(process, "VmHWM")
        report |= {} if told is None else {name: told}
    again = json.loads(client.ask("rest", "POST", "/search", asked)[1])["hits"]
    for line in record.broken[:10]:
        print(line)
    return {
        "requests": record.requests,
        "seconds": time.perf_counter() - began,
        "statuses": {source: dict(sorted(counts.items())) for source, counts in record.statuses.items()},
        "status_500_or_unexpected": len(record.broken),
        "slowest_seconds": record.slowest,
        "slowest_seconds_of_the_servers_processor_time": record.work,
        "over_2_seconds": {source: number for source, number in record.late.items() if number},
        "megabytes": {"at_rest": rest, "at_most_until": peaks, "at_the_end": memory(process)},
        "secrets_in_answers": record.leaks,
        "same_hits_afterwards": first == again,
        **report,
    }


class Crowd(threading.Thread):
    """One of many clients."""

    def __init__(self, port: int, number: int, end: float) -> None:
        super().__init__(daemon=True)
        self.port, self.chance, self.end = port, random.Random(number), end
        self.statuses: Counter[int] = Counter()
        self.slowest = 0.0

    def run(self) -> None:
        client = Client(self.port, Record())
        client.record.told = float("inf")
        while time.monotonic() < self.end:
            words = " ".join(self.chance.sample(WORDS, 3))
            body = {"query": words, "k": self.chance.randrange(1, 20), "budget": self.chance.randrange(1, 40)}
            if self.chance.random() < 0.2:
                body |= {"filter": {"number": {"gte": self.chance.randrange(400)}}}
            if self.chance.random() < 0.1:
                body |= {"trace": True, "compare": True}
            path, documents = "/search", [words[:size] for size in range(1, 9)]
            if self.chance.random() < 0.1:
                path, body = "/v2/rerank", {"query": words, "documents": documents}
            started = time.monotonic()
            status, _ = client.ask("crowd", "POST", path, json.dumps(body).encode())
            self.slowest = max(self.slowest, time.monotonic() - started)
            self.statuses[status] += 1
            if status == 429:
                time.sleep(0.2)


def crowd(port: int, process: int, clients: int, minutes: float) -> dict[str, Any]:
    end = time.monotonic() + 60 * minutes
    people = [Crowd(port, number, end) for number in range(clients)]
    for one in people:
        one.start()
    samples: list[float] = []
    while time.monotonic() < end:
        time.sleep(min(15.0, 60 * minutes / 20))
        samples.append(memory(process))
        print(f"{samples[-1]:.1f} MB", sum((one.statuses for one in people), Counter()), file=sys.stderr, flush=True)
    for one in people:
        one.join(120)
    statuses = sum((one.statuses for one in people), Counter())
    early = max(samples[: max(len(samples) // 5, 1)])
    return {
        "clients": clients,
        "minutes": minutes,
        "statuses": {str(status): count for status, count in sorted(statuses.items())},
        "slowest_seconds": max(one.slowest for one in people),
        "megabytes": {"after_a_fifth": early, "at_the_end": samples[-1], "samples": samples},
        "verdict": {
            "no error but 429": set(statuses) <= {200, 429},
            "no growth": samples[-1] <= 1.05 * early,
            "all are answered": not any(one.is_alive() for one in people),
        },
    }


def verdict(report: dict[str, Any]) -> dict[str, bool]:
    idle = [
        report["slowest_seconds_of_the_servers_processor_time"].get(source, 0.0) for source in (*SHARES, "half-sent")
    ]
    left = report["hang_ups"]
    return {
        "no 500": report["status_500_or_unexpected"] == 0,
        "no answer over 2 s of work": max(idle) <= SLOW,
        "no answer over 2 s on the clock": not {*SHARES, "half-sent"} & {*report["over_2_seconds"]},
        "memory within 1.5 x": max(report["megabytes"]["at_most_until"].values())
        <= 1.5 * report["megabytes"]["at_rest"],
        "nothing leaked": report["secrets_in_answers"] == 0
        and report["log"]["with_a_secret_a_query_or_the_address"] == 0
        and report["dying_endpoint"]["answers_with_anothers_query_or_the_address"] == 0,
        "at most 1 in 20 pairs of those who left, and all reported": left["pairs_of_those_who_left"]
        <= left["pairs_if_all_were_searched"] / 20
        and left["pairs_seen"] == left["calls_reported"],
        "calls of a dying endpoint are what it saw": report["dying_endpoint"]["pairs_seen_with_retries"]
        == report["dying_endpoint"]["calls_reported"],
        "the same hits": report["same_hits_afterwards"],
    }


if __name__ == "__main__":
    main()
