"""Forgotten items stay forgotten: no process that has them in memory writes them again."""

from __future__ import annotations

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
from crosscut.storage import Lock
from tests.unit.test_index import Planted, build, planted_items
from tests.unit.test_storage import contents, loaded

WORLD = Planted()
TEXTS = [f"item {j}" for j in range(20)]


def opened(path: Path) -> ScoreStore:
    return ScoreStore(path, scorer_fingerprint="soak")


# -- the score store -----------------------------------------------------------------------------------------------


def _write(path: Path, seed: int, go: Any) -> None:
    """Write scores of every item, then scores of those that nobody forgets."""
    store, rng = opened(path), random.Random(seed)
    store.put_block([f"begun {seed}"], TEXTS, np.arange(20.0)[None])
    go.wait()
    for number in range(60):
        if rng.random() < 0.5:
            store.put_block([f"q{number} {seed}"], TEXTS[10:], np.arange(10.0, 20.0)[None])
        else:
            store.put_pairs([f"q{number} {seed}"], TEXTS[10:], [0] * 10, np.arange(10), np.arange(10.0, 20.0))


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


# -- indexes -------------------------------------------------------------------------------------------------------


@pytest.fixture
def large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clustered, "SMALL", 50)


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
    assert mine.forget(["i4"]).items == 1
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
    assert not SearchLog(tmp_path / "searches.log").read()


def test_scores_stay_with_their_items_when_a_large_index_closes_up(tmp_path: Path, large: None) -> None:
    build(WORLD, stop=120).save(tmp_path / "a.index")
    index = served(tmp_path)
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
    for owner, step in ((ScoreStore, "forget"), (SearchLog, "forget"), (Index, "save")):
        with monkeypatch.context() as patch:
            patch.setattr(owner, step, lambda *_, **__: (_ for _ in ()).throw(KeyboardInterrupt))
            with pytest.raises(KeyboardInterrupt):
                served(tmp_path).forget(["i4"])
        Lock(tmp_path / "a.index").release()  # it is free
    again = served(tmp_path)
    assert "i4" in again
    assert again.forget(["i4"]).items == 1
    assert left(tmp_path, text) == []
    assert "i4" not in loaded(tmp_path / "a.index")
    assert again.forget(["i4"]) == (0, 0, 0)


def test_items_that_were_removed_or_edited_before_are_forgotten(tmp_path: Path) -> None:
    build(WORLD, stop=30, queries=4).save(tmp_path / "a.index")
    index = served(tmp_path)
    texts = [index[f"i{j}"].text for j in (4, 5)]
    index.search("query 50", 3, 30, method="exact")
    index.remove(["i4", "i5"])
    index.add([{"id": "i5", "text": "item 25 edited"}])
    index.search("query 51", 3, 29, method="exact")
    assert index.forget(["i4", "i5"]) == (3, 3, 2)
    assert left(tmp_path, texts[0]) == left(tmp_path, texts[1]) == left(tmp_path, "item 25 edited") == []
    assert not [search for search in SearchLog(tmp_path / "searches.log").read() if {"i4", "i5"} & set(search.ids)]


def test_items_that_have_left_the_index_are_forgotten_by_id_and_by_text(tmp_path: Path) -> None:
    build(WORLD, stop=30, queries=4).save(tmp_path / "a.index")
    index = served(tmp_path)
    text = index["i4"].text
    index.search("query 50", 3, 30, method="exact")
    index.remove(["i4"])
    index.save()
    index.close()
    again = served(tmp_path)
    assert len(left(tmp_path, text)) == 2
    assert again.forget(["i4"]) == (0, 0, 1)  # the log has ids, the store has texts
    assert left(tmp_path, text) == ["scores.sqlite"]
    assert again.forget(texts=text) == (0, 1, 0)
    assert left(tmp_path, text) == []
    with pytest.raises(InputError, match="'i4' is not among"):  # nothing is attached in which it could be
        loaded(tmp_path / "a.index").forget(["i4"])


def test_an_index_in_files_with_a_store_grows_without_reading_its_items(tmp_path: Path, large: None) -> None:
    build(WORLD, stop=120).save(tmp_path / "a.index")
    index = served(tmp_path)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("crosscut.score_store.keys.item_hash", lambda item: pytest.fail("an item is read"))
        index.add(planted_items(120, 125))
    hits = index.search("query 50", 5, 20)
    assert (hits.calls, index.search("query 50", 5, 20).cached) == (20, 20)
