"""The incremental fit against numpy's own, from scratch."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crosscut.errors import InputError
from crosscut.linalg.least_squares import LeastSquares


def grow(rows: np.ndarray, targets: np.ndarray, cuts: list[int], **how: float) -> np.ndarray:
    fit = LeastSquares(rows.shape[1], **how)
    for start, end in zip([0, *cuts], [*cuts, len(rows)], strict=True):
        fit.add(rows[start:end], targets[start:end])
        fit.solve()
    return fit.solve()


@settings(max_examples=150, deadline=None)
@given(
    m=st.integers(1, 40),
    d=st.integers(1, 25),
    seed=st.integers(0, 10_000),
    ridge=st.sampled_from([0.0, 1e-3, 1.0]),
    data=st.data(),
)
def test_agrees_with_a_fresh_fit(m: int, d: int, seed: int, ridge: float, data: st.DataObject) -> None:
    rng = np.random.default_rng(seed)
    rows, targets = rng.normal(size=(m, d)), rng.normal(size=m)
    cuts = sorted(data.draw(st.lists(st.integers(0, m), max_size=5)))
    u = grow(rows, targets, cuts, ridge=ridge)
    if ridge:
        fresh = np.linalg.solve(rows.T @ rows + ridge * np.eye(d), rows.T @ targets)
    else:
        fresh = np.linalg.lstsq(rows, targets, rcond=None)[0]
    condition = np.linalg.cond(rows) if not ridge else 1.0
    assert np.abs(u - fresh).max() <= max(1e-6, 1e-11 * condition**2) * max(1.0, np.abs(fresh).max())


@pytest.mark.parametrize("condition", [1e2, 1e4, 1e6])
@pytest.mark.parametrize("shape", [(60, 100), (100, 60), (80, 80)])
def test_ill_conditioned_but_full_rank(condition: float, shape: tuple[int, int]) -> None:
    rng = np.random.default_rng(1)
    m, d = shape
    left, right = np.linalg.qr(rng.normal(size=(m, min(shape))))[0], np.linalg.qr(rng.normal(size=(d, min(shape))))[0]
    rows = left * np.geomspace(1, 1 / condition, min(shape)) @ right.T
    targets = rows @ rng.normal(size=d)
    fresh = np.linalg.lstsq(rows, targets, rcond=None)[0]
    u = grow(rows, targets, [10, 30, 50])
    assert np.linalg.norm(u - fresh) <= 1e-6 * np.linalg.norm(fresh)


def test_rank_deficient_rows_follow_the_pseudo_inverse() -> None:
    rng = np.random.default_rng(2)
    rows = rng.normal(size=(30, 5)) @ rng.normal(size=(5, 20))
    rows[7] = rows[3]  # a duplicate item
    rows[9] = 0  # a zero vector
    targets = rng.normal(size=30)
    fresh = np.linalg.pinv(rows, rcond=1e-10) @ targets
    assert np.allclose(grow(rows, targets, [4, 9, 20], rcond=1e-10), fresh, atol=1e-8)


def test_cut_off_means_what_it_means_in_pinv() -> None:
    rng = np.random.default_rng(3)
    rows = rng.normal(size=(25, 40)) * np.geomspace(1, 1e-3, 40)
    targets = rng.normal(size=25)
    fresh = np.linalg.pinv(rows, rcond=0.05) @ targets
    assert np.allclose(grow(rows, targets, [5, 10], rcond=0.05), fresh, atol=1e-9)


def test_nothing_added_is_zero_and_a_negative_ridge_is_refused() -> None:
    assert np.array_equal(LeastSquares(4).solve(), np.zeros(4))
    fit = LeastSquares(4)
    fit.add(np.zeros((3, 4)), np.ones(3))
    assert np.array_equal(fit.solve(), np.zeros(4))
    with pytest.raises(InputError, match="got -1"):
        LeastSquares(4, ridge=-1)


def test_cost_of_a_round_does_not_grow_with_a_pseudo_inverse(monkeypatch: pytest.MonkeyPatch) -> None:
    """Full-rank rows never need a singular value decomposition."""

    def forbidden(*_: object, **__: object) -> None:
        raise AssertionError("a full-rank fit took the slow way")

    monkeypatch.setattr(np.linalg, "svd", forbidden)
    rng = np.random.default_rng(4)
    rows, targets = rng.normal(size=(300, 100)), rng.normal(size=300)
    u = grow(rows, targets, list(range(10, 300, 10)))
    assert np.allclose(u, np.linalg.solve(rows.T @ rows, rows.T @ targets))
