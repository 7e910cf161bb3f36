"""A cheap scorer in front of an expensive one."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import pytest

import crosscut
from crosscut.errors import InputError, ScorerError
from crosscut.measures import paired_interval, recall
from crosscut.scorers.adapters import MatrixScorer

N, Q = 600, 12


@pytest.fixture(scope="module")
def world() -> dict[str, Any]:
    rng = np.random.default_rng(0)
    items, queries = rng.normal(size=(N, 12)), rng.normal(size=(Q, 12))
    expensive = queries @ items.T + 2.0 * rng.normal(size=(Q, N))  # vectors explain a part of it
    noise = expensive.std() * rng.normal(size=expensive.shape)
    return {
        "vectors": items.astype(np.float32),
        "queries": queries.astype(np.float32),
        "expensive": expensive,
        "cheap": 0.01 * (0.85 * expensive + 0.5 * noise) + 7,  # on a scale of its own
    }


def cascade(world: dict[str, Any], cheap: Any, expensive: Any, **how: Any) -> crosscut.CascadeSearcher:
    first = crosscut.Searcher(cheap, vectors=world["vectors"], ids=how.get("ids"))
    return crosscut.CascadeSearcher(
        cheap=first, expensive=crosscut.Searcher(expensive, vectors=world["vectors"], **how)
    )


def test_the_cheap_scorer_saves_expensive_calls_and_both_are_counted(world: dict[str, Any]) -> None:
    asked: list[int] = []

    def expensive(query: int, places: Any) -> Any:
        asked.extend(places.tolist())
        return world["expensive"][query, places]

    both = cascade(world, MatrixScorer(world["cheap"]), expensive)
    alone = crosscut.Searcher(MatrixScorer(world["expensive"]), vectors=world["vectors"])
    shares: dict[str, list[float]] = {"both": [], "alone": []}
    for j in range(Q):
        asked.clear()
        hits = both.search(j, 10, {"cheap": 200, "expensive": 40}, query_vector=world["queries"][j])
        assert hits.all_calls["cheap"] == 200
        assert 36 <= hits.all_calls["expensive"] <= 40
        assert len(asked) == len(set(asked)) == hits.calls
        assert hits.scores == pytest.approx(world["expensive"][j, [hit.position for hit in hits]])
        plain = alone.search(j, 10, 40, query_vector=world["queries"][j])
        shares["both"].append(recall(world["expensive"][j], hits.scored, 10))
        shares["alone"].append(recall(world["expensive"][j], plain.scored, 10))
    assert np.mean(shares["both"]) > np.mean(shares["alone"]) + 0.1


def test_a_cheap_scorer_is_no_filter(world: dict[str, Any]) -> None:
    blind = np.zeros_like(world["cheap"]) + np.random.default_rng(1).normal(size=(Q, N))
    both = cascade(world, MatrixScorer(blind), MatrixScorer(world["expensive"]))
    hits = both.search(0, 10, {"cheap": 20, "expensive": 580}, query_vector=world["queries"][0])
    assert recall(world["expensive"][0], hits.scored, 10) >= 0.9  # what the cheap one never saw is found


@pytest.mark.parametrize("share", [0.0, 0.3, 0.5])
def test_a_weak_cheap_scorer_does_not_hurt(world: dict[str, Any], share: float) -> None:
    rng = np.random.default_rng(2)
    weak = share * world["expensive"] / world["expensive"].std() + (1 - share**2) ** 0.5 * rng.normal(size=(Q, N))
    both = cascade(world, MatrixScorer(weak), MatrixScorer(world["expensive"]))
    alone = crosscut.Searcher(MatrixScorer(world["expensive"]), vectors=world["vectors"])
    found = both.search_many(range(Q), 10, {"cheap": 200, "expensive": 60}, query_vectors=world["queries"])
    plain = alone.search_many(range(Q), 10, 60, query_vectors=world["queries"])
    recalls = [
        np.array([recall(world["expensive"][j], hits.scored, 10) for j, hits in enumerate(some)])
        for some in (found, plain)
    ]
    _, low, high = paired_interval(*recalls)
    assert high >= 0
    assert low > -0.1


def test_many_queries_are_searched_as_one_is(world: dict[str, Any]) -> None:
    names = [f"item {i}" for i in range(N)]
    allowed = names[::2]
    both = cascade(world, MatrixScorer(world["cheap"]), MatrixScorer(world["expensive"]), ids=names)
    budget = {"cheap": 100, "expensive": 30}
    many = both.search_many(range(Q), 5, budget, query_vectors=world["queries"], allow=allowed)
    for j in reversed(range(Q)):  # no query learns from another
        one = both.search(j, 5, budget, query_vector=world["queries"][j], allow=allowed)
        assert one.ids == many[j].ids
        assert one.all_calls == many[j].all_calls == budget
        assert set(one.ids) <= set(allowed)
    assert both.search_many([], 5, budget) == []


def test_items_for_round_one_may_be_given_and_a_filter_leaves_the_best_of_the_cheap(world: dict[str, Any]) -> None:
    names = [f"item {i}" for i in range(N)]
    both = cascade(world, MatrixScorer(world["cheap"]), MatrixScorer(world["expensive"]), ids=names)
    budget, vector = {"cheap": 100, "expensive": 30}, world["queries"][0]
    given = [f"item {i}" for i in range(40, 46)]
    hits = both.search(0, 5, budget, query_vector=vector, candidates=given)
    assert hits.cheap is not None
    assert hits.all_calls == budget
    assert hits.cheap.trace[0].positions[:6].tolist() == [*range(40, 46)]
    first = hits.trace[0].positions.tolist()
    rest = [place for place in first if 40 <= place < 46]
    assert rest, "beside the best of the cheap scorer"
    assert rest == [place for place in range(40, 46) if place in first]  # in their order
    (many,) = both.search_many([0], 5, budget, query_vectors=[vector], candidates=[given])
    assert many.ids == hits.ids
    with pytest.raises(InputError, match="item id 'none' is not among the 600 items"):
        both.search(0, 5, budget, query_vector=vector, candidates=["none"])
    allowed = np.argsort(world["cheap"][0])[:200]  # the worst by the cheap scorer
    under = both.search(0, 5, budget, query_vector=vector, allow=[names[place] for place in allowed])
    scored = {place for made in under.cheap.trace for place in made.positions.tolist()} if under.cheap else set()
    best = max(scored, key=lambda place: world["cheap"][0, place])
    assert under.trace[0].positions[0] == best, "the best of the cheap scorer that is allowed"


def test_a_deadline_is_for_both(world: dict[str, Any]) -> None:
    def slow(query: int, places: Any) -> Any:
        time.sleep(0.3)
        return world["expensive"][query, places]

    both = cascade(world, MatrixScorer(world["cheap"]), slow)
    hits = both.search(0, 5, {"cheap": 50, "expensive": 100}, query_vector=world["queries"][0], deadline=1.5)
    assert hits.stop_reason == "deadline"
    assert 0 < hits.calls < 100
    over = both.search(0, 5, {"cheap": 50, "expensive": 100}, query_vector=world["queries"][0], deadline=1e-9)
    assert (over.stop_reason, over.all_calls) == ("deadline", {"cheap": 0, "expensive": 0})


@pytest.mark.parametrize(("failing", "after"), [("cheap", 150), ("expensive", 70)])
def test_a_scorer_that_fails_loses_nothing_that_was_paid(world: dict[str, Any], failing: str, after: int) -> None:
    seen = {"cheap": 0, "expensive": 0}

    def counting(name: str) -> Any:
        def score(query: int, places: Any) -> Any:
            seen[name] += len(places)
            if name == failing and seen[name] > after:
                raise OSError("line is down")
            return world[name][query, places]

        return score

    both = cascade(world, counting("cheap"), counting("expensive"))
    with pytest.raises(ScorerError) as caught:
        both.search_many(range(4), 5, {"cheap": 100, "expensive": 30}, query_vectors=world["queries"][:4])
    hits: list[Any] = caught.value.hits
    assert [one.query for one in hits] == [0, 1, 2, 3]
    assert caught.value.calls == seen["cheap"] + seen["expensive"]
    for name in seen:
        assert sum(one.all_calls[name] for one in hits) == seen[name]
    assert {one.stop_reason for one in hits} == {"scorer failed"}
    if failing == "expensive":
        assert all(len(one) for one in hits)


def test_budgets_are_named(world: dict[str, Any]) -> None:
    both = cascade(world, MatrixScorer(world["cheap"]), MatrixScorer(world["expensive"]))
    with pytest.raises(InputError, match="calls of each; got"):
        both.search(0, 10, {"cheap": 20})
    with pytest.raises(InputError, match="calls of each; got 50"):
        both.search(0, 10, 50)  # type: ignore[arg-type]
    assert both.search(0, 10, {"cheap": 20, "expensive": 1}, query_vector=world["queries"][0]).calls == 1
    with pytest.raises(InputError, match="rerank does not take what is known beforehand"):
        cascade(world, MatrixScorer(world["cheap"]), MatrixScorer(world["expensive"]), method="rerank")
