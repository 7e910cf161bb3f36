"""The HTTP API: what it answers and what it refuses."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

pytest.importorskip("fastapi")

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from starlette.testclient import TestClient

import crosscut
from crosscut.datasets.records import plain_text
from crosscut.errors import InputError
from crosscut.server import Settings, make_app
from crosscut.server.observability import JsonFormatter, Metrics
from crosscut.server.settings import read_evaluation, settings_table
from tests.served import client, metric, score_words, small_client, small_index

INDEX = small_index()
EVALUATION = {
    "method": "rerank",
    "measure": "nDCG@10",
    "value": 0.5,
    "low": 0.4,
    "high": 0.6,
    "calls": 50.0,
    "queries": 40,
}


@pytest.fixture(scope="module")
def api() -> Iterator[TestClient]:
    with client(make_app(INDEX, Settings(max_budget=300))) as opened:
        yield opened


def test_a_search_returns_what_the_index_finds(api: TestClient) -> None:
    answer = api.post("/search", json={"query": "red cat sea", "k": 5, "budget": 60})
    assert answer.status_code == 200
    body = answer.json()
    hits = INDEX.search("red cat sea", k=5, budget=60)
    assert [hit["id"] for hit in body["hits"]] == hits.ids
    assert body["hits"] == [hit.to_json() for hit in hits]
    assert (body["calls"], body["rounds"], body["method"], body["stop_reason"]) == (60, 10, "crosscut", "budget")
    assert body["trace"] is body["comparison"] is None
    first = body["hits"][0]
    assert api.get(f"/items/{first['id']}").json()["text"] == first["text"]
    assert first["metadata"] == {"number": int(first["id"][1:])}


def test_options_reach_the_search(api: TestClient) -> None:
    request = {"query": "red cat", "k": 3, "budget": 50, "filter": {"number": {"gte": 100, "lt": 200}}}
    body = api.post("/search", json={**request, "stop": "patience@rounds=2"}).json()
    assert all(100 <= hit["metadata"]["number"] < 200 for hit in body["hits"])
    assert body["stop_reason"] in ("patience", "budget")
    assert api.post("/search", json={**request, "filter": {"number": [7, 9]}}).json()["calls"] == 2
    body = api.post("/search", json={"query": "red", "method": "hybrid", "budget": 20, "deadline": 5.0}).json()
    assert (body["method"], body["rounds"], body["calls"]) == ("hybrid", 1, 20)
    body = api.post("/search", json={"query": "red cat", "method": "crosscut@rounds=5", "budget": 20, "k": 1}).json()
    assert (body["method"], body["rounds"], len(body["hits"])) == ("crosscut@rounds=5", 5, 1)


def test_trace_and_comparison(api: TestClient) -> None:
    request = {"query": "stone road bird", "k": 8, "budget": 60, "trace": True, "compare": True}
    body = api.post("/search", json=request).json()
    trace, rival = body["trace"], body["comparison"]
    assert [one["round"] for one in trace] == list(range(1, body["rounds"] + 1))
    assert sum(one["calls"] for one in trace) == sum(len(one["items"]) for one in trace) == body["calls"] == 60
    items = [item for one in trace for item in one["items"]]
    hits = sorted((item for item in items if item["hit"]), key=lambda item: item["hit"])
    assert [item["id"] for item in hits] == [hit["id"] for hit in body["hits"]]
    assert all(item["title"] for item in items)
    assert all(item["estimate"] is not None for one in trace[1:] for item in one["items"])
    exact = {item.id: score for item, score in zip(INDEX.items, score_words("stone road bird", _texts()), strict=True)}
    own, other = ([hit["id"] for hit in part["hits"]] for part in (body, rival))
    best = sorted({*own, *other}, key=lambda id: -exact[id])[:8]
    assert rival["calls"] == 60
    assert set(rival["missed"]) == set(best) - set(other)
    assert set(rival["extra"]) == set(best) - set(own)


def _texts() -> list[str]:
    return [plain_text(item) for item in INDEX.items]


@pytest.mark.parametrize(
    ("path", "body", "message"),
    [
        ("/search", {}, "query is missing"),
        ("/search", {"q": "a"}, "query is missing; there is no field q"),
        ("/search", {"query": ""}, "at least 1"),
        ("/search", {"query": "a", "k": 0}, "k: Input"),
        ("/search", {"query": "a", "k": "10"}, "valid integer"),
        ("/search", {"query": "a", "k": 101}, "k is at most 100"),
        ("/search", {"query": "a", "budget": 301}, "budget is at most 300"),
        ("/search", {"query": "a", "deadline": 1e9}, "deadline is at most 60"),
        ("/search", {"query": "a", "deadline": 0}, "deadline"),
        ("/search", {"query": "a" * 5000}, "4,000"),
        ("/search", {"query": "a", "method": "magic"}, "method"),
        ("/search", {"query": "a", "method": "crosscut@rounds=many"}, "whole number"),
        ("/search", {"query": "a", "method": "crosscut@colour=3"}, "no setting"),
        ("/search", {"query": "a", "method": "crosscut@ridge=nan"}, "a number"),
        ("/search", {"query": "a", "stop": "patience@rounds=2", "target_recall": 0.9}, "two stopping rules"),
        ("/search", {"query": "a", "stop": "sometimes"}, "patience"),
        ("/search", {"query": "a", "target_recall": 0.9}, "tune"),
        ("/search", {"query": "a", "target_recall": 1.5}, "less than 1"),
        ("/search", {"query": "a", "threshold": 2}, "threshold"),
        ("/search", {"query": "a", "filter": {"number": [[]]}}, "condition on 'number'"),
        ("/search", {"query": "a", "filter": {"number": {"above": 3}}}, "filter"),
        ("/search", {"query": "a", "filter": {"k" * 1001: 1}}, "1000 characters"),
        ("/search", {"query": "a", "filter": {str(j): 1 for j in range(65)}}, "64 conditions"),
        ("/search", {str(j): 1 for j in range(65)}, "64 fields"),
        ("/v2/rerank", {"query": "a", "documents": []}, "documents"),
        ("/v2/rerank", {"query": "a", "documents": [{"text": "b"}]}, "documents"),
        ("/v1/rerank", {"query": "a", "documents": [{"title": "b"}]}, "an object with a text under text"),
        ("/v1/rerank", {"query": "a", "documents": ["b"], "rank_fields": ["text"] * 33}, "rank_fields"),
        ("/rerank", {"query": "", "texts": ["b"]}, "query"),
    ],
)
def test_requests_that_cannot_be_met_are_refused_in_a_sentence(
    api: TestClient, path: str, body: Any, message: str
) -> None:
    answer = api.post(path, json=body)
    assert answer.status_code == 422, answer.text
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
        (b"[" * 100_000, 400),
        (b'{"query": "a", "documents": [' + b"[]," * 1_000_000 + b"[]]}", 422),
        (b"{" + b",".join(b'"%d": 1' % j for j in range(200_000)) + b"}", 422),
    ],
)
def test_bodies_that_are_no_requests(api: TestClient, content: bytes, code: int) -> None:
    answer = api.post("/search", content=content, headers={"content-type": "application/json"})
    assert answer.status_code == code
    assert {"error", "message"} <= answer.json().keys()
    assert len(answer.content) < 2000


def test_other_mistakes_are_answered_in_sentences(api: TestClient) -> None:
    plain = api.post("/search", content=b'{"query": "a"}', headers={"content-type": "text/plain"})
    assert (plain.status_code, "content-type: application/json" in plain.json()["message"]) == (422, True)
    assert (
        "the body is not JSON, at character"
        in (api.post("/search", content=b"{'q': 1}", headers={"content-type": "application/json"}).json()["message"])
    )
    assert "GET /docs" in api.get("/nowhere").json()["message"]
    assert "this address takes POST, not GET" in api.get("/search").json()["message"]
    assert api.get("/search/").status_code == 404  # no redirect, which would quote the client's host
    assert api.get("/items/nobody").status_code == 404


def test_every_id_can_be_reached() -> None:
    ids = ["a\nb", "a\n", "a/b//c", "/a", "a?b#c", "ä ö", "a b", "\t", "💡", "{x}"]
    items = [{"id": id, "text": f"text {j}"} for j, id in enumerate(ids)]
    index = crosscut.Index.build(items, scorer=score_words, encoder=None, method="hybrid")
    with client(make_app(index)) as api:
        for j, id in enumerate(ids):
            assert api.get(f"/items/{quote(id, safe='')}").json()["text"] == f"text {j}"


def test_methods_that_prepare_every_item_are_refused(api: TestClient) -> None:
    answer = api.post("/search", json={"query": "red", "budget": 20, "method": "crosscut@rank=3"})
    assert (answer.status_code, "goes through every item" in answer.text) == (422, True)


def test_tokens_for_reading_and_writing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CROSSCUT_TOKEN", "read")
    with client(make_app(small_index(n=40))) as api:
        for headers in ({}, {"authorization": "Bearer wrong"}, {"authorization": "read"}, {"authorization": "Basic x"}):
            for path in ("/info", "/metrics", "/items/i1", "/docs", "/openapi.json"):
                refused = api.get(path, headers=headers)
                assert refused.status_code == 401
                assert refused.headers["www-authenticate"] == "Bearer"
        assert api.post("/search", json={"query": "a"}).status_code == 401
        for path in ("/health", "/ready", "/", "/page/app.js", "/page/style.css"):
            assert api.get(path).status_code == 200
        right = {"authorization": "bearer read", "host": "any.example"}  # with a token, under any name
        assert api.post("/search", json={"query": "a"}, headers=right).status_code == 200
        assert api.post("/items", json={"items": [{"id": "a", "text": "b"}]}, headers=right).status_code == 403
    monkeypatch.setenv("CROSSCUT_WRITE_TOKEN", "write")
    with client(make_app(small_index(n=40))) as api:

        def status(token: str | None, *request: Any, **more: Any) -> int:
            headers = {} if token is None else {"authorization": f"Bearer {token}"}
            return api.request(*request, headers=headers, **more).status_code

        new = {"items": [{"id": "new", "text": "red"}]}
        assert [status(token, "POST", "/items", json=new) for token in (None, "no", "read", "write")] == [
            *(401, 401, 403, 200)
        ]
        assert [status(token, "DELETE", "/items/i1") for token in (None, "no", "read", "write")] == [401, 401, 403, 200]
        assert [status(token, "GET", "/items/i2") for token in (None, "no", "read", "write")] == [401, 401, 200, 200]


def test_tokens_hold_wherever_the_application_is_mounted(monkeypatch: pytest.MonkeyPatch) -> None:
    from starlette.applications import Starlette
    from starlette.routing import Mount

    monkeypatch.setenv("CROSSCUT_WRITE_TOKEN", "write")
    app = make_app(small_index(n=40))
    new = {"items": [{"id": "new", "text": "red"}]}
    outer = client(Starlette(routes=[Mount("/api", app=app)]))
    for api, path in ((outer, "/api/items"), (client(app, root_path="/api"), "/items")):
        assert api.post(path, json=new).status_code == 401
        assert api.request("PUT", path, json=new).status_code == 401
        assert api.get(f"{path}/i3").status_code == 200
    assert outer.post("/api/items", json=new, headers={"authorization": "Bearer write"}).status_code == 200


def test_a_server_without_a_token_answers_to_its_own_names_only(api: TestClient) -> None:
    for host in ("evil.example", "evil.example:80", "localhost.evil.example", "10.0.0.1", "[::2]"):
        assert api.post("/search", json={"query": "a"}, headers={"host": host}).status_code == 400
    for host in ("localhost", "LOCALHOST:99", "127.0.0.1", "[::1]", "[::1]:80"):
        assert api.post("/search", json={"query": "a"}, headers={"host": host}).status_code == 200
    with client(make_app(INDEX, Settings(allow_host=("search.example",)))) as named:
        assert named.get("/info", headers={"host": "search.example:80"}).status_code == 200
        assert named.get("/info", headers={"host": "other.example"}).status_code == 400


def test_pages_of_named_origins_may_send_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CROSSCUT_TOKEN", "read")
    ask = {"origin": "https://shop.example", "access-control-request-method": "POST"}
    with client(make_app(INDEX, Settings(allow_origin=("https://shop.example",)))) as api:
        allowed = api.options("/search", headers={**ask, "access-control-request-headers": "authorization"})
        assert allowed.headers["access-control-allow-origin"] == "https://shop.example"
        other = api.options("/search", headers={**ask, "origin": "https://evil.example"})
        assert "access-control-allow-origin" not in other.headers
        refused = api.post("/search", json={"query": "a"}, headers={"origin": "https://shop.example"})
        assert (refused.status_code, refused.headers["access-control-allow-origin"]) == (401, "https://shop.example")


def test_metrics_and_info(api: TestClient) -> None:
    before = metric(api, 'crosscut_scorer_calls_total{route="/search"}')
    api.post("/search", json={"query": "salt", "budget": 30})
    assert metric(api, 'crosscut_scorer_calls_total{route="/search"}') == before + 30
    assert metric(api, "crosscut_items") == len(INDEX)
    info = api.get("/info").json()
    assert {"crosscut", "hybrid", "axn", "exact"} <= set(info["methods"])
    assert (info["method"], info["rival"], info["max_budget"]) == ("crosscut", "hybrid", 300)


def test_requests_to_an_endpoint_that_indexes_share_are_counted_once() -> None:
    class Remote:
        def __init__(self, requests: int) -> None:
            self.sent = type("Sent", (), {"requests": requests, "retries": 0})()

    shared, metrics = Remote(3), Metrics()
    metrics.watch(lambda: 0, lambda: 0, [shared, shared, Remote(4), None])
    assert b"crosscut_endpoint_requests 7.0" in metrics.text()


def test_the_page_loads_nothing_from_elsewhere(api: TestClient) -> None:
    page = api.get("/")
    assert "default-src 'self'" in page.headers["content-security-policy"]
    assert "http" not in page.text.replace("http://www.w3.org/2000/svg", "")
    assert page.headers["x-content-type-options"] == "nosniff"
    assert api.get("/page/../settings.py").status_code == 404
    with client(make_app(INDEX, Settings(page=False))) as bare:
        assert bare.get("/").status_code == 404


def test_logs_are_json_and_hold_no_texts(caplog: pytest.LogCaptureFixture, api: TestClient) -> None:
    caplog.set_level(logging.INFO, logger="crosscut.server")
    api.post("/search", json={"query": "very private words", "budget": 25}, headers={"x-request-id": "r-1"})
    api.post("/search", json={"query": "x"}, headers={"x-request-id": 'evil"}{'})
    lines = [json.loads(JsonFormatter().format(record)) for record in caplog.records if record.message == "request"]
    entry = next(line for line in lines if line.get("request_id") == "r-1")
    assert (entry["route"], entry["status"], entry["calls"], entry["search"]) == ("/search", 200, 25, "crosscut")
    assert not {"private", "evil"} & set(json.dumps(lines).replace('"', " ").split())


def test_a_request_without_a_budget_has_that_of_its_index() -> None:
    index = small_index(n=60)
    index.budget = 7
    for limits, own, other in (({}, 7, 60), ({"max_budget": 5}, 5, 5), ({"budget": 9}, 9, 9)):
        with client(make_app(index, Settings(**limits))) as api:  # type: ignore[arg-type]
            assert api.get("/info").json()["default_budget"] == own
            for more, budget in (({}, own), ({"method": "hybrid"}, other), ({"budget": 4}, 4), ({"budget": None}, own)):
                answer = api.post("/search", json={"query": "red cat", "k": 3, **more}).json()
                assert min(answer["budget"], 60) == budget


def test_settings_are_checked() -> None:
    for wrong in ({"max_budget": 0}, {"budget": 2000}, {"queue": 0}, {"max_deadline": 0}, {"save_seconds": -1}):
        with pytest.raises(InputError):
            Settings(**wrong)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="needs an index"):
        make_app({})


def test_the_table_of_settings_in_the_docs() -> None:
    assert settings_table() in (Path(__file__).parents[2] / "docs/guides/serving.md").read_text("utf-8")


def test_an_evaluation_is_read_from_a_file_or_refused(tmp_path: Path) -> None:
    path = tmp_path / "out.json"
    for content in ([EVALUATION], {"records": [EVALUATION], "advice": {}}):
        path.write_text(json.dumps(content))
        assert [one.model_dump() for one in read_evaluation(path)] == [EVALUATION]
    with client(make_app(INDEX, Settings(evaluation=path))) as api:
        assert api.get("/info").json()["evaluation"] == [EVALUATION]
    for wrong in ("[{}]", "no JSON", '{"a": 1}'):
        path.write_text(wrong)
        with pytest.raises(InputError, match="is not what `crosscut evaluate"):
            read_evaluation(path)
    with pytest.raises(InputError, match="cannot be read"):
        read_evaluation(tmp_path / "none.json")


def test_the_schema_has_plain_names_tags_and_the_token(api: TestClient) -> None:
    schema = api.get("/openapi.json").json()
    operations = {
        operation["operationId"]: operation for methods in schema["paths"].values() for operation in methods.values()
    }
    assert set(operations) == {
        *("search", "rerank_cohere_v2", "rerank_cohere_v1", "rerank_tei", "get_item", "add_items", "remove_item"),
        *("info", "health", "ready", "metrics"),
    }
    assert all(operation["tags"] and operation["security"] for operation in operations.values())
    assert schema["components"]["securitySchemes"]["HTTPBearer"]["scheme"] == "bearer"
    assert "429" in operations["search"]["responses"]
    assert api.get("/docs").status_code == 200


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=8,
)
FIELDS = (
    *("query", "k", "budget", "method", "candidates", "filter", "deadline", "stop", "target_recall", "trace", "index"),
    *("compare", "documents", "texts", "rank_fields", "items"),
)


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    body=st.dictionaries(st.sampled_from(FIELDS), JSON, max_size=6) | JSON,
    path=st.sampled_from(["search", "v2/rerank", "v1/rerank", "rerank", "items"]),
)
def test_random_requests_never_break_the_server(api: TestClient, body: Any, path: str) -> None:
    answer = api.post(f"/{path}", content=json.dumps(body).encode(), headers={"content-type": "application/json"})
    assert answer.status_code in (200, 400, 403, 404, 422)
    assert isinstance(answer.json(), dict | list)


def test_wrong_ids_in_candidates_are_named_to_their_sender() -> None:
    with small_client() as api:
        answer = api.post("/search", json={"query": "a", "candidates": ["i1", "nobody"]})
        assert (answer.status_code, "nobody" in answer.json()["message"]) == (422, True)
