"""Two scorers, one search."""

from __future__ import annotations

import importlib.util
import json
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import crosscut
from crosscut.errors import InputError, ScorerError
from crosscut.measures import paired_interval, recall
from crosscut.scorers.adapters import MatrixScorer

N, Q = 600, 12
ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def world() -> dict[str, Any]:
    rng = np.random.default_rng(0)
    items, queries = rng.normal(size=(N, 12)), rng.normal(size=(Q, 12))
    dear = queries @ items.T + 2.0 * rng.normal(size=(Q, N))  # vectors explain a part of it
    noise = dear.std() * rng.normal(size=dear.shape)
    return {
        "vectors": items.astype(np.float32),
        "queries": queries.astype(np.float32),
        "dear": dear,
        "cheap": 0.01 * (0.85 * dear + 0.5 * noise) + 7,  # on a scale of its own
    }


def test_the_cheap_scorer_saves_dear_calls_and_both_are_counted(world: dict[str, Any]) -> None:
    asked: list[int] = []

    def dear(query: int, places: Any) -> Any:
        asked.extend(places.tolist())
        return world["dear"][query, places]

    both = crosscut.TwoScorers(cheap=MatrixScorer(world["cheap"]), dear=dear, vectors=world["vectors"])
    alone = crosscut.Searcher(MatrixScorer(world["dear"]), vectors=world["vectors"])
    shares: dict[str, list[float]] = {"both": [], "alone": []}
    for j in range(Q):
        asked.clear()
        hits = both.search(j, 10, {"cheap": 200, "dear": 40}, query_vector=world["queries"][j])
        assert hits.all_calls["cheap"] == 200
        assert 36 <= hits.all_calls["dear"] <= 40
        assert len(asked) == len(set(asked)) == hits.calls
        assert hits.scores == pytest.approx(world["dear"][j, [hit.position for hit in hits]])
        plain = alone.search(j, 10, 40, query_vector=world["queries"][j])
        shares["both"].append(recall(world["dear"][j], hits.scored, 10))
        shares["alone"].append(recall(world["dear"][j], plain.scored, 10))
    assert np.mean(shares["both"]) > np.mean(shares["alone"]) + 0.1


def test_a_cheap_scorer_is_no_filter(world: dict[str, Any]) -> None:
    blind = np.zeros_like(world["cheap"]) + np.random.default_rng(1).normal(size=(Q, N))
    both = crosscut.TwoScorers(cheap=MatrixScorer(blind), dear=MatrixScorer(world["dear"]), vectors=world["vectors"])
    hits = both.search(0, 10, {"cheap": 20, "dear": 580}, query_vector=world["queries"][0])
    assert recall(world["dear"][0], hits.scored, 10) >= 0.9  # what the cheap one never saw is found


@pytest.mark.parametrize("share", [0.0, 0.3, 0.5])
def test_a_weak_cheap_scorer_does_not_hurt(world: dict[str, Any], share: float) -> None:
    rng = np.random.default_rng(2)
    weak = share * world["dear"] / world["dear"].std() + (1 - share**2) ** 0.5 * rng.normal(size=(Q, N))
    both = crosscut.TwoScorers(cheap=MatrixScorer(weak), dear=MatrixScorer(world["dear"]), vectors=world["vectors"])
    alone = crosscut.Searcher(MatrixScorer(world["dear"]), vectors=world["vectors"])
    found = both.search_many(range(Q), 10, {"cheap": 200, "dear": 60}, query_vectors=world["queries"])
    plain = alone.search_many(range(Q), 10, 60, query_vectors=world["queries"])
    recalls = [
        np.array([recall(world["dear"][j], hits.scored, 10) for j, hits in enumerate(some)]) for some in (found, plain)
    ]
    _, low, high = paired_interval(*recalls)
    assert high >= 0
    assert low > -0.1


def test_many_queries_are_searched_as_one_is(world: dict[str, Any]) -> None:
    names = [f"item {i}" for i in range(N)]
    allowed = names[::2]
    both = crosscut.TwoScorers(
        cheap=MatrixScorer(world["cheap"]), dear=MatrixScorer(world["dear"]), vectors=world["vectors"], ids=names
    )
    budget = {"cheap": 100, "dear": 30}
    many = both.search_many(range(Q), 5, budget, query_vectors=world["queries"], allow=allowed)
    for j in reversed(range(Q)):  # no query learns from another
        one = both.search(j, 5, budget, query_vector=world["queries"][j], allow=allowed)
        assert one.ids == many[j].ids
        assert one.all_calls == many[j].all_calls == budget
        assert set(one.ids) <= set(allowed)
    assert both.search_many([], 5, budget) == []


def test_items_for_round_one_may_be_given_and_a_filter_leaves_the_best_of_the_cheap(world: dict[str, Any]) -> None:
    names = [f"item {i}" for i in range(N)]
    both = crosscut.TwoScorers(
        cheap=MatrixScorer(world["cheap"]), dear=MatrixScorer(world["dear"]), vectors=world["vectors"], ids=names
    )
    budget, vector = {"cheap": 100, "dear": 30}, world["queries"][0]
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
        return world["dear"][query, places]

    both = crosscut.TwoScorers(cheap=MatrixScorer(world["cheap"]), dear=slow, vectors=world["vectors"])
    hits = both.search(0, 5, {"cheap": 50, "dear": 100}, query_vector=world["queries"][0], deadline=1.5)
    assert hits.stop_reason == "deadline"
    assert 0 < hits.calls < 100
    over = both.search(0, 5, {"cheap": 50, "dear": 100}, query_vector=world["queries"][0], deadline=1e-9)
    assert (over.stop_reason, over.all_calls) == ("deadline", {"cheap": 0, "dear": 0})


@pytest.mark.parametrize(("failing", "after"), [("cheap", 150), ("dear", 70)])
def test_a_scorer_that_fails_loses_nothing_that_was_paid(world: dict[str, Any], failing: str, after: int) -> None:
    seen = {"cheap": 0, "dear": 0}

    def counting(name: str) -> Any:
        def score(query: int, places: Any) -> Any:
            seen[name] += len(places)
            if name == failing and seen[name] > after:
                raise OSError("line is down")
            return world[name][query, places]

        return score

    both = crosscut.TwoScorers(cheap=counting("cheap"), dear=counting("dear"), vectors=world["vectors"])
    with pytest.raises(ScorerError) as caught:
        both.search_many(range(4), 5, {"cheap": 100, "dear": 30}, query_vectors=world["queries"][:4])
    hits: list[Any] = caught.value.hits
    assert [one.query for one in hits] == [0, 1, 2, 3]
    assert caught.value.calls == seen["cheap"] + seen["dear"]
    for name in seen:
        assert sum(one.all_calls[name] for one in hits) == seen[name]
    if failing == "dear":
        assert [len(one) for one in hits] == [5, 5, 5, 0]
        assert [one.stop_reason for one in hits[2:]] == ["scorer failed", "scorer failed"]


@pytest.mark.slow
def test_the_benchmark_can_be_made_again_and_two_are_never_worse_than_one() -> None:
    spec = importlib.util.spec_from_file_location("two", ROOT / "benchmarks" / "two_scorers.py")
    assert spec is not None
    assert spec.loader is not None
    benchmark = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(benchmark)
    told = json.loads((ROOT / "benchmarks" / "results" / "two_scorers.json").read_text("utf-8"))
    assert told["significantly_worse"] == [
        f"{one['world']}, {one['cheap']}, {one['dear_calls']} calls"
        for one in told["records"]
        if one["both_difference"][2] < 0
    ]
    assert told["significantly_worse"] == []
    kept = [one for one in told["records"] if (one["world"], one["cheap"]) == ("wordnet-feeling", "box")]
    for mine, theirs in zip(benchmark.measured("wordnet-feeling", "box"), kept, strict=True):
        for kind in ("alone", "both", "filter"):
            assert mine[kind] == pytest.approx(theirs[kind], abs=0.01)


def test_budgets_are_named(world: dict[str, Any]) -> None:
    both = crosscut.TwoScorers(
        cheap=MatrixScorer(world["cheap"]), dear=MatrixScorer(world["dear"]), vectors=world["vectors"]
    )
    with pytest.raises(InputError, match="calls of each; got"):
        both.search(0, 10, {"cheap": 20})
    with pytest.raises(InputError, match="calls of each; got 50"):
        both.search(0, 10, 50)  # type: ignore[arg-type]
    assert both.search(0, 10, {"cheap": 20, "dear": 1}, query_vector=world["queries"][0]).calls == 1
    with pytest.raises(InputError, match="rerank does not take what is known beforehand"):
        crosscut.TwoScorers(
            cheap=MatrixScorer(world["cheap"]),
            dear=MatrixScorer(world["dear"]),
            vectors=world["vectors"],
            method="rerank",
        )
