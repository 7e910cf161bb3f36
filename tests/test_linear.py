"""An index or a store that is asked for part of what is predicted."""

from __future__ import annotations

import numpy as np
import pytest

from crosscut.ann.base import Ask, Indexed
from crosscut.ann.flat import Flat
from crosscut.ann.linear import SeenItems, topk_of
from crosscut.spaces.base import Vectors
from crosscut.types import NO_HANDLES


def test_residuals_order_wider_answers_and_the_highest_join() -> None:
    rng = np.random.default_rng(3)
    rows = rng.normal(size=(4000, 8))
    space = Vectors(rows)
    seen = np.sort(rng.choice(4000, 300, replace=False))
    values = rng.normal(size=300)
    low = int(seen[0])
    values[0] = 50.0  # whatever its vector says
    residuals = SeenItems(seen, values)
    base = np.zeros(4000)
    base[seen] = values
    np.testing.assert_array_equal(residuals[np.arange(4000)], base)
    assert SeenItems(seen[:0], values[:0])[np.array([3, 4])].tolist() == [0, 0]
    asked = Indexed(Flat(space))
    u = rng.normal(size=8)
    for exclude, within in ((NO_HANDLES, None), (np.array([low]), None), (NO_HANDLES, np.arange(1, 4000, 3))):
        allowed = np.setdiff1d(np.arange(4000) if within is None else within, exclude)
        exact = base[allowed] + rows[allowed] @ u
        (found,) = topk_of(asked, residuals).top([Ask(u, 10, exclude, within)])
        assert len(found.handles) == 10
        assert np.isin(found.handles, allowed).all()
        assert (low in found.handles) == (low in allowed)
        np.testing.assert_allclose(found.scores, base[found.handles] + rows[found.handles] @ u)
        assert len(np.intersect1d(found.handles, allowed[np.argsort(-exact)[:10]])) >= 8  # 40 asked for, 256 joined
    with pytest.raises(AssertionError):
        topk_of(space, residuals)  # every item is read: each has a base
