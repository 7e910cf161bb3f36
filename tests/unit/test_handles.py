"""The loop knows neither n nor positions: over a store without n it finds what it finds over an array."""

from __future__ import annotations

import numpy as np
import pytest

import crosscut
from crosscut.errors import InputError
from crosscut.methods import methods, parse
from tests.fake_store import FakeStore
from tests.worlds import Planted

VECTORS = crosscut.Parts(encoder=crosscut.Vectors(np.ones((2, 2))))  # and no n
METHODS = [name for name, kind in methods().items() if kind().missing(VECTORS) is None]


def over_store(world: Planted, method: str) -> tuple[crosscut.Searcher, FakeStore]:
    order = np.random.default_rng(0).permutation(world.n)  # the store has an order of its own
    store = FakeStore([f"item {row}" for row in order], world.vectors[order])

    def score(query: int, handles: np.ndarray) -> np.ndarray:
        return world.test[query, [int(store.name(handle).split()[1]) for handle in handles]]

    return crosscut.Searcher(score, vectors=store, method=method), store


@pytest.mark.parametrize("method", METHODS)
def test_every_method_that_can_equals_the_flat_array(world: Planted, method: str) -> None:
    flat = crosscut.Searcher(crosscut.MatrixScorer(world.test), vectors=world.vectors, method=method)
    for query in range(len(world.test)):
        vector = world.query_vectors[query]
        searcher, store = over_store(world, method)
        mine = searcher.search(query, 10, 60, query_vector=vector)
        theirs = flat.search(query, 10, 60, query_vector=vector)
        assert [store.name(handle) for handle in mine.scored] == [f"item {p}" for p in theirs.scored]
        assert mine.scores.tolist() == theirs.scores.tolist()
        assert (mine.calls, mine.rounds, mine.stop_reason) == (theirs.calls, theirs.rounds, theirs.stop_reason)


def test_what_is_made_of_all_items_says_so() -> None:
    store = FakeStore(["a", "b"], np.eye(2))
    for method in ("exact", "adacur"):
        with pytest.raises(InputError, match=f"{method} needs"):
            crosscut.Searcher(lambda query, handles: np.zeros(len(handles)), vectors=store, method=method)


@pytest.mark.parametrize("method", ["axn", "crosscut"])
def test_an_exhausted_store_is_a_short_answer(world: Planted, method: str) -> None:
    searcher, store = over_store(world, method)
    hits = searcher.search(0, 5, 10_000, query_vector=world.query_vectors[0])
    assert hits.stop_reason == "exhausted"
    assert hits.calls == world.n == len(store.seen)
    assert hits.scores[0] == world.test[0].max()


@pytest.mark.parametrize("select", ["softmax", "random"])
def test_rules_that_want_every_prediction_draw_a_sample(world: Planted, select: str) -> None:
    searcher, _ = over_store(world, f"axn@select={select}")
    hits = searcher.search(0, 5, 60, query_vector=world.query_vectors[0])
    assert hits.calls == 60 == len(set(hits.scored.tolist()))


def test_one_trip_a_round(world: Planted) -> None:
    searcher, store = over_store(world, "crosscut@rounds=6")
    store.trips = 0
    searcher.search_many(range(4), 5, 60, query_vectors=world.query_vectors[:4])
    assert store.trips == 6  # round one among them
    assert parse("crosscut@rounds=6").missing(searcher.parts) is None


def test_a_trace_over_a_store_is_its_rounds_without_predictions(world: Planted) -> None:
    searcher, _ = over_store(world, "crosscut")
    plain = searcher.search(0, 5, 60, query_vector=world.query_vectors[0])
    searcher, _ = over_store(world, "crosscut")
    traced = searcher.search(0, 5, 60, query_vector=world.query_vectors[0], trace=True)
    assert [one.positions.tolist() for one in traced.trace] == [one.positions.tolist() for one in plain.trace]
    assert all(one.predictions is None for one in traced.trace)
    assert len(traced.scored) == 60
