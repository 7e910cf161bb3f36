"""Items leave an index: the ones that were named and no others, and a failure can be repeated."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

import crosscut
from crosscut.datasets import Item
from crosscut.datasets.tables import ItemsInFiles
from crosscut.errors import InputError, WriteError
from crosscut.server import make_app
from tests.served import score_words

SCORER = crosscut.TextScorer(score_words, fingerprint="words")
WRITE = {"authorization": "Bearer may-write"}
CLAIM = [
    {"id": "i1", "text": "cat on a mat"},
    {"id": "i2", "text": "dog in the fog", "passage_of": "i1", "passage_at": 0},
    {"id": "i3", "text": "bird on a bough", "passage_of": "i1"},
]


def built(items: Any, **settings: Any) -> crosscut.Index:
    return crosscut.Index.build(items, scorer=SCORER, encoder=None, method="hybrid", **settings)


def files_with(folder: Path, text: str) -> list[str]:
    return [file.name for file in folder.rglob("*") if file.is_file() and text.encode() in file.read_bytes()]


def fail_fsync(patch: pytest.MonkeyPatch) -> None:
    def full(*_: Any) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    patch.setattr(os, "fsync", full)


@pytest.mark.parametrize("change", ["forget", "remove"])
def test_metadata_does_not_redirect_a_removal(tmp_path: Path, change: str) -> None:
    built(CLAIM).save(tmp_path / "a")
    index = crosscut.Index.load(tmp_path / "a", scorer=SCORER)
    assert index["i1"].text == "cat on a mat"
    assert getattr(index, change)(["i1"]) == ((1, 0, 0) if change == "forget" else 1)
    index.save()
    assert [item.id for item in crosscut.Index.load(tmp_path / "a", scorer=SCORER).items] == ["i2", "i3"]
    if change == "forget":
        assert files_with(tmp_path / "a", "cat on a mat") == []


def test_metadata_does_not_redirect_a_request(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CROSSCUT_WRITE_TOKEN", "may-write")
    built(CLAIM).save(tmp_path / "a")
    index = crosscut.Index.load(tmp_path / "a", scorer=SCORER)
    with TestClient(make_app(index), base_url="http://127.0.0.1") as client:
        assert client.get("/items/i1").json()["text"] == "cat on a mat"
        assert client.delete("/items/i1", params={"forget": True}, headers=WRITE).json() == {"changed": 1, "items": 2}
        assert client.get("/items/i1").status_code == 404
        assert client.get("/items/i2").status_code == 200


def test_documents_are_cut_and_removed_as_one() -> None:
    index = built([("d", "One here. Two there. Three."), ("e", "Four.")], passages=crosscut.Passages(2, overlap=0))
    assert "d" in index
    assert "d#1" in index
    assert index["d"].text == "One here. Two there. Three."
    assert index.remove(["d"]) == 1
    assert [item.id for item in index.items] == ["e#1"]


@pytest.mark.parametrize("key", ["passage_of", "passage_at"])
def test_reserved_keys_are_refused_in_an_index_with_passages(key: str) -> None:
    index = built([("a", "cat")], passages=True)
    with pytest.raises(InputError, match=key):
        index.add([{"id": "b", "text": "dog", key: "a"}])
    with pytest.raises(InputError, match=key):
        built([{"id": "b", "text": "dog", key: "a"}], passages=True)


def test_a_document_may_not_have_the_id_of_a_passage() -> None:
    with pytest.raises(InputError, match="a#1"):
        built([("a", "cat"), ("a#1", "dog")], passages=True)
    index = built([("a#1", "dog")], passages=True)
    with pytest.raises(InputError, match="a#1"):
        index.add([("a", "cat")])
    assert [item.id for item in index.items] == ["a#1#1"]


def test_a_failed_forgetting_can_be_repeated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    built({"a": "secretive cat", "b": "dog"}).save(tmp_path / "a")
    index = crosscut.Index.load(tmp_path / "a", scorer=SCORER)
    with monkeypatch.context() as patch:
        fail_fsync(patch)
        with pytest.raises(WriteError):
            index.forget(["a"])
    assert "a" in index
    assert not index.unsaved
    assert files_with(tmp_path, "secretive") != []
    assert index.forget(["a"]).items == 1
    assert files_with(tmp_path, "secretive") == []
    assert [item.id for item in crosscut.Index.load(tmp_path / "a", scorer=SCORER).items] == ["b"]


def test_a_failed_request_to_forget_can_be_repeated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CROSSCUT_WRITE_TOKEN", "may-write")
    built({"a": "secretive cat", "b": "dog"}).save(tmp_path / "a")
    index = crosscut.Index.load(tmp_path / "a", scorer=SCORER)
    with TestClient(make_app(index), base_url="http://127.0.0.1") as client:
        new = {"items": [{"id": "c", "text": "bird"}]}
        assert client.post("/items", json=new, headers=WRITE).status_code == 200
        with monkeypatch.context() as patch:
            fail_fsync(patch)
            assert client.delete("/items/a", params={"forget": True}, headers=WRITE).status_code == 503
        gone = client.delete("/items/a", params={"forget": True}, headers=WRITE)
        assert gone.json() == {"changed": 1, "items": 2}
        assert files_with(tmp_path, "secretive") == []
    assert [item.id for item in crosscut.Index.load(tmp_path / "a", scorer=SCORER).items] == ["b", "c"]


def test_adding_to_an_index_in_files_reads_no_old_item(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    built([(f"i{j}", f"text {j}") for j in range(50)]).save(tmp_path / "a")
    index = crosscut.Index.load(tmp_path / "a", scorer=SCORER)
    read: list[int] = []
    item = ItemsInFiles._item

    def noted(self: ItemsInFiles, place: int) -> Item:
        read.append(place)
        return item(self, place)

    monkeypatch.setattr(ItemsInFiles, "_item", noted)
    assert index.add([("new", "another text"), ("more", "and more")]) == 2
    assert read == []
    assert index.search("another", 1, 5).ids == ["new"]
