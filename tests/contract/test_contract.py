"""One contract for every method, on planted data."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import crosscut
from tests.worlds import METHODS, Planted, planted

worlds: dict[tuple[int, int], Planted] = {}


def small(n: int, seed: int) -> Planted:
    if (n, seed) not in worlds:
        worlds[n, seed] = planted(n=n, queries=3, anchors=12, rank=4, seed=seed)
    return worlds[n, seed]


@settings(max_examples=250, deadline=None)
@given(
    method=st.sampled_from(METHODS),
    n=st.sampled_from([25, 40, 80]),
    budget=st.integers(1, 100),
    k=st.integers(1, 90),
    seed=st.integers(0, 3),
    data=st.data(),
)
def test_never_over_budget_and_ids_are_right(
    method: str, n: int, budget: int, k: int, seed: int, data: st.DataObject
) -> None:
    world = small(n, seed)
    allow = data.draw(st.none() | st.lists(st.integers(0, n - 1), min_size=1, unique=True))
    given_ids = data.draw(st.none() | st.lists(st.integers(0, n - 1), unique=True))
    seen: list[tuple[int, int]] = []

    def score(query: int, positions: np.ndarray) -> np.ndarray:
        seen.extend((query, int(p)) for p in positions)
        return world.test[query, positions]

    hits = world.searcher(method, scorer=score, seed=seed).search_many(
        range(3),
        k,
        budget,
        query_vectors=world.query_vectors,
        candidates=None if given_ids is None else [given_ids] * 3,
        allow=allow,
    )
    assert len(seen) == len(set(seen)) == sum(found.calls for found in hits)
    pool = set(range(n)) if allow is None else set(allow)
    for query, found in enumerate(hits):
        scored = [p for q, p in seen if q == query]
        assert set(scored) <= pool
        assert found.calls == len(scored) == min(budget, len(pool))  # equal to it, unless nothing is left
        assert found.stop_reason == ("exhausted" if budget >= len(pool) else "budget")
        truth = sorted(scored, key=lambda p: (-world.test[query, p], p))[:k]
        assert found.ids == truth
        assert [hit.score for hit in found] == [world.test[query, p] for p in truth]
        assert sum(r.calls for r in found.trace) == found.calls
        if given_ids and method not in ("exact",):
            wanted = [p for p in given_ids if p in pool][: len(found.trace[0].positions)]
            assert found.trace[0].positions[: len(wanted)].tolist() == wanted


@pytest.mark.parametrize("method", [*METHODS, "exact"])
def test_a_budget_of_everything_is_exact(world: Planted, method: str) -> None:
    hits = world.searcher(method).search_many(range(6), 20, world.n, query_vectors=world.query_vectors)
    for query, found in enumerate(hits):
        assert found.ids == np.argsort(-world.test[query], kind="stable")[:20].tolist()
        assert found.stop_reason == "exhausted"


@pytest.mark.parametrize("method", METHODS)
def test_same_seed_same_answer_and_many_equals_one_by_one(world: Planted, method: str) -> None:
    searcher = world.searcher(method, seed=5)
    many = searcher.search_many(range(6), 10, 47, query_vectors=world.query_vectors)
    again = world.searcher(method, seed=5).search_many(range(6), 10, 47, query_vectors=world.query_vectors)
    for query in range(6):
        one = searcher.search(query, 10, 47, query_vector=world.query_vectors[query])
        assert one.scored.tolist() == many[query].scored.tolist() == again[query].scored.tolist()
        assert one.ids == many[query].ids


@pytest.mark.parametrize("select", ["softmax", "random"])
def test_draws_depend_on_seed_and_query_alone(world: Planted, select: str) -> None:
    searcher = world.searcher("adacur", seed=1, select=select, explore=0.25)
    many = searcher.search_many([4, 2], 5, 50)
    assert searcher.search(2, 5, 50).scored.tolist() == many[1].scored.tolist()
    assert world.searcher("adacur", seed=2).search(2, 5, 50).scored.tolist() != many[1].scored.tolist()


@pytest.mark.parametrize("method", ["rerank", "axn", "crosscut"])
def test_a_permuted_corpus_gives_the_permuted_answer(world: Planted, method: str) -> None:
    order = np.random.default_rng(0).permutation(world.n)
    label = "crosscut@rank=8" if method == "crosscut" else method
    plain = crosscut.Searcher(crosscut.MatrixScorer(world.test), vectors=world.vectors, method=label).search(
        0, 10, 40, query_vector=world.query_vectors[0]
    )
    moved = crosscut.Searcher(
        crosscut.MatrixScorer(world.test[:, order]), vectors=world.vectors[order], method=label
    ).search(0, 10, 40, query_vector=world.query_vectors[0])
    assert [order[j] for j in moved.ids] == plain.ids


@pytest.mark.parametrize("method", METHODS)
def test_duplicates_zero_vectors_and_constant_scores_have_an_answer(method: str) -> None:
    world = planted(n=60, queries=2, anchors=10)
    for matrix in (world.test, world.anchors):
        matrix[:, 10:20] = matrix[:, :10]
    world.vectors[10:20] = world.vectors[:10]
    world.vectors[20:25] = 0
    hits = world.searcher(method).search_many(range(2), 5, 30, query_vectors=world.query_vectors)
    assert [found.calls for found in hits] == [30, 30]
    flat = Planted(np.full_like(world.test, 2.5), np.full_like(world.anchors, 2.5), world.vectors, world.query_vectors)
    found = flat.searcher(method).search(0, 5, 30, query_vector=world.query_vectors[0])
    assert found.calls == 30
    assert found.ids == sorted(found.scored)[:5]  # ties go to the lower position


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("budget", [1, 2, 3])
def test_a_budget_under_the_number_of_rounds(world: Planted, method: str, budget: int) -> None:
    hits = world.searcher(method).search(0, 10, budget, query_vector=world.query_vectors[0])
    assert hits.calls == len(hits) == budget
    assert hits.rounds <= budget


@pytest.mark.parametrize("method", ["rerank", "axn", "crosscut", "exact"])
def test_one_item_and_none(method: str) -> None:
    one = crosscut.Searcher(crosscut.MatrixScorer(np.array([[3.0]])), vectors=np.ones((1, 2)), method=method)
    assert one.search(0, 5, 4, query_vector=[1.0, 0.0]).ids == [0]
    empty = crosscut.Searcher(crosscut.MatrixScorer(np.empty((1, 0))), vectors=np.empty((0, 2)), method=method)
    hits = empty.search(0, 5, 4, query_vector=[1.0, 0.0])
    assert (len(hits), hits.calls, hits.stop_reason) == (0, 0, "exhausted")


@pytest.mark.parametrize("method", METHODS)
def test_nothing_allowed_is_an_empty_answer(world: Planted, method: str) -> None:
    hits = world.searcher(method).search(0, 5, 20, query_vector=world.query_vectors[0], allow=[])
    assert (len(hits), hits.calls, hits.stop_reason) == (0, 0, "exhausted")
    assert world.searcher(method).search_many([], 5, 20) == []
