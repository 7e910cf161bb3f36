"""Readers: what they yield, and how they refuse."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pytest

from crosscut.datasets import (
    Item,
    is_test,
    planted,
    read_beir,
    read_items,
    read_queries,
)
from crosscut.datasets.records import plain_text
from crosscut.errors import InputError


def write_beir(folder: Path, *, packed: bool = False) -> Path:
    files = {
        "corpus.jsonl": '{"_id": "a", "title": "T", "text": "one"}\n\n{"_id": "b", "text": " "}\n'
        '{"_id": "c", "text": "🙂 שלום"}\n',
        "queries.jsonl": '{"_id": 1, "text": "q"}\n{"_id": "2", "text": ""}\n',
        "qrels.tsv": "query-id\tcorpus-id\tscore\n1\ta\t2\n1\tc\t1\n2\tb\t0\n",
    }
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        if packed:
            (folder / f"{name}.gz").write_bytes(gzip.compress(text.encode()))
        else:
            (folder / name).write_text(text, "utf-8")
    return folder


@pytest.mark.parametrize("packed", [False, True])
def test_beir(tmp_path: Path, packed: bool) -> None:
    collection = read_beir(write_beir(tmp_path / "set", packed=packed))
    assert [item.id for item in collection.items] == ["a", "b", "c"]
    assert plain_text(collection.items[0]) == "T\none"
    assert plain_text(collection.items[2]) == "🙂 שלום"
    assert collection.empty_items == ["b"]
    assert collection.empty_queries == ["2"]
    assert collection.gold("1") == ["a", "c"]
    assert collection.gold("2") == []
    assert collection.select(["1"]).queries[0].text == "q"
    with pytest.raises(InputError, match="the first is 'x'"):
        collection.select(["x"])


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("corpus.jsonl", '{"_id": "a", "text": "x"}\n{"_id": ', "line 2 is broken JSON"),
        (
            "corpus.jsonl",
            '{"_id": "a", "text": "x"}\n{"_id": "a", "text": "y"}',
            "line 2 repeats the id 'a' of line 1",
        ),
        ("corpus.jsonl", '["a"]', "line 1 is a JSON list"),
        ("corpus.jsonl", '{"_id": "a"}', "line 1 has no 'text'"),
        ("corpus.jsonl", '{"_id": "a", "text": 1.5}', "'text' is a float"),
        ("qrels.tsv", "1\ta", "line 1 has 2 fields"),
        ("qrels.tsv", "1\ta\tgood", "'good' is not a number"),
        ("qrels.tsv", "1\tz\t1", "not in the collection"),
    ],
)
def test_beir_refuses(tmp_path: Path, name: str, text: str, message: str) -> None:
    (write_beir(tmp_path) / name).write_text(text)
    with pytest.raises(InputError, match=message):
        read_beir(tmp_path)


def test_unreadable_files(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="there is no folder"):
        read_beir(tmp_path / "nowhere")
    with pytest.raises(InputError, match=r"has no corpus\.jsonl"):
        read_beir(tmp_path)
    with pytest.raises(InputError, match="there is no file or folder"):
        list(read_items(tmp_path / "x.jsonl"))
    (tmp_path / "bad.jsonl.gz").write_bytes(gzip.compress(b'{"text": "a"}\n' * 1000)[:-20])
    with pytest.raises(InputError, match="cannot be read after line"):
        list(read_items(tmp_path / "bad.jsonl.gz"))
    (tmp_path / "latin.tsv").write_bytes(b"a\tcaf\xe9\n")
    with pytest.raises(InputError, match="not UTF-8"):
        list(read_items(tmp_path / "latin.tsv"))
    (tmp_path / "x.pdf").write_text("")
    with pytest.raises(InputError, match=r"ends in '\.pdf'; items are read from \.jsonl"):
        read_items(tmp_path / "x.pdf")


def test_plain_files(tmp_path: Path) -> None:
    (tmp_path / "i.jsonl").write_text('{"text": "one"}\n{"id": "b", "title": "t", "text": "two"}\n')
    assert list(read_items(tmp_path / "i.jsonl")) == [Item("1", "", "one"), Item("b", "t", "two")]
    (tmp_path / "i.tsv").write_text("a\tone\nb\tt\ttwo\n")
    assert list(read_items(tmp_path / "i.tsv")) == [Item("a", "", "one"), Item("b", "t", "two")]
    assert [query.text for query in read_queries(tmp_path / "i.tsv")] == ["one", "t two"]
    (tmp_path / "i.tsv").write_text("a\n")
    with pytest.raises(InputError, match="line 1 has 1 fields"):
        list(read_items(tmp_path / "i.tsv"))
    (tmp_path / "i.txt").write_text("one\ntwo\n")
    assert [item.text for item in read_items(tmp_path / "i.txt")] == ["one", "two"]


def test_split_rule() -> None:
    share = np.mean([is_test(f"q{n}") for n in range(2000)])
    assert 0.17 < share < 0.23


def test_planted() -> None:
    data = planted(20, 50, rank=3, base=1.0, offset=-8.0, dimension=10, seed=1)
    assert data.vectors.shape == (50, 10)
    assert np.linalg.matrix_rank(data.scores - data.base + 8.0, tol=1e-8) == 3
    again = planted(20, 50, rank=3, base=1.0, offset=-8.0, dimension=10, seed=1)
    np.testing.assert_array_equal(data.scores, again.scores)
    with pytest.raises(InputError, match="cannot be planted"):
        planted(2, 2, rank=3, dimension=2)
