"""A share of the calls explores: how many, which, with what chance; logged, and what learning makes of it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from crosscut.ann.topk import as_vectors
from crosscut.errors import InputError
from crosscut.index import Index
from crosscut.index.learning import past_of
from crosscut.index.log import SearchLog
from crosscut.methods import Parts
from crosscut.scorers.adapters import MatrixScorer
from crosscut.search.prior import LEVEL, Past, fit_prior
from crosscut.searcher import Searcher
from crosscut.spaces.base import Vectors
from crosscut.types import Floats, Handles
from tests.fake_store import FakeStore
from tests.unit.test_index_learning import QUERIES, made
from tests.unit.test_prior import N, planted

WORLD = planted()


@pytest.mark.parametrize("budget", [20, 50, 64, 100])
@pytest.mark.parametrize("explore", [0.05, 0.1, 0.3])
def test_the_share_holds_for_the_whole_search(budget: int, explore: float) -> None:
    searcher = Searcher(MatrixScorer(WORLD.scores), method=f"crosscut@explore={explore}", parts=WORLD.parts)
    hits = searcher.search(3, 10, budget, query_vector=WORLD.queries[3])
    assert hits.calls == budget
    assert len(set(hits.scored.tolist())) == budget
    chances = [one.chances for one in hits.trace if one.chances is not None]
    drawn = sum(int((one < 1).sum()) for one in chances)
    first = len(hits.trace[0].positions)
    assert drawn == int(explore * budget) - int(explore * first)
    seen = first
    for one in hits.trace[1:]:
        if one.chances is not None:
            count = int((one.chances < 1).sum())
            left = N - seen - (len(one.positions) - count)
            assert one.chances[one.chances < 1] == pytest.approx(count / left)
            assert np.isnan(one.estimates[one.chances < 1]).all()
        seen += len(one.positions)


def test_draws_are_uniform_and_within_a_filter() -> None:
    searcher = Searcher(MatrixScorer(WORLD.scores), method="crosscut@explore=0.5", parts=WORLD.parts)
    counts = np.zeros(N)
    within = np.arange(0, N, 2)
    for seed in range(60):
        hits = searcher.search_many([seed], 10, 40, query_vectors=WORLD.queries[seed : seed + 1], within=within)[0]
        for one in hits.trace:
            if one.chances is not None:
                counts[one.positions[one.chances < 1]] += 1
    assert not counts[1::2].any()
    assert counts[::2].max() < 5 * counts[::2].mean()


def test_nothing_is_explored_unless_asked_for_and_a_share_is_a_share() -> None:
    searcher = Searcher(MatrixScorer(WORLD.scores), parts=WORLD.parts)
    hits = searcher.search(3, 10, 50, query_vector=WORLD.queries[3])
    assert all(one.chances is None for one in hits.trace)
    with pytest.raises(InputError, match=r"explore is a share of the calls.*got 1"):
        Searcher(MatrixScorer(WORLD.scores), method="crosscut@explore=1", parts=WORLD.parts)


def test_over_a_store_that_does_not_count_no_chance_is_known() -> None:
    store = FakeStore([str(row) for row in range(N)], WORLD.vectors)

    def score(query: int, handles: Handles) -> Floats:
        return np.asarray(WORLD.scores[query, [int(store.name(int(handle))) for handle in handles]])

    searcher = Searcher(score, parts=Parts(encoder=as_vectors(store)), method="crosscut@explore=0.2")
    hits = searcher.search(3, 10, 50, query_vector=WORLD.queries[3])
    assert hits.calls == 50
    chances = np.concatenate([one.chances for one in hits.trace if one.chances is not None])
    assert np.isnan(chances).sum() == 9
    assert (chances[~np.isnan(chances)] == 1).all()


def test_chances_are_logged_and_weighted(tmp_path: Path) -> None:
    index: Index = made()
    index.keep_log(tmp_path / "searches.log")
    index.search_many(QUERIES, 10, 60, method="crosscut@explore=0.2")
    log = SearchLog(tmp_path / "searches.log").read()
    assert all(search.chances is not None and len(search.chances) == 60 for search in log)
    plain, corrected = (past_of(log, index.corpus.learning_space(log).handle_of, most) for most in (1.0, 5.0))
    assert plain[0].weights is not None
    assert corrected[0].weights is not None
    assert set(plain[0].weights) == {1.0}
    assert set(corrected[0].weights) == {1.0, 5.0}  # of chances of one in hundreds
    assert index.learn(correction=5.0).searches == 60
    with pytest.raises(InputError, match="1 or more; got 0"):
        index.learn(correction=0)
    index.log.forget(ids=[log[0].ids[-1]])  # type: ignore[union-attr]
    again = SearchLog(tmp_path / "searches.log").read()[0]
    assert again.chances is not None
    assert len(again.chances) == len(again.ids) == 59


def test_a_pair_of_weight_two_counts_as_two() -> None:
    """Twice the same observation and one of half the noise say the same of u."""
    rng = np.random.default_rng(0)
    vectors = rng.normal(size=(60, 5))
    twice = np.concatenate([vectors, vectors])  # items 60 … 119 are copies
    searches, doubled = [], []
    for _ in range(30):
        items, q = rng.choice(60, 20, replace=False), rng.normal(size=5)
        scores = vectors[items] @ q + 0.3 * rng.normal(size=20)
        heavy = np.arange(20) < 5
        searches.append(Past(q, items, scores, np.where(heavy, 2.0, 1.0)))
        doubled.append(Past(q, np.concatenate([items, items[heavy] + 60]), np.concatenate([scores, scores[heavy]])))
    one = fit_prior(searches, Vectors(vectors).rows, rounds=1, own=0)
    two = fit_prior(doubled, Vectors(twice).rows, rounds=1, own=0)
    assert LEVEL > 1
    assert np.allclose(one.mean, two.mean, rtol=0.05, atol=0.02)
    light = fit_prior([p._replace(weights=None) for p in searches], Vectors(vectors).rows, rounds=1, own=0)
    assert np.linalg.norm(one.mean - two.mean) < np.linalg.norm(light.mean - two.mean)
