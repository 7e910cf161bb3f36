from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import crosscut
from crosscut.ann import clustered
from crosscut.ann.ivf import IVF
from crosscut.ann.ivf.rules import Patience
from crosscut.ann.trail import AGAIN, Trail
from crosscut.errors import InputError
from tests.unit.test_ivf import brute, clumps


@pytest.mark.services
def test_a_search_goes_on_where_the_last_one_stopped() -> None:
    vectors = clumps()
    index = IVF.build(vectors, lists=30)
    query, trail = clumps(1, seed=3), Trail()
    wanted = brute(vectors, query[0], 60, "ip")
    shared = []
    for turn in range(4):
        found = index.search_many(query, 60, rule=AGAIN + 6, trails=[trail])
        assert trail.visited is not None
        # the closest lists again, and six more that no search has seen
        assert trail.visited.sum() == min(AGAIN + 6 * (turn + 1), 30)
        trail.ids = found.ids[0][found.ids[0] >= 0]
        shared.append(len({*wanted} & {*trail.ids.tolist()}))
    # a query that stands still has seen every list by now
    assert found.ids[0].tolist() == wanted
    assert shared == sorted(shared)
    assert shared[0] < 60


def test_what_was_found_before_is_found_though_its_list_is_far() -> None:
    vectors = clumps()
    index = IVF.build(vectors, lists=30)
    query = clumps(1, seed=3)
    far = brute(vectors, -query[0], 3, "ip")
    found = index.search_many(query, 600, rule=1, trails=[Trail(ids=np.array(far))])
    ids = found.ids[0][found.ids[0] >= 0].tolist()
    assert {*far} <= {*ids}
    assert len(ids) == len({*ids})
    gone = index.search_many(query, 600, rule=1, exclude=[far[:2]], trails=[Trail(ids=np.array(far))]).ids[0]
    assert not {*far[:2]} & {*gone.tolist()}
    assert far[2] in gone
    among = index.search_many(query, 600, rule=1, allow=far[:1], trails=[Trail(ids=np.array(far))]).ids[0]
    assert among[among >= 0].tolist() == far[:1]


def test_a_warm_result_settles_sooner() -> None:
    vectors = clumps(3000)
    index = IVF.build(vectors, lists=40)
    queries = clumps(30, seed=4)
    rule = Patience(3, 0.0)
    cold = index.search_many(queries, 20, rule=rule)
    warm = index.search_many(queries, 20, rule=rule, trails=[Trail(ids=ids) for ids in cold.ids])
    assert warm.lists.sum() < cold.lists.sum()
    assert all({*before} == {*after} for before, after in zip(cold.ids.tolist(), warm.ids.tolist(), strict=True))


@settings(max_examples=30, deadline=None)
@given(lists=st.integers(1, 12), turns=st.integers(1, 8), seed=st.integers(0, 20))
def test_a_tour_ends_and_begins_anew(lists: int, turns: int, seed: int) -> None:
    """Whatever the rule, a search with a trail visits as many lists as one without."""
    vectors = clumps(200, 6)
    index = IVF.build(vectors, lists=12)
    trail = Trail()
    for query in clumps(turns, 6, seed=seed):
        found = index.search_many(query[None], 5, rule=lists, trails=[trail])
        assert found.lists.tolist() == [min(lists, 12)]
        assert (found.ids >= 0).all()


def test_what_a_search_began_with_counts_as_kept() -> None:
    """Patience sees sets: a member of the last result is kept, though the list it lies in is visited now."""
    vectors = clumps()
    index = IVF.build(vectors, lists=10)
    query = clumps(1, seed=3)
    all_found = index.search_many(query, 20, rule=10).ids[0]
    again = index.search_many(query, 20, rule=Patience(2, 0.0), trails=[Trail(ids=all_found)])
    assert again.ids[0].tolist() == all_found.tolist()
    assert again.lists[0] == 2  # nothing can change: settled from the first list on


def test_lists_that_tie_are_not_all_visited() -> None:
    index = IVF.build(clumps(), lists=20)
    trail = Trail()
    index.search_many(np.zeros((1, 12)), 5, rule=7, trails=[trail])
    assert trail.visited is not None
    assert trail.visited.sum() == 7


def test_one_trail_a_query() -> None:
    index = IVF.build(clumps(), lists=5)
    with pytest.raises(InputError, match="1 trails for 2 queries"):
        index.search_many(clumps(2), 5, trails=[Trail()])


@pytest.mark.services
def test_a_query_that_turns_reads_its_lists_again() -> None:
    """What is best in a list for one query is not what is best in it for another."""
    vectors = clumps(3000)
    index = IVF.build(vectors, lists=40)
    first, other = clumps(2, seed=3)
    for turned, again in ((first + 0.05 * other, False), (other, True)):
        trail = Trail()
        index.search_many(first[None], 20, rule=20, trails=[trail])
        assert trail.visited is not None
        before = trail.visited.copy()
        found = index.search_many(turned[None], 20, rule=20, trails=[trail])
        alone = index.search_many(turned[None], 20, rule=20)
        assert (found.ids.tolist() == alone.ids.tolist()) == again
        assert (trail.visited.sum() == 20) == again  # a tour of its own, or twenty and sixteen more
        assert (before & ~trail.visited).any() == again


def test_rounds_find_more_by_a_trail(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clustered, "SMALL", 0)
    rng = np.random.default_rng(0)
    vectors = rng.standard_normal((3000, 16))
    wanted = rng.standard_normal((40, 16))
    scores = wanted @ vectors.T
    best = np.argsort(-scores, axis=1)[:, :10]
    index = IVF.build(vectors, lists=100, rule=AGAIN + 2)
    searcher = crosscut.Searcher(crosscut.MatrixScorer(scores), vectors=index)
    near = wanted + rng.standard_normal(wanted.shape)

    def recall() -> float:
        found = searcher.search_many(range(40), 10, 100, query_vectors=near)
        return float(np.mean([len({hit.id for hit in found[j]} & {*best[j].tolist()}) / 10 for j in range(40)]))

    with_trail = recall()
    monkeypatch.setattr(Trail, "close", lambda self, near, query: None)
    assert with_trail > recall() + 0.05
