"""The named methods against a plain numpy transcription of the papers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import crosscut
from crosscut.datasets.bundled import load_scores
from crosscut.errors import InputError
from crosscut.linalg.least_squares import LeastSquares
from crosscut.methods import AXN
from crosscut.names import Registry
from tests.transcription import adaptive, anncur, ranking
from tests.worlds import Planted, planted


@pytest.mark.parametrize("budget", [10, 23, 40, 90])
@pytest.mark.parametrize("rounds", [1, 2, 5, 10])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_axn_is_the_transcription(world: Planted, budget: int, rounds: int, dtype: Any) -> None:
    vectors = world.vectors.astype(dtype)
    searcher = crosscut.Searcher(crosscut.MatrixScorer(world.test), vectors=vectors, method=AXN(rounds=rounds))
    for query in range(len(world.test)):
        first = ranking(vectors.astype(np.float64) @ world.query_vectors[query])
        scored, exact = adaptive(vectors, lambda p, q=query: world.test[q, p], first, budget, rounds)
        hits = searcher.search(query, 10, budget, query_vector=world.query_vectors[query])
        assert hits.scored.tolist() == scored.tolist()
        assert hits.ids == scored[np.lexsort((scored, -exact))][:10].tolist()
        assert hits.calls == budget


@pytest.mark.parametrize("budget", [10, 20, 55, 100])
@pytest.mark.parametrize("rounds", [2, 5, 9])
def test_adacur_is_the_transcription(budget: int, rounds: int) -> None:
    world = planted(anchors=60, rank=60)  # full numerical rank
    searcher = world.searcher("adacur", rounds=rounds)
    for query in range(len(world.test)):
        hits = searcher.search(query, 10, budget)
        first = hits.trace[0].positions
        scored, _ = adaptive(world.anchors.T, lambda p, q=query: world.test[q, p], first, budget, rounds)
        assert hits.scored.tolist() == scored.tolist()


@pytest.mark.parametrize("split", [0.2, 0.5, 0.8])
def test_anncur_is_e_equals_pinv_c_times_r(world: Planted, split: float) -> None:
    budget = 60
    searcher = world.searcher("anncur", split=split, seed=3)
    hits = searcher.search_many(range(len(world.test)), 10, budget, trace=True)
    anchors = hits[0].trace[0].positions
    assert len(anchors) == round(split * budget)
    for query, found in enumerate(hits):
        assert np.array_equal(found.trace[0].positions, anchors)  # the same for every query
        scored, _ = anncur(world.anchors, lambda p, q=query: world.test[q, p], anchors, budget)
        assert found.scored.tolist() == scored.tolist()
        items = np.linalg.pinv(world.anchors[:, anchors]) @ world.anchors
        assert np.allclose(np.asarray(found.trace[1].predictions), world.test[query, anchors] @ items, atol=1e-4)


def test_anncur_with_retrieved_anchors_solves_online(world: Planted) -> None:
    given = [np.random.default_rng(q).permutation(world.n)[:20] for q in range(len(world.test))]
    hits = world.searcher("anncur", split=0.5).search_many(range(len(world.test)), 10, 40, candidates=given)
    for query, found in enumerate(hits):
        scored, _ = anncur(world.anchors, lambda p, q=query: world.test[q, p], given[query], 40)
        assert found.scored.tolist() == scored.tolist()


def test_adacur_is_axn_in_the_space_of_anchor_scores(world: Planted) -> None:
    cur = crosscut.CUR(world.anchors)
    scorer = crosscut.MatrixScorer(world.test)
    axn = crosscut.Searcher(scorer, space=cur, method="axn@first=random")
    adacur = crosscut.Searcher(scorer, space=cur, method="adacur")
    for query in range(3):
        assert axn.search(query, 5, 50).scored.tolist() == adacur.search(query, 5, 50).scored.tolist()


def test_rnr_reranks_the_encoder(world: Planted) -> None:
    hits = world.searcher("rerank").search(0, 5, 30, query_vector=world.query_vectors[0])
    assert hits.scored.tolist() == ranking(world.vectors @ world.query_vectors[0])[:30].tolist()
    assert hits.rounds == 1


def test_lambda_mixes_in_the_query_vector(world: Planted) -> None:
    """With λ = 1 every round follows the encoder, so that the rounds together are retrieve-and-rerank."""
    vector = world.query_vectors[0]
    mixed = world.searcher("axn", mix=1.0).search(0, 5, 50, query_vector=vector)
    plain = world.searcher("rerank").search(0, 5, 50, query_vector=vector)
    assert set(mixed.scored) == set(plain.scored)
    squares = LeastSquares(world.vectors.shape[1])
    half = world.searcher("axn", mix=0.5, rounds=2).search(0, 5, 50, query_vector=vector, trace=True)
    start = half.trace[0]
    squares.add(world.vectors[start.positions], start.scores)
    expected = world.vectors @ (0.5 * squares.solve() + 0.5 * vector)  # eq. 7
    assert np.allclose(np.asarray(half.trace[1].predictions), expected, atol=1e-4)
    with pytest.raises(InputError, match="no query vector was given"):
        world.searcher("axn", mix=0.5).search(0, 5, 50)
    with pytest.raises(InputError, match="does not live in the space"):
        crosscut.Searcher(
            crosscut.MatrixScorer(world.test),
            vectors=world.vectors,
            space=crosscut.CUR(world.anchors),
            method="axn@mix=0.5,space=anchors",
        )


def test_normalisation_is_a_search_of_normalised_scores(world: Planted) -> None:
    """β(s − α) given at search: the same items as with such a scorer, and estimates in raw units."""
    alpha, beta = -3.0, 0.1
    vector = world.query_vectors[0]
    hits = world.searcher("axn", alpha=alpha, beta=beta).search(0, 5, 100, query_vector=vector)
    scorer = crosscut.MatrixScorer(beta * (world.test - alpha))
    other = world.searcher("axn", scorer=scorer).search(0, 5, 100, query_vector=vector)
    assert hits.scored.tolist() == other.scored.tolist()
    assert np.allclose(hits.trace[-1].estimates, other.trace[-1].estimates / beta + alpha)
    assert hits.scored.tolist() != world.searcher("axn").search(0, 5, 100, query_vector=vector).scored.tolist()
    with pytest.raises(InputError, match="above 0"):
        world.searcher("axn", beta=-1.0)


def test_the_inverse_of_fixed_anchors_is_computed_once(world: Planted, monkeypatch: pytest.MonkeyPatch) -> None:
    computed: list[int] = []
    pinv = np.linalg.pinv
    monkeypatch.setattr(np.linalg, "pinv", lambda *a, **k: computed.append(1) or pinv(*a, **k))
    world.searcher("anncur").search_many(range(6), 5, 40)
    assert len(computed) == 1


def test_nearly_dependent_rows_follow_the_transcription_too() -> None:
    """A direction of 3·10⁻⁸ of the largest, and more rows than dimensions."""
    rng = np.random.default_rng(0)
    vectors = rng.normal(size=(400, 30)) * np.r_[np.ones(29), 3e-8]
    scores = rng.normal(size=(4, 400))
    queries = rng.normal(size=(4, 30))
    searcher = crosscut.Searcher(crosscut.MatrixScorer(scores), vectors=vectors, method="axn")
    for query in range(4):
        first = ranking(vectors @ queries[query])
        scored, _ = adaptive(vectors, lambda p, q=query: scores[q, p], first, 150, 5)
        assert searcher.search(query, 5, 150, query_vector=queries[query]).scored.tolist() == scored.tolist()


def test_rnr_needs_something_to_retrieve_by(world: Planted) -> None:
    bare = crosscut.Searcher(crosscut.MatrixScorer(world.test), method="rerank")
    with pytest.raises(InputError, match="nothing to retrieve by"):
        bare.search(0, 5, 20)
    assert bare.search(0, 5, 3, candidates=[4, 2, 9]).scored.tolist() == [4, 2, 9]


def test_unknown_methods_and_settings_are_sentences(world: Planted) -> None:
    with pytest.raises(InputError, match="unknown method 'magic': choose one of adacur, anncur, axn"):
        world.searcher("magic")
    with pytest.raises(InputError, match="gar is a tool of crosscut-lab: pip install crosscut-lab"):
        Registry("tool", "saw", elsewhere={"gar": "crosscut-lab"}).parse("gar@batch=2")
    with pytest.raises(InputError, match="adacur has no setting 'mix': it takes rounds, first"):
        world.searcher("adacur", mix=0.5)
    scorer = crosscut.MatrixScorer(world.test)
    for method, missing in [("adacur", "CUR"), ("axn", "vectors=")]:
        with pytest.raises(InputError, match=missing):
            crosscut.Searcher(scorer, method=method)
    with pytest.raises(InputError, match="first of axn is one of auto, dense, lexical, union, random; got 'b"):
        world.searcher("axn", first="best")
    with pytest.raises(InputError, match="needs item vectors"):
        crosscut.Searcher(scorer, space=crosscut.CUR(world.anchors), method="adacur@first=dense")
    with pytest.raises(InputError, match="select of adacur is one of top, softmax, random"):
        world.searcher("adacur", select="best")
    with pytest.raises(InputError, match="split"):
        world.searcher("anncur", split=1.5)


@pytest.mark.parametrize("rounds", [2, 5, 10])
@pytest.mark.parametrize("budget", [50, 100, 200])
def test_on_the_scores_of_a_real_cross_encoder(budget: int, rounds: int) -> None:
    """Anchor queries of the bundled world, some of them searched for with the others as anchors."""
    scores = load_scores()
    half = len(scores.anchor_scores) // 2
    anchors, test = scores.anchor_scores[:half].astype(np.float64), scores.anchor_scores[half:].astype(np.float64)
    vectors = scores.vectors.astype(np.float32)
    scorer = crosscut.MatrixScorer(test)
    spaces: dict[str, tuple[np.ndarray, crosscut.CUR | crosscut.Vectors]] = {
        "adacur": (anchors.T, crosscut.CUR(anchors)),
        "axn": (vectors, crosscut.Vectors(vectors)),
    }
    for method, (array, space) in spaces.items():
        searcher = crosscut.Searcher(scorer, space=space, method=f"{method}@first=random,rounds={rounds}")
        for query in range(6):
            hits = searcher.search(query, 10, budget)
            scored, _ = adaptive(
                array.astype(np.float64), lambda p, q=query: test[q, p], hits.trace[0].positions, budget, rounds
            )
            assert hits.scored.tolist() == scored.tolist()
