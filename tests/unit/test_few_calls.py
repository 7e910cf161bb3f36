"""The default method's expected slope: what few calls may and may not change of the encoder's order."""

from __future__ import annotations

import numpy as np
import pytest

import crosscut
from crosscut.linalg.least_squares import LeastSquares
from crosscut.methods import Parts
from crosscut.methods.weights import slopes_of
from crosscut.search.fits import DEVIATION, ExpectedSlope
from crosscut.search.stopping import Schedule
from crosscut.spaces.base import Vectors
from crosscut.spaces.cur import CUR

RNG = np.random.default_rng(0)
VECTORS = RNG.normal(size=(600, 16)).astype(np.float32)
QUERIES = RNG.normal(size=(8, 16))
SCORES = 2 * QUERIES @ VECTORS.T + RNG.normal(size=(8, 16)) @ VECTORS.T + RNG.normal(size=(8, 600))
ANCHOR_QUERIES = RNG.normal(size=(20, 16))
ANCHORS = 2 * ANCHOR_QUERIES @ VECTORS.T + RNG.normal(size=(20, 600))


def picked(scores: np.ndarray, budget: int = 30, k: int = 10, **space: object) -> list[list[int]]:
    searcher = crosscut.Searcher(crosscut.MatrixScorer(scores), vectors=VECTORS, **space)  # type: ignore[arg-type]
    hits = searcher.search_many(range(8), k, budget, query_vectors=QUERIES)
    return [found.scored.tolist() for found in hits]


def ranking(query: int) -> list[int]:
    return list(np.argsort(-(VECTORS @ QUERIES[query]), kind="stable"))


@pytest.mark.parametrize("budget", [2, 5, 10, 30, 80])
@pytest.mark.parametrize(("factor", "shift"), [(1.0, 100.0), (1.0, -1e4), (1024.0, 0.0), (0.01, 3.0), (7.0, -50.0)])
def test_neither_the_unit_nor_the_zero_of_scores_changes_a_pick(budget: int, factor: float, shift: float) -> None:
    assert picked(factor * SCORES + shift, budget) == picked(SCORES, budget)


@pytest.mark.parametrize("level", [0.0, 0.1, -1e6])
def test_scores_that_are_all_alike_leave_the_encoders_order(level: float) -> None:
    assert picked(np.full_like(SCORES, level)) == [ranking(query)[:30] for query in range(8)]


def test_without_a_second_call_the_first_is_the_encoders_and_so_is_the_second() -> None:
    assert picked(SCORES, 1, 1) == [ranking(query)[:1] for query in range(8)]
    assert picked(SCORES, 2, 1) == [ranking(query)[:2] for query in range(8)]


def test_the_estimate_is_the_posterior_mean_at_the_likeliest_scale() -> None:
    rng = np.random.default_rng(1)
    rows, q, noise, gamma = rng.normal(size=(12, 6)), rng.normal(size=6), 0.35, 8.0
    y = rng.normal(size=12)
    fit = ExpectedSlope(6, noise, q, slope=gamma)
    fit.add(np.arange(5), rows[:5], y[:5] + 3)
    fit.add(np.arange(5, 12), rows[5:], y[5:] + 3)
    y = y + 3 - (y[:5] + 3).mean()
    direction = q / np.linalg.norm(q)
    sigma = np.eye(6) + (DEVIATION * gamma) ** 2 * np.outer(direction, direction)
    kernel, e = rows @ sigma @ rows.T + noise * np.eye(12), rows @ direction
    whitened = np.linalg.inv(np.linalg.cholesky(kernel))

    def likelihood(tau: float) -> float:
        left = whitened @ (y - tau * gamma * e) / tau
        return -11 * np.log(tau) - 0.5 * float(left @ left)

    taus = np.exp(np.linspace(-4, 2, 20_001))
    tau = taus[np.argmax([likelihood(t) for t in taus])]
    u = tau * gamma * direction + sigma @ rows.T @ np.linalg.solve(kernel, y - tau * gamma * e)
    np.testing.assert_allclose(fit.solve(), u, rtol=2e-3, atol=1e-4)


def test_estimates_are_scores() -> None:
    scores = SCORES + 500
    hits = crosscut.Searcher(crosscut.MatrixScorer(scores), vectors=VECTORS).search(
        0, 10, 100, query_vector=QUERIES[0], trace=True
    )
    last = hits.trace[-1]
    assert np.abs(last.estimates - last.scores).mean() < 3
    assert last.predictions is not None
    np.testing.assert_allclose(last.predictions[last.positions], last.estimates, rtol=1e-4)


def test_several_sides_are_fits_of_their_own() -> None:
    rng = np.random.default_rng(2)
    rows, targets = rng.normal(size=(40, 9)), rng.normal(size=(40, 2))
    both = LeastSquares(9, ridge=0.3, sides=2)
    for part in (slice(0, 7), slice(7, 40)):
        both.add(rows[part], targets[part])
    kernel = rows @ rows.T + 0.3 * np.eye(40)
    np.testing.assert_allclose(both.solve(), (rows.T @ np.linalg.solve(kernel, targets)).T)
    np.testing.assert_allclose(both.products, targets.T @ np.linalg.solve(kernel, targets))


def test_earlier_rounds_are_larger_by_one() -> None:
    assert Schedule(10, even=True).sizes(15) == [2] * 5 + [1] * 5
    assert Schedule(10, even=True).sizes(7) == [1] * 7
    assert Schedule(10).sizes(15) == [1] * 9 + [6]


def test_beside_anchor_scores_the_slope_is_that_of_the_anchor_queries() -> None:
    cur = CUR(ANCHORS, query_vectors=ANCHOR_QUERIES)
    base = ANCHORS.mean(axis=0)
    found = slopes_of(cur, Vectors(VECTORS), base)
    assert found is not None
    lengths = np.linalg.norm(ANCHOR_QUERIES, axis=1)
    assert found[0] == pytest.approx(2 * lengths.mean(), rel=0.15)
    assert slopes_of(CUR(ANCHORS), Vectors(VECTORS), base) is None
    with pytest.raises(crosscut.InputError, match="19 query vectors for 20 anchor queries"):
        CUR(ANCHORS, query_vectors=ANCHOR_QUERIES[:19])


def test_beside_anchor_scores_few_calls_are_not_behind_reranking() -> None:
    def recall(picks: list[list[int]]) -> float:
        tops = np.argsort(-SCORES, axis=1)[:, :10]
        return float(np.mean([len({*top.tolist()} & {*some}) / 10 for top, some in zip(tops, picks, strict=True)]))

    reranked = recall([ranking(query)[:15] for query in range(8)])
    known = recall(picked(SCORES, 15, space=CUR(ANCHORS, query_vectors=ANCHOR_QUERIES)))
    assert known >= recall(picked(SCORES, 15, space=CUR(ANCHORS))) - 0.02
    assert known > reranked - 0.02


def test_a_scorer_with_base_scores_is_not_expected_to_follow_the_encoder() -> None:
    """Scores that calls add need not rise with those of the encoder: constants do not change the order."""

    class Knowing:
        has_base_scores = True
        n_items = 600

        def base_scores(self, query: int, handles: np.ndarray | None = None) -> np.ndarray:
            return SCORES[query] if handles is None else SCORES[query][handles]

        def score_many(self, requests: list[tuple[int, np.ndarray]]) -> list[np.ndarray]:
            return [SCORES[query][handles] for query, handles in requests]

    searcher = crosscut.Searcher(Knowing(), parts=Parts(encoder=Vectors(VECTORS), n=600))
    hits = searcher.search(0, 10, 30, query_vector=QUERIES[0])
    assert set(hits.scored.tolist()) == set(np.argsort(-SCORES[0])[:30].tolist())
