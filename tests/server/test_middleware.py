"""Limits on bodies and clients, and clients that disconnect."""

from __future__ import annotations

import asyncio
import json
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

pytest.importorskip("fastapi")

from starlette.testclient import TestClient

from tests.served import Gate, metric, small_client, until


async def send(
    app: Any, body: bytes, path: str = "/search", gone: threading.Event | None = None, **headers: str
) -> Any:
    """Send a request by hand; return status and body. The client disconnects when `gone` is set."""
    messages: list[Any] = []
    sent = False

    async def receive() -> dict[str, Any]:
        nonlocal sent
        if not sent and body:
            sent = True
            return {"type": "http.request", "body": body, "more_body": headers.get("more") == "yes"}
        while gone is None or not gone.is_set():
            await asyncio.sleep(0.01)
        return {"type": "http.disconnect"}

    async def answer(message: Any) -> None:
        messages.append(message)

    fields = [(b"host", b"localhost"), (b"content-type", b"application/json")]
    fields += [(key.replace("_", "-").encode(), value.encode()) for key, value in headers.items() if key != "more"]
    scope = {"type": "http", "method": "POST", "path": path, "raw_path": path.encode(), "query_string": b""}
    scope |= {"headers": fields, "client": ("10.0.0.1", 1), "server": ("localhost", 80), "scheme": "http"}
    scope |= {"http_version": "1.1", "root_path": "", "asgi": {"version": "3.0"}}
    await app(scope, receive, answer)
    if not messages:
        return None, None
    content = b"".join(message.get("body", b"") for message in messages[1:])
    return messages[0]["status"], json.loads(content)


def call(client: TestClient, *arguments: Any, **options: Any) -> Any:
    """Send a request by hand, in the event loop of the server."""
    assert client.portal is not None
    return client.portal.call(lambda: send(client.app, *arguments, **options))


def test_large_bodies_are_refused() -> None:
    with small_client(max_body=1000) as client:
        long = {"query": "a", "documents": ["b" * 2000]}
        assert client.post("/v2/rerank", json=long).status_code == 413
        assert call(client, b"x" * 1001)[0] == 413  # of a length that was not announced
        assert call(client, b"", content_length="99999999999999999999")[0] in (408, 413)
        assert client.post("/search", json={"query": "a"}).status_code == 200


def test_a_body_that_does_not_arrive_is_given_up() -> None:
    with small_client(body_seconds=0.1) as client:
        for body in (b"", b'{"query": "a'):
            status, answer = call(client, body, more="yes")
            assert (status, "within 0.1 s" in answer["message"]) == (408, True)


def test_a_search_may_take_longer_than_its_body() -> None:
    gate = Gate()
    with small_client(gate, body_seconds=0.2) as client, ThreadPoolExecutor(1) as pool:
        gate.open.clear()
        search = pool.submit(client.post, "/search", json={"query": "slow", "budget": 10})
        assert gate.entered.wait(10)
        threading.Timer(0.5, gate.open.set).start()
        assert search.result().status_code == 200


@pytest.mark.parametrize("path", ["/search", "/v2/rerank"])
def test_nothing_is_searched_for_clients_that_left_the_queue(path: str) -> None:
    gate, gone = Gate(), threading.Event()
    body = json.dumps({"query": "left"} | ({} if path == "/search" else {"documents": ["a", "b"]})).encode()
    with small_client(gate) as client, ThreadPoolExecutor(6) as pool:
        gate.open.clear()
        first = pool.submit(client.post, "/search", json={"query": "slow", "budget": 10})
        assert gate.entered.wait(10)
        waiting = [pool.submit(call, client, body, path, gone) for _ in range(5)]
        until(lambda: metric(client, "crosscut_queue_length") == 5)
        gone.set()
        until(lambda: metric(client, "crosscut_queue_length") == 0)  # at once, not when their turn comes
        gate.open.set()
        assert first.result().status_code == 200
        assert [one.result() is not None for one in waiting] == [True] * 5
        assert metric(client, f'crosscut_requests_total{{route="{path}",status="499"}}') == 5
    assert "left" not in gate.pairs


def test_a_running_search_stops_for_a_client_that_left_and_not_for_the_others() -> None:
    gate, gone = Gate(), threading.Event()
    request = {"budget": 100, "method": "crosscut@rounds=10"}
    with small_client(gate, linger=0.5) as client, ThreadPoolExecutor(2) as pool:
        gate.open.clear()
        leaving = pool.submit(call, client, json.dumps({"query": "slow a", **request}).encode(), "/search", gone)
        staying = pool.submit(client.post, "/search", json={"query": "slow b", **request})
        assert gate.entered.wait(10)
        gone.set()
        until(lambda: leaving.running() or leaving.done())
        threading.Timer(0.3, gate.open.set).start()
        answer = staying.result().json()
        leaving.result()
        assert (answer["calls"], answer["stop_reason"]) == (100, "budget")
        assert metric(client, 'crosscut_requests_total{route="/search",status="499"}') == 1
        assert metric(client, 'crosscut_scorer_calls_total{route="/search"}') == 100 + gate.pairs["slow a"]
    assert gate.pairs["slow b"] == 100
    assert gate.pairs["slow a"] <= 20  # the round that was running


def test_a_client_may_have_so_many_concurrent_requests() -> None:
    gate = Gate()
    with small_client(gate, per_client=2) as client, ThreadPoolExecutor(2) as pool:
        gate.open.clear()
        waiting = [pool.submit(client.post, "/search", json={"query": "slow", "budget": 5}) for _ in range(2)]
        batcher = client.app.state.service.batcher  # type: ignore[attr-defined]
        until(lambda: len(batcher.waiting) + batcher.running == 2)
        third = client.post("/search", json={"query": "dog"})
        assert (third.status_code, third.json()["error"], third.headers["retry-after"]) == (429, "TooMany", "1")
        assert client.get("/health").status_code == 200
        gate.open.set()
        assert [one.result().status_code for one in waiting] == [200, 200]
        assert client.post("/search", json={"query": "dog"}).status_code == 200
