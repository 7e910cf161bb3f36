"""A rerank or chat endpoint on this machine, that fails on request."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Answer = tuple[int, dict[str, str], Any]


def length_score(query: str, text: str) -> float:
    """The score of the fakes: 1 over the difference in length, so that it lies in (0, 1]."""
    return 1 / (1 + abs(len(text) - len(query)))


def cohere(body: dict[str, Any]) -> Any:
    results = [
        {"index": j, "relevance_score": length_score(body["query"], text)} for j, text in enumerate(body["documents"])
    ]
    return {"id": "x", "results": sorted(results, key=lambda result: -result["relevance_score"])}


def voyage(body: dict[str, Any]) -> Any:
    return {"object": "list", "data": cohere(body)["results"], "model": body.get("model")}


def tei(body: dict[str, Any]) -> Any:
    return [
        {"index": j, "score": length_score(body["query"], text)} for j, text in reversed([*enumerate(body["texts"])])
    ]


class Endpoint:
    """Answers with `answer(body)`; `faults` are used up first, one a request."""

    def __init__(self, answer: Callable[[dict[str, Any]], Any]) -> None:
        self.answer = answer
        self.faults: list[Callable[[dict[str, Any]], Answer]] = []
        self.always: Callable[[dict[str, Any]], Answer] | None = None
        self.bodies: list[dict[str, Any]] = []
        self.headers: list[dict[str, str]] = []
        self.times: list[float] = []
        self.delay = 0.0
        self.running = 0
        self.peak = 0
        self.lock = threading.Lock()
        self.url = ""

    def reply(self, body: dict[str, Any], headers: dict[str, str]) -> Answer:
        with self.lock:
            self.bodies.append(body)
            self.headers.append(headers)
            self.times.append(time.monotonic())
            self.running += 1
            self.peak = max(self.peak, self.running)
            fault = self.faults.pop(0) if self.faults else self.always
        try:
            if self.delay:
                time.sleep(self.delay)
            return fault(body) if fault else (200, {}, self.answer(body))
        finally:
            with self.lock:
                self.running -= 1


def status(code: int, content: Any = None, **headers: str) -> Callable[[dict[str, Any]], Answer]:
    """A fault: this status, whatever was asked."""
    return lambda body: (code, {name.replace("_", "-"): value for name, value in headers.items()}, content)


@contextmanager
def served(answer: Callable[[dict[str, Any]], Any], path: str = "/v2/rerank") -> Iterator[Endpoint]:
    endpoint = Endpoint(answer)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True  # head and body are two writes: 40 ms between them otherwise
        wbufsize = -1

        def do_POST(self) -> None:
            content = self.rfile.read(int(self.headers["content-length"]))
            code, headers, answer = endpoint.reply(
                json.loads(content), {name.lower(): value for name, value in self.headers.items()}
            )
            if code == 0:  # hang up
                self.close_connection = True
                self.connection.close()
                return
            data = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
            try:
                self.send_response(code)
                for name, value in headers.items():
                    self.send_header(name, value)
                self.send_header("content-length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)
            except OSError:  # the client has left
                self.close_connection = True

        def log_message(self, *_: Any) -> None: ...

    class Server(ThreadingHTTPServer):
        daemon_threads = True

        def handle_error(self, request: Any, client_address: Any) -> None: ...

    server = Server(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    endpoint.url = f"http://127.0.0.1:{server.server_port}{path}"
    try:
        yield endpoint
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
