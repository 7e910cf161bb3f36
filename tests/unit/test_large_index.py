"""An index of many items: rounds read lists of near vectors, segment by segment."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from crosscut.ann import clustered
from crosscut.errors import InputError
from crosscut.index import Index, corpus
from crosscut.scorers.adapters import TextScorer
from tests.clustered_answers import answers
from tests.unit.test_index import Planted, build, planted_items


@pytest.fixture
def large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clustered, "SMALL", 100)
    monkeypatch.setattr(corpus, "LISTED", 30)


def load(path: Path, world: Planted) -> Index:
    return Index.load(path, scorer=TextScorer(world.score, fingerprint="planted"), encoder=world)


def recall(index: Index, world: Planted, items: range) -> float:
    found = index.search_many([f"query {j}" for j in range(20)], 10, 60)
    shares = []
    for j, hits in enumerate(found):
        best = sorted(items, key=lambda item: -world.score(f"query {j}", [f"item {item}"])[0])[:10]
        shares.append(len({hit.id for hit in hits} & {f"i{item}" for item in best}) / 10)
    return float(np.mean(shares))


def test_answers_are_those_that_were_recorded_before_items_kept_their_order() -> None:
    recorded = json.loads((Path(__file__).parents[1] / "clustered_answers.json").read_text())
    for name, found in answers().items():
        same = [len({*one[0]} & {*other[0]}) / 10 for one, other in zip(found, recorded[name], strict=True)]
        assert np.mean(same) >= 0.95, name
        if name != "patience":  # a stopping rule may see another item earlier
            assert [one[1:] for one in found] == [other[1:] for other in recorded[name]], name


def test_a_large_index_is_clustered_and_stays_so_on_disk(large: None, tmp_path: Path) -> None:
    world = Planted()
    index = build(world)
    assert index.corpus.centroids is not None
    assert recall(index, world, range(200)) > 0.9
    before = index.search("query 3", 10, 60)
    index.save(tmp_path / "a.index")
    again = load(tmp_path / "a.index", world)
    assert again.corpus.centroids is not None
    after = again.search("query 3", 10, 60)
    assert [(hit.id, hit.score, hit.round) for hit in after] == [(hit.id, hit.score, hit.round) for hit in before]


@pytest.mark.parametrize("queries", [0, 20])
def test_segments_share_centroids_and_are_kept_as_they_are(large: None, queries: int, tmp_path: Path) -> None:
    world = Planted()
    build(world, queries=queries).save(tmp_path / "a.index")
    index = load(tmp_path / "a.index", world)
    before = {path.name for path in (tmp_path / "a.index").iterdir() if (path / "items.jsonl").exists()}
    index.add(planted_items(200, 215))  # too few for lists: read whole
    index.add(planted_items(215, 260))
    assert [segment.starts is not None for segment in index.corpus.segments] == [True, True]
    index.add(planted_items(260, 265))
    assert [item.id for item in index.items] == [f"i{j}" for j in range(265)]
    space = index.corpus.encoder_space
    assert space is not None
    rows = np.asarray(index.corpus.vectors)
    assert (space.rows(np.arange(265)) == rows).all()
    assert np.allclose(space.at(np.arange(265), np.ones(8)), rows.sum(axis=1), atol=1e-5)
    home = space.home
    assert home is not None
    assert sorted([*home.order.tolist(), *home.rest.tolist()]) == list(range(265))
    assert recall(index, world, range(265)) > (0.85 if not queries else 0.7)
    hits = index.search("query 45", 10, 60, filter={"year": {"gte": 2100}})
    assert len(hits) == 10
    assert all(int(id[1:]) >= 200 for id in hits.ids)
    index.save()
    after = {path.name for path in (tmp_path / "a.index").iterdir() if (path / "items.jsonl").exists()}
    assert before < after
    again = load(tmp_path / "a.index", world)
    assert [item.id for item in again.items] == [f"i{j}" for j in range(265)]
    assert recall(again, world, range(265)) > (0.85 if not queries else 0.7)
    assert Index.verify(tmp_path / "a.index") == []


@pytest.mark.parametrize("space", ["cur", "als"])
def test_anchor_scores_and_factors_go_with_their_items(large: None, space: Any, tmp_path: Path) -> None:
    world = Planted()
    build(world, queries=12, space=space, path=tmp_path / "a.index")

    def rows(index: Index) -> dict[str, Any]:
        parts = index.corpus.parts
        space = parts.factors if parts.anchors is None else parts.anchors
        assert space is not None
        there = np.flatnonzero(index.corpus.alive)
        found = zip(index.corpus.items.get(there), space.rows(there), strict=True)
        return {item.id: row.tolist() for item, row in found}

    index = load(tmp_path / "a.index", world)
    before = rows(index)
    index.forget([f"i{j}" for j in range(0, 60, 2)])
    index.add(planted_items(200, 210))
    index.remove([f"i{j}" for j in range(60, 90)] + ["i203"])
    index.save()
    index.close()
    again = load(tmp_path / "a.index", world)
    assert Index.verify(tmp_path / "a.index") == []
    assert len(again) == 149
    after = rows(again)
    there = {f"i{j}" for j in range(200) if not (60 <= j < 90 or (j < 60 and j % 2 == 0))}
    assert {id: after[id] for id in there} == {id: before[id] for id in there}


def test_removed_items_leave_the_files_once_an_eighth_is_gone(large: None, tmp_path: Path) -> None:
    world = Planted()
    build(world).save(tmp_path / "a.index")
    index = load(tmp_path / "a.index", world)

    def held() -> bool:
        return any(b'"i7"' in path.read_bytes() for path in (tmp_path / "a.index").rglob("items.jsonl"))

    index.remove(["i7"])
    index.save()
    assert held()
    assert "i7" not in load(tmp_path / "a.index", world)
    index.remove([f"i{j}" for j in range(10, 40)])
    index.save()
    assert not held()
    index.remove(["i8"])
    index.save()
    index.add([{**planted_items(8, 9)[0]}])  # the same id again: both are forgotten
    assert index.forget(["i8"]).items == 2
    assert not any(b'"i8"' in path.read_bytes() for path in (tmp_path / "a.index").rglob("items.jsonl"))


def test_an_index_that_grows_is_clustered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clustered, "SMALL", 250)
    world = Planted()
    index = build(world)
    assert index.corpus.centroids is None
    index.add(planted_items(200, 300))
    assert index.corpus.centroids is not None
    assert recall(index, world, range(300)) > 0.9
    index.remove([f"i{j}" for j in range(100)])
    assert recall(index, world, range(100, 300)) > 0.9


def test_what_does_not_touch_the_vectors_keeps_their_space(large: None) -> None:
    index = build(Planted())
    before = index.corpus.encoder_space
    index.remove(["i3"])
    assert index.corpus.encoder_space is before


def test_vectors_that_are_no_numbers_are_refused(large: None) -> None:
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
