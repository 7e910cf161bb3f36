"""Searches that share a batch: equal answers, deadlines, and failures that end their own search and no other."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest

pytest.importorskip("fastapi")

import crosscut
from crosscut.server import Settings, make_app
from tests.fake_endpoint import served
from tests.served import WORDS, Gate, client, metric, running, score_words, small_client, small_index, together

QUERIES = [f"{a} {b}" for a in WORDS[:5] for b in WORDS[5:8]]
BODIES = [{"query": query, "budget": 30} for query in QUERIES]
POISON = {"query": "poison", "budget": 30}


def raises(query: str, texts: Any) -> list[float]:
    if query == "poison":
        raise ValueError("not this text")
    return score_words(query, texts)


def nothing(query: str, texts: Any) -> Any:
    return None if query == "poison" else score_words(query, texts)


@pytest.mark.parametrize("scorer", [raises, nothing])
def test_a_poisoned_query_fails_alone(scorer: Callable[..., Any]) -> None:
    with small_client(scorer, linger=0.2) as api:
        alone = together(api, BODIES)
        *others, poisoned = together(api, [*BODIES, POISON])
        calls = metric(api, 'crosscut_scorer_calls_total{route="/search"}')
    assert poisoned.status_code == 502
    assert [answer.status_code for answer in others] == [200] * len(QUERIES)
    for one, other in zip(alone, others, strict=True):
        assert one.json()["hits"] == other.json()["hits"]
        assert one.json()["calls"] == other.json()["calls"] == 30
    assert calls == 2 * 30 * len(QUERIES) + poisoned.json()["calls"]


def test_a_query_that_cannot_be_encoded_fails_alone() -> None:
    rows_of = {word: [float(j == place) for j in range(len(WORDS))] for place, word in enumerate(WORDS)}

    def encode(texts: Any) -> Any:
        if any("poison" in text for text in texts):
            raise RuntimeError("not this text")
        words = [[rows_of[word] for word in text.split()] for text in texts]
        return [[sum(column) + 0.01 for column in zip(*rows, strict=True)] for rows in words]

    items = [" ".join(WORDS[(j * m) % 20] for m in (1, 3, 7)) for j in range(60)]
    index = crosscut.Index.build(items, scorer=score_words, encoder=encode)
    with client(make_app(index, Settings(linger=0.2))) as api:
        *others, poisoned = together(api, [*BODIES, POISON])
    assert poisoned.status_code == 500
    assert [answer.status_code for answer in others] == [200] * len(QUERIES)


def test_a_wrong_argument_is_answered_to_its_sender_alone() -> None:
    with small_client(linger=0.2) as api:
        answers = together(api, [{"query": "red", "candidates": ["i3" if j else "none"]} for j in range(6)])
    assert [answer.status_code for answer in answers] == [422, 200, 200, 200, 200, 200]


def test_a_batch_that_has_paid_is_not_repeated() -> None:
    index, batches = small_index(), []
    search_many = index.search_many

    def fails_late(queries: Any, *rest: Any, **options: Any) -> Any:
        batches.append(len(queries))
        search_many(queries, *rest, **options)
        raise crosscut.InputError("this cannot be shown")

    index.search_many = fails_late  # type: ignore[method-assign]
    with client(make_app(index, Settings(linger=0.2))) as api:
        answers = together(api, BODIES[:4])
    assert {answer.status_code for answer in answers} == {422}
    assert sum(batches) == 4


def test_concurrent_searches_share_batches_and_their_answers_are_the_same() -> None:
    index, sizes = small_index(), []
    search_many = index.search_many

    def counting(queries: Any, *rest: Any, **options: Any) -> Any:
        sizes.append(len(queries))
        time.sleep(0.02)
        return search_many(queries, *rest, **options)

    index.search_many = counting  # type: ignore[method-assign]
    with client(make_app(index, Settings(batch=8))) as api:
        answers = together(api, BODIES)
    for body, answer in zip(BODIES, answers, strict=True):
        assert [hit["id"] for hit in answer.json()["hits"]] == index.search(body["query"], budget=30).ids
    assert 2 < max(sizes) <= 8


def test_a_full_queue_says_when_to_come_back() -> None:
    gate = Gate()
    with small_client(gate, queue=2, batch=1) as api, ThreadPoolExecutor(8) as pool:
        gate.open.clear()
        waiting = [pool.submit(api.post, "/search", json={"query": "slow", "budget": 10})]
        assert gate.entered.wait(20)  # one is running; of seven more, two find room
        waiting += [pool.submit(api.post, "/search", json={"query": "slow", "budget": 10}) for _ in range(7)]
        end = time.monotonic() + 20
        while sum(one.done() for one in waiting) < 5 and time.monotonic() < end:
            time.sleep(0.02)
        assert api.get("/health").status_code == 200
        gate.open.set()
        answers = [one.result() for one in waiting]
    codes = [answer.status_code for answer in answers]
    assert (codes.count(200), codes.count(429)) == (3, 5)
    full = next(answer for answer in answers if answer.status_code == 429)
    assert int(full.headers["retry-after"]) >= 1


def test_a_deadline_includes_the_queue() -> None:
    def slow(query: str, texts: Any) -> list[float]:
        time.sleep(0.2 if query == "slow" else 0.0)
        return score_words(query, texts)

    with small_client(slow) as api:
        body = api.post("/search", json={"query": "slow", "budget": 100, "deadline": 0.5}).json()
        assert body["stop_reason"] == "deadline"
        assert 0 < body["calls"] < 100
        with ThreadPoolExecutor(1) as pool:
            first = pool.submit(api.post, "/search", json={"query": "slow", "budget": 50})
            time.sleep(0.1)
            late = api.post("/search", json={"query": "quick", "budget": 50, "deadline": 0.05})
            assert first.result().status_code == 200
    assert (late.status_code, "in the queue" in late.json()["message"]) == (504, True)


def test_requests_without_a_deadline_have_the_longest() -> None:
    def slow(query: str, texts: Any) -> list[float]:
        time.sleep(0.1)
        return score_words(query, texts)

    with small_client(slow, max_deadline=0.4) as api:
        for more in ({}, {"deadline": None}):
            answer = api.post("/search", json={"query": "a", "budget": 300, **more}).json()
            assert answer["stop_reason"] == "deadline"
            assert 0 < answer["calls"] < 300


def test_a_scorer_that_hangs_holds_only_its_own_searches() -> None:
    gate = Gate()
    gate.open.clear()
    with client(make_app({"hangs": small_index(gate), "works": small_index(n=50)})) as api:
        statuses = []
        for _ in range(6):
            began = time.monotonic()
            statuses.append(api.post("/search", json={"query": "slow", "budget": 20, "deadline": 0.2}).status_code)
            assert time.monotonic() - began < 5
            assert api.post("/search", json={"query": "red", "budget": 20, "index": "works"}).status_code == 200
        assert api.get("/health").status_code == 200
        assert statuses[-1] == 503  # once four of its threads hang, it is not called until one returns
        gate.open.set()
        end = time.monotonic() + 20
        while api.post("/search", json={"query": "red", "budget": 20}).status_code != 200:
            assert time.monotonic() < end
            time.sleep(0.05)


@pytest.mark.services
def test_shutdown_finishes_what_was_accepted() -> None:
    gate = Gate()
    with ThreadPoolExecutor(1) as pool:
        with running(make_app(small_index(gate))) as url:
            gate.open.clear()
            answer = pool.submit(httpx.post, f"{url}/search", json={"query": "slow", "budget": 20}, timeout=30)
            assert gate.entered.wait(10)
            threading.Timer(0.2, gate.open.set).start()
        assert answer.result().status_code == 200


def test_batches_of_a_remote_scorer_run_concurrently() -> None:
    from crosscut.scorers.rerank_api import RerankEndpoint

    running, most, lock = 0, 0, threading.Lock()

    def answer(body: dict[str, Any]) -> Any:
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
        time.sleep(0.2)
        with lock:
            running -= 1
        scores = score_words(body["query"], body["documents"])
        return {"results": [{"index": j, "relevance_score": score} for j, score in enumerate(scores)]}

    with (
        served(answer) as endpoint,
        RerankEndpoint(endpoint.url, concurrency=8) as scorer,
        small_client(scorer) as api,
    ):
        answers = together(api, [{"query": f"cat {k}", "k": k, "budget": 20} for k in range(3, 9)])
    assert {one.status_code for one in answers} == {200}
    assert most >= 3
