"""Arguments and results of `Searcher`."""

from __future__ import annotations

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import pairwise
from typing import ClassVar

import numpy as np
import pytest

import crosscut
from crosscut.ann.baseline import Level
from crosscut.errors import BudgetError, InputError
from crosscut.linalg.products import LARGE
from crosscut.methods import AXN, Method, Parts
from crosscut.search.fits import Ridge
from crosscut.search.loop import Plan
from crosscut.search.pickers import Linear
from crosscut.search.stages import FirstRound, Random
from crosscut.search.stopping import Schedule
from crosscut.spaces import Constant, Stacked, Vectors
from tests.worlds import Planted


def test_hits_have_cost_and_trace(world: Planted) -> None:
    hits = world.searcher("adacur").search(0, 5, 50, trace=True)
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
    hits = searcher.search(0, 5, 40, candidates=["item-7", "item-3"], allow=names[:50])
    assert all(hit.id == f"item-{hit.position}" and hit.position < 50 for hit in hits)
    assert hits.trace[0].positions[:2].tolist() == [7, 3]
    with pytest.raises(InputError, match="'item-x' is not among the 200 items"):
        searcher.search(0, 5, 40, candidates=["item-x"])
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
    assert not watch.stable_after([1, 2, 3, 4])
    assert not watch.stable_after([1, 2, 5, 6])  # half of them stayed: 1
    assert watch.stable_after([1, 2, 5, 7])  # 2
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
    with pytest.raises(InputError, match="budget must be at least 1; got 0"):
        searcher.search(0, 5, 0)
    assert searcher.search(0, 5, query_vector=world.query_vectors[0]).calls == 100  # by default
    assert world.searcher("exact").search(0, 5).calls == world.n
    with pytest.raises(InputError, match="has 3 dimensions, the items have 12"):
        searcher.search(0, 5, 10, query_vector=np.ones(3))
    with pytest.raises(InputError, match="NaN"):
        searcher.search(0, 5, 10, query_vector=np.full(12, np.nan))
    with pytest.raises(InputError, match="item 999 is not one of the 200"):
        searcher.search(0, 5, 10, candidates=[999])
    with pytest.raises(InputError, match="1 query vectors for 2 queries"):
        searcher.search_many([0, 1], 5, 10, query_vectors=[np.ones(12)])
    with pytest.raises(InputError, match="deadline"):
        searcher.search(0, 5, 10, deadline=0)
    with pytest.raises(BudgetError, match="exact scores all 200 items and the budget is 10"):
        world.searcher("exact").search(0, 5, 10)
    with pytest.raises(InputError, match="scorer: 200, encoder: 3"):
        crosscut.Searcher(scorer, vectors=np.ones((3, 2)), method="axn")
    with pytest.raises(InputError, match="how many items"):
        crosscut.Searcher(lambda q, p: [0.0] * len(p), method="exact")
    with pytest.raises(InputError, match="no item vectors to compare"):
        crosscut.Searcher(scorer, method="exact").search(0, 5, query_vector=[1.0])
    with pytest.raises(InputError, match="this query has none"):
        world.searcher("axn", first="dense").search(0, 5, 10)


def test_masks_may_be_lists_and_positions_must_be_whole(world: Planted) -> None:
    searcher = world.searcher("adacur")
    assert searcher.search(0, 5, 300, allow=[True] * world.n).calls == world.n
    with pytest.raises(InputError, match=r"1\.7"):
        searcher.search(0, 5, 20, candidates=[1.7])
    with pytest.raises(InputError, match="pass ids= to name them"):
        searcher.search(0, 5, 20, candidates=["a"])
    for wrong in ({"k": 5.0}, {"budget": 20.0}, {"budget": True}):
        with pytest.raises(InputError, match="whole number"):
            searcher.search(0, **{"k": 5, "budget": 20, **wrong})  # type: ignore[arg-type]
    with pytest.raises(InputError, match="seed"):
        world.searcher("adacur", seed=-1)
    with pytest.raises(InputError, match="a stop is a name such as 'patience@rounds=2'"):
        searcher.search(0, 5, 20, stop=2)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="deadline"):
        searcher.search(0, 5, 20, deadline=float("nan"))
    for settings in ({"mix": 7.0}, {"rcond": 2.0}, {"alpha": float("nan")}):
        with pytest.raises(InputError, match="got"):
            world.searcher("axn", **settings).search(  # type: ignore[arg-type]
                0, 5, 20, query_vector=world.query_vectors[0]
            )
    with pytest.raises(InputError, match="one of auto, encoder, factors, anchors; got 'words'"):
        world.searcher("axn", space="words")
    with pytest.raises(InputError, match="split"):
        world.searcher("anncur", split=1.5)
    with pytest.raises(InputError, match="slope"):
        world.searcher("crosscut", slope=-0.5)


def test_mixed_candidates_do_not_disturb_the_draws_of_others(world: Planted) -> None:
    searcher = world.searcher("adacur", select="softmax")
    alone = searcher.search(0, 5, 100, candidates=range(20))
    among = searcher.search_many([0, 1], 5, 100, candidates=[range(20), None])[0]
    assert alone.scored.tolist() == among.scored.tolist()


def test_several_threads_may_share_a_searcher(world: Planted) -> None:
    searcher = world.searcher("crosscut")
    alone = [searcher.search(q, 5, 60, query_vector=world.query_vectors[q]).scored.tolist() for q in range(6)]
    with ThreadPoolExecutor(6) as pool:
        together = list(
            pool.map(
                lambda q: searcher.search(q % 6, 5, 60, query_vector=world.query_vectors[q % 6]).scored.tolist(),
                range(36),
            )
        )
    assert together == alone * 6


def test_parts_of_your_own(world: Planted) -> None:
    """Any combination of parts is a plan: here ridge with a background level and a constant coordinate."""

    @dataclass(frozen=True, repr=False)
    class Levelled(Method):
        name: ClassVar[str] = "levelled"

        def plan(self, parts: Parts) -> Plan:
            space = Stacked([Vectors(world.vectors), Constant(parts.n)])
            level = Level(float(world.anchors.mean()))
            then = Linear(space, parts.topk(space, level), lambda query, d: Ridge(d, 0.1), level)
            return Plan(FirstRound(Random(parts.pool), parts.pool), Schedule(4), then)

    searcher = crosscut.Searcher(crosscut.MatrixScorer(world.test), method=Levelled())
    hits = searcher.search(0, 5, 80)
    assert (hits.calls, hits.rounds) == (80, 4)


def test_a_space_of_vectors_alone_takes_query_vectors(world: Planted) -> None:
    searcher = crosscut.Searcher(crosscut.MatrixScorer(world.test), space=Vectors(world.vectors), method=AXN(mix=0.3))
    assert searcher.search(0, 5, 40, query_vector=world.query_vectors[0]).calls == 40


def test_a_search_after_a_fork() -> None:
    """Threads do not survive a fork: the child must make its own."""
    code = f"""
import os, sys, numpy as np, crosscut
vectors = np.random.default_rng(0).standard_normal(({LARGE // 64 + 1}, 64), dtype=np.float32)
searcher = crosscut.Searcher(lambda q, p: vectors[p, 0].tolist(), vectors=vectors, method="axn")
search = lambda: searcher.search("q", 3, 20, query_vector=vectors[0]).calls
assert search() == 20
child = os.fork()
if not child:
    os._exit(0 if search() == 20 else 1)
sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""
    assert subprocess.run([sys.executable, "-c", code], timeout=60, check=False).returncode == 0
