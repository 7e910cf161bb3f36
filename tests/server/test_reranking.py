"""Reranking in the shapes of other services, by their own clients; what it costs in money."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import httpx
import numpy as np
import pytest

import crosscut
from crosscut.errors import InputError
from crosscut.score_store.rerank import Reranker
from crosscut.scorers.calibration import against_random, relevance
from crosscut.scorers.llm_judge import ChatJudge
from crosscut.scorers.rerank_api import RerankEndpoint
from crosscut.server import Settings, make_app
from tests.served import running, score_words, small_index

DOCUMENTS = ["a red cat", "nothing", "red red cat cat"]
QUERY = "red cat"
pytestmark = pytest.mark.filterwarnings("default::DeprecationWarning")


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    index = small_index()
    index.price = crosscut.Price(per_thousand_calls=2.0)
    with running(make_app(index, Settings(max_documents=50))) as address:
        yield address


def wanted() -> list[float]:
    return (1 / (1 + np.exp(-np.array(score_words(QUERY, DOCUMENTS))))).tolist()


@pytest.mark.services
def test_the_sdk_of_cohere_v2(url: str) -> None:
    import cohere

    with httpx.Client() as line:
        client = cohere.ClientV2(api_key="none", base_url=url, httpx_client=line)
        answer = client.rerank(model="rerank-v3.5", query=QUERY, documents=DOCUMENTS, top_n=2, max_tokens_per_doc=512)
    assert [result.index for result in answer.results] == [2, 0]
    assert [result.relevance_score for result in answer.results] == pytest.approx([wanted()[2], wanted()[0]])
    assert answer.id
    assert answer.meta is not None
    assert answer.meta.api_version.version == "2"
    assert answer.meta.billed_units.search_units == 1


@pytest.mark.services
def test_the_sdk_of_cohere_v1(url: str) -> None:
    import cohere

    documents: list[Any] = [DOCUMENTS[0], {"text": DOCUMENTS[1]}, {"text": DOCUMENTS[2]}]
    fields = [{"a": "red", "b": "cat"}, {"a": "none", "b": "none"}]
    with httpx.Client() as line:
        client = cohere.Client(api_key="none", base_url=url, httpx_client=line)
        answer = client.rerank(model="rerank-v3.5", query=QUERY, documents=documents, return_documents=True)
        named = client.rerank(query=QUERY, documents=fields, rank_fields=["a", "b"], return_documents=True)
    assert [result.index for result in answer.results] == [2, 0, 1]
    assert [result.document.text for result in answer.results] == [DOCUMENTS[j] for j in (2, 0, 1)]
    assert named.results[0].document.text == "red\ncat"


def test_jina_and_tei(url: str) -> None:
    asked = {"model": "jina-reranker", "query": QUERY, "documents": DOCUMENTS, "truncation": True}
    told = httpx.post(f"{url}/v1/rerank", json=asked).json()
    assert {"model", "usage", "results"} <= told.keys()
    assert told["usage"]["total_tokens"] > 0
    assert "document" not in told["results"][0]
    plain = httpx.post(f"{url}/rerank", json={"query": QUERY, "texts": DOCUMENTS, "truncate": True}).json()
    assert [one["index"] for one in plain] == [2, 0, 1]
    assert [one["score"] for one in plain] == pytest.approx(sorted(wanted(), reverse=True))
    raw = httpx.post(
        f"{url}/rerank", json={"query": QUERY, "texts": DOCUMENTS, "raw_scores": True, "return_text": True}
    )
    assert raw.json()[0] == {"index": 2, "score": score_words(QUERY, DOCUMENTS)[2], "text": DOCUMENTS[2]}


@pytest.mark.parametrize(
    ("path", "body", "message"),
    [
        ("/v1/rerank", {"query": "a", "documents": [{"title": "b"}]}, "an object with a text under text"),
        ("/v1/rerank", {"query": "a", "documents": [{"text": 3}]}, "an object with a text under text"),
        ("/v1/rerank", {"query": "a", "documents": ["b"] * 51}, "50"),
        ("/v1/rerank", {"query": "a", "documents": [{"text": "b"}], "rank_fields": ["text"] * 33}, "rank_fields"),
        ("/rerank", {"query": "a", "texts": []}, "texts"),
        ("/rerank", {"query": "", "texts": ["b"]}, "query"),
    ],
)
def test_what_cannot_be_reranked_is_said(url: str, path: str, body: dict[str, Any], message: str) -> None:
    answer = httpx.post(url + path, json=body)
    assert answer.status_code == 422
    assert message in answer.json()["message"]


def test_fields_that_are_named_often_are_read_once(url: str) -> None:
    """Else a thousand names of one field would make gigabytes of a megabyte."""
    asked = {"query": "cat", "documents": [{"text": "red cat", "b": "sea"}], "return_documents": True}
    told = httpx.post(f"{url}/v1/rerank", json=asked | {"rank_fields": ["text", "b"] * 16}).json()
    assert told["results"][0]["document"]["text"] == "red cat\nsea"


def test_relevance_is_between_0_and_1_in_the_order_of_the_scores() -> None:
    scores = np.array([-1000.0, -9.53, 0.0, 4.63, 1000.0])
    told = relevance(object(), scores)
    assert told.tolist() == pytest.approx([0, 1 / (1 + np.exp(9.53)), 0.5, 1 / (1 + np.exp(-4.63)), 1], abs=1e-12)
    assert (np.diff(told) >= 0).all()
    service = RerankEndpoint("http://localhost/v2/rerank")
    assert relevance(service, np.array([0.2, 0.9])).tolist() == [0.2, 0.9]
    logits = RerankEndpoint("http://localhost/v2/rerank", transform="logit")
    assert relevance(logits, np.array([0.0])).tolist() == [0.5]
    judge = ChatJudge("http://localhost/v1/chat/completions", model="m")
    assert relevance(judge, np.array([0.0, 9.0])).tolist() == [0.0, 1.0]
    index = small_index()
    learned = index.calibrate()
    assert relevance(index.scorer, scores, learned).tolist() == learned.probabilities(scores, scores).tolist()


def test_what_a_search_costs_in_money(url: str) -> None:
    found = httpx.post(f"{url}/search", json={"query": QUERY, "budget": 40}).json()
    assert found["cost"] == pytest.approx(2.0 * found["calls"] / 1000)
    both = httpx.post(f"{url}/search", json={"query": QUERY, "budget": 40, "compare": True}).json()
    assert both["cost"] == pytest.approx(2.0 * (both["calls"] + both["comparison"]["calls"]) / 1000)
    meta = httpx.post(f"{url}/v2/rerank", json={"query": QUERY, "documents": DOCUMENTS}).json()["meta"]
    assert meta["cost"] == pytest.approx(0.006)
    lines = httpx.get(f"{url}/metrics").text.splitlines()
    (spent,) = [float(line.split()[1]) for line in lines if line.startswith('crosscut_cost_total{route="/search"}')]
    assert spent == pytest.approx(found["cost"] + both["cost"])


def test_prices_by_tokens_and_by_calls() -> None:
    index = small_index()
    assert index.search(QUERY, 5, 30).cost is None
    index.price = crosscut.Price(per_million_tokens=10.0)
    hits = index.search(QUERY, 5, 30)
    items = [index.corpus.items[position] for position in hits.scored]
    length = sum(len(QUERY) + len(f"{item.title}\n{item.text}") for item in items)
    assert hits.cost == pytest.approx(length / 4 * 10 / 1e6)
    for wrong in (-1.0, float("nan")):
        with pytest.raises(InputError, match="price of 0 or more"):
            crosscut.Price(per_thousand_calls=wrong)


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v2/rerank", rb'{"query": "a", "documents": ["b", "\ud800"], "return_documents": true}'),
        ("/v1/rerank", rb'{"query": "a", "documents": [{"text": "b", "c": "\udfff"}], "return_documents": true}'),
        ("/rerank", rb'{"query": "a", "texts": ["\ud83d"], "return_text": true}'),
    ],
)
def test_half_a_character_is_no_fault_of_the_server(url: str, path: str, body: bytes) -> None:
    answer = httpx.post(url + path, content=body, headers={"content-type": "application/json"})
    assert answer.status_code == 422
    assert "half a character" in answer.json()["message"]


@pytest.mark.parametrize(
    ("path", "name", "results", "score"),
    [("/v2/rerank", "documents", "results", "relevance_score"), ("/rerank", "texts", None, "score")],
)
def test_a_threshold_leaves_out_what_is_below_it(
    url: str, path: str, name: str, results: str | None, score: str
) -> None:
    def places(**more: Any) -> list[int]:
        answer = httpx.post(f"{url}{path}", json={"query": QUERY, name: DOCUMENTS, **more}).json()
        return [one["index"] for one in (answer if results is None else answer[results])]

    least = sorted(wanted())[1]
    assert places() == [2, 0, 1]
    assert places(threshold=least) == places(threshold=least, raw_scores=True) == [2, 0]
    assert places(threshold=1.0) == []
    assert httpx.post(f"{url}{path}", json={"query": QUERY, name: DOCUMENTS, "threshold": 2}).status_code == 422


def test_a_threshold_in_python() -> None:
    reranker = Reranker(score_words)
    ranking = reranker.rank(QUERY, DOCUMENTS)
    assert ranking.relevance.tolist() == pytest.approx(wanted())
    kept = reranker.rank(QUERY, DOCUMENTS, threshold=sorted(wanted())[1])
    assert kept.order.tolist() == [2, 0]
    assert kept.calls == 0  # remembered
    with pytest.raises(InputError, match="0 … 1; got 7"):
        reranker.rank(QUERY, DOCUMENTS, threshold=7)
    known = against_random(np.arange(40.0), "another scorer", 40)
    with pytest.raises(InputError, match="calibrated for scorer another scorer"):
        Reranker(score_words, calibration=known)
