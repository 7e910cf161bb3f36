"""The index: what it finds, what it keeps, and what it survives."""

from __future__ import annotations

import asyncio
import errno
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import crosscut
from crosscut.datasets import Item, ItemList
from crosscut.datasets.records import plain_text
from crosscut.datasets.tables import ItemsInMemory
from crosscut.errors import InputError, LockedError, ScorerError, WriteError
from crosscut.index import Index
from crosscut.index.items import as_items
from crosscut.index.metadata import Columns, Metadata
from crosscut.index.settings import ModelName
from crosscut.score_store import ScoreStore
from crosscut.scorers.adapters import TextScorer
from crosscut.scorers.calibration import Calibration
from crosscut.scorers.loading import load_scorer
from crosscut.stores.filters import conditions as of_a_store
from crosscut.stores.filters import request_filter as of_a_request

WORDS = ["apple", "banana", "cherry", "damson", "elder", "fig", "grape", "hazel"]


class Planted:
    """A dual encoder and a scorer of texts `item 12` and `query 3` whose scores are a low-rank matrix."""

    fingerprint = "planted"
    dimension = 8

    def __init__(self, seed: int = 0, noise: float = 0.3) -> None:
        rng = np.random.default_rng(seed)
        self.items = rng.normal(size=(400, 8))
        self.queries = rng.normal(size=(100, 8))
        self.off = noise * rng.normal(size=(100, 400))

    def encode_queries(self, texts: Sequence[str]) -> npt.NDArray[np.float32]:
        return np.array([self.queries[_number(text)] + 0.7 for text in texts], np.float32)

    def encode_items(
        self, items: Sequence[Item | str], *, progress: Callable[[int], None] | None = None
    ) -> npt.NDArray[np.float32]:
        return np.array([self.items[_number(plain_text(item))] for item in items], np.float32).reshape(len(items), 8)

    def score(self, query: str, texts: Sequence[str]) -> npt.NDArray[np.float64]:
        q, places = _number(query), [_number(text) for text in texts]
        return np.asarray(self.items[places] @ self.queries[q] + self.off[q, places])


def _number(text: str) -> int:
    return int(text.split()[1])


def planted_items(start: int = 0, stop: int = 200) -> list[dict[str, Any]]:
    return [
        {"id": f"i{j}", "text": f"item {j} {WORDS[j % 8]}", "colour": "red" if j % 2 else "blue", "year": 1900 + j}
        for j in range(start, stop)
    ]


def build(world: Planted, *, queries: int = 0, stop: int = 200, **how: Any) -> Index:
    return Index.build(
        planted_items(0, stop),
        scorer=TextScorer(world.score, fingerprint="planted"),
        encoder=world,
        queries=[f"query {j}" for j in range(queries)],
        dtype=np.float32,
        **how,
    )


def best(world: Planted, query: int, places: Sequence[int], k: int) -> list[str]:
    scores = world.score(f"query {query}", [f"item {j}" for j in places])
    return [f"i{places[j]}" for j in np.argsort(-scores, kind="stable")[:k]]


@pytest.fixture
def world() -> Planted:
    return Planted()


def test_a_search_finds_what_the_scorer_would(world: Planted) -> None:
    index = build(world, queries=30)
    assert index.build_calls == 30 * 200
    hits = index.search("query 50", k=5, budget=60)
    assert hits.calls == 60
    assert hits.ids == best(world, 50, range(200), 5)
    assert hits[0].item == index[hits[0].id]
    assert hits[0].text == index[hits[0].id].text
    assert index.search("query 50", k=5, budget=None, method="exact").ids == hits.ids


def test_search_many_equals_search(world: Planted) -> None:
    index = build(world, queries=10)
    asked = [f"query {j}" for j in range(40, 45)]
    many = index.search_many(asked, 5, 40)
    assert [hits.ids for hits in many] == [index.search(query, 5, 40).ids for query in asked]
    again = asyncio.run(index.search_many_async(asked, 5, 40))
    assert [hits.ids for hits in again] == [hits.ids for hits in many]
    assert asyncio.run(index.search_async(asked[0], 5, 40)).ids == many[0].ids


def test_it_needs_no_encoder_and_no_anchors(world: Planted) -> None:
    with pytest.raises(InputError, match="crosscut needs item vectors or scores of anchor queries or factors"):
        Index.build(planted_items(), scorer=TextScorer(world.score), encoder=None)  # reranking is not called crosscut
    index = Index.build(planted_items(), scorer=TextScorer(world.score), encoder=None, method="hybrid")
    hits = index.search("query 7 cherry", k=3, budget=30)
    assert hits.calls == 30
    assert hits.trace[0].positions.tolist()[0] % 8 == 2, "round one goes by words"


def test_a_saved_index_gives_the_same_hits(world: Planted, tmp_path: Path) -> None:
    index = build(world, queries=12)
    index.remove(["i3", "i4"])
    before = [hits.ids for hits in index.search_many([f"query {j}" for j in range(20, 30)], 5, 50)]
    index.save(tmp_path / "a.index")
    scorer = TextScorer(world.score, fingerprint="planted")
    loaded = Index.load(tmp_path / "a.index", scorer=scorer, encoder=world)
    assert len(loaded) == 198
    assert loaded.build_calls == index.build_calls
    assert [hits.ids for hits in loaded.search_many([f"query {j}" for j in range(20, 30)], 5, 50)] == before
    assert loaded["i7"].metadata["colour"] == "red"


def test_added_items_are_found_at_once_and_after_a_reload(world: Planted, tmp_path: Path) -> None:
    index = build(world, queries=30, stop=150)
    calls = index.build_calls
    assert index.add(planted_items(150, 200)) == 50
    assert index.build_calls == calls, "adding calls no scorer"
    found = [index.search(f"query {q}", 5, 80).ids for q in range(40, 60)]
    truth = [best(world, q, range(200), 5) for q in range(40, 60)]
    share = np.mean([len(set(a) & set(b)) / 5 for a, b in zip(found, truth, strict=True)])
    assert share > 0.9
    assert any(int(id[1:]) >= 150 for ids in found for id in ids)
    index.save(tmp_path / "a.index")
    loaded = Index.load(tmp_path / "a.index", scorer=TextScorer(world.score, fingerprint="planted"), encoder=world)
    assert [loaded.search(f"query {q}", 5, 80).ids for q in range(40, 60)] == found
    assert loaded.complete() == 30 * 50
    assert loaded.complete() == 0
    assert loaded.corpus.measured is not None
    assert loaded.corpus.measured.all()


def test_removed_items_are_gone_and_their_ids_may_come_back(world: Planted) -> None:
    index = build(world)
    first = index.search("query 1", 1, 200).ids[0]
    assert index.remove([first]) == 1
    assert first not in index
    assert first not in index.search("query 1", 10, 199).ids
    with pytest.raises(InputError, match="not among the 199 items"):
        index.remove([first])
    index.add([{"id": first, "text": f"item {first[1:]} again"}])
    assert index.search("query 1", 1, 200).ids == [first]
    assert index[first].text.endswith("again")


def test_an_id_that_is_there_is_refused_and_nothing_is_added(world: Planted) -> None:
    index = build(world)
    with pytest.raises(InputError, match="1 of 2 ids are in the index already, the first is 'i5'"):
        index.add([{"id": "new", "text": "item 300"}, {"id": "i5", "text": "item 5"}])
    assert len(index) == 200
    with pytest.raises(InputError, match="stands twice"):
        index.add([{"id": "x", "text": "item 1"}, {"id": "x", "text": "item 2"}])


def test_filters_hold_in_every_round(world: Planted) -> None:
    index = build(world, queries=10)
    hits = index.search("query 3", 10, 40, filter={"colour": "red", "year": {"gte": 1950, "lt": 2050}})
    assert hits.calls == 40
    assert all(position % 2 and 50 <= position < 150 for position in hits.scored)
    assert index.search("query 3", 10, 40, filter=lambda item: item.id == "i9").ids == ["i9"]
    assert index.search("query 3", 10, 40, filter={"colour": "green"}).ids == []
    with pytest.raises(InputError, match="known are gt"):
        index.search("query 3", 10, 40, filter={"year": {"above": 3}})


@pytest.mark.parametrize("nothing", [None, [None], [2001, None], {"ne": None}, {"gte": float("nan")}, np.nan])
def test_a_filter_compares_with_something(nothing: Any) -> None:
    filter = {"year": nothing}
    with pytest.raises(InputError, match=r"the filter on 'year' compares with (None|nan).*leave the key out"):
        Metadata([Columns(ItemsInMemory([Item("a", "", "a text", {"year": 2001})]))]).passing(filter)
    with pytest.raises(InputError, match=r"the filter on 'year' compares with (None|nan).*leave the key out"):
        of_a_store(filter)
    with pytest.raises(ValueError, match="condition on 'year'"):
        of_a_request(filter)


@given(
    st.lists(st.fixed_dictionaries({"a": st.integers(0, 3) | st.none() | st.lists(st.integers(0, 3))}), max_size=20),
    st.integers(0, 3),
)
def test_a_filter_is_what_a_loop_would_do(records: list[dict[str, Any]], bound: int) -> None:
    items = [Item(str(j), "", "t", record) for j, record in enumerate(records)]
    for condition, test in (
        ({"a": bound}, lambda v: v == bound),
        ({"a": [bound, 9]}, lambda v: v in (bound, 9)),
        ({"a": {"gte": bound}}, lambda v: v >= bound),
    ):
        wanted = []
        for record in records:
            value = record["a"]
            values = value if isinstance(value, list) else [] if value is None else [value]
            wanted.append(any(test(v) for v in values))
        assert Metadata([Columns(ItemsInMemory(items))]).passing(condition).tolist() == wanted


def test_sources(tmp_path: Path) -> None:
    assert as_items(["one", "two"], taken=3) == [Item("3", "", "one"), Item("4", "", "two")]
    (tmp_path / "c.jsonl").write_text('{"id": "a", "text": "x", "lang": "en", "metadata": {"n": 1}}\n')
    assert as_items(tmp_path / "c.jsonl")[0].metadata == {"lang": "en", "n": 1}
    with pytest.raises(InputError, match="no file or folder"):
        as_items(tmp_path / "nothing.jsonl")
    with pytest.raises(InputError, match="expected a text"):
        as_items([3])


def test_an_empty_index_and_one_item(world: Planted) -> None:
    index = build(world, stop=1)
    index.remove(["i0"])
    assert index.search("query 1", 5, 10).ids == []
    index.add(planted_items(0, 1))
    assert index.search("query 1", 5, 10).ids == ["i0"]


@pytest.mark.parametrize("space", ["encoder", "cur", "als"])
def test_an_index_whose_items_are_all_gone_answers_with_none(world: Planted, space: Any, tmp_path: Path) -> None:
    index = build(world, stop=20, queries=0 if space == "encoder" else 10, space=space)
    index.remove([f"i{j}" for j in range(20)])
    for method in index.methods:
        hits = index.search("query 30", 5, 10, method=method)
        assert (hits.ids, hits.calls, hits.stop_reason) == ([], 0, "exhausted")
    index.save(tmp_path / "empty.index")
    index = Index.load(tmp_path / "empty.index", scorer=TextScorer(world.score, fingerprint="planted"), encoder=world)
    index.add(planted_items(20, 40))
    for method in index.methods:
        assert index.search("query 30", 5, 20, method=method).ids == best(world, 30, range(20, 40), 5)


def test_queries_may_come_one_after_another_and_a_text_is_no_list_of_them(world: Planted) -> None:
    index = build(world, stop=20)
    found = index.search_many((f"query {j}" for j in (3, 4)), 2, 10)
    assert [hits.query for hits in found] == ["query 3", "query 4"]
    others = asyncio.run(index.search_many_async((f"query {j}" for j in (3, 4)), 2, 10))
    assert [hits.ids for hits in others] == [hits.ids for hits in found]
    for mistaken in (
        lambda: index.search_many("query 3"),
        lambda: index.tune("query 3"),
        lambda: Index.build(["a", "b"], scorer=index.scorer, encoder=None, queries="query 3"),
    ):
        with pytest.raises(InputError, match="'query 3' is one text: put it into a list"):
            mistaken()
    with pytest.raises(InputError, match="this is one record"):
        index.add({"id": "i20", "text": "item 20"})
    assert len(index) == 20
    assert index.search("query 3", 2, 2, candidates="i7", method="rerank").trace[0].positions[0] == 7
    with pytest.raises(InputError, match="a query is no valid Unicode"):
        index.search("query 3 \ud800")
    with pytest.raises(InputError, match="a query vector is a list of numbers"):
        index.search("query 3", query_vector="query 3")
    for asked, methods in (([], None), (["query 3"], [])):  # type: tuple[list[str], list[str] | None]
        with pytest.raises(InputError, match="nothing to choose from"):
            index.tune(asked, methods=methods)


def test_train_queries_that_stand_twice_are_scored_once(world: Planted) -> None:
    asked = [f"query {j % 10}" for j in range(40)]
    index = Index.build(
        planted_items(0, 30), scorer=TextScorer(world.score, fingerprint="planted"), encoder=world, queries=asked
    )
    assert (len(index.anchor_queries), index.build_calls) == (10, 300)
    assert index.tune(k=3, budget=10).queries == 10


def test_another_scorer_is_refused_by_default(world: Planted, tmp_path: Path) -> None:
    index = build(world, stop=20)
    index.save(tmp_path / "a.index")
    with pytest.raises(InputError, match="has no name"):
        Index.load(tmp_path / "a.index", encoder=world)
    other = TextScorer(world.score, fingerprint="other")
    assert (
        Index.load(tmp_path / "a.index", scorer=other, encoder=world).scorer is other
    )  # nothing of the first is in it
    index.calibration = Calibration("planted", 1.0, 0.0, queries=10, pairs=100, relevant=9)
    index.save()
    with pytest.raises(InputError, match="built with scorer planted, and this one is other"):
        Index.load(tmp_path / "a.index", scorer=other, encoder=world)
    assert len(Index.load(tmp_path / "a.index", scorer=other, encoder=world, any_scorer=True)) == 20


def test_damage_and_foreign_folders_are_errors(world: Planted, tmp_path: Path) -> None:
    path = build(world, stop=20).save(tmp_path / "a.index")
    how: dict[str, Any] = {"scorer": TextScorer(world.score, fingerprint="planted"), "encoder": world}
    vectors = next(path.glob("0*/vectors.npy"))
    good = vectors.read_bytes()
    vectors.write_bytes(good[:-1] + bytes([good[-1] ^ 1]))
    with pytest.raises(InputError, match=r"vectors\.npy does not match its checksum"):
        Index.load(path, **how)
    vectors.write_bytes(good[:-5])
    with pytest.raises(InputError, match="instead of"):
        Index.load(path, **how)
    vectors.unlink()
    with pytest.raises(InputError, match="is missing"):
        Index.load(path, **how)
    (path / "index.json").write_text("{")
    with pytest.raises(InputError, match="cannot be read"):
        Index.load(path, **how)
    (path / "index.json").write_text('{"format": "something"}')
    with pytest.raises(InputError, match="belongs to something else"):
        Index.load(path, **how)
    with pytest.raises(InputError, match="no index at"):
        Index.load(tmp_path / "nowhere", **how)
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "letter.txt").write_text("hello")
    with pytest.raises(InputError, match="holds something else"):
        build(world, stop=5).save(tmp_path / "full")
    assert (tmp_path / "full" / "letter.txt").read_text() == "hello"
    assert [file.name for file in (tmp_path / "full").iterdir()] == ["letter.txt"]  # not even a lock


def test_a_full_disk_leaves_the_old_index(world: Planted, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    index = build(world, stop=30)
    path = index.save(tmp_path / "a.index")
    index.add(planted_items(30, 40))

    def full(*_: Any, **__: Any) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        with pytest.raises(WriteError, match="no room to write"):
            index.save()
    how: dict[str, Any] = {"scorer": TextScorer(world.score, fingerprint="planted"), "encoder": world}
    assert len(Index.load(path, **how)) == 30
    assert [entry.name[:7] for entry in sorted(path.iterdir())] == ["000001-", "000001-", "index.j", "lock"]
    index.save()
    assert len(Index.load(path, **how)) == 40


def test_killed_during_a_save_the_old_index_stays(tmp_path: Path) -> None:
    script = f"""
import sys, time
sys.path.insert(0, {str(Path(__file__).parents[2])!r})
from crosscut.storage import Files
from tests.unit.test_index import Planted, build, planted_items
index = build(Planted(), stop=30)
index.save({str(tmp_path / "a.index")!r})
index.add(planted_items(30, 60))
save = Files.array
def slow(*args, **how):
    save(*args, **how)
    print("saving", flush=True)
    time.sleep(30)
Files.array = slow
index.save()
"""
    process = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline().strip() == "saving"
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    process.stdout.close()
    world = Planted()
    how: dict[str, Any] = {"scorer": TextScorer(world.score, fingerprint="planted"), "encoder": world}
    index = Index.load(tmp_path / "a.index", **how)
    assert len(index) == 30
    index.add(planted_items(30, 35))
    index.save()
    assert len(Index.load(tmp_path / "a.index", **how)) == 35
    record = json.loads((tmp_path / "a.index" / "index.json").read_text())
    there = {home.name for home in (tmp_path / "a.index").glob("0*")}
    assert there == {record["folder"], *record["parts"]}, "what the killed process left is deleted"


def test_two_processes_cannot_add_at_once(world: Planted, tmp_path: Path) -> None:
    path = build(world, stop=30).save(tmp_path / "a.index")
    how: dict[str, Any] = {"scorer": TextScorer(world.score, fingerprint="planted"), "encoder": world}
    script = f"""
import sys, time
sys.path.insert(0, {str(Path(__file__).parents[2])!r})
from tests.unit.test_index import Planted, planted_items
from crosscut.index import Index
from crosscut.scorers.adapters import TextScorer
world = Planted()
index = Index.load({str(path)!r}, scorer=TextScorer(world.score, fingerprint="planted"), encoder=world)
index.add(planted_items(30, 31))
print("added", flush=True)
sys.stdin.readline()
index.save()
"""
    late = Index.load(path, **how)
    process = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, stdin=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline().strip() == "added"
    with pytest.raises(LockedError, match="being changed by another process"):
        late.add(planted_items(31, 32))
    assert len(late) == 30
    process.communicate("\n", timeout=60)
    with pytest.raises(InputError, match="was changed since it was loaded"):
        late.add(planted_items(31, 32))
    assert len(Index.load(path, **how)) == 31


def test_a_scorer_that_fails_gives_its_hits(world: Planted) -> None:
    count = 0

    def fails(query: str, texts: Sequence[str]) -> npt.NDArray[np.float64]:
        nonlocal count
        count += 1
        if count > 3:
            raise RuntimeError("no more")
        return world.score(query, texts)

    index = Index.build(planted_items(), scorer=fails, encoder=world)
    with pytest.raises(ScorerError, match="no more") as caught:
        index.search("query 3", 5, 50)
    assert all(id.startswith("i") for id in caught.value.hits[0].ids)
    assert len(caught.value.hits[0]) == 5


def test_a_scorer_is_bound_once_to_items_that_grow(world: Planted) -> None:
    texts = [f"item {j}" for j in range(60)]
    items = ItemList(texts[:10])
    bound = TextScorer(world.score).bind(items.shared)
    for start in range(10, 60, 2):
        items = items.grown(texts[start : start + 2])
    assert len(items) == 60
    places = np.random.default_rng(0).permutation(60)[:25]
    np.testing.assert_allclose(bound.score("query 3", places), world.score("query 3", [texts[j] for j in places]))


def test_scorers_by_name() -> None:
    assert load_scorer(lambda query, texts: [0.0] * len(texts)).score("q", ["a"]).tolist() == [0.0]
    with pytest.raises(InputError, match="no scorer called 'nonesuch'"):
        load_scorer("nonesuch")
    with pytest.raises(InputError, match="is no scorer"):
        load_scorer(3)


@settings(max_examples=15, deadline=None)
@given(st.lists(st.tuples(st.sampled_from("ar"), st.integers(0, 39)), max_size=12))
def test_any_history_of_adds_and_removes_searches_what_is_there(history: list[tuple[str, int]]) -> None:
    world = Planted()
    index = build(world, stop=5, queries=3, bm25=False)
    there = {f"i{j}" for j in range(5)}
    for what, number in history:
        id = f"i{number}"
        if what == "a" and id not in there:
            index.add([{"id": id, "text": f"item {number}"}])
            there.add(id)
        elif what == "r" and id in there:
            index.remove([id])
            there.discard(id)
    assert set(index.search("query 9", 50, 100).ids) == there
    assert {item.id for item in index.items} == there
    assert len(index) == len(there)


def test_tuning_on_anchors_costs_nothing_and_is_kept(world: Planted, tmp_path: Path) -> None:
    index = build(world, queries=40)
    report = index.tune(None, k=5, budget=60)
    assert report.calls == 0
    assert report.chosen in report.trials
    assert index.method == report.chosen.method
    assert report.model is not None
    hits = index.search("query 60", 5, 60, target_recall=0.8)
    assert hits.calls <= 60
    path = index.save(tmp_path / "a.index")
    loaded = Index.load(path, scorer=TextScorer(world.score, fingerprint="planted"), encoder=world)
    again = loaded.search("query 60", 5, 60, target_recall=0.8)
    assert (again.ids, again.calls) == (hits.ids, hits.calls)
    assert loaded.tuned is not None
    assert json.loads(json.dumps(loaded.tuned)) == json.loads(json.dumps(report.json()))


def test_target_recall_reaches_its_target_for_fewer_calls() -> None:
    world = Planted(noise=1.0)
    index = build(world, queries=60)
    index.tune(None, k=5, budget=100)
    asked = [f"query {j}" for j in range(60, 100)]
    shares, calls = {}, {}
    for target in (0.7, 0.95):
        found = index.search_many(asked, 5, 100, target_recall=target)
        truth = [best(world, j, range(200), 5) for j in range(60, 100)]
        shares[target] = np.mean([len(set(a.ids) & set(b)) / 5 for a, b in zip(found, truth, strict=True)])
        calls[target] = np.mean([hits.calls for hits in found])
        assert all(hits.stop_reason in ("target recall", "budget") for hits in found)
    assert calls[0.7] < calls[0.95] < 100
    assert shares[0.7] < shares[0.95]
    assert abs(shares[0.95] - 0.95) < 0.06


def test_tuning_says_what_it_would_cost(world: Planted) -> None:
    index = build(world, queries=10)
    asked = [f"query {j}" for j in range(5, 25)]
    assert index.tuning_calls(asked) == 15 * 200
    with pytest.raises(InputError, match="would make up to 3000 calls and may make 100"):
        index.tune(asked, max_calls=100)
    index = build(world, cache=crosscut.MemoryCache())
    first = index.tune([f"query {j}" for j in range(25)], k=3, budget=40)
    assert first.calls == 25 * 200
    assert index.tune([f"query {j}" for j in range(25)], k=3, budget=40).calls == 0, "known scores are free"
    with pytest.raises(InputError, match="0 anchor queries"):
        index.tune(None)
    with pytest.raises(InputError, match="calibrated for k = 3"):
        index.search("query 1", 5, 40, target_recall=0.9)
    with pytest.raises(InputError, match="two stopping rules"):
        index.search("query 1", 3, 40, target_recall=0.9, stop=crosscut.Patience(2))
    with pytest.raises(InputError, match="needs a calibration"):
        build(world).search("query 1", 3, 40, target_recall=0.9)


def test_a_search_goes_on_while_items_come_and_go(world: Planted) -> None:
    def slow(query: str, texts: Sequence[str]) -> npt.NDArray[np.float64]:
        time.sleep(0.002)
        return world.score(query, texts)

    index = Index.build(planted_items(), scorer=slow, encoder=world)

    async def both() -> Any:
        searching = asyncio.create_task(index.search_async("query 2", 5, 80))
        for j in range(200, 220):
            index.add(planted_items(j, j + 1))
            await asyncio.sleep(0)
        return await searching

    assert len(asyncio.run(both())) == 5
    assert len(index) == 220


@pytest.mark.services
@pytest.mark.parametrize("space", ["als", "inductive"])
def test_factors_of_a_sparse_matrix(space: Any, world: Planted, tmp_path: Path) -> None:
    if space == "inductive":
        pytest.importorskip("torch")
    index = build(world, queries=40, space=space, per_query=30)
    assert index.build_calls == 40 * 30
    index.add(planted_items(200, 210))
    asked = [f"query {j}" for j in range(50, 60)]
    found = {
        method: [hits.ids for hits in index.search_many(asked, 5, 60, method=method)] for method in ("axn", "rerank")
    }
    found["crosscut"] = [hits.ids for hits in index.search_many(asked, 5, 60)]
    path = index.save(tmp_path / "a.index")
    loaded = Index.load(path, scorer=TextScorer(world.score, fingerprint="planted"), encoder=world)
    for method, before in found.items():
        assert [hits.ids for hits in loaded.search_many(asked, 5, 60, method=method)] == before
    with pytest.raises(InputError, match="do not go together"):
        build(world, space=space)
    with pytest.raises(InputError, match="space is one of"):
        build(world, queries=3, space="nonesuch")


@pytest.mark.services
def test_factors_are_trained_where_it_is_said(world: Planted) -> None:
    """Where there is no GPU: a device without numbers fails at the first number, one that is none in a sentence."""
    pytest.importorskip("torch")
    for space in ("transductive", "inductive"):
        with pytest.raises((RuntimeError, NotImplementedError), match="meta"):
            build(world, queries=10, space=space, per_query=10, device="meta")
        with pytest.raises(InputError, match="no device 'nowhere'"):
            build(world, queries=10, space=space, per_query=10, device="nowhere")
    with pytest.raises(InputError, match="space='als' is solved on the CPU and takes no device, got 'cuda'"):
        build(world, queries=10, space="als", per_query=10, device="cuda")
    for space, queries in (("cur", 10), ("encoder", 0)):
        with pytest.raises(InputError, match=f"space='{space}' is solved on the CPU and takes no device, got 'cuda'"):
            build(world, queries=queries, space=space, device="cuda")
    made = build(world, queries=10, space="inductive", per_query=10, device="cpu#dtype=bf16&batch_size=64")
    assert made.corpus.factors is not None
    assert made.corpus.factors.fitting.settings["dtype"] == "bf16"
    assert made.corpus.factors.fitting.settings["batch"] == 64
    for device, said in (
        ("cpu#dtype=fp16", "fp16 trains on a GPU"),
        ("cpu#bits=8", "stands #dtype=bf16"),
        ("cpu#batch_size=0", "stands #dtype=bf16"),
    ):
        with pytest.raises(InputError, match=said):
            build(world, queries=10, space="inductive", per_query=10, device=device)
    with pytest.raises(InputError, match="trained in fp32, not in 'bf16'"):
        build(world, queries=10, space="transductive", per_query=10, device="cpu#dtype=bf16")


def test_a_store_makes_what_was_scored_free(world: Planted, tmp_path: Path) -> None:
    first = build(world, queries=5, stop=50, store=tmp_path / "scores")
    assert first.build_calls == 250
    again = build(world, queries=8, stop=60, store=tmp_path / "scores")
    assert again.build_calls == 8 * 60 - 250
    again.add(planted_items(60, 70))
    hits = again.search("query 9", 5, 70)
    assert (hits.calls, hits.cached) == (70, 0)
    again.close()
    path = again.save(tmp_path / "a.index")
    scorer = TextScorer(world.score, fingerprint="planted")
    loaded = Index.load(path, scorer=scorer, encoder=world, store=tmp_path / "scores")
    once_more = loaded.search("query 9", 5, 70)
    assert once_more.cached == 70
    assert once_more.ids == hits.ids


TITLED = [{"id": f"i{j}", "title": f"title {j}", "text": f"item {j}", "year": 1900 + j} for j in range(30)]


def test_hits_have_their_items_and_scorers_see_no_marks() -> None:
    seen: list[str] = []

    def score(query: str, texts: Sequence[str]) -> list[float]:
        seen.extend(texts)
        return [float(text.split()[-1]) for text in texts]

    index = Index.build(TITLED, scorer=score, encoder=None, method="hybrid")
    index.add([{"id": "new", "title": "title 99", "text": "item 99", "year": 1}])
    hit = index.search("item", 3, 31)[0]
    assert hit.item == Item("new", "title 99", "item 99", {"year": 1})
    assert (hit.id, hit.text) == ("new", "item 99")
    assert "title 99\nitem 99" in seen
    assert not any("[ENT]" in text for text in seen)
    assert index.search("99", 1, 31)[0].item is not None  # a word of the title, found by BM25


def test_loading_an_index_tokenises_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from crosscut.bundled.tokenizer import Tokenizer

    Index.build(TITLED[:12], encoder=None, method="hybrid").save(tmp_path / "a.index")
    tokenised: list[Any] = []
    items = Tokenizer.items

    def noted(self: Tokenizer, some: Sequence[Item | str]) -> Any:
        tokenised.extend(some)
        return items(self, some)

    monkeypatch.setattr(Tokenizer, "items", noted)
    index = Index.load(tmp_path / "a.index")
    assert tokenised == []
    index.add([{"id": "new", "text": "item 99"}])
    assert [item.id for item in tokenised] == ["new"]  # for what the scorer knows of it without a call
    index.search("item", 3, 5)
    assert len(tokenised) == 1  # base scores take no item's text


def test_a_grown_index_keeps_and_counts_what_was_scored_before_a_failure() -> None:
    """Issue 14.9: with one bound scorer a segment, the refund was of the whole batch."""
    seen: list[str] = []
    spoilt = ["item 35"]

    def score(query: str, texts: Sequence[str]) -> list[float]:
        seen.extend(texts)
        return [np.nan if text in spoilt else float(text.split()[1]) for text in texts]

    index = Index.build(
        [{"id": f"i{j}", "text": f"item {j}"} for j in range(30)], scorer=score, encoder=None, method="hybrid"
    )
    for start in (30, 33, 36):
        index.add([{"id": f"i{j}", "text": f"item {j}"} for j in range(start, start + 3)])
    with pytest.raises(ScorerError, match="item 35") as caught:
        index.search("query", 50, method="exact", budget=None)
    (hits,) = caught.value.hits
    assert hits.calls == len(seen) == 39
    assert sorted(hit.text or "" for hit in hits) == sorted(set(seen) - {"item 35"})
    assert caught.value.hits[0][0].id == "i38"


def test_a_list_of_items_grows_once() -> None:
    items = ItemList(["a", "b"])
    longer = items.grown(["c"])
    assert (len(items), len(longer), longer[-1].text, [item.text for item in items]) == (2, 3, "c", ["a", "b"])
    assert [item.text for item in longer[1:]] == ["b", "c"]
    assert items.shared.get(np.array([2]))[0].text == "c"
    with pytest.raises(InputError, match="do not fit a corpus of 2 items"):
        items.get(np.array([2]))
    with pytest.raises(IndexError):
        items[2]
    with pytest.raises(InputError, match="a list of 2 items cannot grow"):
        items.grown(["d"])
    assert [item.text for item in longer] == ["a", "b", "c"]


ADDRESS = "cohere+https://rerank.example#model=m"


def saved_with(address: str, path: Path) -> Path:
    """An index whose folder names an address; building it asks nobody."""
    return Index.build(["a", "b"], scorer=address, encoder=None, method="hybrid").save(path)


def test_a_folder_does_not_choose_where_queries_go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from crosscut.scorers.http import RemoteScorer

    path = saved_with(ADDRESS, tmp_path / "their.index")
    with pytest.raises(InputError, match=r"send queries and items to the scorer at .*rerank\.example.*trust_remote"):
        Index.load(path)
    for how in ({"trust_remote": True}, {"scorer": ADDRESS}):
        scorer = Index.load(path, **how).scorer
        assert isinstance(scorer, RemoteScorer)
        assert scorer.transport.key_env is None
    monkeypatch.setenv("AWS_SECRET", "hunter2")
    for number, chosen in enumerate(("key_env=AWS_SECRET", "allow_plain_http=1", "key_\tenv=AWS_SECRET")):
        # the tab is dropped when the address is read
        path = saved_with(f"{ADDRESS}&{chosen}", tmp_path / f"{number}.index")
        for trust in (False, True):
            with pytest.raises(InputError, match="for you to say, not for a folder"):
                Index.load(path, trust_remote=trust)
    mine = Index.load(path, scorer=f"{ADDRESS}&key_env=AWS_SECRET").scorer  # one's own word
    assert isinstance(mine, RemoteScorer)
    assert mine.transport.key_env == "AWS_SECRET"


def test_the_commands_ask_for_the_word_too(tmp_path: Path) -> None:
    from typer.testing import CliRunner

    from crosscut.cli import app

    path = str(saved_with(ADDRESS, tmp_path / "their.index"))
    for command in (["search", path, "q"], ["index", "remove", path, "0"], ["evaluate", path, "q.txt"]):
        if command[0] == "evaluate":
            (tmp_path / "q.txt").write_text("a query\n")
            command[2] = str(tmp_path / "q.txt")
        refused = CliRunner().invoke(app, command)
        assert refused.exit_code != 0
        assert "rerank.example" in str(refused.exception) + refused.output
    assert CliRunner().invoke(app, ["index", "remove", path, "0", "--trust-remote"]).exit_code == 0


def test_the_command_that_forgets(tmp_path: Path) -> None:
    from typer.testing import CliRunner

    from crosscut.cli import app

    world = Planted()
    log, scores = tmp_path / "searches.log", tmp_path / "scores"
    scorer = TextScorer(world.score, fingerprint="planted")
    index = Index.build(planted_items(0, 30), scorer=scorer, encoder=world, store=scores)
    index.keep_log(log)
    index.search("query 1", 5, 30)
    index.close()
    index.settings = replace(index.settings, scorer=ModelName("planted", "planted"))
    path = index.save(tmp_path / "my.index")
    logged = log.read_bytes()
    assert b'"i7"' in logged
    options = ["--store", str(scores), "--log", str(log), "--scorer", "default", "--json"]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("crosscut.index.index.load_scorer", lambda name: scorer)
        patch.setattr("crosscut.index.index.load_encoder", lambda name: world)
        for option in ("--store", "--log"):  # misspelt: something would be left, and nobody would know
            wrong = CliRunner().invoke(app, ["index", "forget", str(path), "i7", option, str(tmp_path / "other")])
            assert f"at {str(tmp_path / 'other')!r}, and nothing was forgotten" in str(wrong.exception)
        done = CliRunner().invoke(app, ["index", "forget", str(path), "i7", *options])
    assert json.loads(done.output) == {"forgotten": 1, "scores": 1, "searches": 1, "items": 29}
    assert b'"i7"' not in log.read_bytes()
    files = [file.read_bytes() for file in path.rglob("*") if file.is_file()]
    assert not any(b"item 7 " in data for data in files)
    store = ScoreStore(scores, scorer_fingerprint="planted")
    texts = [item["text"] for item in planted_items(0, 30)]
    assert np.isnan(store.get("query 1", texts, [7])).all()
    assert not np.isnan(store.get("query 1", texts, [8])).any()
