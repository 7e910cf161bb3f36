"""TOUR and the methods over item–item scores, against plain numpy."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import softmax
from tests.worlds import Planted, planted

import crosscut
from crosscut.errors import InputError
from crosscut_lab.papers.item_scores import ItemScores
from crosscut_lab.papers.tour import GradientStep
from crosscut_lab.papers.transcriptions import anncur

ANCHORS = np.random.default_rng(1).choice(200, 20, replace=False)


@pytest.fixture
def world() -> Planted:
    return planted()


def of_items(world: Planted, method: str) -> tuple[crosscut.Searcher, np.ndarray]:
    between = world.vectors[ANCHORS] @ world.vectors.T
    return crosscut.Searcher(
        crosscut.MatrixScorer(world.test), space=ItemScores(between, ANCHORS), method=method
    ), between


@pytest.mark.parametrize("loss", ["kl", "mse"])
def test_tour_steps_down_the_gradient(world: Planted, loss: str) -> None:
    """Its step against a numerical gradient."""
    rng = np.random.default_rng(0)
    u0, positions = world.query_vectors[0], np.arange(10)
    targets = world.test[0, positions]
    rows = world.vectors[positions]

    def value(u: np.ndarray) -> float:
        if loss == "mse":
            return float(np.mean((rows @ u - targets) ** 2))
        p = softmax(targets)
        return float(np.sum(p * (np.log(p) - np.log(softmax(rows @ u)))))

    fit = GradientStep(u0, loss, 0.01)  # type: ignore[arg-type]
    fit.add(positions, rows, targets)
    slope = (u0 - fit.solve()) / 0.01
    direction = rng.normal(size=len(u0))
    numerical = (value(u0 + 1e-6 * direction) - value(u0 - 1e-6 * direction)) / 2e-6
    assert slope @ direction == pytest.approx(numerical, rel=1e-4)
    with pytest.raises(InputError, match="tour"):
        world.searcher("tour@first=random").search(0, 5, 40)


def test_fixed_item_multiplies_scores_with_the_anchor_items(world: Planted) -> None:
    searcher, between = of_items(world, "fixed-item")
    hits = searcher.search(0, 5, 50, trace=True)
    assert hits.trace[0].positions.tolist() == ANCHORS.tolist()
    expected = between.T @ world.test[0, ANCHORS]
    assert np.allclose(np.asarray(hits.trace[1].predictions), expected, rtol=1e-4)


def test_item_cur_is_anncur_on_item_scores_with_other_items(world: Planted) -> None:
    for query in range(3):
        searcher, between = of_items(world, "item-cur")
        hits = searcher.search(query, 5, 50)
        anchors = hits.trace[0].positions
        assert not np.isin(anchors, ANCHORS).any()
        assert hits.scored.tolist() == anncur(between, world.test[query], anchors, 50).tolist()


def test_item_scores_that_do_not_fit_are_refused() -> None:
    with pytest.raises(InputError, match="1 anchor positions for 2 rows"):
        ItemScores(np.ones((2, 3)), [0])
    with pytest.raises(InputError, match="distinct"):
        ItemScores(np.ones((2, 3)), [1, 1])
    with pytest.raises(InputError, match="must lie in 0 … 2"):
        ItemScores(np.ones((2, 3)), [1, 5])
    with pytest.raises(InputError, match="needs item–item scores and has none"):
        crosscut.Searcher(crosscut.MatrixScorer(np.ones((1, 3))), method="item-cur")


def test_faiss_finds_what_a_pass_over_every_item_finds(world: Planted) -> None:
    pytest.importorskip("faiss")
    from crosscut_lab.rivals.faiss import Faiss

    index = Faiss.build(world.vectors, "ivf", effort=1000)
    flat, over = (
        crosscut.Searcher(crosscut.MatrixScorer(world.test), vectors=v, n=200) for v in (world.vectors, index)
    )
    for query in range(3):
        vector = world.query_vectors[query]
        assert over.search(query, 5, 40, query_vector=vector).ids == flat.search(query, 5, 40, query_vector=vector).ids
