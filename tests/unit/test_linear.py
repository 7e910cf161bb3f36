"""An index or a store that is asked for part of what is predicted."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from crosscut.ann.baseline import Level, OfSome
from crosscut.ann.flat import Flat
from crosscut.ann.linear import OneBlock, topk_of
from crosscut.ann.topk import Ask, Indexed
from crosscut.datasets.records import Item
from crosscut.spaces.base import Constant, Stacked, Vectors
from crosscut.stores.base import Rows, Want
from crosscut.types import NO_HANDLES
from tests.fake_store import MemoryStore


def test_residuals_order_wider_answers_and_the_highest_join() -> None:
    rng = np.random.default_rng(3)
    rows = rng.normal(size=(4000, 8))
    space = Vectors(rows)
    seen = np.sort(rng.choice(4000, 300, replace=False))
    values = rng.normal(size=300)
    low = int(seen[0])
    values[0] = 50.0  # whatever its vector says
    residuals = OfSome(seen, values, 4000)
    base = np.zeros(4000)
    base[seen] = values
    np.testing.assert_array_equal(residuals.at(np.arange(4000)), base)
    assert OfSome(seen[:0], values[:0], 9).at(np.array([3, 4])).tolist() == [0, 0]
    asked = Indexed(Flat(space))
    u = rng.normal(size=8)
    for exclude, within in ((NO_HANDLES, None), (np.array([low]), None), (NO_HANDLES, np.arange(1, 4000, 3))):
        allowed = np.setdiff1d(np.arange(4000) if within is None else within, exclude)
        exact = base[allowed] + rows[allowed] @ u
        (found,) = topk_of(asked).top([Ask(u, 10, exclude, within, residuals)])
        assert len(found.handles) == 10
        assert np.isin(found.handles, allowed).all()
        assert (low in found.handles) == (low in allowed)
        np.testing.assert_allclose(found.expected, base[found.handles] + rows[found.handles] @ u)
        assert len(np.intersect1d(found.handles, allowed[np.argsort(-exact)[:10]])) >= 8  # 40 asked for, 256 joined
    (flat,) = Flat(space).top([Ask(u, 10, base=residuals)])
    assert flat.handles.tolist() == np.argsort(-(base + rows @ u))[:10].tolist()


class Rounding(MemoryStore):
    """A store that compares rounded numbers, and so gives its best in a wrong order; its keys are digits."""

    def query(self, wants: Sequence[Want], *, exact: bool) -> list[Rows]:
        shown = []
        for want in wants:
            names = [name for name in self.items if name not in set(want.exclude)]
            names.sort(key=lambda name: -round(float(self.items[name][1] @ want.vector), 1))
            shown.append(self._shown(names[: want.count]))
        return shown


def test_one_block_of_a_store_has_its_slice_of_u() -> None:
    rng = np.random.default_rng(4)
    rows = rng.normal(size=(60, 6))
    rows[30:] *= 0.1  # far below: what rounding mixes up lies among the first
    store = Rounding([Item(str(j), "", "") for j in range(60)], rows)
    blocks, weights = (Constant(60), Vectors(rows), Constant(60)), (3.0, 0.5, 2.0)
    for _ in range(20):
        u = rng.normal(size=8)
        session = store.session()
        found = topk_of(Stacked([Constant(None), Indexed(session), Constant(None)], weights))
        assert isinstance(found, OneBlock)
        exclude = found.top([Ask(u, 4)])[0].handles[:2]
        gone = np.array([int(session.name(handle)) for handle in exclude.tolist()])
        (mine,) = found.top([Ask(u, 8, exclude, base=Level(0.25))])
        (flat,) = Flat(Stacked(blocks, weights)).top([Ask(u, 8, gone, base=Level(0.25))])
        assert [int(session.name(handle)) for handle in mine.handles.tolist()] == flat.handles.tolist()
        np.testing.assert_allclose(mine.expected, flat.expected, atol=1e-12)
