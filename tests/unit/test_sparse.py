"""Which pairs to score for an index, what they cost, and how their scores are normalised."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse

import crosscut
from crosscut.ann.flat import top_items
from crosscut.errors import InputError, ScoreValueError
from crosscut.spaces.sparse import (
    Normalisation,
    SparseScores,
    items_per_query,
    normalisation,
    queries_per_item,
)


@settings(max_examples=80, deadline=None)
@given(
    k_d=st.integers(1, 30),
    queries=st.integers(1, 12),
    n=st.integers(1, 25),
    share=st.sampled_from([0.0, 0.3, 0.5, 1.0]),
    short=st.integers(0, 30),
    seed=st.integers(0, 3),
)
def test_every_row_gets_k_d_distinct_pairs(k_d: int, queries: int, n: int, share: float, short: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    shape = (queries, n)
    of_items = [rng.permutation(n)[:short] for _ in range(queries)]
    of_queries = [rng.permutation(queries)[:short] for _ in range(n)]
    for pairs, axis, per_row in (
        (items_per_query(k_d, shape, ranked=of_items, random=share, seed=seed), "queries", min(k_d, n)),
        (queries_per_item(k_d, shape, ranked=of_queries, random=share, seed=seed), "items", min(k_d, queries)),
    ):
        assert len({*zip(pairs.queries.tolist(), pairs.items.tolist(), strict=True)}) == len(pairs)
        counts = np.bincount(getattr(pairs, axis), minlength=queries if axis == "queries" else n)
        assert (counts == per_row).all()
        assert np.all(np.diff(pairs.queries) >= 0)
    top = items_per_query(k_d, shape, ranked=of_items, random=share, seed=seed)
    wanted = min(k_d, n) - round(share * min(k_d, n))
    for query in range(queries):
        assert set(of_items[query][:wanted]) <= set(top.items[top.queries == query])


def test_top_items_are_those_of_a_sort() -> None:
    rng = np.random.default_rng(0)
    vectors, queries = rng.standard_normal((50, 4)), rng.standard_normal((3, 4))
    for row, found in zip(queries @ vectors.T, top_items(7, vectors, queries), strict=True):
        assert found.tolist() == np.argsort(-row)[:7].tolist()


def test_scores_are_bought_once_and_counted() -> None:
    rng = np.random.default_rng(1)
    matrix = rng.standard_normal((9, 2000))
    seen: list[tuple[int, int]] = []

    def score(query: int, positions: np.ndarray) -> np.ndarray:
        seen.extend((query, int(p)) for p in positions)
        return matrix[query, positions]

    pairs = items_per_query(700, (9, 2000), seed=3)
    cache = crosscut.MemoryCache()
    cache.put(4, np.arange(2000), matrix[4])
    reported: list[int] = []
    scores = SparseScores.from_scorer(
        score, range(9), pairs, cache=cache, progress=lambda what, done, total: reported.append(done)
    )
    assert len(seen) == len(set(seen)) == scores.calls == 8 * 700
    assert scores.cached == 700
    assert reported[-1] == 8 * 700
    np.testing.assert_array_equal(scores.scores, matrix[pairs.queries, pairs.items])
    again = SparseScores.from_csr(scores.csr())
    np.testing.assert_array_equal(again.scores, scores.scores)
    np.testing.assert_array_equal(again.pairs.items, pairs.items)


def test_a_scorer_that_fails_leaves_what_was_paid_in_the_cache() -> None:
    cache = crosscut.MemoryCache()

    def score(query: int, positions: np.ndarray) -> np.ndarray:
        return np.full(len(positions), np.nan if query == 2 else 1.0)

    with pytest.raises(ScoreValueError, match="query 2"):
        SparseScores.from_scorer(score, range(3), items_per_query(2, (3, 5)), cache=cache)
    assert np.isfinite(cache.get(0, np.arange(5))).sum() == 2


def test_normalised_scores_have_the_range_of_the_encoder() -> None:
    rng = np.random.default_rng(2)
    vectors, queries = rng.standard_normal((40, 6)), rng.standard_normal((120, 6))
    matrix = 5 + 3 * queries @ vectors.T
    scores = SparseScores.from_dense(matrix, items_per_query(10, matrix.shape))
    found = normalisation(scores, vectors, queries)
    assert found.alpha == pytest.approx(5, abs=1e-6)
    assert found.beta == pytest.approx(1 / 3, abs=1e-6)
    normal = scores.normalised(found)
    exact = np.einsum("md,md->m", queries[scores.pairs.queries], vectors[scores.pairs.items])
    np.testing.assert_allclose(normal.scores, exact, atol=1e-6)
    with pytest.raises(InputError, match="normalised already"):
        normal.normalised(found)
    # no more than a hundred queries are looked at
    matrix[100:] = 1e6
    assert normalisation(SparseScores.from_dense(matrix, scores.pairs), vectors, queries) == found


def test_stored_zeros_are_observed_and_nan_is_not() -> None:
    matrix = sparse.csr_matrix(([0.0, 2.0], ([0, 1], [1, 0])), shape=(2, 3))
    assert len(SparseScores.from_csr(matrix)) == 2
    dense = np.array([[np.nan, 0.0], [1.0, np.nan]])
    assert SparseScores.from_dense(dense).scores.tolist() == [0.0, 1.0]


def test_refusals() -> None:
    with pytest.raises(InputError, match="at least 1; got 0"):
        items_per_query(0, (2, 2))
    with pytest.raises(InputError, match="0 … 1; got 2"):
        items_per_query(1, (2, 2), random=2)
    with pytest.raises(InputError, match="pass its ranking"):
        items_per_query(1, (2, 2), random=0.5)
    with pytest.raises(InputError, match="1 rankings for 2 rows"):
        items_per_query(1, (2, 2), ranked=[[0]])
    with pytest.raises(InputError, match="not one of 2"):
        items_per_query(1, (2, 2), ranked=[[0], [5]])
    with pytest.raises(InputError, match="scored twice"):
        SparseScores.from_triples([0, 0], [1, 1], [1.0, 2.0], (1, 2))
    with pytest.raises(InputError, match="item 7 of the sparse scores"):
        SparseScores.from_triples([0], [7], [1.0], (1, 2))
    with pytest.raises(InputError, match="query 0 with item 1 is nan"):
        SparseScores.from_triples([0], [1], [np.nan], (1, 2))
    with pytest.raises(InputError, match="no triples"):
        SparseScores.from_triples([0], [1, 0], [1.0], (1, 2))
    with pytest.raises(InputError, match="2 queries for pairs"):
        SparseScores.from_scorer(lambda q, p: p, range(2), items_per_query(1, (3, 3)))
    with pytest.raises(InputError, match="β above 0"):
        Normalisation(0.0, 0.0)
    flat = SparseScores.from_triples([0, 1], [0, 1], [1.0, 1.0], (2, 2))
    with pytest.raises(InputError, match="the scorer gives all 2 pairs the same score"):
        normalisation(flat, np.eye(2), np.eye(2))
    with pytest.raises(InputError, match="1 query vectors and 2 item vectors"):
        normalisation(flat, np.eye(2), np.eye(1))
