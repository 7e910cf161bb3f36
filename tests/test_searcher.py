"""What the caller may pass, and what comes back."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

import crosscut
from crosscut.errors import BudgetError, InputError
from tests.worlds import Planted


def test_hits_tell_the_cost_and_the_story(world: Planted) -> None:
    hits = world.searcher("adacur").search(0, 5, 50, keep_predictions=True)
    assert (hits.calls, hits.cached, hits.rounds, hits.stop_reason, hits.budget) == (50, 0, 5, "budget", 50)
    assert hits.seconds.total == pytest.approx(hits.seconds.scorer + hits.seconds.fit + hits.seconds.select)
    assert min(hits.seconds.scorer, hits.seconds.fit, hits.seconds.select) > 0
    assert [len(r.positions) for r in hits.trace] == [10] * 5
    assert np.isnan(hits.trace[0].estimates).all()  # round one was drawn
    for number, hit in enumerate(hits):
        assert hit.position in hits.trace[hit.round - 1].positions
        assert hits[number] is hit
    for step in hits.trace[1:]:
        assert step.predictions is not None
        assert np.allclose(step.predictions[step.positions], step.estimates, atol=1e-3)
    assert hits.scores.tolist() == sorted(hits.scores, reverse=True)
    assert len(hits[:2]) == 2


def test_names_instead_of_positions(world: Planted) -> None:
    names = [f"item-{j}" for j in range(world.n)]
    searcher = world.searcher("axn", ids=names)
    hits = searcher.search(0, 5, 40, first_ids=["item-7", "item-3"], allow=names[:50])
    assert all(hit.id == f"item-{hit.position}" and hit.position < 50 for hit in hits)
    assert hits.trace[0].positions[:2].tolist() == [7, 3]
    with pytest.raises(InputError, match="'item-x' is not among the 200 items"):
        searcher.search(0, 5, 40, first_ids=["item-x"])
    with pytest.raises(InputError, match="distinct"):
        world.searcher("axn", ids=["same"] * world.n)


def test_filters_hold_in_every_round(world: Planted) -> None:
    even = np.arange(world.n) % 2 == 0
    searcher = world.searcher("adacur")
    by_mask = searcher.search(0, 5, 50, allow=even)
    by_rule = searcher.search(0, 5, 50, allow=lambda j: j % 2 == 0)
    by_list = searcher.search(0, 5, 50, allow=list(range(0, world.n, 2)))
    assert by_mask.scored.tolist() == by_rule.scored.tolist() == by_list.scored.tolist()
    assert (by_mask.scored % 2 == 0).all()
    with pytest.raises(InputError, match="3 entries for 200 items"):
        searcher.search(0, 5, 50, allow=np.array([True, False, True]))


def test_patience_stops_when_the_top_has_settled(world: Planted) -> None:
    searcher = world.searcher("crosscut", rounds=20)
    full = searcher.search(0, 3, 150, query_vector=world.query_vectors[0])
    hits = searcher.search(0, 3, 150, query_vector=world.query_vectors[0], stop=crosscut.Patience(2))
    assert hits.stop_reason == "patience"
    assert hits.calls < 150
    tops = []
    for number in range(1, hits.rounds + 1):
        scored = np.concatenate([r.positions for r in full.trace[:number]])
        tops.append(frozenset(sorted(scored, key=lambda p: (-world.test[0, p], p))[:3]))
    kept = [a == b for a, b in pairwise(tops)]
    assert kept[-2:] == [True, True]
    assert not any(kept[j] and kept[j + 1] for j in range(len(kept) - 2))


def test_patience_with_tolerance() -> None:
    watch = crosscut.Patience(rounds=2, tolerance=0.5).watch(4)
    assert not watch.settled_after([1, 2, 3, 4])
    assert not watch.settled_after([1, 2, 5, 6])  # half of them stayed: 1
    assert watch.settled_after([1, 2, 5, 7])  # 2
    with pytest.raises(InputError, match="at least 1 round"):
        crosscut.Patience(0)
    with pytest.raises(InputError, match="tolerance"):
        crosscut.Patience(1, 1.0)


def test_a_larger_first_round(world: Planted) -> None:
    hits = world.searcher("adacur", rounds=4, first_share=0.4).search(0, 5, 50)
    assert [len(r.positions) for r in hits.trace] == [20, 10, 10, 10]
    hits = world.searcher("adacur", rounds=3, first_share=7).search(0, 5, 50)
    assert [len(r.positions) for r in hits.trace] == [7, 21, 22]
    hits = world.searcher("adacur", rounds=5).search(0, 5, 53)
    assert [len(r.positions) for r in hits.trace] == [10, 10, 10, 10, 13]
    with pytest.raises(InputError, match="first round"):
        world.searcher("adacur", first_share=0)
    with pytest.raises(InputError, match="at least 1 round"):
        world.searcher("adacur", rounds=0)


def test_wrong_arguments_are_sentences(world: Planted) -> None:
    scorer = crosscut.MatrixScorer(world.test)
    searcher = world.searcher("axn")
    with pytest.raises(InputError, match="k must be at least 1; got 0"):
        searcher.search(0, 0, 10)
    with pytest.raises(InputError, match="budget must be at least 1 call; got 0"):
        searcher.search(0, 5, 0)
    with pytest.raises(InputError, match="needs a budget"):
        searcher.search(0, 5)
    with pytest.raises(InputError, match="has 3 dimensions and the items have 12"):
        searcher.search(0, 5, 10, query_vector=np.ones(3))
    with pytest.raises(InputError, match="NaN"):
        searcher.search(0, 5, 10, query_vector=np.full(12, np.nan))
    with pytest.raises(InputError, match="item 999 is not one of the 200"):
        searcher.search(0, 5, 10, first_ids=[999])
    with pytest.raises(InputError, match="1 query vectors for 2 queries"):
        searcher.search_many([0, 1], 5, 10, query_vectors=[np.ones(12)])
    with pytest.raises(InputError, match="deadline"):
        searcher.search(0, 5, 10, deadline=0)
    with pytest.raises(BudgetError, match="exact scores all 200 items and the budget is 10"):
        world.searcher("exact").search(0, 5, 10)
    with pytest.raises(InputError, match="vectors: 3, scorer: 200"):
        crosscut.Searcher(scorer, vectors=np.ones((3, 2)), method="axn")
    with pytest.raises(InputError, match="how many items"):
        crosscut.Searcher(lambda q, p: [0.0] * len(p), method="exact")
    with pytest.raises(InputError, match="no item vectors to compare"):
        crosscut.Searcher(scorer, method="exact").search(0, 5, query_vector=[1.0])
    with pytest.raises(InputError, match="this query has none"):
        world.searcher("axn", first="dense").search(0, 5, 10)
