"""Paid scores are counted, kept and reported, whatever scorers, caches, logs and callers do meanwhile."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import crosscut
from crosscut.datasets import Item
from crosscut.errors import InputError, ScorerError, ScoreValueError, WriteError
from crosscut.index import Index
from crosscut.index.log import SearchLog
from crosscut.index.tuning import RULES, WEIGHTS
from crosscut.scorers import CallableScorer, MemoryCache, TextScorer
from crosscut.scorers.meter import Meter, QueryLedger
from crosscut.scorers.rerank_api import RerankEndpoint
from tests.fake_endpoint import cohere, length_score, served
from tests.fake_store import MemoryStore
from tests.unit.test_index import Planted, build

N = 200
RNG = np.random.default_rng(0)
VECTORS, ASKED = RNG.normal(size=(N, 8)), RNG.normal(size=(4, 8))
TRUTH = ASKED @ VECTORS.T + 0.1 * RNG.normal(size=(4, N))


def searcher(scorer: Any, **how: Any) -> crosscut.Searcher:
    return crosscut.Searcher(scorer, vectors=VECTORS, method="axn", **how)


def wrong(found: list[Any]) -> int:
    return sum(not abs(hit.score - TRUTH[j, hit.id]) < 1e-9 for j, hits in enumerate(found) for hit in hits)


# -- answers of scorers


class Refills:
    """A scorer that fills one array for every request, as one that has allocated its output once."""

    def __init__(self) -> None:
        self.out = np.empty(N)

    def fill(self, query: int, handles: Any) -> Any:
        self.out[: len(handles)] = TRUTH[query, handles]
        return self.out[: len(handles)]

    async def later(self, query: int, handles: Any) -> Any:
        await asyncio.sleep(0.001)
        return self.fill(query, handles)

    def score_many(self, requests: Any) -> Iterator[Any]:
        for request in requests:
            yield self.fill(*request)


@pytest.mark.parametrize("form", ["function", "async function", "own class"])
def test_a_scorer_may_fill_the_same_array_for_every_request(form: str) -> None:
    own = Refills()
    scorer: Any = {"function": own.fill, "async function": own.later, "own class": own}[form]
    found = searcher(scorer).search_many([0, 1, 2, 3], 10, 50, query_vectors=ASKED)
    assert [hits.calls for hits in found] == [50] * 4
    assert wrong(found) == 0


@pytest.mark.parametrize(
    ("made", "error"),
    [
        (lambda scores: np.ma.array(scores, mask=np.arange(len(scores)) == 1), ScoreValueError),
        (lambda scores: scores + 1j, ScorerError),
        (lambda scores: scores.astype("M8[s]"), ScorerError),
        (lambda scores: scores.astype("m8[s]"), ScorerError),
        (lambda scores: np.array([(score,) for score in scores], [("score", "f8")]), ScorerError),
    ],
)
def test_what_numpy_would_make_a_number_of_is_none(made: Callable[[Any], Any], error: type[ScorerError]) -> None:
    with pytest.raises(error) as raised:
        searcher(lambda query, handles: made(TRUTH[query, handles])).search(0, 5, 50, query_vector=ASKED[0])
    assert raised.value.calls == 10


def test_a_scorer_of_ones_own_that_never_ends_its_answer() -> None:
    class Endless:
        def score_many(self, requests: Any) -> Iterator[Any]:
            while True:
                yield np.ones(len(requests[0][1]))

    with pytest.raises(ScorerError, match="more than 1") as raised:
        searcher(Endless()).search(0, 5, 50, query_vector=ASKED[0])
    assert raised.value.calls == 10


@pytest.mark.parametrize("scores", [[1.0, 2.0, 3.0], "words", object(), [1.0], np.ones((3, 2))])
def test_an_error_may_carry_anything(scores: Any) -> None:
    def fails(query: int, handles: Any) -> Any:
        raise ScorerError("half of it", scores=scores)

    account = QueryLedger(0, 5)
    with pytest.raises(ScorerError, match="half of it"):
        Meter(CallableScorer(fails)).score([account], [np.arange(3)])
    assert account.calls == 3
    assert account.scores.tolist() == (scores if isinstance(scores, list) and len(scores) == 3 else [])


# -- caches


class Cache(MemoryCache):
    """A cache with a given behaviour."""

    def __init__(self, get: Callable[[Any], Any] = lambda known: known, put: Callable[[], Any] = lambda: None) -> None:
        super().__init__()
        self._after, self._before = get, put

    def get(self, query: Any, positions: Any) -> Any:
        return self._after(super().get(query, positions))

    def put(self, query: Any, positions: Any, scores: Any) -> None:
        self._before()
        super().put(query, positions, scores)


def fails(*given: Any) -> Any:
    raise OSError("no disk, and a query")


def scored(query: int, handles: Any) -> Any:
    return TRUTH[query, handles]


def test_a_cache_that_refuses_scores_costs_none(caplog: pytest.LogCaptureFixture) -> None:
    hits = searcher(scored, cache=Cache(put=fails)).search(0, 10, 50, query_vector=ASKED[0])
    assert (hits.calls, wrong([hits])) == (50, 0)
    assert "10 scores of a search were not kept: the cache raised OSError" in caplog.text
    assert "a query" not in caplog.text


@pytest.mark.parametrize("get", [fails, lambda known: known[:-1], lambda known: None, lambda known: ["a"] * len(known)])
def test_a_cache_that_fails_ends_no_search(get: Callable[[Any], Any], caplog: pytest.LogCaptureFixture) -> None:
    hits = searcher(scored, cache=Cache(get=get)).search(0, 10, 50, query_vector=ASKED[0])
    assert (hits.calls, hits.cached, wrong([hits])) == (50, 0, 0)
    assert "known scores are not used: the cache raised" in caplog.text
    assert "a query" not in caplog.text


def test_a_cached_infinity_is_no_score() -> None:
    cache = MemoryCache()
    cache.put(0, np.arange(N), np.full(N, np.inf))
    hits = searcher(scored, cache=cache).search(0, 10, 50, query_vector=ASKED[0])
    assert (hits.calls, hits.cached, wrong([hits])) == (50, 0, 0)


# -- endpoints


def test_a_query_that_cannot_be_sent_is_no_fault_of_the_others() -> None:
    texts = [f"text {'x' * j}" for j in range(4)]
    with served(cohere) as fake, RerankEndpoint(fake.url, batch_size=4, concurrency=2) as scorer:
        meter = Meter(scorer.bind(texts))
        good, bad = QueryLedger("good", 9), QueryLedger("\ud800", 9)
        with pytest.raises(ScorerError):
            meter.score([good, bad], [np.arange(4), np.arange(4)])
        assert good.scores.tolist() == [length_score("good", text) for text in texts]
        assert (good.calls, bad.calls, scorer.sent.pairs) == (4, 0, 4)


# -- searches that nobody waits for, or that are cancelled too late


def test_a_search_that_is_cancelled_makes_no_further_calls() -> None:
    began, seen = threading.Event(), [0]
    world = Planted()

    def slowly(query: str, texts: Any) -> Any:
        seen[0] += len(texts)
        began.set()
        time.sleep(0.05)
        return world.score(query, texts)

    index = Index.build([f"item {j}" for j in range(200)], scorer=TextScorer(slowly, fingerprint="slow"), encoder=world)

    async def left(search: Any) -> None:
        task = asyncio.create_task(search)
        await asyncio.to_thread(began.wait, 20)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    async def both() -> None:
        for search in (index.search_async("query 3", 5, 200), index.search_many_async(["query 3", "query 4"], 5, 200)):
            began.clear()
            seen[0] = 0
            await left(search)
            await asyncio.sleep(1)
            assert seen[0] < 200, seen

    asyncio.run(both())
    whole = asyncio.run(index.search_async("query 3", 5, 40, candidates=["7"], query_vector=world.queries[3]))
    assert whole.ids == index.search("query 3", 5, 40, candidates=["7"], query_vector=world.queries[3]).ids


def test_a_cascade_refuses_what_is_wrong_before_the_first_call() -> None:
    seen = [0]

    def cheap(query: int, handles: Any) -> Any:
        seen[0] += len(handles)
        return TRUTH[query, handles]

    both = crosscut.CascadeSearcher(
        cheap=crosscut.Searcher(cheap, vectors=VECTORS), expensive=crosscut.Searcher(scored, vectors=VECTORS)
    )
    for stop in ("nonsense", "patience@rounds=0", 3):
        with pytest.raises(InputError):
            both.search(0, 5, {"cheap": 60, "expensive": 20}, query_vector=ASKED[0], stop=stop)  # type: ignore[arg-type]
    assert seen == [0]
    assert (
        both.search(0, 5, {"cheap": 60, "expensive": 20}, query_vector=ASKED[0], stop="patience@rounds=9").calls == 20
    )


def test_a_log_that_cannot_be_written_costs_no_search(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    index = build(Planted())
    index.keep_log(tmp_path / "searches.log")

    def full(log: SearchLog, searches: Any, *, since: Any = None) -> None:
        raise WriteError("no room")

    monkeypatch.setattr(SearchLog, "append", full)
    with caplog.at_level(logging.WARNING):
        assert index.search("query 3", 5, 50).calls == 50
    assert "1 searches were not logged: no room" in caplog.text


# -- calls that may be spent at most


def counted(world: Planted) -> tuple[TextScorer, list[int]]:
    seen = [0]

    def score(query: str, texts: Any) -> Any:
        seen[0] += len(texts)
        return world.score(query, texts)

    return TextScorer(score, fingerprint="counted"), seen


def test_calibrating_on_judgements_counts_the_budget_that_searches_have() -> None:
    """That of the index, where it was tuned, or every item."""
    scorer, seen = counted(Planted())
    index = Index.build([f"item {j}" for j in range(200)], scorer=scorer, encoder=None, method="hybrid")
    judged = {f"query {j}": {str(j): 1} for j in range(12)}
    index.budget = 150
    with pytest.raises(InputError, match="up to 1800 calls and may make 1200"):
        index.calibrate(judged, max_calls=1200)
    index.budget, index.method = None, crosscut.methods.parse("exact")
    with pytest.raises(InputError, match="up to 2400 calls and may make 1200"):
        index.calibrate(judged, max_calls=1200)
    assert seen == [0]


def test_tuning_by_judgements_over_a_store_makes_no_more_calls_than_it_may() -> None:
    """Nothing is remembered there from one trial to the next."""
    world = Planted()
    scorer, seen = counted(world)
    items = [Item(f"i{j}", "", f"item {j}") for j in range(60)]
    index = Index.over(MemoryStore(items, world.items[:60]), scorer=scorer, encoder=world)
    judged = {f"query {j}": {f"i{int(np.argmax(world.items[:60] @ world.queries[j]))}": 1} for j in range(10)}
    most = 2 * 10 * 2 * (10 + 12) + 10 * (len(WEIGHTS) + len(RULES)) * 12
    with pytest.raises(InputError, match=f"up to {most} calls"):
        index.tune(qrels=judged, budget=12, methods=["crosscut", "rerank"], max_calls=most - 1)
    assert seen == [0]
    index.tune(qrels=judged, budget=12, methods=["crosscut", "rerank"], max_calls=most)
    assert 10 * 2 * (10 + 12) < seen[0] <= most
