"""The contract of every index over vectors: flat, clustered, FAISS."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import pytest

from crosscut.ann.flat import Flat as FlatTopK
from crosscut.ann.ivf import IVF, NearestMany
from crosscut.ann.ivf.rules import Patience
from crosscut.ann.topk import Ask
from crosscut.errors import InputError
from crosscut.spaces.base import Vectors
from tests.vectors import brute, clumps

N, D = 300, 8
Ids = Sequence[npt.ArrayLike | None] | None


class Searches(Protocol):
    @property
    def n(self) -> int: ...
    @property
    def d(self) -> int: ...
    def search_many(
        self, queries: npt.ArrayLike, k: int = 10, *, exclude: Ids = None, allow: npt.ArrayLike | None = None
    ) -> NearestMany: ...
    def rows(self, positions: Any) -> Any: ...
    def predict(self, queries: Any) -> Any: ...


class Flat(Vectors):
    """The reading of every item, as an index."""

    def search_many(
        self, queries: npt.ArrayLike, k: int = 10, *, exclude: Ids = None, allow: npt.ArrayLike | None = None
    ) -> NearestMany:
        points = np.asarray(queries, dtype=np.float64)
        within = None if allow is None else np.asarray(allow, np.int64)
        gone = [np.asarray([] if one is None else one, np.int64) for one in exclude or [None] * len(points)]
        asks = [Ask(point, k, out, within) for point, out in zip(points, gone, strict=True)]
        ids, scores = np.full((len(points), k), -1), np.full((len(points), k), -np.inf, dtype=np.float32)
        for j, found in enumerate(FlatTopK(self).top(asks)):
            there = found.handles[found.expected > -np.inf]
            ids[j, : len(there)], scores[j, : len(there)] = there, found.expected[: len(there)]
        return NearestMany(ids, scores, np.zeros(len(points), np.int64), np.full(len(points), self.n))


MAKERS: dict[str, Callable[[Any], Searches]] = {
    "flat": Flat,
    "ivf": lambda vectors: IVF.build(vectors, lists=12, rule=12),
    "ivf float16": lambda vectors: IVF.build(vectors, lists=12, rule=12, dtype=np.float16),
    "ivf patience": lambda vectors: IVF.build(vectors, lists=12, rule=Patience(3, 0.1)),
}
EXACT = ("flat", "ivf")


@pytest.fixture(params=list(MAKERS))
def make(request: pytest.FixtureRequest) -> Callable[[Any], Searches]:
    return MAKERS[request.param]


def unit(n: int = N, seed: int = 0) -> npt.NDArray[np.float32]:
    vectors = clumps(n, D, seed)
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


def test_what_is_excluded_is_never_found(make: Callable[[Any], Searches]) -> None:
    index, queries, rng = make(unit()), unit(12, 1), np.random.default_rng(0)
    gone = [
        rng.choice(N, size, replace=False) if size else None for size in (0, 1, 5, 50, 200, 290, 299, N, 3, 0, 7, 9)
    ]
    found = index.search_many(queries, 20, exclude=gone)
    for ids, out in zip(found.ids, gone, strict=True):
        assert not {*ids[ids >= 0].tolist()} & {*(() if out is None else out.tolist())}
    assert (found.ids[7] == -1).all()


def test_only_what_is_allowed_is_found(make: Callable[[Any], Searches]) -> None:
    index, queries = make(unit()), unit(6, 1)
    for allow in (np.arange(0, N, 7), np.array([5]), np.zeros(0, dtype=np.int64), np.arange(N)):
        found = index.search_many(queries, 10, allow=allow)
        assert {*found.ids[found.ids >= 0].tolist()} <= {*allow.tolist()}
        both = index.search_many(queries, 10, allow=allow, exclude=[allow[:3]] * 6)
        assert {*both.ids[both.ids >= 0].tolist()} <= {*allow[3:].tolist()}
        assert ((both.ids >= 0) == (both.scores > -np.inf)).all()


@pytest.mark.parametrize("name", EXACT)
def test_every_list_read_is_exact(name: str) -> None:
    vectors, queries = unit(), unit(8, 1)
    gone, allow = [np.arange(j) for j in range(8)], np.arange(0, N, 2)
    index = MAKERS[name](vectors)
    found = index.search_many(queries, 9, exclude=gone, allow=allow)
    for j, query in enumerate(queries):
        among = sorted({*allow.tolist()} - {*gone[j].tolist()})
        assert found.ids[j].tolist() == brute(vectors, query, 9, "ip", among)


def test_ids_round_trip(make: Callable[[Any], Searches]) -> None:
    vectors = unit().astype(np.float16).astype(np.float32)
    index = make(vectors)
    found = index.search_many(vectors[:40], 1)
    assert found.ids[:, 0].tolist() == list(range(40))
    np.testing.assert_allclose(index.rows(found.ids[:, 0]), vectors[:40], atol=1e-6)
    everything = index.predict(vectors[:3].astype(np.float64))
    assert everything.shape == (3, N)
    np.testing.assert_allclose(everything[np.arange(3), found.ids[:3, 0]], found.scores[:3, 0], atol=1e-3)


def test_a_batch_is_its_queries(make: Callable[[Any], Searches]) -> None:
    index, queries = make(unit()), unit(20, 1)
    gone = [np.arange(3 * j) if j % 2 else None for j in range(20)]
    many = index.search_many(queries, 7, exclude=gone)
    for j in range(20):
        one = index.search_many(queries[j : j + 1], 7, exclude=[gone[j]])
        assert one.ids[0].tolist() == many.ids[j].tolist()
        np.testing.assert_allclose(one.scores[0], many.scores[j], rtol=1e-5, atol=1e-6)
    assert index.search_many(queries[:0], 7).ids.shape == (0, 7)


def test_more_than_there_are(make: Callable[[Any], Searches]) -> None:
    found = make(unit()).search_many(unit(3, 1), N + 50)
    assert found.ids.shape == (3, N + 50)
    for ids, scores in zip(found.ids, found.scores, strict=True):
        count = int((ids >= 0).sum())
        assert len({*ids[:count].tolist()}) == count <= N
        assert (ids[count:] == -1).all()
        assert (scores[count:] == -np.inf).all()
        assert (np.diff(scores[:count]) <= 0).all()


def test_ties_go_to_the_lower_id(make: Callable[[Any], Searches]) -> None:
    vectors = np.tile(unit(5), (12, 1))
    found = make(vectors).search_many(vectors[:5], 30)
    for ids, scores in zip(found.ids, found.scores, strict=True):
        for score in {*scores[ids >= 0].tolist()}:
            assert (np.diff(ids[scores == score]) > 0).all()


@pytest.mark.parametrize("name", ["flat", "ivf"])
def test_of_equal_vectors_the_lowest_ids_are_found(name: str) -> None:
    """Also when better ones come in after them, and when few of many that tie fit."""
    vectors = np.tile(unit(5), (12, 1))
    found = MAKERS[name](vectors).search_many(vectors[:5], 17)
    for query, ids in zip(vectors[:5], found.ids, strict=True):
        assert ids.tolist() == brute(vectors.astype(np.float32), query, 17, "ip")


@pytest.mark.parametrize("metric", ["ip", "l2"])
@pytest.mark.parametrize("faiss", [True, False])
def test_huge_numbers_are_refused_in_a_sentence(metric: Any, faiss: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """FAISS ends the process when distances overflow."""
    if not faiss:
        monkeypatch.setitem(__import__("sys").modules, "faiss", None)
    vectors = unit()
    for factor in (1e20, 1e38):
        with pytest.raises(InputError, match=r"row 0 of the vectors holds .* divide"):
            IVF.build(vectors * np.float32(factor), lists=4, metric=metric)
    with pytest.raises(InputError, match="row 0 of the vectors holds"):
        IVF.build(vectors.astype(np.float64) * 1e200, lists=4, metric=metric)
    index = IVF.build(vectors, lists=4, metric=metric)
    with pytest.raises(InputError, match="row 0 of the queries holds"):
        index.search(vectors[0].astype(np.float64) * 1e200)
    large = IVF.build(vectors * np.float32(1e15), lists=4, metric=metric, rule=4)
    found = large.search_many(vectors[:5] * np.float32(1e15), 3)
    assert found.ids[:, 0].tolist() == [0, 1, 2, 3, 4]
    assert np.isfinite(found.scores).all()


def test_what_float16_cannot_hold_is_refused() -> None:
    vectors = unit()
    vectors[7] *= 1e6
    with pytest.raises(InputError, match=r"row 7 of the vectors holds .*float16 takes up to 65504"):
        IVF.build(vectors, lists=4, dtype=np.float16)


def test_what_no_index_takes() -> None:
    make, vectors = MAKERS["ivf"], unit()
    index = make(vectors)
    for wrong in (np.nan, np.inf, -np.inf):
        broken = vectors.copy()
        broken[4, 2] = wrong
        with pytest.raises(InputError, match="row 4 of the vectors contains NaN or infinities"):
            make(broken)
        with pytest.raises(InputError, match="row 4 of the queries contains NaN or infinities"):
            index.search_many(broken)
    with pytest.raises(InputError, match="row 0 of the vectors holds"):
        make(vectors * np.float32(1e20))
    for shape in ((0, D), (3, 0), (D,)):
        with pytest.raises(InputError, match="shape"):
            make(np.zeros(shape))
    with pytest.raises(InputError, match=f"shape .2, {D + 1}. for an index of {D} dimensions"):
        index.search_many(np.zeros((2, D + 1)))
    for k in (0, -1, 2.5, True):
        with pytest.raises(InputError, match="k must be"):
            index.search_many(vectors[:1], k)  # type: ignore[arg-type]
    with pytest.raises(InputError, match=f"id {N} is not in this index of {N} vectors"):
        index.search_many(vectors[:1], allow=[N])
    with pytest.raises(InputError, match="id -1 is not"):
        index.search_many(vectors[:1], exclude=[[-1]])
    with pytest.raises(InputError, match="whole numbers"):
        index.search_many(vectors[:1], exclude=[[0.5]])
    with pytest.raises(InputError, match="2 sets of excluded ids for 1 queries"):
        index.search_many(vectors[:1], exclude=[None, None])
    with pytest.raises(InputError, match="numbers"):
        index.search_many([["a"] * D])


def test_lists_that_are_none() -> None:
    vectors = unit()
    for lists in (0, -3, 2.5, True):
        with pytest.raises(InputError, match="lists must be"):
            IVF.build(vectors, lists=lists)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="at least 1 list"):
        IVF.build(vectors, centroids=np.zeros((0, D)))
