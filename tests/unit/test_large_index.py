"""An index of many items: its rounds visit clusters of the vectors."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from crosscut.ann import clustered
from crosscut.ann.clusters import assign
from crosscut.ann.ivf import IVF
from crosscut.ann.linear import Projected
from crosscut.ann.segments import Segments
from crosscut.errors import InputError
from crosscut.index import Index
from crosscut.methods import parse
from crosscut.scorers.adapters import TextScorer
from tests.unit.test_index import Planted, build, planted_items


@pytest.fixture(autouse=True)
def large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clustered, "SMALL", 100)


def clusters_of(index: Index) -> Any:
    space = index.corpus.encoder_space
    assert isinstance(space, IVF | Segments)
    searcher = index.corpus.searcher(parse("crosscut@first=dense"))
    assert isinstance(searcher.plan.then.topk, Projected)
    return space


def recall(index: Index, world: Planted, items: range) -> float:
    found = index.search_many([f"query {j}" for j in range(20)], 10, 60)
    shares = []
    for j, hits in enumerate(found):
        best = sorted(items, key=lambda item: -world.score(f"query {j}", [f"item {item}"])[0])[:10]
        shares.append(len({hit.id for hit in hits} & {f"i{item}" for item in best}) / 10)
    return float(np.mean(shares))


def test_it_clusters_by_itself_and_finds_what_a_small_one_finds(monkeypatch: pytest.MonkeyPatch) -> None:
    world = Planted()
    index = build(world)
    assert len(clusters_of(index).centroids) > 8
    assert recall(index, world, range(200)) > 0.9
    monkeypatch.setattr(clustered, "SMALL", 1000)
    assert build(world).corpus.centroids is None


def test_it_keeps_its_clusters_on_disk(tmp_path: Path) -> None:
    world = Planted()
    index = build(world)
    before = index.search("query 3", 10, 60)
    index.save(tmp_path / "large.index")
    again = Index.load(tmp_path / "large.index", scorer=TextScorer(world.score, fingerprint="planted"), encoder=world)
    assert (clusters_of(again).centroids == clusters_of(index).centroids).all()
    after = again.search("query 3", 10, 60)
    assert [(hit.id, hit.score, hit.round) for hit in after] == [(hit.id, hit.score, hit.round) for hit in before]


@pytest.mark.parametrize("space", ["cur", "als"])
def test_what_is_gone_takes_its_anchor_scores_and_factors_along(space: Any, tmp_path: Path) -> None:
    world = Planted()
    build(world, queries=12, space=space, path=tmp_path / "large.index")

    def load() -> Index:
        return Index.load(
            tmp_path / "large.index", scorer=TextScorer(world.score, fingerprint="planted"), encoder=world
        )

    def rows(index: Index) -> dict[str, Any]:
        parts = index.corpus.parts
        space = parts.factors if parts.anchors is None else parts.anchors
        assert space is not None
        there = np.flatnonzero(index.corpus.alive)
        return {
            index.corpus.items[j].id: row.tolist() for j, row in zip(there.tolist(), space.rows(there), strict=True)
        }

    index = load()
    before = rows(index)
    index.forget([f"i{j}" for j in range(0, 60, 2)])
    index.add(planted_items(200, 210))
    index.remove([f"i{j}" for j in range(60, 90)] + ["i203"])  # more than an eighth: files are written anew
    index.save()
    index.close()
    again = load()
    assert Index.verify(tmp_path / "large.index") == []
    assert len(again) == 149
    after = rows(again)
    there = {f"i{j}" for j in range(200) if not (60 <= j < 90 or (j < 60 and j % 2 == 0))}
    assert {id: after[id] for id in there} == {id: before[id] for id in there}


def test_it_grows_and_shrinks() -> None:
    world = Planted()
    index = build(world)
    old = clusters_of(index)
    index.add(planted_items(200, 300))
    assert clusters_of(index).n == 300
    assert old.n == 200  # a search that began before goes on as it was
    assert [item.id for item in index.items] == [f"i{j}" for j in range(300)]  # in the order they came
    settled = index.corpus.settled()
    home = settled._home()
    assert home is not None
    assert home.tolist() == assign(np.asarray(settled.vectors), old.centroids).tolist()  # each in the nearest list
    assert [settled.items[j].id for j in settled.order.tolist()] == [f"i{j}" for j in range(300)]
    assert recall(index, world, range(300)) > 0.9
    index.remove([f"i{j}" for j in range(100)])
    assert recall(index, world, range(100, 300)) > 0.9
    hits = index.search("query 5", 10, 60, filter={"colour": "red"})
    assert len(hits) == 10
    assert all(int(hit.id[1:]) % 2 and int(hit.id[1:]) >= 100 for hit in hits)


def test_what_does_not_touch_the_vectors_keeps_their_layout() -> None:
    index = build(Planted())
    before = clusters_of(index)
    index.remove(["i3"])
    assert clusters_of(index) is before


def test_vectors_that_are_no_numbers_are_refused() -> None:
    world = Planted()
    world.items[17] = np.nan
    with pytest.raises(InputError, match="row 17 of the vectors contains NaN"):
        build(world)
    world = Planted()
    index = build(world)
    world.items[205] = np.inf
    with pytest.raises(InputError, match="row 5 of the new vectors"):
        index.add(planted_items(200, 210))
    assert len(index) == 200
