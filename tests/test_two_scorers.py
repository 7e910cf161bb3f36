"""Two scorers, one search."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import crosscut
from crosscut.errors import InputError
from crosscut.measures import recall
from crosscut.scorers.matrix import MatrixScorer

N, Q = 600, 12


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


def test_budgets_are_named(world: dict[str, Any]) -> None:
    both = crosscut.TwoScorers(
        cheap=MatrixScorer(world["cheap"]), dear=MatrixScorer(world["dear"]), vectors=world["vectors"]
    )
    with pytest.raises(InputError, match="calls of each; got"):
        both.search(0, 10, {"cheap": 20})
    with pytest.raises(InputError, match="2 dear calls are too few"):
        both.search(0, 10, {"cheap": 20, "dear": 2})
    with pytest.raises(InputError, match="rnr does not take what is known beforehand"):
        crosscut.TwoScorers(
            cheap=MatrixScorer(world["cheap"]), dear=MatrixScorer(world["dear"]), vectors=world["vectors"], method="rnr"
        )
