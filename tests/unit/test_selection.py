"""Pickers: first stages, softmax and random selection, exploration, and where random draws come from."""

from __future__ import annotations

import numpy as np
import pytest

from crosscut import CUR, MatrixScorer, Searcher
from crosscut.ann.topk import Everything
from crosscut.errors import InputError
from crosscut.scorers.meter import QueryLedger
from crosscut.search.loop import Query, generator
from crosscut.search.stages import Fixed, Random, Union


def query() -> Query:
    return Query(QueryLedger(0, 100)).without(np.array([3]))


@pytest.mark.parametrize("select", ["softmax", "random"])
def test_a_draw_names_allowed_items_once_with_their_predictions(select: str) -> None:
    vectors = np.random.default_rng(0).normal(size=(60, 8))
    searcher = Searcher(MatrixScorer(vectors[:3] @ vectors.T), vectors=vectors, method=f"axn@select={select}")
    allowed = list(range(0, 60, 2))
    hits = searcher.search(1, 5, 20, query_vector=vectors[1], allow=allowed, trace=True)
    assert len(set(hits.scored.tolist())) == 20
    assert set(hits.scored.tolist()) <= set(allowed)
    for entry in hits.trace[1:]:
        assert entry.predictions is not None
        np.testing.assert_allclose(entry.predictions[entry.positions], entry.estimates, rtol=1e-5)


def test_softmax_draws_follow_the_softmax() -> None:
    """With one item scored and a query vector alone (λ = 1), the second call follows the softmax of v · q."""
    logits = np.log(np.array([0.5, 0.3, 0.15, 0.05]))
    vectors = np.append(logits, 9.0)[:, None]
    searcher = Searcher(
        lambda query, positions: np.zeros(len(positions)), vectors=vectors, method="axn@select=softmax,mix=1.0,rounds=2"
    )
    second = [int(hits.scored[1]) for hits in searcher.search_many(range(4000), 1, 2, query_vectors=np.ones((4000, 1)))]
    shares = np.bincount(second, minlength=4) / 4000
    assert np.abs(shares - [0.5, 0.3, 0.15, 0.05]).max() < 0.03


def test_first_stages_in_turn() -> None:
    (pick,) = Union((Fixed(np.arange(10)), Fixed(np.arange(9, -1, -1)))).pick([query()], [5])
    assert pick.handles.tolist() == [0, 9, 1, 8, 2]
    (drawn,) = Random(Everything(10)).pick([query()], [9])
    assert sorted(drawn.handles.tolist()) == [0, 1, 2, 4, 5, 6, 7, 8, 9]
    (few,) = Random(Everything(10_000)).pick([query()], [5])
    assert len(set(few.handles.tolist())) == 5


def test_draws_come_from_seed_and_query() -> None:
    assert generator(0, "a").integers(1 << 30) == generator(0, "a").integers(1 << 30)
    assert generator(0, "a").integers(1 << 30) != generator(1, "a").integers(1 << 30)
    assert generator(0, 3).integers(1 << 30) == generator(0, np.int64(3)).integers(1 << 30)
    assert generator(0, np.ones(2)).integers(1 << 30) != generator(0, np.zeros(2)).integers(1 << 30)


def test_a_share_that_is_none_is_refused() -> None:
    with pytest.raises(InputError, match="explore is a share of the calls"):
        Searcher(MatrixScorer(np.zeros((1, 4))), space=CUR(np.ones((2, 4))), method="adacur@explore=1.5")
