"""The HTTP API: what it answers, what it refuses, and what it does when the scorer fails."""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import numpy as np
import pytest

pytest.importorskip("fastapi")
pytest.importorskip("prometheus_client")

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from crosscut.datasets.records import plain_text
from crosscut.errors import InputError
from crosscut.server import Settings, make_app
from crosscut.server.logs import JsonFormatter
from tests.fake_endpoint import cohere, served, status
from tests.served import WORDS, running, score_words, small_app, small_index

INDEX = small_index()
TOKEN = "tell-nobody-0123"


@pytest.fixture(scope="module")
def client() -> Iterator[httpx.Client]:
    with (
        running(make_app(INDEX, Settings(max_budget=300, max_documents=50))) as url,
        httpx.Client(base_url=url) as made,
    ):
        yield made


def test_a_search_is_what_the_index_finds(client: httpx.Client) -> None:
    answer = client.post("/search", json={"query": "red cat sea", "k": 5, "budget": 60})
    assert answer.status_code == 200
    body = answer.json()
    hits = INDEX.search("red cat sea", k=5, budget=60)
    assert [hit["id"] for hit in body["hits"]] == hits.ids
    assert body["hits"][0]["score"] == hits[0].score
    assert (body["calls"], body["rounds"], body["method"], body["stop_reason"]) == (60, 10, "crosscut", "budget")
    assert body["trace"] is None
    first = body["hits"][0]
    assert client.get(f"/items/{first['id']}").json()["text"] == first["text"]
    assert first["metadata"] == {"number": int(first["id"][1:])}


def test_options_reach_the_search(client: httpx.Client) -> None:
    asked = {
        "query": "red cat",
        "k": 3,
        "budget": 50,
        "filter": {"number": {"gte": 100, "lt": 200}},
        "stop": "patience@rounds=2",
    }
    body = client.post("/search", json=asked).json()
    assert all(100 <= hit["metadata"]["number"] < 200 for hit in body["hits"])
    assert body["stop_reason"] in ("patience", "budget")
    assert client.post("/search", json={**asked, "filter": {"number": [7, 9]}}).json()["calls"] == 2
    body = client.post("/search", json={"query": "red", "method": "hybrid", "budget": 20, "deadline": 5.0}).json()
    assert (body["method"], body["rounds"], body["calls"]) == ("hybrid", 1, 20)
    asked = {
        "query": "red cat",
        "method": "crosscut@rounds=5,first=lexical",
        "budget": 20,
        "candidates": ["i399", "i7"],
    }
    body = client.post("/search", json={**asked, "trace": True}).json()
    assert (body["method"], body["rounds"], body["calls"]) == ("crosscut@rounds=5,first=lexical", 5, 20)
    assert [body["trace"]["scored"][place]["id"] for place in body["trace"]["rounds"][0]["picks"]][:2] == ["i399", "i7"]


def test_a_trace_within_a_filter(client: httpx.Client) -> None:
    body = {
        "query": "stone road bird",
        "budget": 20,
        "filter": {"number": {"gte": 370}},
        "trace": True,
        "compare": True,
    }
    answer = client.post("/search", json=body)
    assert answer.status_code == 200, answer.text
    later = answer.json()["trace"]["rounds"][1:]
    assert later
    assert all(sum(entry["histogram"]["counts"]) == 30 for entry in later)  # of those that pass


def test_trace_and_comparison(client: httpx.Client) -> None:
    body = client.post(
        "/search", json={"query": "stone road bird", "k": 8, "budget": 60, "trace": True, "compare": True}
    ).json()
    trace, rival = body["trace"], body["comparison"]
    assert sum(len(entry["picks"]) for entry in trace["rounds"]) == body["calls"] == rival["calls"] == 60
    for entry in trace["rounds"][1:]:
        assert len(entry["predictions"]) == len(trace["scored"])
        assert sum(entry["histogram"]["counts"]) == len(INDEX)
        for place, estimate in zip(entry["picks"], entry["estimates"], strict=True):
            assert entry["predictions"][place] == pytest.approx(estimate, abs=1e-2)
            assert trace["scored"][place]["round"] == entry["round"]
    exact = dict(zip((item.id for item in INDEX.items), score_words("stone road bird", _texts()), strict=True))
    assert all(item["score"] == pytest.approx(exact[item["id"]]) for item in trace["scored"])
    own, other = ([hit["id"] for hit in part["hits"]] for part in (body, rival))
    best = sorted({*own, *other}, key=lambda id: -exact[id])[:8]
    assert set(rival["missed"]) == set(best) - set(other)
    assert set(rival["extra"]) == set(best) - set(own)


def _texts() -> list[str]:
    return [plain_text(item) for item in INDEX.items]


def test_rerank_speaks_like_cohere(client: httpx.Client) -> None:
    documents = ["a red cat", "nothing", "red red cat cat"]
    body = client.post("/v2/rerank", json={"model": "any", "query": "red cat", "documents": documents, "top_n": 2})
    scores = score_words("red cat", documents)
    assert [result["index"] for result in body.json()["results"]] == [2, 0]
    assert body.json()["results"][0]["relevance_score"] == pytest.approx(1 / (1 + np.exp(-scores[2])))
    raw = {"query": "red cat", "documents": documents, "raw_scores": True}
    told = {one["index"]: one["relevance_score"] for one in client.post("/v2/rerank", json=raw).json()["results"]}
    assert [told[j] for j in range(3)] == pytest.approx(scores)
    assert "document" not in body.json()["results"][0]
    full = client.post("/v2/rerank", json={"query": "red", "documents": documents, "return_documents": True}).json()
    assert {result["document"]["text"] for result in full["results"]} == set(documents)


def test_our_rerank_endpoint_is_a_scorer(client: httpx.Client) -> None:
    from crosscut.scorers.rerank_api import from_url

    url = str(client.base_url).rstrip("/")
    for address in (f"{url}/v2/rerank#transform=logit", f"{url}/v1/rerank#transform=logit", f"{url}/rerank"):
        with from_url(address) as scorer:
            np.testing.assert_allclose(scorer.score("red cat", WORDS), score_words("red cat", WORDS), rtol=1e-6)


@pytest.mark.parametrize(
    ("path", "body", "code", "message"),
    [
        ("/search", {}, 422, "query"),
        ("/search", {"query": ""}, 422, "at least 1"),
        ("/search", {"query": "a", "k": 0}, 422, "k: Input"),
        ("/search", {"query": "a", "k": "10"}, 422, "valid integer"),
        ("/search", {"query": "a", "budget": 301}, 422, "less than or equal to 300"),
        ("/search", {"query": "a", "deadline": 1e9}, 422, "deadline"),
        ("/search", {"query": "a", "deadline": 0}, 422, "deadline"),
        ("/search", {"query": "a", "colour": 1}, 422, "colour"),
        ("/search", {"query": "a" * 5000}, 422, "4000"),
        ("/search", {"query": "a", "method": "magic"}, 422, "method"),
        ("/search", {"query": "a", "method": "crosscut@rounds=many"}, 422, "whole number"),
        ("/search", {"query": "a", "method": "crosscut@ridge=big"}, 422, "a number"),
        ("/search", {"query": "a", "method": "crosscut@rounds"}, 422, "no '='"),
        ("/search", {"query": "a", "method": "crosscut@colour=3"}, 422, "no setting"),
        ("/search", {"query": "a", "method": "crosscut@ridge=nan"}, 422, "a number"),
        ("/search", {"query": "a", "method": "crosscut@first=nowhere"}, 422, "first"),
        ("/search", {"query": "a", "first": "dense"}, 422, "first"),
        ("/search", {"query": "a", "candidates": ["i1", "nobody"]}, 422, "nobody"),
        ("/search", {"query": "a", "candidates": ["i1"] * 301}, 422, "300"),
        ("/search", {"query": "a", "stop": "patience@rounds=2", "target_recall": 0.9}, 422, "two stopping rules"),
        ("/search", {"query": "a", "stop": "sometimes"}, 422, "patience"),
        ("/search", {"query": "a", "stop": "patience@rounds=0"}, 422, "at least 1 round"),
        ("/search", {"query": "a", "stop": 2}, 422, "stop"),
        ("/search", {"query": "a", "filter": {"number": [[]]}}, 422, "condition on 'number'"),
        ("/search", {"query": "a", "filter": {"number": None}}, 422, "condition on 'number'"),
        ("/search", {"query": "a", "filter": {str(j): 1 for j in range(65)}}, 422, "64 conditions"),
        ("/search", {"query": "a", "method": "axn"}, 422, "build the index with an encoder"),
        ("/search", {"query": "a", "target_recall": 0.9}, 422, "tune"),
        ("/search", {"query": "a", "target_recall": 1.5}, 422, "less than 1"),
        ("/search", {"query": "a", "filter": {"number": {"above": 3}}}, 422, "filter"),
        ("/search", {"query": "a", "filter": 3}, 422, "filter"),
        ("/v2/rerank", {"query": "a", "documents": []}, 422, "documents"),
        ("/v2/rerank", {"query": "a", "documents": ["b"] * 51}, 422, "50"),
        ("/v2/rerank", {"query": "a", "documents": [{"text": "b"}]}, 422, "documents"),
    ],
)
def test_what_cannot_be_done_is_said(client: httpx.Client, path: str, body: Any, code: int, message: str) -> None:
    answer = client.post(path, json=body)
    assert answer.status_code == code
    assert message in answer.json()["message"]


@pytest.mark.parametrize(
    ("content", "code"),
    [
        (b"{", 400),
        (b"", 422),
        (b"[]", 422),
        (b"\xff\xfe", 400),
        (b'{"query": "\\ud800"}', 422),
        (b'{"query": "a", "\\ud800": 1}', 422),
        (b'{"query": "a", "deadline": NaN}', 422),
        (b'{"query": "a", "k": ' + b"9" * 5000 + b"}", 400),
        (b'{"query": "a", "filter": {"b": 1e999}}', 422),
        (b"[" * 900, 400),
        (b"[" * 100_000, 413),
    ],
)
def test_bodies_that_are_no_requests(client: httpx.Client, content: bytes, code: int) -> None:
    answer = client.post("/search", content=content, headers={"content-type": "application/json"})
    assert answer.status_code == code
    assert set(answer.json()) == {"error", "message"}


def test_a_body_that_is_no_json_type(client: httpx.Client) -> None:
    answer = client.post("/search", content=b'{"query": "a"}', headers={"content-type": "text/plain"})
    assert answer.status_code == 422
    assert "content-type: application/json" in answer.json()["message"]


@pytest.mark.parametrize(
    ("method", "path", "body", "message"),
    [
        ("POST", "/search", {"q": "a"}, "query is missing; there is no field q"),
        ("GET", "/nowhere", None, "GET /docs tells what there is"),
        ("GET", "/search", None, "this address takes POST, not GET"),
    ],
)
def test_errors_are_sentences(client: httpx.Client, method: str, path: str, body: Any, message: str) -> None:
    assert message in client.request(method, path, json=body).json()["message"]
    broken = client.post("/search", content=b"{'q': 1}", headers={"content-type": "application/json"})
    assert "the body is not JSON, at character 1" in broken.json()["message"]


def test_items_that_are_not_there(client: httpx.Client) -> None:
    assert client.get("/items/nobody").status_code == 404
    assert client.get("/items/a/b?c").status_code == 404
    assert client.get("/items/i3").json()["id"] == "i3"


def test_large_bodies_are_refused() -> None:
    with running(small_app(max_body=1000)) as url, httpx.Client(base_url=url) as client:
        long = {"query": "a", "documents": ["b" * 2000]}
        assert client.post("/v2/rerank", json=long).status_code == 413

        def parts() -> Iterator[bytes]:
            for _ in range(20):
                yield b"x" * 100

        assert client.post("/search", content=parts()).status_code == 413  # of unknown length
        assert client.post("/search", json={"query": "a"}).status_code == 200


def test_a_body_that_never_comes_is_given_up() -> None:
    import socket

    with running(small_app(body_seconds=0.2)) as url:
        host, port = url.removeprefix("http://").split(":")
        with socket.create_connection((host, int(port)), timeout=5) as line:
            line.sendall(b"POST /search HTTP/1.1\r\nhost: localhost\r\ncontent-length: 10\r\n\r\n{")
            assert b" 408 " in line.recv(1000)


def test_the_token(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CROSSCUT_TOKEN", TOKEN)
    with running(small_app()) as url, httpx.Client(base_url=url) as client:
        for headers in ({}, {"authorization": "Bearer wrong"}, {"authorization": TOKEN}, {"authorization": "Basic x"}):
            for path in ("/info", "/metrics", "/items/i1"):
                refused = client.get(path, headers=headers)
                assert refused.status_code == 401
                assert refused.headers["www-authenticate"] == "Bearer"
        assert client.post("/search", json={"query": "a"}).status_code == 401
        for path in ("/health", "/ready", "/", "/page/app.js", "/page/picture.js", "/page/style.css"):
            assert client.get(path).status_code == 200
        right = {"authorization": f"bearer {TOKEN}"}
        assert client.post("/search", json={"query": "a"}, headers=right).status_code == 200


def test_metrics_and_the_page(client: httpx.Client) -> None:
    before = _metric(client, 'crosscut_scorer_calls_total{route="/search"}')
    client.post("/search", json={"query": "salt", "budget": 30})
    assert _metric(client, 'crosscut_scorer_calls_total{route="/search"}') == before + 30
    assert _metric(client, "crosscut_items") == len(INDEX)
    page = client.get("/")
    assert "default-src 'self'" in page.headers["content-security-policy"]
    assert "http" not in page.text.replace("http://www.w3.org/2000/svg", "")  # nothing from elsewhere
    told = client.get("/info").json()
    assert set(told["methods"]) == {"crosscut", "rerank", "hybrid", "anncur", "adacur", "axn", "exact"}
    assert (told["method"], told["rival"]) == ("crosscut", "hybrid")


def _metric(client: httpx.Client, name: str) -> float:
    lines = [line for line in client.get("/metrics").text.splitlines() if line.startswith(name + " ")]
    return float(lines[0].split()[-1]) if lines else 0.0


def test_concurrent_searches_share_batches_and_answers_are_the_same() -> None:
    sizes: list[int] = []
    index = small_index()
    inner = index.search_many

    def counting(queries: Any, *rest: Any, **how: Any) -> Any:
        sizes.append(len(queries))
        time.sleep(0.02)
        return inner(queries, *rest, **how)

    index.search_many = counting  # type: ignore[method-assign]
    queries = [f"{a} {b}" for a in WORDS[:8] for b in WORDS[8:12]]
    app = make_app(index, Settings(batch=8))
    with running(app) as url, httpx.Client(base_url=url, timeout=60) as client, ThreadPoolExecutor(16) as pool:
        answers = list(pool.map(lambda q: client.post("/search", json={"query": q, "k": 5}).json(), queries))
    for query, answer in zip(queries, answers, strict=True):
        assert [hit["id"] for hit in answer["hits"]] == index.search(query, k=5).ids
    assert max(sizes) > 2
    assert max(sizes) <= 8


def test_a_full_queue_says_when_to_come_back() -> None:
    entered, release = threading.Event(), threading.Event()

    def slow(query: str, texts: Any) -> list[float]:
        if query != "warm up":
            entered.set()
            release.wait(60)
        return score_words(query, texts)

    app = small_app(slow, queue=2, batch=1)
    with running(app) as url, httpx.Client(base_url=url, timeout=30) as client, ThreadPoolExecutor(8) as pool:
        waiting = [pool.submit(client.post, "/search", json={"query": "a", "budget": 10})]
        assert entered.wait(60)  # one at work; of seven more, two find room
        waiting += [pool.submit(client.post, "/search", json={"query": "a", "budget": 10}) for _ in range(7)]
        end = time.monotonic() + 60
        while sum(one.done() for one in waiting) < 5 and time.monotonic() < end:
            time.sleep(0.02)
        assert client.get("/health").status_code == 200  # the server still answers
        release.set()
        answers = [one.result() for one in waiting]
    codes = [answer.status_code for answer in answers]
    assert set(codes) == {200, 429}
    assert codes.count(200) == 3  # one at work, two in the queue
    full = next(answer for answer in answers if answer.status_code == 429)
    assert int(full.headers["retry-after"]) >= 1


def test_a_deadline_counts_the_queue() -> None:
    def slow(query: str, texts: Any) -> list[float]:
        time.sleep(0.3 if query == "slow" else 0.0)
        return score_words(query, texts)

    with running(small_app(slow)) as url, httpx.Client(base_url=url, timeout=30) as client:
        body = client.post("/search", json={"query": "slow", "budget": 100, "deadline": 0.5}).json()
        assert body["stop_reason"] == "deadline"
        assert 0 < body["calls"] < 100
        with ThreadPoolExecutor(2) as pool:
            first = pool.submit(client.post, "/search", json={"query": "slow", "budget": 50})
            time.sleep(0.15)
            late = client.post("/search", json={"query": "quick", "budget": 50, "deadline": 0.05})
            assert first.result().status_code == 200
    assert late.status_code == 504
    assert "in the queue" in late.json()["message"]


def test_shutdown_finishes_what_was_accepted() -> None:
    begun = threading.Event()

    def slow(query: str, texts: Any) -> list[float]:
        if query == "long":
            begun.set()
            time.sleep(0.05)
        return score_words(query, texts)

    with ThreadPoolExecutor(1) as pool:
        with running(small_app(slow)) as url:
            answer = pool.submit(httpx.post, f"{url}/search", json={"query": "long"}, timeout=30)
            begun.wait(10)
        assert answer.result().status_code == 200


@pytest.mark.parametrize(
    ("faults", "code", "error"),
    [
        ({"always": status(500)}, 502, "ScorerUnavailable"),
        ({"always": status(429, retry_after="1000")}, 503, "ScorerRateLimited"),
        ({"always": status(200, {"wrong": 1})}, 502, "ScorerAnswerError"),
        ({"always": status(401, "bad key KEY")}, 502, "ScorerRefused"),
        ({"delay": 3.0}, 504, "ScorerTimeout"),
        (
            {"answer": lambda body: {"results": [{"index": 0, "relevance_score": float("nan")}]}},
            502,
            "ScoreValueError",
        ),
    ],
)
def test_endpoints_that_fail(
    faults: dict[str, Any],
    code: int,
    error: str,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Down, too many requests, another shape, no key, slow, NaN: a named error, the hits so far, no secret."""
    from crosscut.scorers.rerank_api import RerankEndpoint

    monkeypatch.setenv("RERANK_KEY", "KEY-7f3a9")
    caplog.set_level(logging.DEBUG)
    with served(cohere) as endpoint:
        scorer = RerankEndpoint(
            endpoint.url, key_env="RERANK_KEY", batch_size=1, concurrency=2, timeout=60.0, retries=1, first_wait=0.01
        )
        with scorer, running(small_app(scorer)) as url, httpx.Client(base_url=url, timeout=30) as client:
            assert client.post("/search", json={"query": "a", "budget": 20}).status_code == 200
            good = len(endpoint.bodies)
            endpoint.faults = [lambda body: (200, {}, cohere(body))] * 2  # the first round begins well
            for name, value in faults.items():
                setattr(endpoint, name, value)
            if error == "ScorerTimeout":
                scorer.transport.timeout = 0.3
            answer = client.post("/search", json={"query": "b", "budget": 20})
            rerank = client.post("/v2/rerank", json={"query": "b", "documents": ["x", "y"]})
            assert client.get("/health").status_code == 200
            told = answer.text + rerank.text + client.get("/metrics").text
    assert (answer.status_code, answer.json()["error"]) == (code, error)
    if error != "ScorerTimeout":
        assert len(answer.json()["hits"]) == 2
    assert rerank.status_code in (code, 504)
    assert good == 20
    lines = [JsonFormatter().format(record) for record in caplog.records]
    assert "7f3a9" not in told + "".join(lines)
    assert any(json.loads(line).get("error") == error for line in lines)


def test_one_failure_in_a_batch_leaves_finished_searches_alone() -> None:
    def picky(query: str, texts: Any) -> list[float]:
        scores = score_words(query, texts)
        return [float("nan")] * len(texts) if query == "bad" else scores

    with running(small_app(picky, linger=0.2)) as url, httpx.Client(base_url=url, timeout=30) as client:
        with ThreadPoolExecutor(2) as pool:
            bad, good = pool.map(
                lambda query: client.post("/search", json={"query": query, "budget": 20}), ["bad", "good"]
            )
        assert bad.status_code == 502
        assert bad.json()["error"] == "ScoreValueError"
        assert good.status_code in (200, 502)
        if good.status_code == 502:
            assert len(good.json()["hits"]) > 0
        assert client.post("/search", json={"query": "good", "budget": 20}).status_code == 200


def test_logs_are_json_and_hold_no_texts(caplog: pytest.LogCaptureFixture, client: httpx.Client) -> None:
    caplog.set_level(logging.INFO, logger="crosscut.server")
    client.post("/search", json={"query": "very private words", "budget": 25}, headers={"x-request-id": "r-1"})
    client.post("/search", json={"query": "x"}, headers={"x-request-id": 'evil"}{'})
    lines = [json.loads(JsonFormatter().format(record)) for record in caplog.records if record.message == "request"]
    entry = next(line for line in lines if line.get("request_id") == "r-1")
    assert (entry["route"], entry["status"], entry["calls"], entry["search"]) == ("/search", 200, 25, "crosscut")
    assert entry["ms"] > 0
    assert "private" not in json.dumps(lines)
    assert "evil" not in json.dumps(lines)


def test_a_request_without_a_budget_has_that_of_its_index() -> None:
    index = small_index()
    index.budget = 7
    for limits, own, other in (({}, 7, 100), ({"max_budget": 5}, 5, 5), ({"default_budget": 9}, 9, 9)):
        with running(make_app(index, Settings(**limits))) as url, httpx.Client(base_url=url) as client:  # type: ignore[arg-type]
            assert client.get("/info").json()["default_budget"] == own
            for asked, budget in (
                ({}, own),
                ({"method": "hybrid"}, other),
                ({"budget": 4}, 4),
                ({"budget": None}, own),
            ):
                assert client.post("/search", json={"query": "red cat", **asked}).json()["budget"] == budget


def test_settings_are_checked() -> None:
    for wrong in ({"max_budget": 0}, {"default_budget": 2000}, {"queue": 0}, {"max_deadline": 0}):
        with pytest.raises(InputError):
            Settings(**wrong)  # type: ignore[arg-type]


def test_the_schema_states_the_limits(client: httpx.Client) -> None:
    schema = client.get("/openapi.json").json()
    fields = schema["components"]["schemas"]["SearchRequest"]["properties"]
    assert fields["budget"]["anyOf"] == [{"type": "integer", "minimum": 1, "maximum": 300}, {"type": "null"}]
    assert set(schema["paths"]) == {
        *("/search", "/v2/rerank", "/v1/rerank", "/rerank", "/items", "/items/{id}"),
        *("/info", "/health", "/ready", "/metrics"),
    }
    assert "429" in schema["paths"]["/search"]["post"]["responses"]


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=8,
)
FIELDS = (
    *("query", "k", "budget", "method", "candidates", "filter", "deadline", "stop", "target_recall", "trace"),
    *("compare", "documents", "texts", "rank_fields"),
)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    body=st.dictionaries(st.sampled_from(FIELDS), JSON, max_size=6) | JSON,
    path=st.sampled_from(["search", "v2/rerank", "v1/rerank", "rerank"]),
)
def test_random_requests_never_break_the_server(client: httpx.Client, body: Any, path: str) -> None:
    content = json.dumps(body).encode()
    answer = client.post(f"/{path}", content=content, headers={"content-type": "application/json"})
    assert answer.status_code in (200, 400, 422)
    assert isinstance(answer.json(), dict)
