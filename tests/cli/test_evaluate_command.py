"""`crosscut evaluate`: what can fail does so before the first call."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from crosscut.cli import app
from crosscut.errors import InputError, MissingDependency
from crosscut.index import Index
from crosscut.scorers import TextScorer

CALLS: list[int] = []


def score(query: str, texts: Any) -> list[float]:
    CALLS.append(len(texts))
    return [float(len(set(query.split()) & set(text.split()))) for text in texts]


@pytest.fixture
def command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    scorer = TextScorer(score, fingerprint="overlap")
    items = [{"id": f"i{j}", "text": f"word{j} word{j + 1}"} for j in range(30)]
    Index.build(items, scorer=scorer, encoder=None, method="rerank").save(tmp_path / "my.index")
    load: Any = Index.load
    monkeypatch.setattr(Index, "load", lambda path, **_: load(path, scorer=scorer))
    (tmp_path / "queries.tsv").write_text("q1\tword3\nq2\tword7\n")
    (tmp_path / "qrels.tsv").write_text("q1\ti3\t1\nq2\ti7\t1\n")
    CALLS.clear()
    asked = [str(tmp_path / "my.index"), str(tmp_path / "queries.tsv"), "--qrels", str(tmp_path / "qrels.tsv")]
    return ["evaluate", *asked, "--split", "all", "--budgets", "10", "--methods", "rerank@first=lexical"]


def test_a_missing_package_is_reported_before_the_first_call(
    command: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "ir_measures", None)
    result = CliRunner().invoke(app, command)
    assert isinstance(result.exception, MissingDependency)
    assert CALLS == []


@pytest.mark.parametrize(
    "wrong", [["--json", "nowhere/out.json"], ["--methods", "axn"], ["--methods", "rerank@first=dense"]]
)
def test_wrong_options_are_reported_before_the_first_call(command: list[str], wrong: list[str]) -> None:
    result = CliRunner().invoke(app, [*command, *wrong])
    assert isinstance(result.exception, InputError)
    assert CALLS == []


def test_the_truth_is_kept_if_a_later_step_fails(
    command: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("ir_measures")
    from crosscut.evaluation import evaluate

    def fails(*_: Any) -> Any:
        raise MemoryError

    monkeypatch.setattr(evaluate, "_relevance", lambda queries, qrels, runs: fails() if qrels else {})
    result = CliRunner().invoke(app, [*command, "--json", str(tmp_path / "out.json")])
    assert isinstance(result.exception, MemoryError)
    assert "recall of top 10" in (tmp_path / "out.json").read_text()
