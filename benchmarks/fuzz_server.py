"""Random malformed requests against the server: no 500, no hang, no secret in the logs.

    python benchmarks/fuzz_server.py [--requests 10000] [--json benchmarks/results/fuzz_server.json]

Three sources, in turn: requests that schemathesis draws from the OpenAPI schema (valid and invalid ones), JSON of the
right fields with wrong values, and bytes that are no HTTP at all or break off. The server is a real one, with a token
set and a scorer behind an HTTP endpoint with a key; both secrets must not appear in any answer or log line. In the end
the server must still find what it found at first.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import random
import socket
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent))
os.environ["CROSSCUT_TOKEN"] = TOKEN = "fuzz-token-5e1d"
os.environ["FUZZ_KEY"] = KEY = "fuzz-key-9b72"

import httpx
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from tests.fake_endpoint import cohere, served
from tests.served import WORDS, running, small_index

from crosscut.scorers.http import RerankEndpoint
from crosscut.server import Settings, make_app
from crosscut.server.logs import configure

HEADERS = {"authorization": f"Bearer {TOKEN}", "content-type": "application/json"}
FIELDS = ("query", "k", "budget", "method", "filter", "deadline", "patience", "trace", "compare", "first", "documents")
SLOW = 10.0


class Record:
    """What came back."""

    def __init__(self) -> None:
        self.statuses: dict[str, Counter[str]] = {}
        self.slowest = 0.0
        self.broken: list[str] = []
        self.leaks = 0
        self.undocumented: Counter[str] = Counter()

    def answer(self, source: str, answer: httpx.Response, seconds: float, allowed: set[str] | None = None) -> None:
        status = str(answer.status_code)
        self.statuses.setdefault(source, Counter())[status] += 1
        self.slowest = max(self.slowest, seconds)
        if answer.status_code >= 500 and status != "504":  # a deadline that nobody can keep is no fault
            self.broken.append(f"{source}: {status} {answer.text[:200]}")
        if seconds > SLOW:
            self.broken.append(f"{source}: {seconds:.1f} s")
        if allowed is not None and status not in allowed:
            self.undocumented[status] += 1
        if TOKEN in answer.text or KEY in answer.text:
            self.leaks += 1


def from_schema(client: httpx.Client, count: int, record: Record) -> None:
    """Requests that schemathesis draws from the schema of the running server."""
    schema = schemathesis.openapi.from_dict(client.get("/openapi.json").json())
    results: list[Any] = list(schema.get_all_operations())
    for operation in (result.ok() for result in results):
        if operation.path in ("/health", "/ready", "/metrics", "/info"):
            share = count // 50
        else:
            share = (count - 4 * (count // 50)) // 3
        wrong = operation.body is not None and len(list(operation.body)) > 0
        for mode, part in (("positive", share // 2), ("negative", share - share // 2)):
            generation = getattr(schemathesis.GenerationMode, mode.upper())
            try:
                strategy = operation.as_strategy(generation_mode=generation)
                _draw(strategy, part, client, record, f"schema, {mode}")
            except Exception as error:  # an operation without parameters has no wrong requests
                if wrong or mode == "positive":
                    raise
                print(f"{operation.path}: schemathesis finds no {mode} requests ({type(error).__name__})")


def _draw(strategy: Any, count: int, client: httpx.Client, record: Record, source: str) -> None:
    @settings(
        max_examples=max(count, 1),
        deadline=None,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(case=strategy)
    def run(case: Any) -> None:
        kwargs = case.as_transport_kwargs(base_url=str(client.base_url))
        headers = {**dict(kwargs.pop("headers", None) or {}), "authorization": HEADERS["authorization"]}
        request = {name: value for name, value in kwargs.items() if name in ("method", "url", "params", "cookies")}
        request.pop("cookies", None)
        if "json" in kwargs:
            request["content"] = json.dumps(kwargs["json"]).encode()
            headers = {"content-type": "application/json", **headers}
        elif kwargs.get("data") is not None:
            data = kwargs["data"]
            request["content"] = data if isinstance(data, bytes) else str(data).encode("utf-8", "replace")
        plain = {str(k): str(v) for k, v in headers.items() if str(k).isascii() and str(v).isascii()}
        started = time.perf_counter()
        try:
            answer = client.request(**request, headers=plain)
        except (httpx.InvalidURL, httpx.LocalProtocolError, UnicodeError):
            return  # the client itself will not send it
        documented = set(case.operation.definition.raw["responses"]) | {"404", "405"}
        record.answer(source, answer, time.perf_counter() - started, documented)

    run()


def wrong_values(client: httpx.Client, count: int, record: Record) -> None:
    values = st.recursive(
        st.none()
        | st.booleans()
        | st.integers()
        | st.floats()
        | st.text(max_size=30)
        | st.sampled_from([*WORDS, -1, 0]),
        lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
        max_leaves=10,
    )
    bodies = st.dictionaries(st.sampled_from(FIELDS), values, max_size=6).map(
        lambda body: body if len(body) % 3 else {"query": "red cat", **body}
    )

    @settings(
        max_examples=count,
        deadline=None,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(body=bodies | values, path=st.sampled_from(["/search", "/v2/rerank"]))
    def run(body: Any, path: str) -> None:
        started = time.perf_counter()
        answer = client.post(path, content=json.dumps(body).encode(), headers=HEADERS)
        record.answer("wrong values", answer, time.perf_counter() - started)

    run()


def broken_bytes(url: str, count: int, record: Record) -> None:
    """Requests cut off, garbled or never finished, each on a connection of its own."""
    host, port = url.removeprefix("http://").split(":")
    body = b'{"query": "red cat", "budget": 20}'
    whole = (
        b"POST /search HTTP/1.1\r\nhost: x\r\nauthorization: Bearer " + TOKEN.encode() + b"\r\n"
        b"content-type: application/json\r\ncontent-length: " + str(len(body)).encode() + b"\r\n\r\n" + body
    )
    chance = random.Random(0)
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
        with socket.create_connection((host, int(port)), timeout=SLOW) as line:
            line.sendall(bytes(data))
            line.shutdown(socket.SHUT_WR)
            try:
                said = line.recv(65536)
            except ConnectionError:
                said = b""
            except TimeoutError:
                record.broken.append("bytes: the connection hung")
                said = b""
        status = said[9:12].decode("latin-1") if said.startswith(b"HTTP/1.1 ") else "closed"
        record.statuses.setdefault("broken bytes", Counter())[status] += 1
        record.slowest = max(record.slowest, time.perf_counter() - started)
        if status.startswith("5"):
            record.broken.append(f"bytes: {status} for {bytes(data)[:80]!r}")
        record.leaks += (TOKEN.encode() in said) + (KEY.encode() in said)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--requests", type=int, default=10_000)
    parser.add_argument("--json", type=Path, default=None)
    arguments = parser.parse_args()
    log = io.StringIO()
    configure("debug", log)
    record = Record()
    started = time.perf_counter()
    with served(cohere) as endpoint:
        scorer = RerankEndpoint(endpoint.url, key_env="FUZZ_KEY", batch_size=100, concurrency=4)
        limits = Settings(max_budget=40, default_budget=20, max_k=20, max_documents=20, body_seconds=2.0)
        app = make_app(small_index(scorer), limits)
        with scorer, running(app) as url, httpx.Client(base_url=url, timeout=SLOW) as client:
            asked = {"query": "red cat sea", "k": 5, "budget": 20}
            first = client.post("/search", json=asked, headers=HEADERS).json()["hits"]
            from_schema_count = arguments.requests * 4 // 10
            from_schema(httpx.Client(base_url=url, timeout=SLOW, headers=HEADERS), from_schema_count, record)
            wrong_values(client, arguments.requests * 4 // 10, record)
            done = sum(sum(counts.values()) for counts in record.statuses.values())
            broken_bytes(url, max(arguments.requests - done, arguments.requests // 5), record)
            again = client.post("/search", json=asked, headers=HEADERS).json()["hits"]
    total = sum(sum(counts.values()) for counts in record.statuses.values())
    lines = log.getvalue()
    report = {
        "requests": total,
        "seconds": time.perf_counter() - started,
        "statuses": {source: dict(sorted(counts.items())) for source, counts in record.statuses.items()},
        "server_errors_and_hangs": len(record.broken),
        "statuses_not_in_the_schema": dict(record.undocumented),
        "slowest_seconds": record.slowest,
        "secrets_in_answers": record.leaks,
        "secrets_in_logs": lines.count(TOKEN) + lines.count(KEY),
        "log_lines": lines.count("\n"),
        "log_lines_that_are_json": sum(_is_json(line) for line in lines.splitlines()),
        "same_answer_afterwards": first == again,
        "versions": {"schemathesis": schemathesis.__version__, "python": sys.version.split()[0]},
    }
    print(json.dumps(report, indent=1))
    for line in record.broken[:10]:
        print(line)
    if arguments.json:
        arguments.json.write_text(json.dumps(report, indent=1) + "\n", "utf-8")


def _is_json(line: str) -> bool:
    try:
        json.loads(line)
    except ValueError:
        return False
    return True


if __name__ == "__main__":
    main()
