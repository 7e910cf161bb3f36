"""`crosscut index …`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

import crosscut
from crosscut.ann import clustered
from crosscut.cli import app
from crosscut.errors import InputError
from crosscut.scorers.adapters import TextScorer


def test_train_queries_of_a_file_count_once_and_none_are_a_mistake(tmp_path: Path) -> None:
    corpus, queries, folder = tmp_path / "corpus.jsonl", tmp_path / "queries.txt", tmp_path / "i"
    corpus.write_text('{"text": "waves and tides"}\n{"text": "bread and dough"}\n')
    queries.write_text("")
    printed = CliRunner().invoke(app, ["index", "build", str(corpus), str(folder), "--queries", str(queries)])
    assert "queries.txt' has no queries" in " ".join(str(printed.exception).split()) + printed.output
    assert not folder.exists()
    queries.write_text("tides\ntides\ntides\nbread\n")
    asked = ["index", "build", str(corpus), str(folder), "--queries", str(queries), "--anchors", "2", "--json"]
    record = json.loads(CliRunner().invoke(app, asked).stdout)
    assert record["anchors"] == 2
    other = tmp_path / "other"
    other.mkdir()
    (other / "notes.txt").write_text("mine")
    for place, said in (
        (other, "holds something else (notes.txt …)"),
        (corpus, "is a file, and the index is to be a folder"),
    ):
        printed = CliRunner().invoke(app, [*asked[:3], str(place), *asked[4:]])
        assert said in str(printed.exception)
        assert "calls to make" not in printed.output + printed.stderr
    asked[-2] = "0"
    printed = CliRunner().invoke(app, [*asked[:3], str(tmp_path / "j"), *asked[4:]])
    assert "anchors=0 uses none of 2 train queries" in str(printed.exception)
    asked[-2] = "2"
    printed = CliRunner().invoke(app, [*asked[:3], str(tmp_path / "k"), *asked[4:], "--passages", "2"])
    assert "2 train queries × 4 passages: 8 calls to make at most" in " ".join(printed.stderr.split())


def test_long_texts_that_stay_whole_are_remarked(tmp_path: Path) -> None:
    corpus = tmp_path / "corpus.jsonl"
    corpus.write_text('{"text": "' + "word " * 300 + '"}\n{"text": "short"}\n{"text": ""}\n')
    printed = CliRunner().invoke(app, ["index", "build", str(corpus), str(tmp_path / "i")]).stderr
    assert "longer than 200 words: 1 item of 3" in printed
    assert "--passages 120" in printed
    assert "without a text: 1 item of 3" in printed


def test_tuning_by_qrels_prints_the_stopping_rule_that_applies(tmp_path: Path) -> None:
    things = ["ice", "salt", "iron", "gold", "glass", "paper", "water", "sand", "coal", "wood", "wool", "silk"]
    folder, run = tmp_path / "my.index", CliRunner()
    crosscut.Index.build({thing: f"{thing} is a thing of its own" for thing in things}).save(folder)
    (tmp_path / "queries.tsv").write_text("".join(f"q{j}\twhat is {thing}\n" for j, thing in enumerate(things)))
    (tmp_path / "qrels.tsv").write_text("".join(f"q{j}\t{thing}\t1\n" for j, thing in enumerate(things)))
    command = ["index", "tune", str(folder), "--queries", str(tmp_path / "queries.tsv"), "-k", "2", "--budget", "6"]
    printed = run.invoke(app, [*command, "--qrels", str(tmp_path / "qrels.tsv")])
    assert printed.exit_code == 0, printed.output
    chosen = next(line for line in printed.output.splitlines() if line.startswith("chosen: "))
    index = crosscut.Index.load(folder)
    rule = index.stop or index.default_stop() or "never"
    assert f", stop {rule}: " in " ".join(printed.output.split())
    assert str(rule) == ("confident" if chosen.startswith("chosen: crosscut") else "never")
    rows = [line.split() for line in printed.output.splitlines() if line.startswith("crosscut")]
    assert {row[2] for row in rows} <= {"confident", "patience@rounds=1", "patience", "patience@rounds=3"}, (
        printed.output
    )
    assert len({tuple(row) for row in rows}) == len(rows)


def test_an_index_that_has_changed_is_completed_and_compacted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clustered, "SMALL", 100)  # a large index, whose files keep what was removed
    vectors = np.random.default_rng(0).normal(size=(202, 8)).astype(np.float32)
    items = {f"i{j}": f"thing {j}" for j in range(202)} | {"i7": "a secret"}
    scorer = TextScorer(lambda query, texts: [float(len(text)) for text in texts], fingerprint="length")
    load: Any = crosscut.Index.load
    monkeypatch.setattr(crosscut.Index, "load", lambda path, **printed: load(path, **(printed | {"scorer": scorer})))
    folder, run = tmp_path / "my.index", CliRunner()
    first = dict(list(items.items())[:200])
    index = crosscut.Index.build(first, scorer=scorer, vectors=vectors[:200], queries=["a", "b"], path=folder)
    index.remove(["i7"])
    index.add(dict(list(items.items())[200:]), vectors=vectors[200:])
    index.save()
    refused = run.invoke(app, ["index", "complete", str(folder), "--max-calls", "3"])
    assert isinstance(refused.exception, InputError)
    assert "would make up to 4 calls and may make 3: allow more" in str(refused.exception)
    printed = run.invoke(app, ["index", "complete", str(folder)])
    assert printed.exit_code == 0, printed.output
    assert "take up to 4 calls" in printed.output
    assert f"every item has its scores, after 4 calls; 201 in {folder}" in " ".join(printed.output.split())
    again = run.invoke(app, ["index", "complete", str(folder), "--json"])
    assert json.loads(again.stdout) == {"calls": 0, "items": 201}
    assert load(folder, scorer=scorer).completing_calls == 0

    def held() -> bool:
        return any(b"a secret" in file.read_bytes() for file in filter(Path.is_file, folder.rglob("*")))

    assert held()
    printed = run.invoke(app, ["index", "compact", str(folder)])
    assert printed.exit_code == 0, printed.output
    assert f"1 removed item left the files; 201 in {folder}" in " ".join(printed.output.split())
    assert not held()
    assert crosscut.Index.verify(folder) == []
    again = run.invoke(app, ["index", "compact", str(folder), "--json"])
    assert json.loads(again.stdout) == {"compacted": 0, "items": 201}


def test_an_index_is_shown_changed_and_verified(tmp_path: Path) -> None:
    folder, run = str(tmp_path / "my.index"), CliRunner()
    crosscut.Index.build({"a": "ice floats", "b": "salt melts"}, encoder=None, method="hybrid").save(folder)
    shown = run.invoke(app, ["index", "show", folder]).output
    assert "{" not in shown
    assert "default (fingerprint" in shown
    assert json.loads(run.invoke(app, ["index", "show", folder, "--json"]).stdout)["items"] == 2
    (tmp_path / "more.jsonl").write_text('{"id": "c", "text": "iron rusts"}\n')
    added = run.invoke(app, ["index", "add", folder, str(tmp_path / "more.jsonl"), "--json"])
    assert json.loads(added.stdout) == {"added": 1, "items": 3}
    assert "1 item removed; 2 in" in run.invoke(app, ["index", "remove", folder, "c"]).output
    forgotten = run.invoke(app, ["index", "forget", folder, "b", "--json"])
    assert json.loads(forgotten.stdout) == {"forgotten": 1, "scores": 0, "searches": 0, "items": 1}
    wrong = run.invoke(app, ["index", "forget", folder, "a", "--log", "none.log"])
    assert "nothing was forgotten" in str(wrong.exception)
    assert run.invoke(app, ["index", "verify", folder]).exit_code == 0
    damaged = next(file for file in Path(folder).rglob("*") if file.is_file() and file.parent.name.startswith("0"))
    damaged.write_bytes(damaged.read_bytes()[:-1] + b"?")
    verified = run.invoke(app, ["index", "verify", folder, "--json"])
    assert (verified.exit_code, len(json.loads(verified.stdout)["damaged"])) == (1, 1)
