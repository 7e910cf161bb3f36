"""Rules that pick the next items."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest

from crosscut import CUR, MatrixScorer, Searcher
from crosscut.ann.base import Everything
from crosscut.errors import InputError
from crosscut.retrievers.first import Drawn, FirstRequest, FixedOrder, Union
from crosscut.search.query import generator
from crosscut.search.selection import Diverse, Random, Softmax, Top, as_selection


def by_value(predicted: np.ndarray):
    def rerank(places: np.ndarray, count: int) -> tuple[np.ndarray, np.ndarray]:
        order = places[np.lexsort((places, -predicted[places]))][:count]
        return order, predicted[order]

    return rerank


@pytest.mark.parametrize("rule", [Top(), Softmax(), Random(), Diverse(Top(), 0.5), Diverse(Softmax(2.0), 0.3)])
def test_never_what_is_barred_never_twice(rule: Top) -> None:
    rng = np.random.default_rng(0)
    predicted = rng.normal(size=50)
    predicted[::2] = -np.inf
    for count in (0, 1, 10, 25, 40):
        picked, estimates = rule.pick(predicted, count, rng, by_value(predicted))
        assert len(picked) == len(set(picked.tolist())) == min(count, 25)
        assert (predicted[picked] > -np.inf).all()
        assert np.array_equal(predicted[picked], estimates)


def test_softmax_samples_by_softmax() -> None:
    """The first of a sample without replacement follows the softmax itself."""
    predicted = np.log(np.array([0.5, 0.3, 0.15, 0.05]))
    rng = np.random.default_rng(0)
    first = [int(Softmax().pick(predicted, 1, rng, by_value(predicted))[0][0]) for _ in range(4000)]
    shares = np.bincount(first, minlength=4) / 4000
    assert np.abs(shares - [0.5, 0.3, 0.15, 0.05]).max() < 0.03


def test_a_random_share() -> None:
    predicted = np.arange(1000.0)
    rng = np.random.default_rng(0)
    picked, _ = Diverse(Top(), 0.4).pick(predicted, 50, rng, by_value(predicted))
    assert set(range(970, 1000)) <= set(picked.tolist())
    assert (picked[30:] < 970).all()
    with pytest.raises(InputError, match="ε"):
        as_selection("top", 1.5)
    with pytest.raises(InputError, match="temperature"):
        Softmax(0)


def request(count: int) -> FirstRequest:
    return FirstRequest(0, count, partial(generator, 0, 0), exclude=np.array([3]))


def test_first_stages_in_turn() -> None:
    (pick,) = Union((FixedOrder(np.arange(10)), FixedOrder(np.arange(9, -1, -1)))).pick([request(5)])
    assert pick.tolist() == [0, 9, 1, 8, 2]
    (drawn,) = Drawn(Everything(10)).pick([request(9)])
    assert sorted(drawn.tolist()) == [0, 1, 2, 4, 5, 6, 7, 8, 9]
    (few,) = Drawn(Everything(10_000)).pick([request(5)])
    assert len(set(few.tolist())) == 5


def test_draws_come_from_seed_and_query() -> None:
    assert generator(0, "a").integers(1 << 30) == generator(0, "a").integers(1 << 30)
    assert generator(0, "a").integers(1 << 30) != generator(1, "a").integers(1 << 30)
    assert generator(0, 3).integers(1 << 30) == generator(0, np.int64(3)).integers(1 << 30)
    assert generator(0, np.ones(2)).integers(1 << 30) != generator(0, np.zeros(2)).integers(1 << 30)


def test_a_search_that_draws_nothing_makes_no_generator(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[object] = []
    monkeypatch.setattr("crosscut.search.query.generator", lambda *told: made.append(told) or generator(*told))
    vectors = np.random.default_rng(0).normal(size=(60, 8))
    scorer = MatrixScorer(vectors[:3] @ vectors.T)
    for method, count in {"crosscut": 0, "axn@first=random": 1, "adacur@select=softmax": 1}.items():
        space = CUR(vectors[3:9] @ vectors.T) if method.startswith("adacur") else None
        made.clear()
        Searcher(scorer, vectors=vectors, space=space, method=method).search(1, 5, 20, query_vector=vectors[1])
        assert made == [(0, 1)] * count
