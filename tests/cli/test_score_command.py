"""`crosscut score`."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from crosscut import cli
from crosscut.errors import InputError, StoreError
from crosscut.score_store import ScoreStore, engines, jobs
from tests import hash_scorer

pytestmark = pytest.mark.usefixtures("unsynced")
ITEMS = [f"item {number}" for number in range(40)]
QUERIES = [f"query {number}" for number in range(6)]
TRUTH = hash_scorer.expected(QUERIES, ITEMS)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A BEIR folder, and a scorer that needs no model under the name "default"."""
    for target in (jobs, pytest.importorskip("crosscut.scorers.loading")):
        monkeypatch.setattr(target, "load_scorer", lambda name: hash_scorer.make())
    for name, texts in (("corpus", ITEMS), ("queries", QUERIES)):
        lines = [json.dumps({"_id": f"{name[0]}{place}", "text": text}) for place, text in enumerate(texts)]
        (tmp_path / f"{name}.jsonl").write_text("\n".join(lines))
    return tmp_path


def run(*arguments: object, code: int = 0) -> tuple[str, str]:
    result = CliRunner().invoke(cli.app, ["score", *map(str, arguments)])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.exit_code == code, result.output
    return result.stdout, result.stderr


def test_scores_resumes_and_says_what_it_does(folder: Path) -> None:
    store = folder / "store"
    out, err = run(folder, "--store", store, "--limit", 100, "--price-per-thousand", 5, "--json")
    facts = json.loads(out)
    assert (facts["calls"], facts["known"], facts["missing"], facts["cost"]) == (100, 0, 140, 0.5)
    assert "0 of 240 scores are in the store; 100 calls to make" in " ".join(err.split())
    status = json.loads(run(folder, "--store", store, "--status", "--price-per-thousand", 5, "--json")[0])
    assert (status["pairs"], status["known"], status["missing"], status["cost"]) == (240, 100, 140, 0.7)
    assert status["seconds_left"] > 0
    said = " ".join(run(folder, "--store", store, "--status")[0].split())
    assert "100 of 240 scores are in the store (41.7 %)" in said
    assert "140 calls to make" in said
    out, err = run(folder, "--store", store)
    assert "made 140 calls" in out
    assert "nothing to score: all 240 scores" in run(folder, "--store", store)[1]
    np.testing.assert_array_equal(ScoreStore.open(store).matrix(QUERIES, ITEMS), TRUTH)


def test_files_of_items_queries_and_pairs(folder: Path) -> None:
    (folder / "items.txt").write_text("\n".join(ITEMS))
    (folder / "queries.tsv").write_text("\n".join(f"{place}\t{text}" for place, text in enumerate(QUERIES)))
    (folder / "pairs.tsv").write_text("query-id\tcorpus-id\tscore\n0\t1\t1\n0\t3\t1\n5\t40\t1\n0\t1\t1\n")
    arguments = (folder / "items.txt", "--queries", folder / "queries.tsv", "--store", folder / "store")
    chosen = (*arguments, "--pairs", folder / "pairs.tsv")
    assert json.loads(run(*chosen, "--status", "--json")[0])["missing"] == 3
    assert json.loads(run(*chosen, "--json")[0])["calls"] == 3
    assert json.loads(run(*chosen, "--status", "--json")[0])["missing"] == 0
    found = ScoreStore.open(folder / "store").pairs(QUERIES, ITEMS)
    assert list(zip(found.rows.tolist(), found.columns.tolist(), strict=True)) == [(0, 0), (0, 2), (5, 39)]
    np.testing.assert_array_equal(found.scores, TRUTH[found.rows, found.columns])
    assert json.loads(run(*arguments, "--max-queries", 2, "--json")[0])["known"] == 2


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["items.txt"], "--queries"),
        (["nowhere.jsonl", "--queries", "queries.jsonl"], "there is no file"),
        ([".", "--engine", "slurm"], "no engine 'slurm'"),
        ([".", "--address", "auto"], "no address"),
        ([".", "--limit", "0"], "limit is 0"),
        ([".", "--workers", "-1"], "-1 workers"),
        ([".", "--pairs", "bad.tsv"], "line 1: 'c99' is not among the 40 items"),
        ([".", "--pairs", "short.tsv"], "line 1 has no tab"),
        ([".", "--queries", "empty.txt"], "there are no queries"),
    ],
)
def test_errors_are_sentences(
    folder: Path, monkeypatch: pytest.MonkeyPatch, arguments: Sequence[str], words: str
) -> None:
    monkeypatch.chdir(folder)
    (folder / "items.txt").write_text("\n".join(ITEMS))
    (folder / "bad.tsv").write_text("q0\tc99\n")
    (folder / "short.tsv").write_text("q0 c9\n")
    (folder / "empty.txt").write_text("\n")
    with pytest.raises(InputError, match=words):
        run(*arguments, "--store", "store")


def test_a_store_that_is_a_file_is_a_sentence(folder: Path) -> None:
    with pytest.raises(StoreError, match="is a file"):
        run(folder, "--store", folder / "corpus.jsonl")


def test_an_interrupt_is_a_sentence_and_the_next_run_goes_on(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(engines.LocalEngine, "run", interrupted)
        assert "the same command goes on" in " ".join(run(folder, "--store", folder / "store", code=130)[1].split())
    run(folder, "--store", folder / "store")
    np.testing.assert_array_equal(ScoreStore.open(folder / "store").matrix(QUERIES, ITEMS), TRUTH)
