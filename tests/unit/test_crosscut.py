"""The default method: where the papers' methods collapse, it must not."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import crosscut
from crosscut.errors import InputError
from crosscut.measures import recall
from crosscut.methods.weights import choose_weights
from crosscut.spaces import Vectors
from tests.worlds import planted


def mean_recall(matrix: np.ndarray, hits: list[crosscut.Hits], k: int = 10) -> float:
    return float(np.mean([recall(row, found.scored, k) for row, found in zip(matrix, hits, strict=True)]))


def encoder_world(seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Scores that an encoder of 64 dimensions explains in part; far more dimensions than scored items."""
    rng = np.random.default_rng(seed)
    vectors = rng.normal(size=(800, 64)) / 8
    wanted = rng.normal(size=(40, 64))
    queries = wanted + 1.0 * rng.normal(size=wanted.shape)  # the encoder's idea of the query is off
    return 4 * wanted @ vectors.T + 0.5 * rng.normal(size=(40, 800)), vectors, queries


def search(scores: np.ndarray, vectors: np.ndarray, queries: np.ndarray, method: str, budget: int = 50) -> float:
    searcher = crosscut.Searcher(crosscut.MatrixScorer(scores), vectors=vectors, method=method)
    return mean_recall(scores, searcher.search_many(range(len(scores)), 10, budget, query_vectors=queries))


def test_a_shift_of_all_scores_breaks_axn_and_not_crosscut() -> None:
    scores, vectors, queries = encoder_world()
    axn, shifted_axn = (search(matrix, vectors, queries, "axn") for matrix in (scores, scores - 8))
    ours, shifted_ours = (search(matrix, vectors, queries, "crosscut") for matrix in (scores, scores - 8))
    assert shifted_axn < axn - 0.2  # a dot product cannot express a constant
    assert abs(shifted_ours - ours) < 0.02
    assert ours > axn


def test_as_many_anchor_queries_as_anchor_items_breaks_anncur_and_not_crosscut() -> None:
    """C_anc is square: its small singular values are noise, and the pseudo-inverse multiplies by their inverse."""
    world = planted(n=600, queries=30, anchors=40, rank=8)
    rng = np.random.default_rng(0)
    scorer = crosscut.MatrixScorer(world.test + 0.5 * rng.normal(size=world.test.shape))
    space = crosscut.CUR(world.anchors + 0.5 * rng.normal(size=world.anchors.shape))
    found = {}
    for method, split in (("anncur", 0.25), ("anncur", 0.5), ("crosscut", None)):  # k_i = 20, 40 = k_q
        label = method if split is None else f"{method}@split={split}"
        searcher = crosscut.Searcher(scorer, space=space, method=label)
        found[split] = mean_recall(scorer.matrix, searcher.search_many(range(30), 10, 80))
    assert found[0.5] < found[0.25] - 0.15
    assert found[None] >= found[0.25]


@pytest.mark.parametrize("have", ["both", "anchors", "encoder"])
def test_it_lives_on_what_there_is(have: str) -> None:
    world = planted(n=400, queries=20, anchors=40)
    parts: dict[str, Any] = {}
    if have in ("both", "anchors"):
        parts["space"] = crosscut.CUR(world.anchors)
    if have in ("both", "encoder"):
        parts["vectors"] = world.vectors
    searcher = crosscut.Searcher(crosscut.MatrixScorer(world.test), **parts)
    vectors = world.query_vectors if "vectors" in parts else None
    found = mean_recall(world.test, searcher.search_many(range(20), 10, 60, query_vectors=vectors))
    assert found > {"both": 0.97, "anchors": 0.97, "encoder": 0.9}[have]


def test_with_nothing_to_learn_from_it_says_so() -> None:
    """Plain reranking under the name of crosscut would be a lie."""
    with pytest.raises(InputError, match="crosscut needs item vectors or scores of anchor queries"):
        crosscut.Searcher(crosscut.MatrixScorer(np.ones((1, 9))))


def test_it_beats_every_paper_method_on_planted_data_with_noise() -> None:
    world = planted(n=1000, queries=40, anchors=60, rank=12)
    rng = np.random.default_rng(1)
    test = world.test + rng.normal(size=world.test.shape)
    anchors = world.anchors + rng.normal(size=world.anchors.shape)
    found = {}
    for method in ("rerank", "anncur", "adacur", "axn", "crosscut"):
        space = crosscut.CUR(anchors) if method in ("anncur", "adacur", "crosscut") else None
        searcher = crosscut.Searcher(crosscut.MatrixScorer(test), vectors=world.vectors, space=space, method=method)
        found[method] = mean_recall(test, searcher.search_many(range(40), 10, 60, query_vectors=world.query_vectors))
    assert max(found, key=lambda method: found[method]) == "crosscut"


def test_weights_follow_what_the_encoder_is_worth() -> None:
    world = planted(n=500, anchors=16, rank=20)  # too few anchor queries to know an item by them alone
    rng = np.random.default_rng(0)
    shuffled = choose_weights(world.anchors, Vectors(world.vectors[rng.permutation(500)]), 256)
    useful = choose_weights(world.anchors, Vectors(world.vectors), 256)
    assert shuffled.encoder < useful.encoder
    world = planted(n=500, anchors=60, rank=20)
    quiet = choose_weights(world.anchors, None, 256)
    loud = choose_weights(world.anchors + 2 * rng.normal(size=world.anchors.shape), None, 256)
    assert quiet.noise < loud.noise


def test_few_anchor_queries_fall_back_on_defaults() -> None:
    world = planted(anchors=2)
    hits = world.searcher("crosscut").search(0, 5, 60, query_vector=world.query_vectors[0])
    assert hits.calls == 60


def test_half_precision_and_memory_maps_search_alike(tmp_path: Any) -> None:
    world = planted(n=300)
    np.save(tmp_path / "vectors.npy", world.vectors.astype(np.float16))
    np.save(tmp_path / "anchors.npy", world.anchors.astype(np.float16))
    vectors = np.load(tmp_path / "vectors.npy", mmap_mode="r")
    anchors = np.load(tmp_path / "anchors.npy", mmap_mode="r")
    scorer = crosscut.MatrixScorer(world.test)
    for method in ("axn", "adacur", "crosscut"):
        space = None if method == "axn" else crosscut.CUR(anchors)
        mapped = crosscut.Searcher(scorer, vectors=vectors, space=space, method=method)
        wide = crosscut.Searcher(
            scorer,
            vectors=np.asarray(vectors, dtype=np.float32),
            space=None if method == "axn" else crosscut.CUR(np.asarray(anchors, dtype=np.float32)),
            method=method,
        )
        for query in range(3):
            vector = world.query_vectors[query]
            a, b = (s.search(query, 10, 60, query_vector=vector) for s in (mapped, wide))
            assert a.scored.tolist() == b.scored.tolist()


def test_factors_and_encoder_are_stacked_and_a_given_rank_is_kept() -> None:
    world = planted(n=300, queries=10)
    scorer = crosscut.MatrixScorer(world.test)
    factors = Vectors(world.vectors[:, :5])
    both = crosscut.Searcher(scorer, vectors=world.vectors, space=factors)
    assert both.plan.then is not None
    assert both.plan.then.predicts_in().d == 5 + world.vectors.shape[1] + 1
    found = mean_recall(world.test, both.search_many(range(10), 10, 60, query_vectors=world.query_vectors))
    assert found > 0.8
    ranked = crosscut.Searcher(scorer, space=crosscut.CUR(world.anchors, rank=2))
    assert ranked.plan.then is not None
    assert ranked.plan.then.predicts_in().d == 3


def test_a_query_without_a_vector_starts_from_the_base() -> None:
    world = planted()
    hits = world.searcher("crosscut").search(0, 5, 40)
    base = world.anchors.mean(axis=0)
    assert hits.trace[0].positions.tolist() == np.argsort(-base, kind="stable")[:4].tolist()


def sizes(searcher: crosscut.Searcher, budget: int) -> list[int]:
    return [len(made.positions) for made in searcher.search(0, 10, budget, query_vector=[1.0] * 12).trace]


def test_rounds_fill_what_a_scorer_answers_side_by_side() -> None:
    """A judge with eight connections used to be asked for two pairs at a time, ten times."""
    world = planted()
    for method, wanted in {
        "crosscut": [7, 6, 7],
        "crosscut@fill=false": [2] * 10,
        "crosscut@first_share=0.5": [10, 5, 5],
        "axn": [4] * 5,  # as in their papers
        "adacur@rounds=10": [2] * 10,
    }.items():
        searcher = world.searcher(method)
        before = sizes(searcher, 20)
        searcher.scorer.concurrency = 8
        assert sizes(searcher, 20) == wanted
        searcher.scorer.concurrency = 1
        assert sizes(searcher, 20) == before


def test_rounds_are_whole_flights() -> None:
    """Whatever the budget: as few waits as can be, at most ten rounds, and at least three to seven."""
    schedule = crosscut.methods.Crosscut().schedule()
    for budget in range(1, 130):
        assert schedule.sizes(budget, 1) == crosscut.methods.Crosscut(fill=False).schedule().sizes(budget)
        for in_flight in range(2, 40):
            made = schedule.sizes(budget, in_flight)
            least = -(-budget // in_flight)
            assert sum(made) == budget
            assert min(made) >= 1
            fewest = min(budget, max(3, min(7, -(-budget // 8))))
            assert fewest <= len(made) <= 10
            assert sum(-(-size // in_flight) for size in made) == max(least, fewest)


def test_a_scorer_of_ones_own_says_what_it_answers_side_by_side() -> None:
    world = planted()

    class Judge:
        concurrency = 10

        def score_many(self, requests: Any) -> list[np.ndarray]:
            return [world.test[query, handles] for query, handles in requests]

    assert sizes(world.searcher("crosscut", Judge()), 90) == [10] * 9
    assert sizes(world.searcher("crosscut", Judge()), 12) == [4] * 3
