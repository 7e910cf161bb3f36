"""The gate: counts, budgets, faults, caches, deadlines."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

import crosscut
from crosscut.errors import (
    BudgetError,
    InputError,
    ScoreCountError,
    ScorerError,
    ScoreValueError,
)
from crosscut.scorers import CallableScorer, MatrixScorer, MemoryCache, Meter, TextScorer, as_bound
from crosscut.scorers.meter import QueryLedger, cut
from tests.worlds import planted


def test_every_call_is_counted_and_no_pair_is_paid_twice() -> None:
    meter = Meter(MatrixScorer(np.arange(10.0)[None]))
    account = QueryLedger(0, budget=5)
    meter.score([account], [np.array([3, 1, 3])])
    meter.score([account], [np.array([1, 2])])
    assert (account.calls, meter.calls) == (3, 3)
    assert account.positions.tolist() == [3, 1, 2]
    assert account.scores.tolist() == [3.0, 1.0, 2.0]


def test_the_budget_is_enforced_before_the_call() -> None:
    asked: list[int] = []

    def score(query: Any, positions: np.ndarray) -> list[float]:
        asked.extend(positions.tolist())
        return [0.0] * len(positions)

    account = QueryLedger("q", budget=2)
    with pytest.raises(BudgetError, match="3 calls were asked for with 2 of 2 left"):
        Meter(CallableScorer(score)).score([account], [np.arange(3)])
    assert asked == []
    assert account.calls == 0


@pytest.mark.parametrize(
    ("answer", "error", "message"),
    [
        (lambda p: [0.0] * (len(p) - 1), ScoreCountError, "returned 9 scores for 10 items"),
        (lambda p: [0.0] * (len(p) + 1), ScoreCountError, "returned 11 scores for 10 items"),
        (lambda p: [np.nan] + [0.0] * (len(p) - 1), ScoreValueError, "1 of 10 scores are not finite"),
        (lambda p: [0.0] * (len(p) - 1) + [np.inf], ScoreValueError, "returned inf"),
        (lambda p: 1 / 0, ScorerError, "ZeroDivisionError"),
        (lambda p: ["high"] * len(p), ScorerError, "could not convert"),
    ],
)
def test_a_faulty_scorer_is_named_and_nothing_paid_is_lost(answer: Any, error: Any, message: str) -> None:
    """The first round is good, the second is not: the hits of the first come with the error."""
    world = planted()
    rounds: list[int] = []

    def score(query: int, positions: np.ndarray) -> Any:
        rounds.append(len(positions))
        return world.test[query, positions] if len(rounds) == 1 else answer(positions)

    searcher = world.searcher("axn", scorer=score)
    with pytest.raises(error, match=message) as caught:
        searcher.search(0, k=5, budget=50, query_vector=world.query_vectors[0])
    assert caught.value.calls == 20
    (hits,) = caught.value.hits
    assert len(hits) == 5
    assert hits.stop_reason == "scorer failed"
    best = hits.scored[: rounds[0]]
    assert hits[0].score == pytest.approx(world.test[0, best].max())


def test_known_scores_are_free() -> None:
    world = planted()
    cache = MemoryCache()
    searcher = world.searcher("crosscut")
    searcher.cache = cache
    first, again = (searcher.search(0, 5, 40, query_vector=world.query_vectors[0]) for _ in range(2))
    assert (first.calls, first.cached) == (40, 0)
    assert again.cached == 40
    assert again.calls <= 40
    assert set(first.scored) <= set(again.scored)


def test_async_scorers_run_a_round_concurrently() -> None:
    world = planted()
    running, peak = 0, 0

    async def score(query: int, positions: np.ndarray) -> np.ndarray:
        nonlocal running, peak
        running += 1
        peak = max(peak, running)
        await asyncio.sleep(0.01)
        running -= 1
        return world.test[query, positions]

    searcher = world.searcher("axn", scorer=score)
    hits = searcher.search_many(range(6), 5, 50, query_vectors=world.query_vectors)
    assert peak == 6
    plain = world.searcher("axn").search_many(range(6), 5, 50, query_vectors=world.query_vectors)
    assert [h.ids for h in hits] == [h.ids for h in plain]


def test_async_scorers_work_inside_a_running_event_loop() -> None:
    world = planted()

    async def score(query: int, positions: np.ndarray) -> np.ndarray:
        return world.test[query, positions]

    async def main() -> crosscut.Hits:
        return world.searcher("axn", scorer=score).search(0, 5, 50, query_vector=world.query_vectors[0])

    assert len(asyncio.run(main())) == 5


def test_text_scorers_bind_to_a_corpus() -> None:
    texts = ["a", "bbb", "cc"]
    scorer = TextScorer(lambda query, items: [len(item) for item in items])
    assert scorer.score("q", texts).tolist() == [1.0, 3.0, 2.0]
    bound = scorer.bind(texts)
    hits = crosscut.Searcher(bound, n=3, texts=texts, method="exact").search("q", k=2)
    assert [hit.text for hit in hits] == ["bbb", "cc"]
    with pytest.raises(InputError, match=r"scorer\.bind\(items\)"):
        as_bound(scorer)  # type: ignore[arg-type]

    async def later(query: str, items: Sequence[str]) -> list[int]:
        return [len(item) for item in items]

    assert TextScorer(later).score("q", texts).tolist() == [1.0, 3.0, 2.0]
    assert len({scorer.fingerprint, TextScorer(later).fingerprint}) == 2


def test_bad_scorers_and_matrices_are_refused() -> None:
    with pytest.raises(InputError, match="must be callable"):
        CallableScorer(3)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="two dimensions"):
        MatrixScorer(np.zeros(3))
    with pytest.raises(ScorerError, match="query 7 is not a row"):
        MatrixScorer(np.zeros((2, 3))).score(7, np.arange(2))


def test_async_clients_live_through_all_rounds() -> None:
    """A semaphore, like an HTTP client, belongs to the event loop that first ran it."""
    world = planted()
    gate: list[asyncio.Semaphore] = []

    async def score(query: int, positions: np.ndarray) -> np.ndarray:
        gate[:] = gate or [asyncio.Semaphore(2)]
        async with gate[0]:
            await asyncio.sleep(0)
            return world.test[query, positions]

    hits = world.searcher("axn", scorer=score).search_many(range(6), 5, 50, query_vectors=world.query_vectors)
    assert [found.calls for found in hits] == [50] * 6


def test_a_deadline_cuts_a_round_into_batches() -> None:
    sizes: list[int] = []

    def score(query: Any, positions: np.ndarray) -> np.ndarray:
        sizes.append(len(positions))
        return positions.astype(float)

    meter = Meter(CallableScorer(score), deadline=30.0, batch_size=32)
    meter.score([QueryLedger("a", 100), QueryLedger("b", 100)], [np.arange(100), np.arange(10)])
    assert sum(sizes) == 110
    assert sizes[0] <= 4  # until its speed is known
    hits = crosscut.Searcher(CallableScorer(score), n=50, method="exact").search("q", 3, deadline=float("inf"))
    assert hits.calls == 50


def test_cached_pairs_never_reach_the_scorer() -> None:
    handed: list[int] = []

    def score(query: Any, positions: np.ndarray) -> np.ndarray:
        handed.extend(positions.tolist())
        return positions.astype(float)

    cache = MemoryCache()
    query = np.ones(3)  # any object may be a query
    cache.put(query, np.array([1, 2]), np.array([1.0, 2.0]))
    account = QueryLedger(query, 10)
    Meter(CallableScorer(score), cache=cache).score([account], [np.arange(4)])
    assert handed == [0, 3]
    assert (account.calls, account.cached) == (2, 2)
    assert sorted(account.positions.tolist()) == [0, 1, 2, 3]


@pytest.mark.parametrize(
    ("orders", "size"), [([10] * 16, 150), ([10] * 16, 161), ([30] * 16, 200), ([500, 3], 60), ([], 5)]
)
def test_batches_are_of_about_one_size(orders: list[int], size: int) -> None:
    """No batch of a few pairs is left over: 160 pairs at 150 a batch are 80 and 80."""
    left = [(QueryLedger(0, budget=1000), np.arange(count)) for count in orders]
    made = []
    while left:
        batch, left = cut(left, size)
        made.append(batch)
    sizes = [sum(len(positions) for _, positions in batch) for batch in made]
    assert sum(sizes) == sum(orders)
    assert max(sizes, default=0) <= size
    assert len(sizes) <= -(-sum(orders) // size) + (max(orders, default=0) > size)
    if orders == [10] * 16:
        assert sizes == ([80, 80] if size == 150 else [160])
