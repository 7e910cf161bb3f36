"""What is forgotten stays forgotten: nobody who has it in memory brings it back, and nothing tells what it was."""

from __future__ import annotations

import json
import multiprocessing
import random
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from crosscut.ann import clustered
from crosscut.errors import InputError
from crosscut.index import Index
from crosscut.index.log import SearchLog
from crosscut.score_store import ScoreStore
from crosscut.score_store.keys import text_hash
from crosscut.storage import Forgotten, Lock, Since, generations
from crosscut.storage import forgotten as module
from tests.unit.test_index import Planted, build, planted_items
from tests.unit.test_log import logged
from tests.unit.test_storage import contents, loaded

WORLD = Planted()
TEXTS = [f"item {j}" for j in range(20)]


def opened(path: Path) -> ScoreStore:
    return ScoreStore(path, scorer_fingerprint="soak")


# -- marks ---------------------------------------------------------------------------------------------------------


def test_who_began_before_can_tell_and_nobody_else(tmp_path: Path) -> None:
    marks = Forgotten(tmp_path / "forgotten.json")
    assert marks.now is None
    assert marks.among([b"a"], None) == set()
    marks.begin()
    began = marks.now
    marks.add([b"a", b"b"])
    later = marks.now
    marks.add([b"c"])
    names = [b"a", b"b", b"c", b"d"]
    assert marks.among(names, began) == {b"a", b"b", b"c"}
    assert marks.among(names, later) == {b"c"}
    assert marks.among(names, marks.now) == set()
    assert marks.among(names, None) == set(names), "began before there was a key: cannot tell"
    assert marks.among(names, Since(0, b"k" * 32)) == set(names), "of another store"
    assert marks.among(names, Since(7, b"k" * 32)) == set(names), "of a store that is older than this copy"
    assert Forgotten(marks.path).among(names, began) == {b"a", b"b", b"c"}
    told = json.loads(marks.path.read_text())
    assert told["times"] == 2
    assert [len(some) for some in told["marks"]] == [2, 1]
    key = bytes.fromhex(told["key"])
    on_disk = {bytes.fromhex(mark) for some in told["marks"] for mark in some}
    for _ in range(5):  # neither the key that is there nor one that follows from it tells whether "a" was forgotten
        assert module._mark(key, b"a") not in on_disk
        key = module._next(key)


def test_who_forgets_is_told_of_the_others_all_the_same(tmp_path: Path) -> None:
    marks = Forgotten(tmp_path / "forgotten.json")
    marks.begin()
    mine = marks.now
    assert mine is not None
    names = [b"a", b"b", b"c", b"d"]
    assert mine.after(marks.add([b"a"])) == marks.now, "nobody else did"
    mine = mine.after(0)
    marks.add([b"b"])  # somebody else
    mine = mine.after(marks.add([b"c"]))
    assert marks.among(names, mine) == {b"b"}
    mine = mine.after(marks.add([b"b"]))  # both of them
    assert marks.among(names, mine) == {b"b"}


def test_marks_are_bounded_and_who_is_older_keeps_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "TIMES", 3)
    monkeypatch.setattr(module, "MARKS", 5)
    marks = Forgotten(tmp_path / "forgotten.json")
    marks.begin()
    since = []
    for j in range(6):
        since.append(marks.now)
        marks.add([b"x%d" % j, b"y%d" % j])
    assert [len(some) for some in json.loads(marks.path.read_text())["marks"]] == [2, 2]
    assert marks.among([b"x5", b"z"], since[5]) == {b"x5"}
    assert marks.among([b"x5", b"z"], since[4]) == {b"x5"}
    assert marks.among([b"x5", b"z"], since[3]) == {b"x5", b"z"}


# -- the score store -----------------------------------------------------------------------------------------------


def _write(path: Path, seed: int, go: Any) -> None:
    """Write scores of the items that are not forgotten."""
    store, rng = opened(path), random.Random(seed)
    store.put_pairs(["begun"], TEXTS, [0], [0], [0.0])
    go.wait()
    for number in range(60):
        if rng.random() < 0.5:
            store.put_block([f"q{number} {seed}"], TEXTS, np.arange(10.0, 20.0)[None], start=10)
        else:
            store.put_pairs([f"q{number} {seed}"], TEXTS, [0] * 10, np.arange(10, 20), np.arange(10.0, 20.0))


@pytest.mark.slow
def test_writers_beside_somebody_who_forgets(tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    go = context.Barrier(3)
    writers = [context.Process(target=_write, args=(tmp_path, seed, go)) for seed in range(2)]
    for writer in writers:
        writer.start()
    go.wait(120)
    rng = random.Random(7)
    for j in range(10):
        time.sleep(rng.random() * 0.05)
        opened(tmp_path).forget([TEXTS[j]])
    for writer in writers:
        writer.join(120)
        assert writer.exitcode == 0
    everything = contents(tmp_path)
    assert not [text for text in TEXTS[:10] if text_hash(text) in everything]
    store = opened(tmp_path)
    assert not store.verify()
    for number in range(60):  # and nothing else was lost
        for seed in range(2):
            assert store.get(f"q{number} {seed}", TEXTS[10:]).tolist() == list(range(10, 20))


# -- the log -------------------------------------------------------------------------------------------------------


def test_a_log_is_told_too(tmp_path: Path) -> None:
    path = tmp_path / "searches.log"
    there = SearchLog(path)
    there.append([logged(0)])
    other = SearchLog(path)
    began = other.since
    other.forget(ids=["a"], queries=["query 5"])
    there.append([logged(1), logged(5), logged(6, ("a",))])
    other.append([logged(2)])
    other.append([logged(3), logged(5)], since=began)  # of a search that began before
    assert [(found.time, found.ids) for found in SearchLog(path).read()] == [
        (0.0, ["b", "ü\n"]),
        (1.0, ["b", "ü\n"]),
        (2.0, ["a", "b", "ü\n"]),
        (3.0, ["b", "ü\n"]),
    ]
    np.testing.assert_array_equal(SearchLog(path).read()[1].scores, logged(1).scores[1:])


def test_an_older_log_that_was_never_asked_to_forget(tmp_path: Path) -> None:
    path = tmp_path / "searches.log"
    SearchLog(path).append([logged(0)])
    path.with_name("searches.log.forgotten").unlink()  # as an earlier version left it
    there = SearchLog(path)
    there.begin()
    SearchLog(path).forget(ids=["a"])
    there.append([logged(1)])
    assert [found.ids for found in SearchLog(path).read()] == [["b", "ü\n"]] * 2


# -- indexes -------------------------------------------------------------------------------------------------------


@pytest.fixture
def large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clustered, "SMALL", 50)
    monkeypatch.setattr(generations, "LATER", 0)


def served(tmp_path: Path, name: str = "a.index", **how: Any) -> Index:
    index = loaded(tmp_path / name, store=tmp_path / "scores", **how)
    index.keep_log(tmp_path / "searches.log")
    return index


def left(tmp_path: Path, text: str) -> list[str]:
    found = [
        path.name
        for path in (tmp_path / "scores").rglob("*")
        if path.is_file() and text_hash(text) in path.read_bytes()
    ]
    logs = [search.ids for search in SearchLog(tmp_path / "searches.log").read()]
    return found + ["log" for ids in logs if "i4" in ids]


def test_an_index_that_is_open_elsewhere_does_not_bring_items_back(tmp_path: Path) -> None:
    text = planted_items(4, 5)[0]["text"]
    build(WORLD, stop=30, queries=4).save(tmp_path / "a.index")
    other, mine = served(tmp_path), served(tmp_path)
    other.search("query 50", 3, 30, method="exact")
    assert mine.forget(["i4"]) == 1
    other.search("query 51", 3, 30, method="exact")
    other.corpus.cache.flush()  # type: ignore[union-attr]
    assert left(tmp_path, text) == []
    mine.add(planted_items(4, 5))  # anew
    mine.search("query 53", 3, 30, method="exact")
    mine.corpus.cache.flush()  # type: ignore[union-attr]
    assert len(left(tmp_path, text)) == 2


def test_a_search_that_is_under_way_does_not_bring_items_back(tmp_path: Path) -> None:
    text = planted_items(4, 5)[0]["text"]
    build(WORLD, stop=30, queries=4).save(tmp_path / "a.index")
    index = served(tmp_path)
    inside, go = threading.Event(), threading.Event()

    def halt() -> None:
        inside.set()
        go.wait(60)

    searching = threading.Thread(
        target=index.search_many, args=(["query 50"], 3, 30), kwargs={"method": "exact", "halts": [halt]}
    )
    searching.start()
    assert inside.wait(60)
    index.forget(["i4"])
    go.set()
    searching.join(60)
    index.close()
    del searching
    assert left(tmp_path, text) == []
    assert len(SearchLog(tmp_path / "searches.log").read()[0].ids) == 29


def test_scores_stay_with_their_items_when_a_large_index_closes_up(tmp_path: Path, large: None) -> None:
    build(WORLD, stop=120).save(tmp_path / "a.index")
    index = served(tmp_path)
    assert index.corpus.in_files
    before = {hit.id: hit.score for hit in index.search("query 50", 120, 120, method="exact")}
    text = index["i4"].text
    index.search("query 51", 3, 120, method="exact")  # still waits to be written
    index.forget(["i4"])
    del before["i4"]
    again = index.search("query 50", 120, 119, method="exact")
    assert {hit.id: hit.score for hit in again} == pytest.approx(before)
    assert (again.calls, again.cached) == (0, 119)
    index.close()
    assert left(tmp_path, text) == []


def test_a_forgetting_that_was_stopped_is_repeated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = planted_items(4, 5)[0]["text"]
    build(WORLD, stop=30, queries=4).save(tmp_path / "a.index")
    index = served(tmp_path)
    index.search("query 50", 3, 30, method="exact")
    index.close()
    for owner, step in ((SearchLog, "_write"), (Index, "save")):
        with monkeypatch.context() as patch:
            patch.setattr(owner, step, lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
            with pytest.raises(KeyboardInterrupt):
                served(tmp_path).forget(["i4"])
        Lock(tmp_path / "a.index").release()  # it is free
    again = served(tmp_path)
    assert "i4" in again
    assert again.forget(["i4"]) == 1
    assert left(tmp_path, text) == []
    assert "i4" not in loaded(tmp_path / "a.index")
    with pytest.raises(InputError, match="'i4' is not among"):
        again.forget(["i4"])
