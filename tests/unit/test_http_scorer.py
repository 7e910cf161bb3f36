"""Rerank endpoints: every shape, every fault, against a real server on this machine."""

from __future__ import annotations

import logging
import pickle
import random
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest

import crosscut
import crosscut.score_store
from crosscut.errors import (
    InputError,
    ScoreCountError,
    ScorerAnswerError,
    ScorerError,
    ScorerRateLimited,
    ScorerRefused,
    ScorerTimeout,
    ScorerUnavailable,
    ScoreValueError,
)
from crosscut.scorers.base import BoundScorer, Scorer
from crosscut.scorers.http import retry_after
from crosscut.scorers.meter import Meter, QueryLedger
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


def test_a_search_through_an_endpoint(endpoint: Endpoint) -> None:
    rng = np.random.default_rng(0)
    vectors = rng.normal(size=(len(TEXTS), 4))
    with scorer_of(endpoint) as scorer:
        searcher = crosscut.Searcher(scorer.bind(TEXTS), vectors=vectors, texts=TEXTS, method="axn@rounds=3")
        hits = searcher.search_many([QUERY, "a"], k=3, budget=9, query_vectors=rng.normal(size=(2, 4)))
    assert [found.calls for found in hits] == [9, 9]
    for found in hits:
        assert found[0].score == max(length_score(found.query, TEXTS[place]) for place in found.scored)


def test_batches_are_in_flight_together_and_no_more_than_allowed(endpoint: Endpoint) -> None:
    endpoint.delay = 0.05
    with scorer_of(endpoint, batch_size=1, concurrency=3) as scorer:
        answers = scorer.bind(TEXTS).score_many([(QUERY, np.arange(6)), ("b", np.arange(3))])
    assert [len(answer.scores) for answer in answers] == [6, 3]
    assert endpoint.peak == 3


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


@pytest.mark.parametrize("code", [429, 500, 503])
def test_what_says_later_is_asked_later(endpoint: Endpoint, code: int) -> None:
    endpoint.faults = [status(code), status(code)]
    with scorer_of(endpoint, batch_size=20) as scorer:
        np.testing.assert_allclose(scorer.score(QUERY, TEXTS), TRUTH)
    assert (scorer.sent.requests, scorer.sent.retries, scorer.sent.pairs) == (3, 2, 33)


def test_broken_lines_are_tried_again(endpoint: Endpoint) -> None:
    endpoint.faults = [status(0)]
    with scorer_of(endpoint, batch_size=20) as scorer:
        np.testing.assert_allclose(scorer.score(QUERY, TEXTS), TRUTH)
    assert scorer.sent.retries == 1


def test_retries_end(endpoint: Endpoint) -> None:
    endpoint.always = status(503, "busy")
    with scorer_of(endpoint, batch_size=20, retries=2) as scorer, pytest.raises(ScorerUnavailable, match=r"503.*busy"):
        scorer.score(QUERY, TEXTS)
    assert len(endpoint.bodies) == 3


def test_an_endpoint_that_is_down_is_left_alone(endpoint: Endpoint) -> None:
    """After three batches in a row that failed, the others of the round are not sent."""
    endpoint.always = status(500)
    with scorer_of(endpoint, concurrency=1, retries=0, batch_size=20) as scorer:
        results = scorer.bind(TEXTS).score_many([(f"query {j}", np.arange(4)) for j in range(20)])
    assert len(endpoint.bodies) == 3
    assert all(isinstance(result.error, ScorerUnavailable) for result in results)
    assert sum(result.attempted.sum() for result in results) == 12


def test_nobody_is_there() -> None:
    with socket.socket() as idle:
        idle.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{idle.getsockname()[1]}/rerank"
    with (
        RerankEndpoint(url, shape="tei", retries=1, first_wait=0.01) as scorer,
        pytest.raises(ScorerUnavailable, match="cannot be reached"),
    ):
        scorer.score(QUERY, TEXTS)


def test_retry_after_holds_back_every_request(endpoint: Endpoint) -> None:
    endpoint.faults = [status(429, retry_after="0.3")]
    with scorer_of(endpoint, batch_size=3, concurrency=1) as scorer:
        np.testing.assert_allclose(scorer.score(QUERY, TEXTS), TRUTH)
    assert endpoint.times[1] - endpoint.times[0] >= 0.29
    assert scorer.sent.rate_limited == 1


def test_a_long_retry_after_is_an_error_at_once(endpoint: Endpoint) -> None:
    endpoint.always = status(429, retry_after="3600")
    with scorer_of(endpoint, batch_size=20) as scorer:
        for message in ("wait 3.6e\\+03 s", "left alone"):
            with pytest.raises(ScorerRateLimited, match=message):
                scorer.score(QUERY, TEXTS)
    assert len(endpoint.bodies) == 1


def test_retry_after_is_read_as_seconds_or_date() -> None:
    assert retry_after("7") == 7
    assert retry_after("-3") == 0
    assert retry_after("Wed, 21 Oct 2015 07:28:00 GMT") == 0
    assert retry_after("soon") is None
    assert retry_after("nan") is None
    assert retry_after(None) is None


@pytest.mark.parametrize(
    ("content", "error", "message"),
    [
        ({"scores": [1, 2]}, ScorerAnswerError, "an object with the fields scores"),
        ([1, 2], ScorerAnswerError, "got a list"),
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


@pytest.mark.parametrize(
    ("code", "message"), [(400, "400"), (401, "no key was sent"), (404, "404"), (307, "keys do not follow")]
)
def test_refusals_are_not_retried(endpoint: Endpoint, code: int, message: str) -> None:
    endpoint.always = status(code, location="http://elsewhere.example/rerank?token=abc")
    with scorer_of(endpoint) as scorer, pytest.raises(ScorerRefused, match=message) as caught:
        scorer.score(QUERY, TEXTS[:2])
    assert len(endpoint.bodies) == 1
    assert "abc" not in str(caught.value)


def test_a_slow_endpoint_times_out(endpoint: Endpoint) -> None:
    endpoint.delay = 0.5
    with scorer_of(endpoint, timeout=0.1, retries=0) as scorer, pytest.raises(ScorerTimeout, match=r"within 0\.1 s"):
        scorer.score(QUERY, ["x"])


def test_a_deadline_reaches_the_requests_and_what_came_back_is_kept(endpoint: Endpoint) -> None:
    """One batch of the round hangs: the search ends in time, with the scores of the others."""

    def hang(body: dict[str, Any]) -> Any:
        if TEXTS[0] in body["documents"]:
            time.sleep(3)
        return cohere(body)

    endpoint.answer = hang
    with scorer_of(endpoint, timeout=60.0, concurrency=4) as scorer:
        meter = Meter(scorer.bind(TEXTS), deadline=0.2)
        account = QueryLedger(QUERY, 20)
        started = time.monotonic()
        with pytest.raises(ScorerTimeout, match="the search's deadline"):
            meter.score([account], [np.arange(len(TEXTS))])
        assert time.monotonic() - started < 2.5
        assert account.positions.tolist() == [*range(4, 11)]
        assert account.calls == 11


def test_a_failure_keeps_scores_and_stops_its_own_query_only(endpoint: Endpoint) -> None:
    def fail(body: dict[str, Any]) -> Any:
        bad = TEXTS[5] in body["documents"] and body["query"] == QUERY
        return (400, {}, "bad") if bad else (200, {}, cohere(body))

    endpoint.always = fail
    with scorer_of(endpoint, batch_size=1, concurrency=1) as scorer:
        meter = Meter(scorer.bind(TEXTS))
        ledgers = [QueryLedger(QUERY, 20), QueryLedger("other", 20)]
        with pytest.raises(ScorerRefused):
            meter.score(ledgers, [np.arange(11), np.arange(11)])
    assert ledgers[0].positions.tolist() == [0, 1, 2, 3, 4]
    assert [ledger.calls for ledger in ledgers] == [6, 11]
    assert len(ledgers[1].scores) == 11
    assert len(endpoint.bodies) == 17


def test_keys_come_from_the_environment_and_stay_there(
    endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    with pytest.raises(InputError, match="export RERANK_KEY="):
        scorer_of(endpoint, key_env="RERANK_KEY")
    monkeypatch.setenv("RERANK_KEY", KEY)
    with scorer_of(endpoint, key_env="RERANK_KEY", retries=0) as scorer:
        scorer.score(QUERY, ["x"])
        assert endpoint.headers[0]["authorization"] == f"Bearer {KEY}"
        told = [repr(scorer), scorer.fingerprint, repr(pickle.dumps(scorer)), repr(vars(scorer.transport))]
        for code in (401, 500, 429):
            endpoint.always = status(code, {"message": "x" * 190 + f" invalid key {KEY} " + KEY})
            with pytest.raises(ScorerError) as caught:
                scorer.score(QUERY, ["x"])
            told += [str(caught.value), repr(caught.value)]
    assert KEY[:6] not in "".join(told) + caplog.text


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


def test_fingerprints_tell_models_apart(endpoint: Endpoint) -> None:
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
def test_addresses_that_do_not_tell(url: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        from_url(url)


def test_positions_outside_the_corpus_are_refused(endpoint: Endpoint) -> None:
    with scorer_of(endpoint) as scorer, pytest.raises(ScorerError, match="do not fit a corpus of 11"):
        scorer.bind(TEXTS).score(QUERY, np.array([11]))


# -- what is sent again is a call too ------------------------------------------------------------------------------


def pairs_seen(endpoint: Endpoint) -> int:
    return sum(len(body["documents"]) for body in endpoint.bodies)


@contextmanager
def flaky(endpoint: Endpoint, **how: Any) -> Iterator[crosscut.Searcher]:
    """Four rounds through an endpoint."""
    vectors = np.random.default_rng(0).standard_normal((200, 8))
    items = [f"{'x' * (j % 37)} {j}" for j in range(200)]
    with scorer_of(endpoint, **{"batch_size": 10, "first_wait": 0.001, **how}) as scorer:
        yield crosscut.Searcher(vectors=vectors, scorer=scorer.bind(items), method="axn@first=random,rounds=4")


@pytest.mark.parametrize("fault", [status(500), status(429, retry_after="0"), status(0)])
def test_calls_are_what_went_over_the_wire(endpoint: Endpoint, fault: Any) -> None:
    endpoint.faults = [fault, fault]
    with flaky(endpoint) as searcher:
        hits = searcher.search("a query", 5, 40)
    assert hits.calls == pairs_seen(endpoint) == 40
    assert (len(hits.scored), hits.stop_reason) == (20, "budget")


def test_a_first_round_without_calls_to_spare_fails_as_it_is(endpoint: Endpoint) -> None:
    endpoint.faults = [status(503)]
    with scorer_of(endpoint) as scorer:
        searcher = crosscut.Searcher(vectors=np.eye(len(TEXTS)), scorer=scorer.bind(TEXTS), method="exact")
        with pytest.raises(ScorerUnavailable) as caught:
            searcher.search(QUERY, 5)
    assert caught.value.calls == pairs_seen(endpoint)


def test_a_later_round_goes_on_with_what_it_has(endpoint: Endpoint) -> None:
    endpoint.faults = [*[lambda body: (200, {}, cohere(body))] * 3, status(503)]
    with flaky(endpoint) as searcher:
        hits = searcher.search("a query", 5, 40)
    assert hits.calls == pairs_seen(endpoint) == 40
    assert (len(hits.scored), hits.stop_reason, len(hits)) == (30, "budget", 5)


def test_what_nobody_took_is_no_call() -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    with RerankEndpoint(f"http://127.0.0.1:{port}/v2/rerank", first_wait=0.001) as scorer:
        searcher = crosscut.Searcher(vectors=np.eye(11), scorer=scorer.bind(TEXTS), method="rerank")
        with pytest.raises(ScorerUnavailable) as caught:
            searcher.search("q", 5, 10, query_vector=np.ones(11))
    assert caught.value.calls == scorer.sent.pairs == 0


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("deadline", [None, 5.0])
def test_no_mood_of_an_endpoint_makes_a_search_overspend(endpoint: Endpoint, seed: int, deadline: float | None) -> None:
    chance = random.Random(seed)
    moods = [status(500), status(429, retry_after="0"), status(0), status(401), status(200, {"no": 1})]
    moods += [lambda body: (200, {}, cohere(body))] * 5
    endpoint.faults = chance.choices(moods, k=80)
    with flaky(endpoint, batch_size=4, retries=2) as searcher:
        for number in range(6):
            before, budget = pairs_seen(endpoint), chance.randrange(5, 50)
            try:
                hits = searcher.search_many([f"query {number}", "b"], 5, budget, deadline=deadline)
                calls = sum(one.calls for one in hits)
            except ScorerError as error:
                hits, calls = error.hits, error.calls
            assert max(one.calls for one in hits) <= budget
            assert calls == sum(one.calls for one in hits) == pairs_seen(endpoint) - before


def test_offline_scoring_counts_what_it_sends_again(endpoint: Endpoint) -> None:
    endpoint.faults = [status(500), status(500)]
    with scorer_of(endpoint, batch_size=5, concurrency=1) as scorer:
        bought = crosscut.score_store.score_matrix(
            scorer, ["one", "two"], [f"item {j}" for j in range(30)], probe=False
        )
    assert (bought.calls, bought.lost) == (pairs_seen(endpoint), 10) == (70, 10)
    assert np.isfinite(bought.scores).all()


def test_the_budget_of_one_search_is_no_fault_of_the_others(endpoint: Endpoint) -> None:
    """The last round of two queries: one batch fails, and only its own query goes without."""
    endpoint.faults = [*[lambda body: (200, {}, cohere(body))] * 6, status(503)]
    with flaky(endpoint, concurrency=1) as searcher:
        one, two = searcher.search_many(["a query", "another"], 5, 40)
    assert (one.calls, two.calls) == (40, 40)
    assert sorted((len(one.scored), len(two.scored))) == [30, 40]
