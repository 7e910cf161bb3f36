"""A server that changes while it serves: several indexes, items that come and go, folders that are replaced."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("fastapi")

from starlette.testclient import TestClient

import crosscut
from crosscut.datasets import Item
from crosscut.errors import LockedError, WriteError
from crosscut.server import Settings, make_app
from crosscut.storage import Lock
from tests.fake_store import MemoryStore
from tests.served import Gate, client, score_words, until

SCORER = crosscut.TextScorer(score_words, fingerprint="words")
WRITE = {"authorization": "Bearer may-write"}
NEW = {"items": [{"id": "s", "title": "Sea", "text": "salt sea", "metadata": {"year": 1}}]}


@pytest.fixture(autouse=True)
def writable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CROSSCUT_WRITE_TOKEN", "may-write")


def build(texts: dict[str, str], path: Path | None = None) -> crosscut.Index:
    index = crosscut.Index.build(texts, scorer=SCORER, encoder=None, method="hybrid")
    if path is not None:
        index.save(path)
        return load(path)
    return index


def load(path: Path, **options: Any) -> crosscut.Index:
    return crosscut.Index.load(path, scorer=SCORER, **options)


def saved(path: Path) -> set[str]:
    return {item.id for item in load(path).items}


def add_elsewhere(path: Path, texts: dict[str, str]) -> None:
    """Add items as another process would."""
    other = load(path)
    other.add(texts)
    other.save()


def best(api: TestClient, query: str, **more: Any) -> str:
    answer = api.post("/search", json={"query": query, "k": 1, **more})
    assert answer.status_code == 200, answer.text
    return str(answer.json()["hits"][0]["id"])


def test_two_indexes_by_name() -> None:
    animals, things = build({"c": "cat", "d": "dog"}), build({"r": "road", "s": "stone sea"})
    with client(make_app({"animals": animals, "things": things})) as api:
        assert best(api, "cat") == "c"
        assert best(api, "sea", index="things") == "s"
        assert api.get("/info").json()["indexes"] == ["animals", "things"]
        assert api.get("/info", params={"index": "things"}).json()["items"] == 2
        assert api.get("/items/r", params={"index": "things"}).json()["text"] == "road"
        assert api.get("/items/r").status_code == 404
        unknown = api.post("/search", json={"query": "a", "index": "none"})
        assert (unknown.status_code, unknown.json()["error"]) == (404, "NoSuchIndex")
        assert "animals, things" in unknown.json()["message"]


def test_items_come_and_go(tmp_path: Path) -> None:
    index = build({"c": "cat", "d": "dog"}, tmp_path / "i")
    with client(make_app(index, Settings(save_seconds=0.05))) as api:
        assert api.post("/items", json=NEW, headers=WRITE).json() == {"changed": 1, "items": 3}
        assert best(api, "sea") == "s"
        assert best(api, "sea", filter={"year": 1}) == "s"
        again = api.post("/items", json=NEW, headers=WRITE)
        assert (again.status_code, again.json()["error"]) == (422, "InputError")
        assert api.delete("/items/d", headers=WRITE).json() == {"changed": 1, "items": 2}
        assert api.delete("/items/d", headers=WRITE).status_code == 404
        until(lambda: saved(tmp_path / "i") == {"c", "s"})
        for items in ([], [{"id": "", "text": "a"}]):
            assert api.post("/items", json={"items": items}, headers=WRITE).status_code == 422
        assert api.delete("/items/c", params={"forget": "maybe"}, headers=WRITE).status_code == 422
    assert saved(tmp_path / "i") == {"c", "s"}


def test_a_forgotten_item_is_in_no_file(tmp_path: Path) -> None:
    texts = {f"i{j}": f"cat {j} word{j}canary" for j in range(50)}
    build(texts, tmp_path / "i")
    index = load(tmp_path / "i", store=tmp_path / "scores")
    index.keep_log(tmp_path / "searches.log")

    def holders(canary: str) -> list[str]:
        return [str(file) for file in tmp_path.rglob("*") if file.is_file() and canary.encode() in file.read_bytes()]

    with client(make_app(index)) as api:
        api.post("/search", json={"query": "cat", "budget": 50})
        assert holders("word7canary")
        answer = api.delete("/items/i7", params={"forget": True}, headers=WRITE)
        assert answer.json() == {"changed": 1, "items": 49}
        assert holders("word7canary") == []
        assert api.get("/items/i7").status_code == 404
        assert api.delete("/items/i8", headers=WRITE).status_code == 200


def test_metadata_that_json_cannot_hold_is_refused() -> None:
    headers = {**WRITE, "content-type": "application/json"}
    with client(make_app(build({"c": "cat"}))) as api:
        for value in ("NaN", "Infinity", '[1, {"deep": -Infinity}]', "1e999"):
            body = f'{{"items": [{{"id": "new", "text": "red", "metadata": {{"year": {value}}}}}]}}'
            answer = api.post("/items", content=body, headers=headers)
            assert (answer.status_code, "not finite" in answer.json()["message"]) == (422, True)


@pytest.mark.parametrize("failures", [[WriteError("no room")], [MemoryError("once"), ValueError("twice")]])
def test_a_save_that_fails_is_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failures: list[Exception]
) -> None:
    index, save, left = build({"c": "cat"}, tmp_path / "i"), crosscut.Index.save, iter(failures)

    def fails_at_first(index: crosscut.Index, *arguments: Any) -> Any:
        for error in left:
            raise error
        return save(index, *arguments)

    monkeypatch.setattr(crosscut.Index, "save", fails_at_first)
    with client(make_app(index, Settings(save_seconds=0.02))) as api:
        assert api.post("/items", json=NEW, headers=WRITE).status_code == 200
        if len(failures) > 1:  # else it is saved when the server stops
            until(lambda: saved(tmp_path / "i") == {"c", "s"})
    assert saved(tmp_path / "i") == {"c", "s"}


def test_a_folder_that_another_process_changed_is_loaded(tmp_path: Path) -> None:
    index = build({"c": "cat"}, tmp_path / "i")
    with client(make_app(index, Settings(reload_seconds=0.05))) as api:
        add_elsewhere(tmp_path / "i", {"o": "owl"})
        until(lambda: api.get("/health").json()["items"] == 2)
        assert best(api, "owl") == "o"
        (tmp_path / "i" / "index.json").write_text("{")
        time.sleep(0.2)
        assert best(api, "cat") == "c"  # what cannot be loaded changes nothing


def test_starting_and_reloading_make_no_calls_of_a_user_scorer(tmp_path: Path) -> None:
    build({"c": "cat"}, tmp_path / "i")
    gate = Gate()
    index = crosscut.Index.load(tmp_path / "i", scorer=crosscut.TextScorer(gate, fingerprint="words"))
    with client(make_app(index, Settings(reload_seconds=0.05))) as api:
        add_elsewhere(tmp_path / "i", {"o": "owl"})
        until(lambda: api.get("/health").json()["items"] == 2)
    assert gate.pairs == {}


def is_free(path: Path) -> bool:
    """Return whether nobody is changing an index."""
    try:
        Lock(path, "index").release()
    except LockedError:
        return False
    return True


def test_changes_by_requests_and_by_other_processes_are_all_kept(tmp_path: Path) -> None:
    path = tmp_path / "i"
    index = build({"c": "cat"}, path)
    with client(make_app(index, Settings(reload_seconds=0))) as api:
        add_elsewhere(path, {"o": "owl"})
        assert api.post("/items", json=NEW, headers=WRITE).json() == {"changed": 1, "items": 3}
        until(lambda: saved(path) == {"c", "o", "s"})
        until(lambda: is_free(path))
        record = (path / "index.json").read_bytes()
        (path / "index.json").write_text("{")
        lost = api.delete("/items/c", headers=WRITE)
        assert (lost.status_code, str(tmp_path) in lost.text) == (503, False)
        (path / "index.json").write_bytes(record)
        other = load(path)
        other.add({"e": "elk"})  # it holds the folder's lock
        held = api.delete("/items/c", headers=WRITE)
        assert (held.status_code, str(tmp_path) in held.text) == (503, False)


def test_paid_scores_stay_known_when_a_folder_is_loaded_again(tmp_path: Path) -> None:
    build({"c": "cat", "d": "dog"}, tmp_path / "i")
    index = load(tmp_path / "i", store=tmp_path / "scores")
    with client(make_app(index, Settings(reload_seconds=0.05))) as api:
        request = {"query": "cat dog", "k": 2, "budget": 10}
        assert api.post("/search", json=request).json()["calls"] == 2
        add_elsewhere(tmp_path / "i", {"o": "owl"})
        until(lambda: api.get("/health").json()["items"] == 3)
        found = api.post("/search", json=request | {"k": 3}).json()
        assert (found["calls"], found["cached"]) == (1, 2)


def test_searches_go_on_while_items_are_added_and_folders_replaced(tmp_path: Path) -> None:
    path = tmp_path / "i"
    index = build({f"i{j}": f"cat {j} dog" for j in range(100)}, path)
    stop, failures, count = threading.Event(), [], [0] * 4
    with client(make_app(index, Settings(reload_seconds=0.1, save_seconds=0.1))) as api:

        def search(place: int) -> None:
            while not stop.is_set():
                answer = api.post("/search", json={"query": "cat sea", "k": 3, "budget": 20})
                failures.extend([answer.text] * (answer.status_code != 200))
                count[place] += 1

        with ThreadPoolExecutor(4) as pool:
            searching = [pool.submit(search, place) for place in range(4)]
            try:
                add_elsewhere(path, {"new": "sea sea sea sea"})
                until(lambda: best(api, "sea sea") == "new")
                for start in range(0, 300, 100):
                    items = [{"id": f"n{j}", "text": f"stone {j}"} for j in range(start, start + 100)]
                    assert api.post("/items", json={"items": items}, headers=WRITE).status_code == 200
            finally:
                stop.set()
            for one in searching:
                one.result()
        assert failures == []
        assert min(count) > 0
        assert api.get("/info").json()["items"] == 401
    assert len(saved(path)) == 401


def test_a_vector_store_that_hangs_holds_nobody_else() -> None:
    hangs = threading.Event()
    vectors = np.random.default_rng(0).normal(size=(30, 4)).astype(np.float32)

    def before() -> None:
        if hangs.is_set():
            time.sleep(2)
            raise ConnectionError("no answer from db.internal:6333 for canary-key")

    store = MemoryStore([Item(f"i{j}", "", f"item {j}") for j in range(30)], vectors, before)
    store.address = "http://db.internal:6333"
    index = crosscut.Index.over(store, scorer=SCORER, encoder=lambda texts: np.ones((len(texts), 4), np.float32))
    with client(make_app(index, Settings(reload_seconds=0))) as api, ThreadPoolExecutor(4) as pool:
        found = api.post("/search", json={"query": "item 3", "k": 3, "budget": 20, "trace": True}).json()
        assert found["calls"] == sum(len(one["items"]) for one in found["trace"]) == 20
        wrong = api.post("/search", json={"query": "item 3", "candidates": ["none"], "budget": 9})
        assert (wrong.status_code, "db.internal" in wrong.text) == (422, False)
        hangs.set()
        waiting = [
            pool.submit(api.get, "/items/i3"),
            pool.submit(api.delete, "/items/i3", headers=WRITE),
            pool.submit(api.post, "/search", json={"query": "item 3", "budget": 9}),
        ]
        time.sleep(0.3)
        began = time.monotonic()
        assert api.get("/health").json() == {"status": "alive", "items": 30}
        assert api.get("/info").json()["items"] == 30
        assert time.monotonic() - began < 1.5
        for answer in (one.result() for one in waiting):
            assert answer.status_code == 503
            assert "db.internal" not in answer.text
            assert "canary" not in answer.text
