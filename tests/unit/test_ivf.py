from __future__ import annotations

import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crosscut.ann.ivf import IVF, learning
from crosscut.ann.ivf.index import DESCRIBED
from crosscut.ann.ivf.kernels import FIRST
from crosscut.ann.ivf.rules import Fixed, Patience
from crosscut.errors import InputError
from tests.vectors import brute, clumps


@pytest.mark.services
@pytest.mark.parametrize("metric", ["ip", "l2"])
@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_fixed_lists_are_what_faiss_finds(metric: Any, dtype: Any) -> None:
    faiss = pytest.importorskip("faiss")
    vectors = clumps().astype(np.float16).astype(np.float32)  # exact in either storage
    queries = clumps(40, seed=1)
    index = IVF.build(vectors, lists=24, metric=metric, dtype=dtype)
    kind = faiss.METRIC_INNER_PRODUCT if metric == "ip" else faiss.METRIC_L2
    coarse = faiss.IndexFlat(12, kind)
    coarse.add(index.centroids)
    rival = faiss.IndexIVFFlat(coarse, 12, 24, kind)
    stored, home = np.ascontiguousarray(vectors[index.ids]), np.repeat(np.arange(24), np.diff(index.starts))
    rival.add_core(600, faiss.swig_ptr(stored), faiss.swig_ptr(index.ids), faiss.swig_ptr(home))
    for lists in (1, 3, 24):
        rival.nprobe = lists
        scores, ids = rival.search(queries, 15)
        found = index.search_many(queries, 15, rule=lists)
        assert (found.ids == ids).all()
        padded = np.where(ids < 0, -np.inf, scores if metric == "ip" else -scores)
        np.testing.assert_allclose(found.scores, padded, rtol=1e-4, atol=1e-4)
        assert (found.lists == lists).all()


@settings(max_examples=40, deadline=None)
@given(data=st.data(), metric=st.sampled_from(["ip", "l2"]))
def test_exclude_and_allow(data: st.DataObject, metric: Any) -> None:
    vectors = clumps(90, 5)
    index = IVF.build(vectors, lists=9, metric=metric, centroids=vectors[::10])
    ids = st.sets(st.integers(0, 89), max_size=90)
    gone = data.draw(ids)
    only = data.draw(st.none() | ids)
    query = clumps(3, 5, seed=data.draw(st.integers(0, 50)))[0]
    found = index.search(
        query, 8, rule=9, exclude=np.array(sorted(gone), dtype=int), allow=None if only is None else sorted(only)
    )
    among = sorted((set(range(90)) if only is None else only) - gone)
    assert found.ids.tolist() == (brute(vectors, query, 8, metric, among) if among else [])


@pytest.mark.parametrize("metric", ["ip", "l2"])
@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_wide_filters_read_lists_whole(metric: Any, dtype: Any) -> None:
    vectors = clumps().astype(np.float16).astype(np.float32)
    index = IVF.build(vectors, lists=9, metric=metric, dtype=dtype)
    rng = np.random.default_rng(3)
    for share in (0.02, 0.3, 0.5, 0.7, 0.995, 1.0):
        allowed = np.sort(rng.permutation(600)[: round(600 * share)])
        gone = rng.permutation(600)[:20]
        for query in clumps(6, seed=4):
            found = index.search(query, 12, rule=9, exclude=gone, allow=allowed)
            assert found.ids.tolist() == brute(vectors, query, 12, metric, np.setdiff1d(allowed, gone))
            if share > 0.9:  # a few were removed: as many are compared as without a filter
                assert found.vectors == index.search(query, 12, rule=9, exclude=gone).vectors
            if share < 0.1:
                assert found.vectors <= len(allowed)


def test_lists_without_an_allowed_vector_are_not_visited() -> None:
    vectors = clumps()
    index = IVF.build(vectors, lists=32)
    far = int(index.search(-vectors[0], 1, rule=32).ids[0])
    found = index.search(vectors[0], 5, rule=1, allow=[far])
    assert found.ids.tolist() == [far]
    assert (found.lists, found.vectors) == (1, 1)


def test_search_many_is_search() -> None:
    vectors, queries = clumps(2000), clumps(200, seed=5)
    index = IVF.build(vectors, lists=40)
    gone = [np.arange(j) if j % 3 else None for j in range(200)]
    for rule in (Fixed(5), Patience(2, 0.1, 30)):
        many = index.search_many(queries, 12, rule=rule, exclude=gone)
        for j in range(0, 200, 17):
            one = index.search(queries[j], 12, rule=rule, exclude=gone[j])
            assert one.ids.tolist() == many.ids[j].tolist()
            assert (one.lists, one.vectors) == (many.lists[j], many.vectors[j])
        alone = index.search_many(queries, 12, rule=rule, exclude=gone, threads=1)
        assert (alone.ids == many.ids).all()


def test_corners() -> None:
    few = clumps(3)
    index = IVF.build(few, lists=50)  # fewer vectors than clusters
    assert len(index.centroids) == 3
    found = index.search(few[0], 10, rule=3)
    assert len(found.ids) == 3
    assert index.search_many(few, 10, rule=3).ids[0].tolist()[3:] == [-1] * 7
    nowhere = np.concatenate([few, np.full((1, 12), 1e3, dtype=np.float32)])
    empty = IVF.build(few, centroids=nowhere, metric="l2")  # a list without vectors counts, and holds nothing
    at_it = empty.search(nowhere[3], 2, rule=1)
    assert (len(at_it.ids), at_it.lists, at_it.vectors) == (0, 1, 0)
    assert empty.search_many(np.zeros((0, 12)), 2).ids.shape == (0, 2)
    assert IVF.build(np.zeros((5, 4), dtype=np.float32)).search(np.zeros(4), 3).ids.tolist() == [0, 1, 2]


def test_ids_of_ones_own() -> None:
    vectors = clumps(80)
    names = np.random.default_rng(0).permutation(1000)[:80]
    index = IVF.build(vectors, lists=6, ids=names)
    assert index.search(vectors[5], 3, rule=6).ids.tolist() == names[brute(vectors, vectors[5], 3, "ip")].tolist()
    rest = index.search(vectors[5], 80, rule=6, exclude=names[:40])
    assert set(rest.ids.tolist()) == set(names[40:].tolist())
    missing = next(j for j in range(1000) if j not in set(names.tolist()))
    with pytest.raises(InputError, match=f"id {missing} is not"):
        index.search(vectors[5], exclude=[missing])


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_save_and_load(tmp_path: Path, dtype: Any) -> None:
    vectors, queries = clumps(), clumps(20, seed=3)
    index = IVF.build(vectors, lists=12, dtype=dtype, rule=Patience(2, 0.05, 9))
    index.save(tmp_path / "ivf")
    index.save(tmp_path / "ivf")  # again, over itself
    for memory_map in (True, False):
        again = IVF.load(tmp_path / "ivf", memory_map=memory_map)
        assert again.rule == index.rule
        assert again.vectors.flags.owndata != memory_map
        for old, new in zip(index.search_many(queries, 6), again.search_many(queries, 6), strict=True):
            assert np.all(old == new)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["ivf"]
    next((tmp_path / "ivf").glob("0*/vectors.npy")).write_bytes(b"nothing")
    with pytest.raises(InputError, match=r"damaged: vectors\.npy has 7 bytes"):
        IVF.load(tmp_path / "ivf")
    (tmp_path / "ivf" / "ivf.json").write_text('{"format": 1, "metric": "ip"}')
    with pytest.raises(InputError, match="belongs to something else"):
        IVF.load(tmp_path / "ivf")
    with pytest.raises(InputError, match="no clustered index at"):
        IVF.load(tmp_path / "nowhere")
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "letter.txt").write_text("hello")
    with pytest.raises(InputError, match="holds something else"):
        index.save(tmp_path / "other")


def test_clusters_without_faiss(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "faiss", None)
    vectors = clumps()
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    index = IVF.build(vectors, lists=16)
    np.testing.assert_allclose(np.linalg.norm(index.centroids, axis=1), 1, rtol=1e-4)
    assert index.search(vectors[3], 5, rule=16).ids.tolist() == brute(vectors, vectors[3], 5, "ip")


def test_an_index_is_a_space() -> None:
    vectors = clumps(100).astype(np.float16)
    index = IVF.build(vectors, lists=8)
    queries = clumps(4, seed=2).astype(np.float64)
    assert (index.rows(np.array([5, 3])) == vectors[[5, 3]].astype(np.float64)).all()
    np.testing.assert_allclose(index.predict(queries), queries @ vectors.astype(np.float64).T, rtol=1e-4, atol=1e-4)
    index = IVF.build(vectors, lists=8, ids=np.arange(1, 101))
    with pytest.raises(InputError, match="0 … n − 1"):
        index.predict(queries)


def test_a_patient_search_goes_past_the_lists_that_are_ranked_first() -> None:
    rng = np.random.default_rng(3)
    vectors = rng.normal(size=(3 * FIRST, 6)).astype(np.float32)
    index = IVF.build(vectors, lists=2 * FIRST, seed=1)
    vectors[::2] = vectors[0]  # and many ties
    tied = IVF.build(vectors, lists=2 * FIRST, seed=1)
    allowed = np.flatnonzero(rng.random(len(vectors)) < 0.9)
    for made, allow in ((index, None), (index, allowed), (tied, None)):
        for query in rng.normal(size=(5, 6)):
            found = made.search(query, 7, rule=Patience(10 * FIRST, 0.0), allow=allow)
            whole = made.search(query, 7, rule=Fixed(made.most), allow=allow)
            assert found.lists > FIRST
            assert (found.lists, found.vectors) == (whole.lists, whole.vectors)
            np.testing.assert_array_equal(found.ids, whole.ids)


def test_what_lists_do_is_observed_without_a_matrix_of_queries_and_lists(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(5)
    lists, asked = 3000, 6000
    vectors = rng.normal(size=(lists, 4)).astype(np.float32)
    index = IVF.build(vectors, lists=lists, centroids=vectors)
    queries = rng.normal(size=(asked, 4)).astype(np.float32)
    few = learning.observe(index, queries[:40], 3, 5)
    monkeypatch.setattr(learning, "exact", lambda layout, queries, k: np.zeros((len(queries), k), np.int64))
    tracemalloc.start()
    many = learning.observe(index, queries, 3, 5)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 4 * asked * lists  # similarities alone would be as much
    similarities = queries[:40] @ vectors.T
    assert few.near.shape == (40, DESCRIBED)
    np.testing.assert_allclose(few.near, -np.sort(-similarities, axis=1)[:, :DESCRIBED], rtol=1e-5, atol=1e-6)
    assert (few.ranks == np.arange(1, 4)).all()  # every vector is its own list
    np.testing.assert_array_equal(many.near[:40], few.near)
    np.testing.assert_allclose(few.spreads[:, 0], similarities.mean(axis=1), atol=1e-5)


def test_a_search_begins_with_what_an_earlier_one_found() -> None:
    """It is found though its list is far, once, unless it is excluded or not allowed."""
    vectors = clumps()
    index = IVF.build(vectors, lists=30)
    query = clumps(1, seed=3)
    far = brute(vectors, -query[0], 3, "ip")
    ids = index.search_many(query, 600, rule=1, starts=[far]).ids[0]
    found = ids[ids >= 0].tolist()
    assert {*far} <= {*found}
    assert len(found) == len({*found})
    without = index.search_many(query, 600, rule=1, exclude=[far[:2]], starts=[far]).ids[0].tolist()
    assert not {*far[:2]} & {*without}
    assert far[2] in without
    among = index.search_many(query, 600, rule=1, allow=far[:1], starts=[far]).ids[0]
    assert among[among >= 0].tolist() == far[:1]
    with pytest.raises(InputError, match="1 sets of ids to begin with for 2 queries"):
        index.search_many(clumps(2), 5, starts=[far])


def test_patience_counts_what_a_search_began_with_as_members_that_stayed() -> None:
    index, queries = IVF.build(clumps(3000), lists=40), clumps(30, seed=4)
    cold = index.search_many(queries, 20, rule=40)
    warm = index.search_many(queries, 20, rule=Patience(2, 0.0), starts=list(cold.ids))
    assert (warm.ids == cold.ids).all()
    assert (warm.lists == 2).all()  # nothing can change: settled from the first list on


def test_indexes_of_other_items_share_centroids() -> None:
    vectors, query = clumps(), clumps(1, seed=7)[0]
    whole = IVF.build(vectors, lists=20)
    parts = [IVF.build(vectors[half], centroids=whole.centroids, ids=half) for half in np.split(np.arange(600), 2)]
    found = [part.search(query, 10, rule=20) for part in parts]
    ids, scores = (np.concatenate([getattr(one, name) for one in found]) for name in ("ids", "scores"))
    assert ids[np.argsort(-scores, kind="stable")][:10].tolist() == whole.search(query, 10, rule=20).ids.tolist()
    assert sum(one.vectors for one in found) == 600
