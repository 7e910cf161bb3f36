"""Does it pay? Advice on planted worlds whose answer is known."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from crosscut.cli import app
from crosscut.errors import InputError
from crosscut.evaluation.evaluate import MEASURE, Outcome, advise, evaluate, no_call_baselines
from crosscut.evaluation.pseudo_queries import title_queries
from crosscut.index import Index
from crosscut.scorers.adapters import TextScorer
from tests.unit.test_index import Planted, best, build


def curve(method: str, values: dict[int, float], seed: int = 0) -> list[Outcome]:
    noise = np.random.default_rng(seed).normal(scale=0.02, size=100)
    return [Outcome(method, calls, float(calls), {MEASURE: value + noise}) for calls, value in values.items()]


def free(value: float) -> list[Outcome]:
    return curve("bm25", {0: value}, seed=1) + curve("dense", {0: value - 0.2}, seed=2)


def test_a_scorer_that_pays_is_stopped_where_it_has_nothing_more_to_give() -> None:
    got = advise(curve("crosscut", {10: 0.5, 20: 0.71, 50: 0.715, 150: 0.716}), free(0.6), "crosscut")
    assert (got.verdict, got.stop_at, got.peak, got.without) == ("pays", 20, 150, "bm25")
    assert got.sentences[0].startswith("Stop at 20 calls: nDCG@10 0.71")
    assert got.gain is not None
    assert got.gain.mean == pytest.approx(0.11, abs=0.01)
    assert got.measured
    assert (got.next_from, got.next_calls) != (None, None)
    assert got.next_from == 50
    json.dumps(got.json())


def test_a_scorer_that_is_worse_than_words_is_called_so() -> None:
    searched = curve("crosscut", {10: 0.5, 100: 0.3}) + curve("rerank", {10: 0.52, 100: 0.4}, seed=4)
    got = advise(searched, free(0.6), "crosscut")
    assert got.verdict == "worse"
    assert got.sentences[0].startswith("This scorer is worse than BM25 here")
    assert any(
        sentence.startswith("More calls make the answer worse: from 10 to 100 calls") for sentence in got.sentences
    )
    assert any(sentence.startswith("Against rerank at 10 calls: -0.0") for sentence in got.sentences)


def test_of_a_few_queries_nothing_is_claimed() -> None:
    def of(calls: int, value: float, method: str = "crosscut", size: int = 3) -> Outcome:
        return Outcome(method, calls, float(calls), {MEASURE: np.full(size, value)})

    got = advise([of(10, 0.8), of(20, 0.9)], [of(0, 0.2, "bm25")], "crosscut")
    assert got.verdict == "unclear"
    assert got.sentences == (
        "3 judged queries are too few to be sure of anything: 10 at least, and 50 do well. "
        "nDCG@10 0.900 after 20 calls, 0.200 by BM25 without a call.",
    )
    assert advise([of(10, 0.8, size=1)], [], "crosscut").sentences[0].startswith("1 judged query is too few")
    assert advise([of(10, 0.8, size=10)], [of(0, 0.2, "bm25", 10)], "crosscut").verdict == "pays"


def test_where_relevance_still_rises_the_advice_is_not_to_stop() -> None:
    searched = curve("crosscut", {10: 0.5, 150: 0.8}) + curve("rerank", {10: 0.6, 150: 0.9})
    got = advise(searched, curve("base scores", {0: 0.4}, seed=1), "crosscut")
    assert (got.verdict, got.stop_at, got.peak) == ("pays", 150, 150)
    assert got.sentences[0].startswith("Make 150 calls, or more: nDCG@10 0.80")
    assert "by its base scores without a call" in got.sentences[0]
    assert got.sentences[1].startswith("Relevance still rises at 150 calls, +0.3")
    assert got.sentences[-1].endswith("rerank is the better method here.")
    flat = advise(curve("crosscut", {10: 0.7, 20: 0.7005}), free(0.6), "crosscut")
    assert flat.sentences[0].startswith("Stop at 10 calls")
    assert "Relevance is highest at 20 calls, the most that were made." in flat.sentences


def test_what_is_not_sure_is_not_claimed() -> None:
    got = advise(curve("crosscut", {10: 0.6005, 20: 0.6}), free(0.6), "crosscut")
    assert got.verdict == "unclear"
    assert got.sentences[0].startswith("It is not sure that calls pay")
    assert not got.measured
    assert "if the curve goes on" in " ".join(got.sentences)
    none = advise([Outcome("crosscut", 10, 10.0, {"recall of top 10": np.ones(5)})], [], "crosscut")
    assert none.verdict == "unknown"
    assert none.sentences[0].startswith("It is unknown whether the scorer is right")


def test_pairs_are_paid_once_and_counted_for_every_search() -> None:
    world = Planted()
    asked = {f"q{j}": f"query {j}" for j in range(5)}
    paid: list[tuple[str, str]] = []

    def score(query: str, texts: Any) -> Any:
        paid.extend((query, text) for text in texts)
        return world.score(query, texts)

    index = Index.build(
        [{"id": f"i{j}", "text": f"item {j} word"} for j in range(200)],
        scorer=TextScorer(score, fingerprint="counted"),
        encoder=world,
        dtype=np.float32,
    )
    judged = {id: {best(world, int(id[1:]), range(200), 1)[0]: 1.0} for id in asked}
    found = evaluate(index, asked, judged, methods=["rerank", "crosscut"], budgets=[20, 40])
    assert [point.calls for point in found] == [20, 40, 20, 40]
    assert len(paid) == len(set(paid))
    assert found[-1].each[MEASURE].mean() >= found[0].each[MEASURE].mean()
    without = {point.method: point for point in no_call_baselines(index, asked, judged)}
    assert set(without) == {"bm25", "dense", "bm25 + dense"}
    cosine = world.items[:200] @ (world.queries[:5] + 0.7).T
    first = [float(f"i{int(np.argmax(cosine[:, j]))}" in judged[f"q{j}"]) for j in range(5)]
    assert without["dense"].each["Success@1"].tolist() == first


def test_titles_are_hidden_from_their_items() -> None:
    world = Planted()
    items = [{"id": f"i{j}", "title": f"query {j % 50}", "text": f"item {j} fig"} for j in range(60)]
    index = Index.build(items, scorer=TextScorer(world.score, fingerprint="p"), encoder=world, dtype=np.float32)
    plain, asked = title_queries(index)
    assert all(not item.title for item in plain.items)
    assert len(asked.queries) == 50
    assert asked.qrels["query 3"] == {"i3": 1.0, "i53": 1.0}
    with pytest.raises(InputError, match="0 of 200 items have a title"):
        title_queries(build(world))


@pytest.mark.services
def test_the_command_plots_advises_and_prints_the_split(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    world = Planted()
    build(world).save(tmp_path / "my.index")
    load: Any = Index.load
    monkeypatch.setattr(
        Index,
        "load",
        lambda path, **_: load(path, scorer=TextScorer(world.score, fingerprint="planted"), encoder=world),
    )
    folder = tmp_path / "set"
    folder.mkdir()
    (folder / "queries.jsonl").write_text(
        "".join(json.dumps({"_id": f"q{j}", "text": f"query {j}"}) + "\n" for j in range(100))
    )
    (folder / "qrels.tsv").write_text("".join(f"q{j}\t{best(world, j, range(200), 1)[0]}\t1\n" for j in range(100)))
    out, picture = tmp_path / "out.json", tmp_path / "out.svg"
    result = CliRunner().invoke(
        app,
        [
            *("evaluate", str(tmp_path / "my.index"), str(folder), "--budgets", "10,40", "--exhaustive", "4"),
            *("--limit", "12", "--json", str(out), "--plot", str(picture)),
        ],
    )
    assert result.exit_code == 0, result.output
    assert "a fixed fifth is test" in result.output
    assert "drawn with seed 0" in result.output
    lines = result.stdout.splitlines()
    assert max(map(len, lines[: len(lines) // 2])) <= 80
    made = json.loads(out.read_text())
    assert made["advice"]["verdict"] == "pays"
    assert {record["method"] for record in made["records"]} == {"bm25", "dense", "bm25 + dense", "rerank", "crosscut"}
    assert any(line.startswith("Stop at") for line in lines)
    assert picture.read_text().lstrip().startswith("<?xml")
    screen = CliRunner(env={"FORCE_COLOR": "1", "COLUMNS": "80"}).invoke(
        app,
        [
            "evaluate",
            str(tmp_path / "my.index"),
            str(folder),
            "--budgets",
            "10,40",
            "--exhaustive",
            "0",
            "--limit",
            "12",
        ],
    )
    shown = re.sub(r"\x1b\[[0-9;]*m", "", screen.stdout).splitlines()
    assert max(map(len, shown)) <= 80
    assert any(line.startswith("Stop at") for line in shown)
    nothing = CliRunner().invoke(app, ["evaluate", str(tmp_path / "my.index")])
    assert isinstance(nothing.exception, InputError)
