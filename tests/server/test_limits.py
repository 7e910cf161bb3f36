"""What clients may do to the server: hang up, dawdle, send too much, ask by another name."""

from __future__ import annotations

import contextlib
import dataclasses
import gc
import io
import json
import logging
import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import quote

import httpx
import numpy as np
import pytest

pytest.importorskip("fastapi")
pytest.importorskip("prometheus_client")

from hypothesis import given
from hypothesis import strategies as st
from starlette.testclient import TestClient

import crosscut
from crosscut.errors import InputError
from crosscut.methods import Rerank, weights
from crosscut.methods import base as registry
from crosscut.server import Settings, make_app
from crosscut.server import logs as server_logs
from crosscut.server.bodies import STRINGS, Bodies, Refusal
from crosscut.spaces.cur import reduced
from tests.served import running, score_words, small_app, small_index

SOON = 10.0  # seconds; a tenth of it when nothing else runs on the machine
JSON = {"content-type": "application/json"}


def line(url: str, timeout: float = 10.0) -> socket.socket:
    host, port = url.removeprefix("http://").split(":")
    return socket.create_connection((host, int(port)), timeout=timeout)


def raw(body: dict[str, Any], path: str = "/search") -> bytes:
    content = json.dumps(body).encode()
    head = f"POST {path} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
    return f"{head}content-length: {len(content)}\r\n\r\n".encode() + content


def until(condition: Callable[[], bool], seconds: float = 20.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.01)


class Gate:
    """A scorer that counts pairs by query, and waits where it is told to."""

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


def metric(url: str, name: str) -> float:
    lines = [line for line in httpx.get(f"{url}/metrics").text.splitlines() if line.startswith(name + " ")]
    return float(lines[0].split()[-1]) if lines else 0.0


# -- clients that hang up


@pytest.mark.parametrize("path", ["/search", "/v2/rerank"])
def test_who_hangs_up_while_waiting_is_not_searched_for(path: str) -> None:
    gate = Gate()
    body: dict[str, Any] = {"query": "left"} if path == "/search" else {"query": "left", "documents": ["a", "b"]}
    with running(small_app(gate)) as url, ThreadPoolExecutor(1) as pool:
        gate.open.clear()
        first = pool.submit(httpx.post, f"{url}/search", json={"query": "slow", "budget": 10}, timeout=30)
        assert gate.entered.wait(10)
        lines = [line(url) for _ in range(10)]
        for one in lines:
            one.sendall(raw(body, path))
        until(lambda: metric(url, "crosscut_queue_length") == 10)
        for one in lines:
            one.close()
        until(lambda: metric(url, "crosscut_queue_length") == 0)  # at once, not when their turn comes
        gate.open.set()
        assert first.result().status_code == 200
        assert metric(url, f'crosscut_requests_total{{route="{path}",status="499"}}') == 10
    assert "left" not in gate.pairs


def test_who_hangs_up_under_way_is_searched_for_no_further() -> None:
    gate = Gate()
    with running(small_app(gate, max_budget=400, linger=1.0)) as url, ThreadPoolExecutor(1) as pool:
        gate.open.clear()
        leaving = line(url)
        leaving.sendall(raw({"query": "slow a", "budget": 100, "method": "crosscut@rounds=10"}))
        staying = pool.submit(
            httpx.post,
            f"{url}/search",
            json={"query": "slow b", "budget": 100, "method": "crosscut@rounds=10"},
            timeout=30,
        )
        assert gate.entered.wait(10)
        leaving.close()
        time.sleep(1.0)  # until the server has noticed, on a busy machine too
        gate.open.set()
        answer = staying.result().json()  # in the same batch, and not harmed
        assert (answer["calls"], answer["stop_reason"]) == (100, "budget")
        until(lambda: metric(url, 'crosscut_requests_total{route="/search",status="499"}') == 1)
        assert metric(url, 'crosscut_scorer_calls_total{route="/search"}') == 100 + gate.pairs["slow a"]
    assert gate.pairs["slow b"] == 100
    assert gate.pairs["slow a"] == 4  # the round that was under way


def test_a_rerank_that_nobody_waits_for_ends() -> None:
    gate = Gate()
    with running(small_app(gate)) as url:
        gate.open.clear()
        with line(url) as leaving:
            leaving.sendall(raw({"query": "slow", "documents": ["a"] * 600}, "/v2/rerank"))
            assert gate.entered.wait(10)
        time.sleep(0.2)
        gate.open.set()
        until(lambda: metric(url, 'crosscut_requests_total{route="/v2/rerank",status="499"}') == 1)
        assert metric(url, 'crosscut_scorer_calls_total{route="/v2/rerank"}') == gate.pairs["slow"]
    assert gate.pairs["slow"] <= 64


def test_half_a_body_is_no_fault_of_the_server(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    with running(small_app()) as url:
        for cut in (1, 5, 17):
            with line(url) as one:
                one.sendall(raw({"query": "a cat"})[:-cut])
        until(lambda: metric(url, 'crosscut_requests_total{route="other",status="499"}') == 3)
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]


# -- clients that dawdle


def test_half_sent_requests_do_not_end_the_server() -> None:
    slow = small_app(max_connections=40, header_seconds=30.0, body_seconds=30.0)
    with running(slow) as url, contextlib.ExitStack() as stack:
        for number in range(160):
            one = stack.enter_context(line(url))
            whole = raw({"query": "a cat"})
            one.sendall([whole[:20], whole[:-3], b"G", b""][number % 4])
        for _ in range(5):
            assert httpx.get(f"{url}/health", timeout=SOON).status_code == 200
            assert httpx.post(f"{url}/search", json={"query": "cat", "budget": 10}, timeout=SOON).status_code == 200


@pytest.mark.parametrize(
    ("begun", "more"),
    [
        ("POST /search HTTP/1.1\r\nHost: 127.0.0.1\r\n", b"X-A: b\r\n"),
        ("POST /search HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 1000\r\n\r\n", b" "),
        ("POST /search HTTP/1.1\r\nHost: 127.0.0.1\r\nTransfer-Encoding: chunked\r\n\r\n", b"1\r\n \r\n"),
        ("POST /search HTTP/1.1\r\nHost: 127.0.0.1\r\nTransfer-Encoding: chunked\r\n\r\n", b"0"),
        ("GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 1000\r\n\r\n", b" "),
    ],
)
def test_who_sends_a_little_at_a_time_has_no_longer_than_others(begun: str, more: bytes) -> None:
    with running(small_app(header_seconds=0.5, body_seconds=0.5)) as url, line(url) as one:
        one.sendall(begun.encode())
        one.settimeout(0.02)
        started, over = time.monotonic(), False
        while not over and time.monotonic() - started < 20:
            try:
                one.sendall(more)
                over = not one.recv(1000)
            except TimeoutError:
                continue
            except OSError:
                over = True
        assert over
        assert httpx.get(f"{url}/health", timeout=SOON).status_code == 200


def test_headers_that_never_end_and_answers_that_nobody_reads() -> None:
    with running(small_app(header_seconds=0.3, read_seconds=0.3)) as url:
        for data in (b"", b"GET /health HTTP/1.1\r\nhost: lo"):
            with line(url) as one:
                one.sendall(data)
                assert _closed(one)
        with line(url) as one:  # a request, and then the beginning of another
            one.sendall(b"GET /health HTTP/1.1\r\nhost: localhost\r\n\r\n")
            while b"alive" not in one.recv(4000):
                pass
            one.sendall(b"GET /hea")
            assert _closed(one)
        with line(url) as one:
            one.sendall(b"GET /health HTTP/1.1\r\nx: " + b"y" * 40_000)
            assert b" 400 " in one.recv(1000)


def _closed(one: socket.socket) -> bool:
    one.settimeout(5)
    try:
        return one.recv(1000) == b""
    except ConnectionError:
        return True


# -- requests that are too much


@pytest.mark.parametrize(
    ("body", "codes"),
    [
        (b'{"query": "a", "filter": {"number": [' + b"[]," * 1_290_000 + b"[]]}}", {413}),
        (b'{"query": "a", "filter": {"number": [' + b"{}," * 1_290_000 + b"{}]}}", {413}),
        (b'{"query": "a", "filter": {"number": [' + b"[]," * 900 + b"[]]}}", {422}),
        (b'{"query": "a", "filter": {' + b'"a":1,' * 600_000 + b'"b": 1}}', {413}),
        (b'{"query": "a", ' + b",".join(b'"f%d": 1' % j for j in range(90_000)) + b"}", {413}),
        (b'{"query": "a", ' + b",".join(b'"f%d": 1' % j for j in range(900)) + b"}", {422}),
        (b'{"query": "a", "filter": {"number": [' + b"1," * 99_990 + b"7]}}", {200}),
        (b'{"query": "a", "filter": {"number": [' + b"0.5," * 90_000 + b"null]}}", {422}),
        (b'{"query": "a", "candidates": [' + b'"i1",' * 90_000 + b"7]}", {422}),
        (b'{"query": "a", "documents": [' + b"7," * 90_000 + b"7]}", {422}),
        (b'{"query": "' + b'\\"' * 2_000_000, {400}),
        (b'{"query": "' + b"[,{" * 1_000_000 + b'"}', {422}),
        (b'"' * 4_000_000, {400}),
        (b"9" * 4_000_000, {400}),
    ],
)
def test_large_requests_are_answered_at_once(body: bytes, codes: set[int], shared: httpx.Client) -> None:
    for path in ("/search", "/v2/rerank"):
        started = time.monotonic()
        answer = shared.post(path, content=body, headers=JSON)
        assert time.monotonic() - started < SOON
        assert answer.status_code in (codes if path == "/search" else {400, 413, 422})
        assert len(answer.content) < 10_000 or answer.status_code == 200


@pytest.fixture(scope="module")
def shared() -> Iterator[httpx.Client]:
    with running(small_app()) as url, httpx.Client(base_url=url, timeout=30) as made:
        yield made


@pytest.mark.parametrize(
    "body",
    [
        {"query": "a", "documents": [{"a": "x"}] * 330, "rank_fields": ["z"] * 99_000 + ["a"]},
        {"query": "a", "documents": [{"text": "x" * 100_000}], "rank_fields": ["text"] * 90_000},
        {"query": "a", "documents": ["x"], "rank_fields": ["text"] * 90_000},
    ],
)
def test_fields_of_documents_are_few(body: dict[str, Any], shared: httpx.Client) -> None:
    started = time.monotonic()
    assert shared.post("/v1/rerank", json=body).status_code == 422
    assert time.monotonic() - started < SOON


@dataclass(frozen=True, repr=False)
class Preparing(Rerank):
    """A method that goes through every item before it searches."""

    name: ClassVar[str] = "preparing"
    prepares: ClassVar[bool] = True
    size: int = 3


@pytest.fixture
def preparing() -> Iterator[None]:
    crosscut.register(Preparing)
    yield
    del registry._METHODS._known["preparing"]


@pytest.mark.usefixtures("preparing")
@pytest.mark.parametrize("method", ["preparing", "preparing@size=1000000000"])
def test_no_request_goes_through_every_item_first(method: str) -> None:
    """It would take as long as it takes, whatever the deadline, and its memory."""
    vectors = np.random.default_rng(0).normal(size=(50, 4)).astype(np.float32)
    index = crosscut.Index.build(
        [f"text {j}" for j in range(50)],
        scorer=crosscut.TextScorer(lambda query, texts: [float(len(text)) for text in texts], fingerprint="lengths"),
        encoder=lambda texts: np.ones((len(texts), 4), np.float32),
        vectors=vectors,
    )
    for own in ("crosscut", "preparing@size=4"):
        index.method = crosscut.methods.parse(own)
        with TestClient(make_app(index), base_url="http://127.0.0.1") as client:
            answer = client.post("/search", json={"query": "a", "budget": 5, "method": method})
            assert (answer.status_code, "goes through every item" in answer.text) == (422, True)
            assert ("preparing" in client.get("/info").json()["methods"]) == (own != "crosscut")
            assert client.post("/search", json={"query": "a", "budget": 5}).json()["calls"] == 5


def test_requests_that_vary_settings_prepare_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """A block of anchor scores per rank would be made outside any deadline, and kept."""
    index = small_index()
    made: list[int] = []

    def counted(scores: Any, rank: int, base: Any) -> Any:
        made.append(rank)
        return reduced(scores, rank, base)

    monkeypatch.setattr(weights, "reduced", counted)
    with TestClient(make_app(index), base_url="http://127.0.0.1") as client:
        for number in range(1, 30):
            answer = client.post("/search", json={"query": "red", "budget": 5, "method": f"crosscut@rank={number}"})
            assert (answer.status_code, "is prepared for 256" in answer.text) == (422, True)
            for method in (f"crosscut@rounds={number}", f"axn@rounds={number}", f"crosscut@ridge={number}"):
                answer = client.post("/search", json={"query": "red", "budget": 5, "method": method})
                assert answer.status_code == 200, answer.text
        assert len(made) <= 1
        index.method = crosscut.methods.parse("crosscut@rank=8")
        body = {"query": "red", "budget": 5, "method": "crosscut@rank=8,rounds=3"}
        assert client.post("/search", json=body).status_code == 200
    for rank in range(20, 40):
        index.search("red", 3, 5, method=f"crosscut@rank={rank}")  # whoever has the index may; not all are kept
    kept = weights._LEARNED[index.corpus.anchor_space]  # type: ignore[index]
    assert len(kept) == weights.KEPT


def test_keys_of_a_filter_are_short(shared: httpx.Client) -> None:
    answer = shared.post("/search", json={"query": "a", "filter": {"k" * 1001: 1}})
    assert (answer.status_code, "1000 characters" in answer.json()["message"]) == (422, True)


def test_texts_full_of_brackets_are_no_lists(shared: httpx.Client) -> None:
    documents = ['a[0], {b}: [c], \\" ' * 2000] * 5
    assert shared.post("/v2/rerank", json={"query": "a", "documents": documents}).status_code == 200


def test_bodies_that_are_held_are_bounded() -> None:
    with running(small_app(max_held=300_000, body_seconds=5.0)) as url, contextlib.ExitStack() as stack:
        for _ in range(5):
            one = stack.enter_context(line(url))
            one.sendall(b"POST /search HTTP/1.1\r\nhost: localhost\r\ncontent-length: 90000\r\n\r\n" + b" " * 70_000)
        time.sleep(0.3)
        answer = httpx.post(f"{url}/search", content=b" " * 90_000, timeout=5)
        assert answer.status_code == 503
        assert "under way" in answer.json()["message"]
        assert httpx.get(f"{url}/health", timeout=5).status_code == 200


@given(
    st.recursive(
        st.text('a"\\[{:,\n', max_size=8) | st.integers(-5, 5),
        lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text('"\\[', max_size=3), inner, max_size=3),
        max_leaves=10,
    )
)
def test_strings_are_taken_out_and_nothing_else(value: Any) -> None:
    bare = STRINGS.sub(b"", json.dumps(value, ensure_ascii=False).encode())
    assert b'"' not in bare
    assert bare.count(b"[") + bare.count(b"{") == _containers(value)


def _containers(value: Any) -> int:
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else None
    return 0 if inner is None else 1 + sum(map(_containers, inner))


def test_values_are_counted_where_they_are_allowed() -> None:
    bodies = Bodies(Settings(max_values=10))
    bodies.check(b'{"a": [' + b"1," * 10 + b"1]}")
    bodies.check(b'{"a": "' + b"," * 1000 + b'"}')
    with pytest.raises(Refusal, match="more than 10 values"):
        bodies.check(b'{"a": [' + b"1," * 11 + b"1]}")


# -- time


def test_no_deadline_is_the_longest() -> None:
    def slow(query: str, texts: Any) -> list[float]:
        time.sleep(0.0 if query == "warm up" else 0.1)
        return score_words(query, texts)

    with running(small_app(slow, max_deadline=0.4)) as url:
        for body in ({"query": "a", "budget": 300}, {"query": "a", "budget": 300, "deadline": None}):
            started = time.monotonic()
            answer = httpx.post(f"{url}/search", json=body, timeout=30).json()
            assert answer["stop_reason"] == "deadline"
            assert 0 < answer["calls"] < 300
            assert time.monotonic() - started < SOON


def test_a_long_list_is_looked_up() -> None:
    items = [{"id": str(j), "text": "a", "year": j % 3000, "tags": [j, str(j)]} for j in range(20_000)]
    index = crosscut.Index.build(items, scorer=score_words, encoder=None, method="hybrid")
    started = time.monotonic()
    hits = index.search("a", 5, 10, filter={"year": [*range(5, 100_000)], "tags": ["19999", "7", [3], {"a": 1}]})
    assert time.monotonic() - started < SOON
    assert set(hits.ids) == {"19999", "7"}


def test_a_filter_counts_against_the_deadline() -> None:
    index = small_index()

    def slow(item: Any) -> bool:
        time.sleep(0.001)
        return True

    hits = index.search("a", 5, 100, filter=slow, deadline=0.1)
    assert (hits.calls, hits.stop_reason) == (0, "deadline")


# -- names


def test_a_server_without_token_is_asked_by_its_own_name(monkeypatch: pytest.MonkeyPatch) -> None:
    with running(small_app()) as url, httpx.Client(base_url=url) as client:
        port = url.rpartition(":")[2]
        for host in ("evil.example", f"evil.example:{port}", "localhost.evil.example", "", "10.0.0.1", "[::2]"):
            answer = client.post("/search", json={"query": "a"}, headers={"host": host})
            assert answer.status_code == 421
            assert answer.json()["error"] == "WrongHost"
        for host in ("localhost", "LOCALHOST:99", "127.0.0.1", "[::1]", f"[::1]:{port}"):
            assert client.post("/search", json={"query": "a"}, headers={"host": host}).status_code == 200
        assert client.get("/search/", headers={"host": "localhost"}).status_code == 404  # no redirect to elsewhere
    with running(small_app(hosts=("search.example",))) as url:
        assert httpx.get(f"{url}/info", headers={"host": "search.example:80"}).status_code == 200
        assert httpx.get(f"{url}/info").status_code == 421
    with running(small_app(hosts=())) as url:
        assert httpx.get(f"{url}/info", headers={"host": "any.example"}).status_code == 200
    monkeypatch.setenv("CROSSCUT_TOKEN", "sesame")
    with running(small_app()) as url:
        token = {"authorization": "Bearer sesame", "host": "any.example"}
        assert httpx.get(f"{url}/info", headers=token).status_code == 200


def test_every_id_can_be_reached() -> None:
    ids = ["a\nb", "a\n", "\n", "a/b//c", "/a", "a%2Fb", "a?b#c", "ä ö", "..", "a b", "\t", "💡", "{x}"]
    items = [{"id": id, "text": f"text {j}"} for j, id in enumerate(ids)]
    index = crosscut.Index.build(items, scorer=score_words, encoder=None, method="hybrid")
    with running(make_app(index)) as url:
        for j, id in enumerate(ids):
            with line(url) as one:  # by hand: clients tidy up paths
                one.sendall(
                    f"GET /items/{quote(id, safe='')} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n".encode()
                )
                said = b""
                while part := one.recv(65536):
                    said += part
            assert json.loads(said.partition(b"\r\n\r\n")[2])["text"] == f"text {j}"


# -- arguments in Python


@pytest.mark.parametrize(
    "how",
    [
        {"k": None},
        {"k": "10"},
        {"k": 2.5},
        {"k": True},
        {"budget": 0},
        {"budget": "100"},
        {"deadline": "1"},
        {"deadline": -1},
        {"deadline": True},
        {"deadline": float("nan")},
        {"deadline": [1]},
        {"stop": 3},
        {"filter": 3},
        {"filter": {"year": {}}},
    ],
)
def test_wrong_arguments_are_sentences(how: dict[str, Any]) -> None:
    (name,) = how
    with pytest.raises(InputError, match=name):
        small_index().search("red cat", **{"k": 5, "budget": 20, **how})
    if name != "filter":
        searcher = crosscut.Searcher(lambda query, ids: np.zeros(len(ids)), vectors=np.eye(30))
        with pytest.raises(InputError, match=name):
            searcher.search("red cat", **{"k": 5, "budget": 20, **how})


def test_a_search_can_be_called_off() -> None:
    asked: list[int] = []

    def score(query: Any, ids: Any) -> Any:
        asked.append(len(ids))
        return np.asarray(ids, float)

    searcher = crosscut.Searcher(score, vectors=np.eye(50))
    never, soon = (lambda: None), (lambda: "cancelled" if len(asked) > 3 else None)
    kept, ended = searcher.search_many([0, 1], 5, 40, query_vectors=np.ones((2, 50)), halts=[never, soon])
    assert (kept.calls, kept.stop_reason) == (40, "budget")
    assert ended.stop_reason == "cancelled"
    assert ended.calls < 40
    assert sum(asked) == kept.calls + ended.calls
    with pytest.raises(InputError, match="1 halts for 2 queries"):
        searcher.search_many([0, 1], 5, 40, halts=[never])


# -- logs


def test_lines_are_bounded_in_length_and_number(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_logs, "BURST", 50.0)
    monkeypatch.setattr(server_logs, "LINES", 0.0)
    names = ("crosscut", "uvicorn.error", "asyncio")
    before = [(logger.handlers, logger.level, logger.propagate) for logger in map(logging.getLogger, names)]
    stream = io.StringIO()
    server_logs.configure("info", stream)
    try:
        for number in range(1000):
            server_logs.LOGGER.info("x" * 100_000, extra={"fields": {"calls": 3} if number % 100 == 0 else {}})
    finally:
        for logger, (handlers, level, propagate) in zip(map(logging.getLogger, names), before, strict=True):
            logger.handlers, logger.level, logger.propagate = handlers, level, propagate
    lines = [json.loads(one) for one in stream.getvalue().splitlines()]
    assert sum("calls" in one for one in lines) == 10  # what was paid for is always told
    assert len(lines) <= 60
    assert sum(one.get("lines_dropped_before", 0) for one in lines) > 800
    assert max(map(len, stream.getvalue().splitlines())) < 1000


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="reads /proc")
def test_refused_bodies_are_let_go(shared: httpx.Client) -> None:
    """An exception and its frames hold each other, and the body with them, until cycles are collected."""
    bodies = (b'{"query": "' + b'\\"' * 1_900_000, b'{"query": "' + b"a" * 3_900_000 + b'"}', b"9" * 3_900_000)
    for body in bodies:
        shared.post("/search", content=body, headers=JSON)
    gc.collect()
    gc.disable()
    try:
        before = _megabytes()
        for body in bodies * 5:
            assert shared.post("/search", content=body, headers=JSON).status_code in (400, 422)
        assert _megabytes() - before < 60  # 150 or more, if they were held
    finally:
        gc.enable()


def _megabytes() -> float:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith("VmRSS"))


# -- settings of methods


@pytest.mark.parametrize("name", ["crosscut", "adacur", "axn", "anncur", "hybrid", "rerank"])
def test_no_setting_breaks_the_server(name: str, shared: httpx.Client) -> None:
    """Every setting of every method with values at the edge: found, or a sentence."""
    kind = crosscut.methods.methods()[name]
    for setting in dataclasses.fields(kind):
        for value in (
            "0",
            "-1",
            "1",
            "0.5",
            "1e9",
            "1000000000000",
            "nan",
            "inf",
            "none",
            "true",
            "top",
            "softmax",
            "x",
        ):
            asked = {"query": "red cat", "budget": 12, "candidates": ["i1"], "method": f"{name}@{setting.name}={value}"}
            answer = shared.post("/search", json=asked)
            assert answer.status_code in (200, 422), (asked, answer.text)
