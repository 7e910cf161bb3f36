"""Spaces and products over them."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from threadpoolctl import threadpool_info, threadpool_limits

from crosscut.ann.baseline import NOTHING
from crosscut.ann.flat import predictions, rerank
from crosscut.errors import InputError
from crosscut.linalg.blas import one_thread
from crosscut.linalg.products import ALONE, LIMITED, SMALL, product, widen
from crosscut.linalg.top import best
from crosscut.spaces import CUR, Constant, Stacked, Vectors
from crosscut.spaces.cur import background, reduced


def test_widening_is_exact_for_every_finite_half() -> None:
    every = np.arange(1 << 16, dtype=np.uint16).view(np.float16)
    every = every[np.isfinite(every)]
    assert np.array_equal(widen(every), every.astype(np.float32))
    assert np.array_equal(np.signbit(widen(every)), np.signbit(every))


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("shape", [(1000, 7), (3, 300_000), (1, 1)])
def test_half_products(order: str, shape: tuple[int, int]) -> None:
    rng = np.random.default_rng(0)
    array = np.asarray(rng.normal(size=shape).astype(np.float16), order=order)  # type: ignore[call-overload]
    queries = rng.normal(size=(2, shape[1]))
    expected = queries.astype(np.float32) @ array.astype(np.float32).T
    assert np.allclose(product(array, queries), expected, rtol=1e-3, atol=1e-2)


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_one_query_over_many_items_uses_all_cores_and_is_the_same_product(dtype: Any) -> None:
    rng = np.random.default_rng(0)
    array = rng.standard_normal(size=(ALONE // 64 + 1003, 64), dtype=np.float32).astype(dtype)
    queries = rng.normal(size=(2, 64))
    expected = queries @ array.astype(np.float64).T
    both, one = product(array, queries), product(array, queries[:1])
    assert np.allclose(both, expected, atol=1e-4)
    assert np.allclose(one, expected[:1], atol=1e-4)


def test_stacked_blocks_stay_where_they_are() -> None:
    rng = np.random.default_rng(0)
    left, right = rng.normal(size=(50, 3)), rng.normal(size=(50, 4)).astype(np.float32)
    space = Stacked([Vectors(left), Vectors(right), Constant(50)], [1.0, 0.5, 2.0])
    whole = np.hstack([left, 0.5 * right, np.full((50, 1), 2.0)])
    queries = rng.normal(size=(2, 8))
    assert (space.n, space.d) == (50, 8)
    assert np.allclose(space.rows(np.array([4, 2])), whole[[4, 2]])
    assert np.allclose(space.predict(queries), queries @ whole.T, atol=1e-5)
    assert np.shares_memory(space.blocks[0][0].array, left)  # type: ignore[attr-defined]
    many = Stacked([Vectors(np.ones((SMALL, 1), np.float32)), Constant(SMALL)], [1.0, 3.0])  # rows over all cores
    assert (many.predict(np.array([[1.0, 2.0], [0.0, 1.0]])) == [[7.0], [3.0]]).all()
    with pytest.raises(InputError, match="same items"):
        Stacked([Vectors(left), Constant(3)])
    with pytest.raises(InputError, match="1 weights for 2 blocks"):
        Stacked([Vectors(left), Constant(50)], [1.0])
    with pytest.raises(InputError, match="at least one block"):
        Stacked([])


def test_cur_is_the_transposed_scores_in_place_and_its_reduction_is_the_best() -> None:
    rng = np.random.default_rng(0)
    scores = rng.normal(size=(20, 5)) @ rng.normal(size=(5, 300)) + 0.01 * rng.normal(size=(20, 300))
    cur = CUR(scores)
    assert np.shares_memory(cur.array, scores)
    small = CUR(scores, rank=3).array.astype(np.float64)
    _, singular, right = np.linalg.svd(scores, full_matrices=False)
    truncated = (right[:3].T * singular[:3] ** 2) @ right[:3] / 20
    assert np.allclose(small @ small.T, truncated, atol=1e-3)
    base = background(scores)
    assert np.allclose(base, scores.mean(axis=0))
    centred = reduced(scores, 300, base).astype(np.float64)
    assert np.allclose(centred @ centred.T, (scores - base).T @ (scores - base) / 20, atol=1e-3)
    assert reduced(np.zeros((4, 9)), 3).shape == (9, 1)


def test_bad_spaces_are_sentences() -> None:
    with pytest.raises(InputError, match="two dimensions"):
        Vectors(np.zeros(3))
    with pytest.raises(InputError, match="must be floats; got int64"):
        Vectors(np.zeros((3, 2), dtype=np.int64))
    with pytest.raises(InputError, match="NaN or infinities"):
        CUR(np.array([[1.0, np.nan]]))
    with pytest.raises(InputError, match="one anchor query at least"):
        CUR(np.empty((0, 3)))
    with pytest.raises(InputError, match="rank of a space"):
        CUR(np.ones((2, 3)), rank=0)


@settings(max_examples=200, deadline=None)
@given(st.lists(st.sampled_from([-np.inf, -1.0, 0.0, 0.5, 2.0]), min_size=1, max_size=40), st.integers(0, 50))
def test_best_holds_the_top_and_never_what_is_barred(values: list[float], count: int) -> None:
    array = np.array(values)
    places = best(array, count)
    assert (array[places] > -np.inf).all()
    order = np.lexsort((np.arange(len(array)), -array))[:count]
    order = order[array[order] > -np.inf]
    assert set(order) <= set(places)


@pytest.mark.parametrize("kind", ["normal", "sorted", "few levels", "nearly all barred", "one block", "NaN"])
def test_best_of_many_is_the_best_of_a_full_sort(kind: str) -> None:
    rng = np.random.default_rng(2)
    values = rng.normal(size=100_001).astype(np.float32)
    if kind == "sorted":
        values.sort()
    elif kind == "few levels":
        values = np.round(values)
    elif kind == "nearly all barred":
        values[rng.random(len(values)) < 0.9995] = -np.inf
    elif kind == "one block":
        values[40_000:40_300] += 20  # closer together than the sample looks
    elif kind == "NaN":
        values[[7, 70_000]] = np.nan
    for count, slack in ((1, 0), (50, 28), (3000, 700)):
        places = best(values, count, slack)
        if kind == "NaN":
            assert places.tolist() == [7, 70_000]
            continue
        order = np.lexsort((np.arange(len(values)), -values))[: count + slack]
        order = order[values[order] > -np.inf]
        assert set(order) <= set(places)
        assert len(places) <= count + slack + 64
        assert (np.diff(places) > 0).all()


def test_a_crowd_of_ties_does_not_become_a_crowd_of_candidates() -> None:
    array = np.zeros(10_000)
    array[9_000] = 1
    places = best(array, 5, 10)
    assert len(places) <= 15
    assert {9_000, 0, 1, 2, 3} <= set(places.tolist())


def test_reranking_is_in_double_precision_with_ties_to_the_lower_position() -> None:
    rng = np.random.default_rng(0)
    vectors = rng.normal(size=(100, 9)).astype(np.float32)
    vectors[50:60] = vectors[40:50]
    u = rng.normal(size=9)
    positions, estimates, *_ = rerank(Vectors(vectors), u, np.arange(100), NOTHING, 100)
    exact = vectors.astype(np.float64) @ u
    assert np.allclose(estimates, np.sort(exact)[::-1])
    ranks = {int(p): r for r, p in enumerate(positions)}
    assert all(ranks[j] < ranks[j + 10] for j in range(40, 50))


def test_wild_vectors_do_not_overflow() -> None:
    vectors = Vectors(np.ones((4, 2), dtype=np.float32))
    (row,) = predictions(vectors, [np.array([1e30, 1e30])])
    assert np.isfinite(row).all()


def test_anchor_scores_of_new_items_are_estimated_from_their_vectors() -> None:
    from crosscut.spaces.extension import extended_scores

    rng = np.random.default_rng(0)
    vectors, weights = rng.normal(size=(300, 6)), rng.normal(size=(6, 20))
    scores = (vectors @ weights).T + 5.0  # (20 × 300)
    measured = np.ones(280, np.bool_)
    guess = extended_scores(scores[:, :280], vectors[:280], vectors[280:], measured, 20)
    assert np.abs(guess - scores[:, 280:]).max() < 0.2
    blind = extended_scores(scores[:, :280], None, None, measured, 3)
    np.testing.assert_allclose(blind, np.repeat(scores[:, :280].mean(axis=1)[:, None], 3, axis=1))
    assert not extended_scores(scores[:, :280], vectors[:280], vectors[280:], ~measured, 20).any()


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("shape", [(0, 8), (1, 8), (700, 33), (40_000, 30)])
def test_products_of_every_kind_of_array(dtype: Any, order: Any, shape: tuple[int, int]) -> None:
    rng = np.random.default_rng(0)
    array = np.asarray(rng.standard_normal(shape), dtype=dtype, order=order)
    array.flags.writeable = False
    for count in (1, 2, 9):
        queries = rng.standard_normal((count, shape[1]))
        expected = queries @ array.T.astype(np.float64)
        np.testing.assert_allclose(product(array, queries), expected, atol=1e-4)
    with pytest.raises(InputError, match="7 dimensions"):
        product(array, np.ones((1, 7)))


def blas_threads() -> list[int]:
    """Of numpy's and scipy's BLAS; other packages of the test run bring theirs."""
    paths = ("numpy.libs", "scipy.libs")
    return [each["num_threads"] for each in threadpool_info() if any(path in each["filepath"] for path in paths)]


def test_the_limit_on_blas_holds_in_every_thread() -> None:
    seen: list[list[int]] = []

    def work() -> None:
        with one_thread():
            seen.append(blas_threads())

    with threadpool_limits(2, user_api="blas"):
        with one_thread():  # this thread is the first to set a limit: others are heard all the same
            pass
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
        assert set(seen[0]) == {1}
        assert set(blas_threads()) == {2}


def test_the_limit_on_blas_is_lifted_by_the_last_to_leave() -> None:
    together = threading.Barrier(4)

    def work() -> None:
        together.wait()
        for _ in range(50):
            with one_thread():
                np.ones((8, 8)) @ np.ones((8, 8))

    threads = [threading.Thread(target=work) for _ in range(4)]
    with threadpool_limits(2, user_api="blas"):
        with one_thread():
            assert all(count == 1 for count in blas_threads())
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert blas_threads()
        assert all(count == 2 for count in blas_threads())


@pytest.mark.parametrize(("n", "limited"), [(LIMITED, True), (LIMITED - 1, False)])
def test_one_query_is_not_shared_out_by_blas(n: int, limited: bool) -> None:
    """On a busy machine its threads wait for each other; small products it takes on one by itself."""
    seen: list[int] = []

    class Watched(np.ndarray):
        def __matmul__(self, other: Any) -> Any:
            seen.extend(blas_threads())
            return np.asarray(self) @ other

    with threadpool_limits(2, user_api="blas"):
        made = product(np.arange(n, dtype=np.float64)[:, None].view(Watched), np.full((1, 1), 2.0))
    assert seen
    assert all((count == 1) == limited for count in seen)
    np.testing.assert_array_equal(made[0], 2.0 * np.arange(n))
