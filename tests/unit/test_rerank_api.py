"""Rerank endpoints: every shape, wrong answers, addresses and settings."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from crosscut.errors import InputError, ScoreCountError, ScorerAnswerError, ScoreValueError
from crosscut.scorers.base import BoundScorer, Scorer
from crosscut.scorers.rerank_api import RerankEndpoint, from_url
from tests.fake_endpoint import Endpoint, cohere, length_score, served, status, tei, voyage

TEXTS = [("word " * n).strip() for n in range(1, 12)]
QUERY = "how long is it"
TRUTH = [length_score(QUERY, text) for text in TEXTS]
KEY = "sk-very-secret-0123456789"


@pytest.fixture
def endpoint() -> Iterator[Endpoint]:
    with served(cohere) as fake:
        yield fake


def scorer_of(endpoint: Endpoint, **settings: Any) -> RerankEndpoint:
    settings = {"first_wait": 0.01, "timeout": 5.0, "batch_size": 4, **settings}
    return RerankEndpoint(endpoint.url, **settings)


@pytest.mark.parametrize(
    ("shape", "answer", "fields"),
    [
        ("cohere", cohere, {"query", "documents", "top_n", "model"}),
        ("jina", cohere, {"query", "documents", "top_n", "return_documents", "model"}),
        ("voyage", voyage, {"query", "documents", "top_k", "return_documents", "model"}),
        ("tei", tei, {"query", "texts", "raw_scores", "truncate", "model"}),
    ],
)
def test_every_shape(shape: str, answer: Any, fields: set[str]) -> None:
    with served(answer) as endpoint, scorer_of(endpoint, shape=shape, model="m") as scorer:
        assert isinstance(scorer, Scorer)
        np.testing.assert_allclose(scorer.score(QUERY, TEXTS), TRUTH)
        assert scorer.score(QUERY, []).shape == (0,)
        bound = scorer.bind(TEXTS)
        assert isinstance(bound, BoundScorer)
        np.testing.assert_allclose(bound.score(QUERY, np.array([3, 1])), [TRUTH[3], TRUTH[1]])
    assert set(endpoint.bodies[0]) == fields
    assert sorted(len(body.get("documents") or body["texts"]) for body in endpoint.bodies) == [2, 3, 4, 4]
    assert (scorer.sent.requests, scorer.sent.pairs, scorer.sent.retries) == (4, 13, 0)


def test_logits_are_recovered(endpoint: Endpoint) -> None:
    logits = np.linspace(-9, 9, len(TEXTS))
    endpoint.answer = lambda body: {
        "results": [
            {"index": j, "relevance_score": 1 / (1 + np.exp(-logits[TEXTS.index(text)]))}
            for j, text in enumerate(body["documents"])
        ]
    }
    with scorer_of(endpoint, transform="logit") as scorer:
        np.testing.assert_allclose(scorer.score(QUERY, TEXTS), logits, atol=1e-6)
        endpoint.answer = lambda body: {"results": [{"index": 0, "relevance_score": 1.0}]}
        (largest,) = scorer.score(QUERY, ["x"])
        assert 15 < largest < 20
        endpoint.answer = lambda body: {"results": [{"index": 0, "relevance_score": 1.5}]}
        with pytest.raises(ScoreValueError, match="transform='none'"):
            scorer.score(QUERY, ["x"])


@pytest.mark.parametrize(
    ("content", "error", "message"),
    [
        ({"scores": [1, 2]}, ScorerAnswerError, r"got {'scores'"),
        ([1, 2], ScorerAnswerError, r"got \[1, 2\]"),
        ({"results": [{"index": 0, "relevance_score": 1.0}]}, ScoreCountError, "1 results for 2 documents"),
        ({"results": [{"index": 0, "relevance_score": 1.0}] * 2}, ScorerAnswerError, "each once"),
        ({"results": [{"index": 0, "relevance_score": 1}, {"index": 9, "relevance_score": 1}]}, ScorerAnswerError, "9"),
        ({"results": [{"index": j, "relevance_score": "high"} for j in range(2)]}, ScorerAnswerError, "high"),
        ({"results": [{"index": j, "relevance_score": None} for j in range(2)]}, ScorerAnswerError, "None"),
        ({"results": [{"index": j, "relevance_score": 10**400} for j in range(2)]}, ScorerAnswerError, "a number"),
        ({"results": [{"index": j, "relevance_score": float("nan")} for j in range(2)]}, ScoreValueError, "nan"),
        (b"<html>welcome</html>", ScorerAnswerError, "no JSON: <html>"),
        (b"", ScorerAnswerError, "no JSON: nothing"),
    ],
)
def test_wrong_answers_are_named_and_not_retried(endpoint: Endpoint, content: Any, error: Any, message: str) -> None:
    endpoint.always = status(200, content)
    with scorer_of(endpoint) as scorer, pytest.raises(error, match=message):
        scorer.score(QUERY, TEXTS[:2])
    assert len(endpoint.bodies) == 1


def test_no_key_goes_to_another_host(endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COHERE_API_KEY", KEY)
    with scorer_of(endpoint) as scorer:
        scorer.score(QUERY, ["x"])
    assert "authorization" not in endpoint.headers[0]
    assert RerankEndpoint("https://api.cohere.com/v2/rerank").transport.key_env == "COHERE_API_KEY"
    with pytest.raises(InputError, match="clear text"):
        RerankEndpoint("http://far.example/v2/rerank", key_env="COHERE_API_KEY")


def test_addresses_that_carry_secrets_are_refused() -> None:
    for url in (
        "https://me:pass@x.example/rerank",
        "https://x.example/rerank?api_key=hunter2",
        "ftp://x/rerank",
        "http://x:8v2/rerank",
    ):
        with pytest.raises(InputError) as caught:
            RerankEndpoint(url)
        assert "pass@" not in str(caught.value)
        assert "hunter2" not in str(caught.value)


def test_bad_settings_are_refused() -> None:
    for settings in ({"shape": "bert"}, {"transform": "square"}, {"batch_size": 0}, {"timeout": 0}, {"retries": -1}):
        with pytest.raises(InputError):
            RerankEndpoint("http://localhost/rerank", **settings)


def test_fingerprints_differ_by_model(endpoint: Endpoint) -> None:
    made = [
        RerankEndpoint("http://localhost/rerank"),
        RerankEndpoint("http://localhost/rerank", model="b"),
        RerankEndpoint("http://localhost/rerank", transform="logit"),
        RerankEndpoint("http://localhost/rerank", shape="jina"),
        RerankEndpoint("http://localhost:81/rerank"),
        RerankEndpoint("http://localhost/rerank", options={"max_tokens_per_doc": 9}),
    ]
    assert len({scorer.fingerprint for scorer in made}) == len(made)
    assert RerankEndpoint("http://localhost/rerank", batch_size=7).fingerprint == made[0].fingerprint


@pytest.mark.parametrize(
    ("url", "shape", "address"),
    [
        ("tei+http://localhost:8080", "tei", "http://localhost:8080/rerank"),
        ("http://localhost:8080/rerank", "tei", "http://localhost:8080/rerank"),
        ("http://localhost:8080/v2/rerank", "cohere", "http://localhost:8080/v2/rerank"),
        ("http://localhost:8080/v1/rerank", "jina", "http://localhost:8080/v1/rerank"),
        ("voyage+http://localhost/v1/rerank#model=m&timeout=3", "voyage", "http://localhost/v1/rerank"),
        ("chat+http://localhost:8000#model=m", "chat", "http://localhost:8000/v1/chat/completions"),
        ("chat+http://localhost:8000/api/v1#model=m", "chat", "http://localhost:8000/api/v1/chat/completions"),
        ("http://localhost/v1/chat/completions#model=m", "chat", "http://localhost/v1/chat/completions"),
    ],
)
def test_addresses_name_their_shape(url: str, shape: str, address: str) -> None:
    scorer = from_url(url)
    assert scorer.url == address
    assert getattr(scorer, "shape", "chat") == shape
    if "timeout" in url:
        assert scorer.transport.timeout == 3.0
        assert scorer.model == "m"


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("http://localhost:8080/", "put one of cohere\\+"),
        ("bert+http://localhost/rerank", "bert\\+ is none"),
        ("tei+http://localhost#colour=red", "'colour' is no setting"),
        ("tei+http://localhost#batch_size=many", "cannot be 'many'"),
    ],
)
def test_ambiguous_addresses(url: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        from_url(url)
