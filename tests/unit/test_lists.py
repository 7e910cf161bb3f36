"""Rounds by lists over anchor scores, factors and learned priors, and over several segments."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import crosscut
from crosscut.ann import clustered
from crosscut.ann.baseline import NOTHING, Baseline, Level, PerItem, Sum
from crosscut.ann.flat import Flat
from crosscut.ann.ivf import IVF
from crosscut.ann.lists import Lists
from crosscut.ann.segments import Segmented
from crosscut.ann.topk import Ask
from crosscut.index import Index
from crosscut.methods import parse
from crosscut.scorers.adapters import TextScorer
from crosscut.search.prior import Prior
from crosscut.spaces.base import Constant, Stacked, Vectors
from crosscut.spaces.cur import CUR
from tests.unit.test_index import Planted, best, build, planted_items
from tests.vectors import clumps

N, D = 600, 12


@pytest.fixture
def large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clustered, "SMALL", 100)


def stacked(encoder: Any, seed: int = 0) -> tuple[Stacked, Any]:
    """A space of several blocks, and a base."""
    rng = np.random.default_rng(seed)
    other = rng.normal(size=(N, 5)).astype(np.float32)
    half = rng.normal(size=(N, 3)).astype(np.float16)
    blocks = [Vectors(other), encoder, Vectors(half), Constant(N)]
    return Stacked(blocks, [1.0, 0.5, 2.0, 3.0]), rng.normal(size=N)


def in_parts(vectors: Any, lists: int = 30) -> Segmented:
    """450 items in lists, 50 in none, 100 in lists with the same centroids."""
    first = IVF.build(vectors[:450], lists=lists)
    last = IVF.build(vectors[500:], centroids=first.centroids)
    return Segmented([first, Vectors(vectors[450:500]), last])


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10**6), st.sampled_from(["lists", "parts"]), st.booleans(), st.booleans(), st.booleans())
def test_all_lists_are_the_flat_answer(seed: int, how: str, filtered: bool, based: bool, known: bool) -> None:
    rng = np.random.default_rng(seed)
    vectors = clumps(N, D, seed % 7)
    encoder: Any = IVF.build(vectors, lists=30) if how == "lists" else in_parts(vectors)
    space, base = stacked(encoder, seed)
    own: Baseline = PerItem(base) if based else Level(0.25)
    asks = [
        Ask(
            rng.normal(size=space.d),
            int(rng.integers(1, 40)),
            exclude=rng.choice(N, rng.integers(0, 80), replace=False),
            allowed=np.sort(rng.choice(N, 150, replace=False)) if filtered else None,
            base=Sum(own, PerItem(rng.normal(size=N))) if known else own,
        )
        for _ in range(3)
    ]
    assert space.home is not None
    found = Lists(space, own, space.home, all_lists=True).top(asks)
    wanted = Flat(space).top(asks)
    for one, other in zip(found, wanted, strict=True):
        assert one.handles.tolist() == other.handles.tolist()
        assert np.allclose(one.expected, other.expected)


def test_some_lists_find_most_of_it_and_nothing_that_is_excluded_or_filtered_out() -> None:
    vectors = clumps(N, D)
    space, base = stacked(in_parts(vectors))
    assert space.home is not None
    own = PerItem(0.1 * base)
    lists = Lists(space, own, space.home, together=4)
    rng = np.random.default_rng(0)
    shares = []
    for turn in range(30):
        within = None if turn % 2 else np.sort(rng.choice(N, 300, replace=False))
        gone = rng.choice(N, 60, replace=False)
        ask = Ask(rng.normal(size=space.d), 10, gone, within, own)
        one, other = lists.top([ask])[0], Flat(space).top([ask])[0]
        assert not {*one.handles.tolist()} & {*gone.tolist()}
        assert within is None or {*one.handles.tolist()} <= {*within.tolist()}
        assert len(one.handles) == 10 == len({*one.handles.tolist()})
        shares.append(len({*one.handles.tolist()} & {*other.handles.tolist()}) / 10)
    assert np.mean(shares) > 0.85


def test_a_round_begins_with_what_the_one_before_found() -> None:
    space, base = stacked(IVF.build(clumps(N, D), lists=30))
    assert space.home is not None
    own = PerItem(base)
    lists, u = Lists(space, own, space.home, together=3), np.random.default_rng(1).normal(size=space.d)
    first, rest = (lists.top([Ask(u, 25, base=own)])[0][j] for j in (0, 3))
    assert len(rest)
    assert not {*rest.tolist()} & {*first.tolist()}
    far = np.argsort(Flat(space).scan([Ask(u, 1, base=own)], lambda _, row: row.copy())[0])[:3]
    later = Ask(u, N, exclude=first, base=own, start=far)
    assert {*far.tolist()} <= {*lists.top([later])[0].handles.tolist()}
    gone = Ask(u, 25, exclude=first, base=own, start=first[:5])
    assert not {*first.tolist()} & {*lists.top([gone])[0].handles.tolist()}


def test_a_short_answer_means_that_there_is_no_more() -> None:
    space, base = stacked(in_parts(clumps(N, D)))
    assert space.home is not None
    lists, rng = Lists(space, PerItem(base), space.home, together=2), np.random.default_rng(2)
    ask = Ask(rng.normal(size=space.d), 400, allowed=np.arange(0, N, 2))
    assert sorted(lists.top([ask])[0].handles.tolist()) == list(range(0, N, 2))
    ask.exclude = np.arange(0, 100)
    assert sorted(lists.top([ask])[0].handles.tolist()) == list(range(100, N, 2))


def test_wild_vectors_do_not_overflow() -> None:
    space, _ = stacked(IVF.build(clumps(N, D), lists=30))
    assert space.home is not None
    u = np.random.default_rng(3).normal(size=space.d)
    lists = Lists(space, NOTHING, space.home, all_lists=True)
    assert lists.top([Ask(1e60 * u, 9)])[0].handles.tolist() == lists.top([Ask(u, 9)])[0].handles.tolist()


# an index


def plan_of(index: Index, method: str = "crosscut") -> Any:
    return index.corpus.searcher(parse(method)).plan


def shares(index: Index, world: Planted, items: range, **how: Any) -> float:
    found = index.search_many([f"query {j}" for j in range(40, 70)], 10, 60, **how)
    wanted = [best(world, j, [*items], 10) for j in range(40, 70)]
    return float(np.mean([len({*hits.ids} & {*ids}) / 10 for hits, ids in zip(found, wanted, strict=True)]))


@pytest.mark.parametrize("method", ["crosscut", "adacur", "axn"])
def test_an_index_with_anchor_scores_searches_by_lists(
    method: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    world = Planted()
    flat = shares(build(world, queries=30), world, range(200), method=method)
    monkeypatch.setattr(clustered, "SMALL", 100)
    index = build(world, queries=30)
    assert index.build_calls == 30 * 200
    assert isinstance(plan_of(index, "crosscut").then.topk, Lists)
    assert isinstance(plan_of(index, "adacur").then.topk, Lists)
    assert shares(index, world, range(200), method=method) >= flat - 0.05
    asked = [f"query {j}" for j in range(40, 50)]
    before = [hits.ids for hits in index.search_many(asked, 10, 60, method=method)]
    assert [index.search(query, 10, 60, method=method).ids for query in asked] == before
    index.save(tmp_path / "a.index")
    again = Index.load(tmp_path / "a.index", scorer=TextScorer(world.score, fingerprint="planted"), encoder=world)
    assert isinstance(plan_of(again).then.topk, Lists)
    assert [hits.ids for hits in again.search_many(asked, 10, 60, method=method)] == before
    hits = asyncio.run(again.search_async("query 45", 10, 60, filter={"colour": "red"}, method=method))
    assert all(int(id[1:]) % 2 for id in hits.ids)
    again.remove([hits.ids[0]])
    assert hits.ids[0] not in again.search("query 45", 10, 60, method=method).ids


@pytest.mark.services
@pytest.mark.parametrize("space", ["als", "transductive"])
def test_an_index_with_factors_searches_by_lists(space: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    if space == "transductive":
        pytest.importorskip("torch")
    world = Planted()
    flat = shares(build(world, queries=30, space=space, per_query=60), world, range(200))
    monkeypatch.setattr(clustered, "SMALL", 100)
    index = build(world, queries=30, space=space, per_query=60)
    for method in ("crosscut", "axn"):
        assert isinstance(plan_of(index, method).then.topk, Lists)
    assert shares(index, world, range(200)) >= flat - 0.05
    index.add(planted_items(200, 260))
    assert isinstance(plan_of(index).then.topk, Lists)
    assert shares(index, world, range(260)) >= flat - 0.1


def test_a_learned_prior_is_searched_by_lists(large: None) -> None:
    """Beside anchor scores by `Lists`, alone by the index of the encoder's vectors."""
    world = Planted()
    for queries, kind in ((20, Lists), (0, crosscut.ann.linear.Projected)):
        index = build(world, queries=queries)
        d = 8 + queries
        prior = Prior(np.zeros(d), np.zeros(d), 0.1, np.eye(d), 0.1, 50, np.array([3]), np.array([0.5]))
        index.corpus = replace(index.corpus, prior=prior)
        plan = plan_of(index)
        assert isinstance(plan.then.topk, kind)
        assert shares(index, world, range(200)) > 0.8


def test_lists_come_when_an_index_with_anchor_scores_and_a_prior_has_grown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clustered, "SMALL", 250)
    world = Planted()
    index = build(world, queries=20)
    d = 8 + 20
    state = index.corpus
    residuals = np.arange(200) / 100
    prior = Prior(np.zeros(d), np.zeros(d), 0.1, np.eye(d), 0.1, 50, np.arange(200), residuals)
    index.corpus = replace(state, prior=prior)
    assert isinstance(plan_of(index).then.topk, Flat)
    scores = {item.id: state.anchors[:, j] for j, item in enumerate(state.items)}  # type: ignore[index]
    index.add(planted_items(200, 300))
    assert isinstance(plan_of(index).then.topk, Lists)
    grown = index.corpus
    assert grown.prior is not None
    assert grown.anchors is not None
    kept = dict(zip(grown.prior.seen.tolist(), grown.prior.residuals.tolist(), strict=True))
    assert len(kept) == 200
    for place, item in enumerate(grown.items):  # everything moved with its item
        j = int(item.id[1:])
        if j < 200:
            assert kept[place] == residuals[j]
            assert (grown.anchors[:, place] == scores[item.id]).all()
    assert shares(index, world, range(300)) > 0.7


def test_a_searcher_of_an_ivf_and_anchor_scores_uses_its_lists(large: None) -> None:
    world = Planted()
    truth = np.array([world.score(f"query {q}", [f"item {j}" for j in range(400)]) for q in range(100)])
    ivf = IVF.build(world.items.astype(np.float32), lists=20)
    how: dict[str, Any] = {"space": CUR(truth[:30]), "method": "crosscut"}
    searcher = crosscut.Searcher(crosscut.MatrixScorer(truth), vectors=ivf, **how)
    plain = crosscut.Searcher(crosscut.MatrixScorer(truth), vectors=world.items, **how)
    assert isinstance(searcher.plan.then.topk, Lists)
    found, wanted = ([*one.search_many([*range(50, 70)], 10, 80)] for one in (searcher, plain))
    same = [len({*a.ids} & {*b.ids}) / 10 for a, b in zip(found, wanted, strict=True)]
    assert np.mean(same) > 0.9
