"""Readers of the papers' data."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from crosscut.datasets.records import marked_text
from crosscut.errors import InputError
from crosscut_lab.papers.zeshel import read_world


def test_zeshel(tmp_path: Path) -> None:
    (tmp_path / "documents").mkdir()
    (tmp_path / "mentions").mkdir()
    documents = [
        {"document_id": "d1", "title": "Blue Eyes", "text": "Blue Eyes is a card played by Kaiba ."},
        {"document_id": "d2", "title": "Kaiba", "text": "Kaiba plays cards ."},
    ]
    mention = {
        "mention_id": "m1",
        "corpus": "yugioh",
        "context_document_id": "d1",
        "start_index": 7,
        "end_index": 7,
        "label_document_id": "d2",
    }
    (tmp_path / "documents" / "yugioh.json").write_text("\n".join(map(json.dumps, documents)))
    other = {**mention, "mention_id": "m2", "corpus": "lego"}
    (tmp_path / "mentions" / "test.json").write_text("\n".join(map(json.dumps, [mention, other])))
    world = read_world(tmp_path, "yugioh", context_words=2)
    assert world.items[0][1:3] == ("Blue Eyes", "is a card played by Kaiba .")
    assert marked_text(world.items[0]) == "Blue Eyes [ENT] is a card played by Kaiba ."
    assert [query.text for query in world.queries] == ["played by [START] Kaiba [END] ."]
    assert world.gold("m1") == ["d2"]
    (tmp_path / "mentions" / "test.json").write_text(json.dumps({**mention, "end_index": 99}))
    with pytest.raises(InputError, match="words 7 … 99 do not fit"):
        read_world(tmp_path, "yugioh")
    (tmp_path / "mentions" / "test.json").write_text(json.dumps({**mention, "label_document_id": "d9"}))
    with pytest.raises(InputError, match="names document 'd9'"):
        read_world(tmp_path, "yugioh")
