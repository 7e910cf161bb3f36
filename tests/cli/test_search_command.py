"""`crosscut search`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import crosscut
from crosscut.cli import app
from crosscut.datasets.records import Item
from crosscut.index.log import SearchLog
from crosscut.server import Settings, make_app
from tests.served import client


def overlap(query: str, texts: Any) -> list[float]:
    return [float(len(set(query.split()) & set(text.split()))) for text in texts]


@pytest.fixture(autouse=True)
def own_scorer(monkeypatch: pytest.MonkeyPatch) -> None:
    """Load indexes with a scorer that makes calls."""
    load: Any = crosscut.Index.load
    monkeypatch.setattr(crosscut.Index, "load", lambda path, **_: load(path, scorer=SCORER))


SCORER = crosscut.TextScorer(overlap, fingerprint="overlap")


def test_a_hit_is_the_same_from_the_command_line_over_http_and_in_python(tmp_path: Path) -> None:
    folder = tmp_path / "my.index"
    texts = [f"{word} floats on the sea. " * 12 for word in ("ice", "wood", "salt")]
    items = [Item(f"d{place}", f"title {place}", text, {"year": 2000 + place}) for place, text in enumerate(texts)]
    index = crosscut.Index.build(items, scorer=SCORER, encoder=None, method="hybrid", passages=20)
    index.save(folder)
    printed = CliRunner().invoke(app, ["search", str(folder), "ice", "--budget", "3", "--json"]).stdout
    (hit, *_) = json.loads(printed)["hits"]
    with client(make_app(index, Settings())) as api:
        (other, *_) = api.post("/search", json={"query": "ice", "budget": 3}).json()["hits"]
    assert hit == other == index.search("ice", budget=3)[0].to_json()


def with_vectors() -> crosscut.Index:
    texts = [f"ice {word}" for word in ("cream", "age", "berg", "skate", "cube", "floe")]
    return crosscut.Index.build(texts, scorer=SCORER, encoder=lambda found: [[float(len(one)), 1.0] for one in found])


def test_a_search_prints_its_cost_and_its_rounds(monkeypatch: pytest.MonkeyPatch) -> None:
    index = with_vectors()
    monkeypatch.setattr(crosscut.Index, "load", lambda path, **_: index)
    command = ["search", "my.index", "cold ice", "--budget", "4", "--method", "axn@rounds=2"]
    given = ["--candidates", "4", "--candidates", "1"]
    record = json.loads(CliRunner().invoke(app, [*command, *given, "--trace", "--json"]).stdout)
    own = index.search("cold ice", 10, 4, method="axn@rounds=2", candidates=["4", "1"])
    assert record["trace"][0]["ids"] == ["4", "1"]
    assert [one["scores"] for one in record["trace"]] == [one.scores.tolist() for one in own.trace]
    assert record["trace"][0]["estimates"] == [None, None]
    assert "trace" not in json.loads(CliRunner().invoke(app, [*command, "--json"]).stdout)
    plain = CliRunner().invoke(app, [*command, *given, "--trace", "--price-per-thousand", "2"]).stdout
    assert "round 1: 2 calls, best" in plain
    assert "4 calls in 2 rounds" in plain
    assert "cost 0.008" in " ".join(plain.split())
    wrong = CliRunner().invoke(app, [*command, "--candidates", "nine"])
    assert "'nine' is not among the 6 items" in str(wrong.exception)


def test_a_search_fits_80_columns_and_shows_the_words_that_match(tmp_path: Path) -> None:
    notes, folder = tmp_path / "notes", str(tmp_path / "my.index")
    notes.mkdir()
    text = "# The sea\n\n" + "Waves come and go. " * 60 + "Tides follow the moon. " + "Sand. " * 60
    (notes / "sea.md").write_text(text)
    (notes / "bread.md").write_text("# Bread\n\nDough rises.")
    build = ["index", "build", str(notes), folder, "--encoder", "none", "--method", "hybrid"]
    assert "2 documents (" in CliRunner().invoke(app, build).stdout  # a folder of files is cut into passages
    crosscut.Index.build(notes, scorer=SCORER, encoder=None, method="hybrid").save(tmp_path / "other")
    printed = CliRunner().invoke(app, ["search", str(tmp_path / "other"), "what do Tides follow", "-k", "1"]).stdout
    lines = printed.splitlines()
    assert max(map(len, lines)) <= 80
    assert lines[1] == " 1  The sea"
    assert lines[2].startswith("    sea.md · score ")
    assert "Tides follow the moon." in " ".join(printed.split())


def test_numbers_are_found_whether_they_were_read_as_numbers_or_as_texts(tmp_path: Path) -> None:
    folder = str(tmp_path / "i")
    items = [{"id": "1", "text": "ice", "year": "1999"}, {"id": "2", "text": "salt", "year": "2005"}]
    crosscut.Index.build(items, scorer=SCORER, encoder=None, method="hybrid").save(folder)
    found = CliRunner().invoke(app, ["search", folder, "salt", "--filter", "year=2005", "--json"])
    assert '"id": "2"' in found.stdout
    wrong = CliRunner().invoke(app, ["search", folder, "salt", "--filter", "year>2000"])
    assert "every 'year' of this index is a text" in str(wrong.exception)


def test_searches_are_logged_when_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    index, log = with_vectors(), tmp_path / "searches.log"
    monkeypatch.setattr(crosscut.Index, "load", lambda path, **_: index)
    assert CliRunner().invoke(app, ["search", "my.index", "ice age"]).exit_code == 0
    assert not log.exists()
    assert CliRunner().invoke(app, ["search", "my.index", "ice age", "ice berg", "--log", str(log)]).exit_code == 0
    assert len(SearchLog(log).read()) == 2


def test_likely_mistakes_name_the_way_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    corpus, empty = tmp_path / "corpus.jsonl", tmp_path / "empty"
    corpus.write_text('{"text": "ice floats"}\n')
    empty.mkdir()
    for arguments, message in (
        (["search", "none.index", "ice"], "there is no index at 'none.index': make one with `crosscut index build`"),
        (["search", str(corpus), "ice"], "(that is a file, not the folder of one): make one with"),
        (["index", "build", "none.jsonl", "my.index"], "there is no file or folder 'none.jsonl'"),
        (["index", "build", str(empty), "my.index"], "is empty: items are read from folders of .txt, .md and .html"),
        (["index", "learn", "my.index", "--log", "none.log"], "searches write one with --log"),
        (["evaluate", "my.index"], "give a folder or a file of queries, or --titles"),
        (["index", "tune", "my.index", "--qrels", "qrels.tsv"], "give the queries, too"),
        (["demo", "--query", " "], "the query is empty"),
        (["demo", "--queries", "0"], "0 queries: 1 to"),
        (["serve", "a.index", "b.index", "--log", "one.log"], "--log keeps the searches of one index, and 2 are"),
    ):
        assert message in str(CliRunner().invoke(app, arguments).exception), arguments
