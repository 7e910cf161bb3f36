"""Rivals by name, each against a direct transcription of its paper's algorithm on planted data."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, WhiteKernel
from tests.worlds import Planted, planted

import crosscut
from crosscut.errors import InputError
from crosscut.evaluation.replay import replay
from crosscut.methods import Method
from crosscut.scorers.meter import QueryLedger
from crosscut.search.loop import Query
from crosscut.spaces.base import Vectors
from crosscut_lab.rivals.gar import GAR
from crosscut_lab.rivals.gp import GP, Acquiring
from crosscut_lab.rivals.graph import NO_EDGE, nearest, proximity
from crosscut_lab.rivals.qdrant_feedback import QdrantFeedback
from crosscut_lab.rivals.rgs import RGS


@pytest.fixture
def world() -> Planted:
    return planted()


RIVALS = ("gar", "rgs", "gp", "gp@acquisition=ei", "qdrant-feedback")


def scored(world: Planted, method: str | Method, budget: int, query: int = 0) -> list[int]:
    searcher = crosscut.Searcher(crosscut.MatrixScorer(world.test), vectors=world.vectors, method=method)
    found = searcher.search(query, 10, budget, query_vector=world.query_vectors[query])
    return found.scored.tolist()


@pytest.mark.parametrize("query", range(4))
def test_gar_is_algorithm_1(world: Planted, query: int) -> None:
    scores, batch, budget = world.test[query], 5, 43
    graph = np.argsort(-(world.vectors @ world.vectors.T) + np.diag(np.full(world.n, np.inf)), axis=1)[:, :4]
    initial = np.argsort(-(world.vectors @ world.query_vectors[query])).tolist()
    results: dict[int, float] = {}
    frontier: dict[int, float] = {}
    pool = initial
    while len(results) < budget:
        ranked = pool if pool is initial else sorted(frontier, key=lambda item: (-frontier[item], item))
        chosen = ranked[: min(batch, budget - len(results))]
        for item in list(chosen):
            results[item] = scores[item]
            initial.remove(item)
            frontier.pop(item, None)
        for item in list(results)[-len(chosen) :]:
            for target in graph[item].tolist():
                if target not in results:
                    frontier[target] = max(frontier.get(target, -np.inf), scores[item])
        pool = list(frontier) if pool is initial else initial
    assert scored(world, GAR(neighbours=4, batch=batch), budget, query) == list(results)


@pytest.mark.parametrize("query", range(4))
def test_rgs_expands_the_best_unexpanded_item(world: Planted, query: int) -> None:
    scores, budget = world.test[query], 60
    graph = proximity(Vectors(world.vectors), 6, 1.2)
    start = int(np.argmax(world.vectors @ world.query_vectors[query]))
    found, expanded = [start], set[int]()
    while len(found) < budget:
        best = max((item for item in found if item not in expanded), key=lambda item: (scores[item], -item))
        expanded.add(best)
        found += [int(item) for item in graph[best] if item != NO_EDGE and item not in found]
    assert scored(world, RGS(degree=6), budget, query) == found[:budget]


def test_the_proximity_graph_is_robustly_pruned(world: Planted) -> None:
    alpha, degree = 1.2, 6
    graph = proximity(Vectors(world.vectors), degree, alpha)
    apart = np.linalg.norm(world.vectors[:, None] - world.vectors, axis=2)
    for item in range(world.n):
        edges = [int(j) for j in graph[item] if j != NO_EDGE]
        assert 1 <= len(edges) <= degree
        assert item not in edges
        assert len(set(edges)) == len(edges)
        for place, later in enumerate(edges):
            assert all(alpha * apart[before, later] > apart[item, later] for before in edges[:place])
    assert nearest(Vectors(world.vectors[:3]), 5).shape == (3, 2)  # no item has more than all others


def posterior(world: Planted, how: GP, handles: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Ours, and scikit-learn's with the same kernel."""
    scores, query = world.test[0, handles], world.query_vectors[0]
    asked = Query(QueryLedger(0, 100), vector=query)
    asked.account.record(handles, scores)
    means, deviations, best = Acquiring(how, Vectors(world.vectors), 2.0).posterior(asked)
    targets = (scores - scores.mean()) / scores.std()
    assert best == pytest.approx(targets.max())
    kernel = RBF(2.0, "fixed") + WhiteKernel(how.noise, "fixed")
    process = GaussianProcessRegressor(kernel, optimizer=None, alpha=1e-12)
    process.fit(np.vstack([world.vectors[handles], query]), np.append(targets, targets.max()))
    theirs, spread = process.predict(world.vectors, return_std=True)
    return means, deviations, theirs, np.sqrt(spread**2 - how.noise)


def test_gp_is_gaussian_process_regression(world: Planted) -> None:
    handles = np.random.default_rng(0).choice(world.n, 30, replace=False)
    means, deviations, theirs, spread = posterior(world, GP(noise=0.2), handles)
    assert np.allclose(means, theirs, atol=1e-5)
    assert np.allclose(deviations, spread, atol=1e-4)


@pytest.mark.parametrize("acquisition", ["ucb", "ei"])
def test_gp_takes_the_highest_acquisition(world: Planted, acquisition: str) -> None:
    how = GP(rounds=2, acquisition=acquisition, kappa=0.7)  # type: ignore[arg-type]
    ours = scored(world, how, 40)
    first = np.array(ours[:20])
    width = 2.0 / crosscut.methods.weights.spread_of(Vectors(world.vectors), 0)
    ours = scored(world, how.with_settings({"width": width}), 40)
    assert ours[:20] == first.tolist()
    means, deviations, theirs, spread = posterior(world, how, first)
    values = theirs + 0.7 * spread
    if acquisition == "ei":
        best = ((world.test[0, first] - world.test[0, first].mean()) / world.test[0, first].std()).max()
        draws = theirs + spread * np.random.default_rng(1).standard_normal((40_000, 1))
        values = np.maximum(draws - best, 0).mean(axis=0)
    values[first] = -np.inf
    highest = set(np.argsort(-values)[:20].tolist())
    assert len(highest & set(ours[20:])) >= (20 if acquisition == "ucb" else 17)  # draws are not exact
    assert np.isfinite(means).all()
    assert (deviations > 0).all()


@pytest.mark.services
@pytest.mark.parametrize("b", [0.0, 0.5, 2.0])
def test_relevance_feedback_is_qdrants(world: Planted, b: float) -> None:
    from qdrant_client import QdrantClient, models

    client = QdrantClient(":memory:")
    size = world.vectors.shape[1]
    client.create_collection("items", vectors_config=models.VectorParams(size=size, distance=models.Distance.DOT))
    client.upsert("items", [models.PointStruct(id=j, vector=row.tolist()) for j, row in enumerate(world.vectors)])
    query = world.query_vectors[0]
    ours = scored(world, QdrantFeedback(a=0.8, b=b, c=0.05, feedback=6.0), 26)
    given = np.argsort(-(world.vectors @ query))[:6].tolist()
    assert ours[:6] == given
    items = [
        models.FeedbackItem(example=world.vectors[item].tolist(), score=float(world.test[0, item])) for item in given
    ]
    strategy = models.NaiveFeedbackStrategy(naive=models.NaiveFeedbackStrategyParams(a=0.8, b=b, c=0.05))
    asked = models.RelevanceFeedbackInput(target=query.tolist(), feedback=items, strategy=strategy)
    answer = client.query_points("items", query=models.RelevanceFeedbackQuery(relevance_feedback=asked), limit=32)
    theirs = [point.id for point in answer.points if point.id not in given][:20]
    assert ours[6:] == theirs


@pytest.mark.parametrize("method", RIVALS)
def test_works_under_a_filter_and_by_name_in_a_replay(method: str) -> None:
    world = planted(n=120)
    report = replay(
        world.test,
        vectors=world.vectors,
        query_vectors=world.query_vectors,
        methods=[method],
        budgets=[40],
        k=[5],
        seeds=1,
    )
    assert report.get(method, 5, 40).recall > 0.7  # by chance: a third
    searcher = crosscut.Searcher(crosscut.MatrixScorer(world.test), vectors=world.vectors, method=method)
    odd = list(range(1, 120, 2))
    hits = searcher.search(0, 5, 30, query_vector=world.query_vectors[0], allow=odd)
    assert set(hits.scored.tolist()) <= set(odd)
    assert hits.calls == 30


def test_without_vectors_or_with_wrong_settings_they_say_so() -> None:
    scorer = crosscut.MatrixScorer(np.ones((1, 5)))
    for method in RIVALS:
        with pytest.raises(InputError, match="needs item vectors and has none"):
            crosscut.Searcher(scorer, method=method)
    with pytest.raises(InputError, match="1 neighbour and 1 item a round at least; got 0, 16"):
        GAR(neighbours=0)
    with pytest.raises(InputError, match="1 edge, 1 seed and α = 1 at least"):
        RGS(alpha=0.5)
    with pytest.raises(InputError, match="width and a noise above 0"):
        GP(width=0.0)
    with pytest.raises(InputError, match="b of 0 or more"):
        QdrantFeedback(b=-1.0)
    with pytest.raises(InputError, match="pass query_vector"):
        crosscut.Searcher(scorer, vectors=np.eye(5), method="qdrant-feedback").search(0, 2, 4, candidates=[1, 2])
    searcher = crosscut.Searcher(scorer, vectors=np.eye(5), method="gar@batch=2")
    with pytest.raises(InputError, match="makes none"):
        searcher.search(0, 2, 4, query_vector=np.ones(5), trace=True)
