"""Reranking in the shapes of other services, by their own clients; what it costs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import httpx
import numpy as np
import pytest

pytest.importorskip("fastapi")

from starlette.testclient import TestClient

import crosscut
from crosscut.scorers.rerank_api import from_url
from crosscut.server import Settings, make_app
from tests.served import WORDS, Gate, client, metric, running, score_words, small_client, small_index

DOCUMENTS = ["a red cat", "nothing", "red red cat cat"]
QUERY = "red cat"
RAW = score_words(QUERY, DOCUMENTS)
RELEVANCE = (1 / (1 + np.exp(-np.array(RAW)))).tolist()


@pytest.fixture(scope="module")
def api() -> Iterator[TestClient]:
    index = small_index()
    index.price = crosscut.Price(per_thousand_calls=2.0)
    with client(make_app(index, Settings())) as opened:
        yield opened


@pytest.mark.services
@pytest.mark.filterwarnings("default::DeprecationWarning")
def test_the_clients_of_cohere() -> None:
    cohere = pytest.importorskip("cohere")
    with running(make_app(small_index(), Settings())) as url, httpx.Client() as line:
        v2 = cohere.ClientV2(api_key="none", base_url=url, httpx_client=line)
        answer = v2.rerank(model="rerank-v3.5", query=QUERY, documents=DOCUMENTS, top_n=2, max_tokens_per_doc=512)
        assert [result.index for result in answer.results] == [2, 0]
        assert [result.relevance_score for result in answer.results] == pytest.approx([RELEVANCE[2], RELEVANCE[0]])
        assert (answer.meta.api_version.version, answer.meta.billed_units.search_units) == ("2", 1)
        v1 = cohere.Client(api_key="none", base_url=url, httpx_client=line)
        documents: list[Any] = [DOCUMENTS[0], {"text": DOCUMENTS[1]}, {"text": DOCUMENTS[2]}]
        answer = v1.rerank(model="rerank-v3.5", query=QUERY, documents=documents, return_documents=True)
        assert [result.document.text for result in answer.results] == [DOCUMENTS[j] for j in (2, 0, 1)]
        with_fields = [{"a": "red", "b": "cat"}, {"a": "none", "b": "none"}]
        answer = v1.rerank(query=QUERY, documents=with_fields, rank_fields=["a", "b"], return_documents=True)
        assert answer.results[0].document.text == "red\ncat"


@pytest.mark.services
def test_our_endpoints_are_scorers() -> None:
    with running(make_app(small_index(), Settings())) as url:
        for address in (f"{url}/v2/rerank#transform=logit", f"{url}/v1/rerank#transform=logit", f"{url}/rerank"):
            with from_url(address) as scorer:
                np.testing.assert_allclose(scorer.score("red cat", WORDS), score_words("red cat", WORDS), rtol=1e-6)


def test_the_shapes_of_cohere_jina_and_tei(api: TestClient) -> None:
    body = api.post("/v2/rerank", json={"model": "any", "query": QUERY, "documents": DOCUMENTS, "top_n": 2}).json()
    assert [one["index"] for one in body["results"]] == [2, 0]
    assert [one["relevance_score"] for one in body["results"]] == pytest.approx([RELEVANCE[2], RELEVANCE[0]])
    assert "document" not in body["results"][0]
    assert body["meta"]["calls"] == 3
    assert body["meta"]["cost"] == pytest.approx(0.006)
    raw = api.post("/v2/rerank", json={"query": QUERY, "documents": DOCUMENTS, "raw_scores": True}).json()
    assert {one["index"]: one["relevance_score"] for one in raw["results"]} == pytest.approx(dict(enumerate(RAW)))
    request = {"model": "jina-reranker", "query": QUERY, "documents": DOCUMENTS, "truncation": True}
    jina = api.post("/v1/rerank", json=request).json()
    assert jina["model"] == "crosscut"
    assert jina["usage"]["total_tokens"] > 0
    tei = api.post("/rerank", json={"query": QUERY, "texts": DOCUMENTS, "truncate": True}).json()
    assert [one["index"] for one in tei] == [2, 0, 1]
    assert [one["score"] for one in tei] == pytest.approx(sorted(RELEVANCE, reverse=True))
    raw = api.post("/rerank", json={"query": QUERY, "texts": DOCUMENTS, "raw_scores": True, "return_text": True}).json()
    assert raw[0] == {"index": 2, "score": RAW[2], "text": DOCUMENTS[2]}


def test_fields_of_documents_are_read_once(api: TestClient) -> None:
    request = {"query": "cat", "documents": [{"text": "red cat", "b": "sea"}], "return_documents": True}
    body = api.post("/v1/rerank", json=request | {"rank_fields": ["text", "b"] * 16}).json()
    assert body["results"][0]["document"]["text"] == "red cat\nsea"


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v2/rerank", rb'{"query": "a", "documents": ["b", "\ud800"], "return_documents": true}'),
        ("/v1/rerank", rb'{"query": "a", "documents": [{"text": "b", "c": "\udfff"}], "return_documents": true}'),
        ("/rerank", rb'{"query": "a", "texts": ["\ud83d"], "return_text": true}'),
    ],
)
def test_lone_surrogates_are_refused(api: TestClient, path: str, body: bytes) -> None:
    answer = api.post(path, content=body, headers={"content-type": "application/json"})
    assert (answer.status_code, "lone surrogate" in answer.json()["message"]) == (422, True)


@pytest.mark.parametrize(
    ("path", "name", "results", "score"),
    [("/v2/rerank", "documents", "results", "relevance_score"), ("/rerank", "texts", None, "score")],
)
def test_a_threshold_leaves_out_what_is_below_it(
    api: TestClient, path: str, name: str, results: str | None, score: str
) -> None:
    def places(**more: Any) -> list[int]:
        answer = api.post(path, json={"query": QUERY, name: DOCUMENTS, **more}).json()
        return [one["index"] for one in (answer if results is None else answer[results])]

    least = sorted(RELEVANCE)[1]
    assert places() == [2, 0, 1]
    assert places(threshold=least) == places(threshold=least, raw_scores=True) == [2, 0]
    assert places(threshold=1.0) == []
    assert api.post(path, json={"query": QUERY, name: DOCUMENTS, "threshold": 2}).status_code == 422


@pytest.mark.parametrize(
    ("path", "name"), [("/v2/rerank", "documents"), ("/v1/rerank", "documents"), ("/rerank", "texts")]
)
def test_the_budget_cap_bounds_rerank_requests(path: str, name: str) -> None:
    gate = Gate()
    with small_client(gate, max_budget=20) as api:
        assert api.post(path, json={"query": "red", name: ["a text"] * 21}).status_code == 422
        assert gate.pairs == {}
        assert api.post(path, json={"query": "red", name: [f"text {j}" for j in range(20)]}).status_code == 200
        assert gate.pairs == {"red": 20}


def test_what_a_search_costs_in_money(api: TestClient) -> None:
    found = api.post("/search", json={"query": QUERY, "budget": 40}).json()
    assert found["cost"] == pytest.approx(2.0 * found["calls"] / 1000)
    both = api.post("/search", json={"query": QUERY, "budget": 40, "compare": True}).json()
    assert both["cost"] == pytest.approx(2.0 * (both["calls"] + both["comparison"]["calls"]) / 1000)
    assert metric(api, 'crosscut_cost_total{route="/search"}') == pytest.approx(found["cost"] + both["cost"])
    assert api.get("/info").json()["call_price"] == pytest.approx(0.002)
