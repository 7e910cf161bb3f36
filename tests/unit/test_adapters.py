"""Scorers made of functions: one query that fails, hangs or searches by itself harms no other."""

from __future__ import annotations

import asyncio
import threading
import time
from typing import Any

import numpy as np
import pytest

import crosscut
from crosscut.errors import ScorerBusy, ScorerError, ScorerTimeout

N = 60
VECTORS = np.random.default_rng(0).standard_normal((N, 6))
QUERIES = np.random.default_rng(1).standard_normal((16, 6))
TRUTH = QUERIES @ VECTORS.T


def plain(query: int, handles: Any) -> Any:
    return TRUTH[query, handles]


def searcher_of(scorer: Any) -> crosscut.Searcher:
    return crosscut.Searcher(scorer, vectors=VECTORS, method="axn@rounds=4")


class Poisoned:
    """Fails in some way for query 5."""

    def __init__(self, fault: str) -> None:
        self.fault = fault

    def __call__(self, query: int, handles: Any) -> Any:
        if query == 5:
            if self.fault == "none":
                return None
            raise OSError("line is down")
        return TRUTH[query, handles]


@pytest.mark.parametrize("fault", ["raises", "none"])
@pytest.mark.parametrize("asynchronous", [False, True])
def test_a_query_that_fails_leaves_the_others_as_they_are(fault: str, asynchronous: bool) -> None:
    poisoned = Poisoned(fault)

    async def later(query: int, handles: Any) -> Any:
        await asyncio.sleep(0)
        return poisoned(query, handles)

    with pytest.raises(ScorerError) as caught:
        searcher_of(later if asynchronous else poisoned).search_many(range(16), 5, 40, query_vectors=QUERIES)
    expected = searcher_of(plain).search_many(range(16), 5, 40, query_vectors=QUERIES)
    for query, (hits, wanted) in enumerate(zip(caught.value.hits, expected, strict=True)):
        if query == 5:
            assert (hits.stop_reason, len(hits), hits.calls) == ("scorer failed", 0, 10)
        else:
            assert (hits.stop_reason, hits.calls, hits.ids) == (wanted.stop_reason, wanted.calls, wanted.ids)
            assert hits.scored.tolist() == wanted.scored.tolist()
    assert caught.value.calls == 15 * 40 + 10


def test_a_query_that_hangs_costs_the_others_no_answer() -> None:
    release = threading.Event()

    def hang(query: int, handles: Any) -> Any:
        if query == 2:
            release.wait(20)
        return TRUTH[query, handles]

    started = time.monotonic()
    try:
        with pytest.raises(ScorerTimeout) as caught:
            searcher_of(hang).search_many(range(4), 5, 40, query_vectors=QUERIES[:4], deadline=0.3)
    finally:
        release.set()
    assert time.monotonic() - started < 2
    assert [len(hits) > 0 for hits in caught.value.hits[:2]] == [True, True]
    assert caught.value.hits[2].stop_reason == "scorer failed"


def test_a_scorer_whose_calls_hang_gets_no_further_ones_until_one_returns() -> None:
    release = threading.Event()
    seen: list[int] = []

    def hang(query: int, handles: Any) -> Any:
        seen.append(query)
        release.wait(30)
        return TRUTH[query, handles]

    searcher = searcher_of(hang)
    for _ in range(4):
        with pytest.raises(ScorerTimeout):
            searcher.search(0, 5, 20, query_vector=QUERIES[0], deadline=0.05)
    with pytest.raises(ScorerBusy) as caught:
        searcher.search(0, 5, 20, query_vector=QUERIES[0], deadline=0.05)
    assert (len(seen), caught.value.calls) == (4, 0)
    release.set()
    for _ in range(100):
        time.sleep(0.02)
        try:
            assert searcher.search(0, 5, 20, query_vector=QUERIES[0], deadline=5.0).calls == 20
            return
        except ScorerBusy:
            continue
    raise AssertionError("the threads have returned, and the scorer is still refused")


def test_an_async_scorer_may_search_by_itself() -> None:
    async def inner(query: int, handles: Any) -> Any:
        return TRUTH[query, handles]

    async def outer(query: int, handles: Any) -> Any:
        found = searcher_of(inner).search(query, 5, 20, query_vector=QUERIES[query])
        return TRUTH[query, handles] + 0 * found[0].score

    done: list[Any] = []

    def work() -> None:
        done.append(searcher_of(outer).search(0, 5, 20, query_vector=QUERIES[0]))
        done.append(searcher_of(inner).search(0, 5, 20, query_vector=QUERIES[0]))

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    thread.join(20)
    assert [hits.calls for hits in done] == [20, 20]


@pytest.mark.parametrize("deadline", [0.05, 0.2])
def test_a_slow_function_overruns_a_deadline_by_little(deadline: float) -> None:
    def slow(query: int, handles: Any) -> Any:
        time.sleep(0.02 * len(handles))
        return TRUTH[query, handles]

    searcher = searcher_of(slow)
    for _ in range(2):
        started = time.monotonic()
        hits = searcher.search(0, 5, 60, query_vector=QUERIES[0], deadline=deadline)
        assert time.monotonic() - started < 3 * deadline + 0.1
        assert hits.stop_reason == "deadline"
        assert hits.calls > 0


def test_an_interrupt_of_a_function_reports_the_calls() -> None:
    def interrupted(query: int, handles: Any) -> Any:
        if query == 1:
            raise KeyboardInterrupt
        return TRUTH[query, handles]

    with pytest.raises(KeyboardInterrupt) as caught:
        searcher_of(interrupted).search_many(range(3), 5, 40, query_vectors=QUERIES[:3])
    assert caught.value.calls == 20  # type: ignore[attr-defined]
    assert [len(hits) for hits in caught.value.hits] == [5, 0, 0]  # type: ignore[attr-defined]
