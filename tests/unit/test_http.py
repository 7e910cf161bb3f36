"""HTTP scorers: retries, budgets on the wire, deadlines, interrupts, keys; against a real server on this machine."""

from __future__ import annotations

import asyncio
import logging
import os
import pickle
import random
import signal
import socket
import threading
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
    ScorerError,
    ScorerRateLimited,
    ScorerRefused,
    ScorerTimeout,
    ScorerUnavailable,
)
from crosscut.scorers.http import retry_after
from crosscut.scorers.meter import Meter, QueryLedger
from crosscut.scorers.rerank_api import RerankEndpoint
from tests.fake_endpoint import Endpoint, cohere, length_score, served, status

TEXTS = [("word " * n).strip() for n in range(1, 12)]
QUERY = "how long is it"
TRUTH = [length_score(QUERY, text) for text in TEXTS]
KEY = "sk-very-secret-0123456789"
ITEMS = [f"{'x' * (j % 37)} {j}" for j in range(400)]
VECTORS = np.random.default_rng(0).standard_normal((400, 8))


@pytest.fixture
def endpoint() -> Iterator[Endpoint]:
    with served(cohere) as fake:
        yield fake


def pairs_seen(endpoint: Endpoint) -> int:
    return sum(len(body["documents"]) for body in endpoint.bodies)


def scorer_of(endpoint: Endpoint, **settings: Any) -> RerankEndpoint:
    return RerankEndpoint(endpoint.url, **{"first_wait": 0.01, "timeout": 5.0, "batch_size": 4, **settings})


@contextmanager
def flaky(endpoint: Endpoint, **how: Any) -> Iterator[crosscut.Searcher]:
    """Four rounds through an endpoint."""
    vectors = np.random.default_rng(0).standard_normal((200, 8))
    items = [f"{'x' * (j % 37)} {j}" for j in range(200)]
    with scorer_of(endpoint, **{"batch_size": 10, "first_wait": 0.001, **how}) as scorer:
        yield crosscut.Searcher(vectors=vectors, scorer=scorer.bind(items), method="axn@first=random,rounds=4")


def interrupt_after(endpoint: Endpoint, requests: int) -> None:
    while len(endpoint.bodies) < requests:
        time.sleep(0.005)
    os.kill(os.getpid(), signal.SIGINT)


@pytest.mark.parametrize("deadline", [None, 30.0])
def test_an_interrupt_stops_the_requests_and_reports_the_calls(endpoint: Endpoint, deadline: float | None) -> None:
    endpoint.delay = 0.05
    with scorer_of(endpoint, batch_size=8, concurrency=2) as scorer:
        searcher = crosscut.Searcher(vectors=VECTORS, scorer=scorer.bind(ITEMS), method="rnr")
        threading.Thread(target=interrupt_after, args=(endpoint, 8)).start()
        with pytest.raises(KeyboardInterrupt) as caught:
            searcher.search("a query", 5, 400, query_vector=np.ones(8), deadline=deadline)
        received = pairs_seen(endpoint)
        time.sleep(0.3)
    assert pairs_seen(endpoint) == received < 200
    assert caught.value.calls == received  # type: ignore[attr-defined]
    (hits,) = caught.value.hits  # type: ignore[attr-defined]
    assert hits.calls == received
    assert len(hits) == 5


def test_a_cancelled_search_sends_no_further_batches(endpoint: Endpoint) -> None:
    endpoint.delay = 0.05
    world = np.random.default_rng(1).standard_normal((400, 4))

    class Encoder:
        fingerprint, dimension = "e", 4

        def encode_items(self, items: Any, progress: Any = None) -> Any:
            return world[: len(items)]

        def encode_queries(self, texts: Any) -> Any:
            return np.ones((len(texts), 4))

    with scorer_of(endpoint, batch_size=8, concurrency=2) as scorer:
        index = crosscut.Index.build(ITEMS, scorer=scorer, encoder=Encoder(), method="rnr", bm25=False)
        before = pairs_seen(endpoint)

        async def leave() -> None:
            task = asyncio.create_task(index.search_async("a query", 5, 400))
            await asyncio.sleep(0.2)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task

        asyncio.run(leave())
        left = pairs_seen(endpoint) - before
        time.sleep(0.4)
    assert pairs_seen(endpoint) - before <= left + 2 * 8 < 200  # what was on the wire


@pytest.mark.parametrize("deadline", [None, 20.0])
@pytest.mark.parametrize("fault", [status(500), status(429, retry_after="0"), status(0)])
def test_pairs_that_are_sent_again_stay_within_the_budget(
    endpoint: Endpoint, fault: Any, deadline: float | None
) -> None:
    endpoint.faults = [fault, fault]
    with scorer_of(endpoint, batch_size=5, concurrency=1) as scorer:
        searcher = crosscut.Searcher(vectors=VECTORS, scorer=scorer.bind(ITEMS), method="axn@first=random,rounds=2")
        try:
            calls = searcher.search("a query", 5, 40, deadline=deadline).calls
        except ScorerError as error:
            calls = error.calls
    assert calls == pairs_seen(endpoint) <= 40


def test_batches_are_in_flight_together_and_no_more_than_allowed(endpoint: Endpoint) -> None:
    endpoint.delay = 0.05
    with scorer_of(endpoint, batch_size=1, concurrency=3) as scorer:
        answers = scorer.bind(TEXTS).score_many([(QUERY, np.arange(6)), ("b", np.arange(3))])
    assert [len(answer.scores) for answer in answers] == [6, 3]
    assert endpoint.peak == 3


@pytest.mark.parametrize("code", [429, 500, 503])
def test_what_says_later_is_asked_later(endpoint: Endpoint, code: int) -> None:
    endpoint.faults = [status(code), status(code)]
    with scorer_of(endpoint, batch_size=20) as scorer:
        np.testing.assert_allclose(scorer.score(QUERY, TEXTS), TRUTH)
    assert (scorer.sent.requests, scorer.sent.retries, scorer.sent.pairs) == (3, 2, 33)


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
        visible = [repr(scorer), scorer.fingerprint, repr(pickle.dumps(scorer)), repr(vars(scorer.transport))]
        for code in (401, 500, 429):
            endpoint.always = status(code, {"message": "x" * 190 + f" invalid key {KEY} " + KEY})
            with pytest.raises(ScorerError) as caught:
                scorer.score(QUERY, ["x"])
            visible += [str(caught.value), repr(caught.value)]
    assert KEY[:6] not in "".join(visible) + caplog.text


def test_positions_outside_the_corpus_are_refused(endpoint: Endpoint) -> None:
    with scorer_of(endpoint) as scorer, pytest.raises(ScorerError, match="do not fit a corpus of 11"):
        scorer.bind(TEXTS).score(QUERY, np.array([11]))


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
