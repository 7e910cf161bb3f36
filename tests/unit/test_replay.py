"""Replays and studies on planted matrices."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

import crosscut
from crosscut import cli
from crosscut.errors import InputError
from crosscut.evaluation.replay import normalisation, score_data
from crosscut.measures import interval, paired_interval, recall, undecided
from crosscut.methods import parse
from crosscut.spaces import Vectors
from tests.worlds import Planted, planted

ROOT = Path(__file__).parents[2]


def test_recall_by_hand() -> None:
    scores = np.array([5.0, 4, 3, 3, 3, 1])
    assert recall(scores, np.array([0, 1]), 2) == 1
    assert recall(scores, np.array([0, 5]), 2) == 0.5
    assert recall(scores, np.array([0, 1, 4]), 3) == 1  # tied at the third place: any of the three will do
    assert recall(scores, np.array([2, 3, 4]), 3) == pytest.approx(1 / 3)
    assert recall(scores, np.array([], dtype=np.int64), 3) == 0
    assert recall(scores, np.arange(6), 100) == 1


def test_intervals_cover_the_mean() -> None:
    rng = np.random.default_rng(0)
    covered = 0
    for seed in range(100):
        low, high = interval(rng.binomial(1, 0.7, size=100).astype(float), seed=seed)
        covered += low <= 0.7 <= high
    assert 88 <= covered <= 100
    mean, low, high = paired_interval(np.array([1.0, 2, 3]), np.array([0.0, 1, 2]))
    assert (mean, low, high) == (1, 1, 1)


def test_replay_reports_every_method_budget_and_k(world: Planted) -> None:
    methods = [
        "rerank",
        "anncur",
        "adacur",
        "axn@rounds=3,mix=0.2",
        "crosscut",
        "exact",
    ]
    report = crosscut.replay(
        world.test,
        world.anchors,
        world.vectors,
        world.query_vectors,
        methods=methods[:-1],
        budgets=[20, 60],
        k=[1, 5],
        seeds=2,
    )
    assert len(report.records) == 5 * 2 * 2
    for record in report:
        assert record.calls == record.budget
        assert 0 <= record.low <= record.recall <= record.high <= 1
        assert set(record.seconds) == {"scorer", "fit", "select"}
    assert report.get("rerank", 1, 20).seeds == 1  # nothing is drawn
    assert report.get("adacur", 1, 20).seeds == 2
    assert report.get("anncur", 5, 60).settings["split_chosen_by"] == "tuned"
    assert report.get("axn@rounds=3,mix=0.2", 5, 60).settings == {"rounds": 3, "mix": 0.2}
    everything = crosscut.replay(world.test, methods=["exact"], budgets=[world.n], k=[5], seeds=1)
    assert everything.get("exact", 5, world.n).recall == 1
    with pytest.raises(InputError, match="no record of rerank"):
        everything.get("rerank", 5, 1)


def test_a_world_is_replayed_as_its_arrays_are(world: Planted) -> None:
    how: Any = {"methods": ["rerank", "adacur"], "budgets": [20], "k": [5], "seeds": 1}
    arrays = (world.test, world.anchors, world.vectors, world.query_vectors)
    one, other = crosscut.replay(score_data(*arrays), **how), crosscut.replay(*arrays, **how)
    assert [record.recall for record in one] == [record.recall for record in other]


def test_the_oracle_split_is_labelled_and_at_least_as_good_as_any(world: Planted) -> None:
    oracle = crosscut.replay(
        world.test, world.anchors, methods=["anncur"], budgets=[40], k=[5], seeds=1, split="oracle"
    ).records[0]
    assert oracle.settings["split_chosen_by"] == "oracle"
    for split in (0.3, 0.5, 0.8):
        plain = crosscut.replay(
            world.test, world.anchors, methods=["anncur"], budgets=[40], k=[5], seeds=1, split=split
        ).records[0]
        assert plain.recall <= oracle.recall


def test_tuning_never_sees_the_test_queries(world: Planted) -> None:
    """The split chosen on anchors is the same whatever the test scores are."""
    chosen = [
        crosscut.replay(matrix, world.anchors, methods=["anncur"], budgets=[40], k=[5], seeds=1).records[0].settings
        for matrix in (world.test, -world.test)
    ]
    assert chosen[0] == chosen[1]


def test_axn_is_tuned_on_anchor_queries() -> None:
    world = planted(anchors=40)
    rng = np.random.default_rng(0)
    anchor_vectors = rng.normal(size=(40, world.vectors.shape[1]))
    report = crosscut.replay(
        world.test,
        world.anchors,
        world.vectors,
        world.query_vectors,
        methods=["axn"],
        budgets=[30],
        k=[5],
        tune_axn=True,
        anchor_query_vectors=anchor_vectors,
    )
    settings = report.records[0].settings
    assert settings.get("mix", 0.0) in (0.0, 0.2, 0.4, 0.6, 0.8)
    scaled = settings["beta"] * (world.anchors - settings["alpha"])
    encoder = anchor_vectors @ world.vectors.T
    assert scaled.mean() == pytest.approx(encoder.mean(), abs=1e-6)
    assert scaled.std() == pytest.approx(encoder.std(), rel=1e-6)
    with pytest.raises(InputError, match="all the same"):
        normalisation(np.ones((3, world.n)), Vectors(world.vectors), anchor_vectors[:3])


def test_worlds_that_do_not_fit_together(world: Planted) -> None:
    with pytest.raises(InputError, match=r"anchors have shape \(30, 9\)"):
        score_data(world.test, world.anchors[:, :9])
    with pytest.raises(InputError, match="3 item vectors for 200 items"):
        score_data(world.test, vectors=world.vectors[:3])
    with pytest.raises(InputError, match="6 queries"):
        score_data(world.test, vectors=world.vectors, query_vectors=world.query_vectors[:2])
    with pytest.raises(InputError, match="2 anchor query vectors for 30"):
        score_data(world.test, world.anchors, anchor_query_vectors=np.ones((2, 3)))
    with pytest.raises(InputError, match="not empty"):
        score_data(np.empty((0, 5)))
    with pytest.raises(InputError, match="k = 900 is more than the 200 items"):
        crosscut.replay(world.test, methods=["exact"], budgets=[200], k=[900])
    with pytest.raises(InputError, match="needs scores of anchor queries and has none: give anchors"):
        crosscut.replay(world.test, methods=["adacur"], budgets=[20], k=[1])
    with pytest.raises(InputError, match="no '='"):
        parse("axn@rounds")
    with pytest.raises(InputError, match="at least one method"):
        crosscut.replay(world.test, methods=[])
    with pytest.raises(InputError, match="at least 1 seed"):
        crosscut.replay(world.test, world.anchors, methods=["adacur"], budgets=[20], k=[1], seeds=0)


def test_a_matrix_of_ties_is_noted() -> None:
    test = np.zeros((3, 20))
    test[2] = np.arange(20)
    assert undecided(test, 5).tolist() == [True, True, False]
    assert undecided(np.array([[1.0, 1, 1, 0, 0, 0, 0, 0]]), 3).tolist() == [False]  # tied, and all of them needed
    with pytest.warns(UserWarning, match=r"2 of 3 test queries .* the 20 items tie at place 5"):
        report = crosscut.replay(test, vectors=np.eye(20), query_vectors=np.ones((3, 20)), methods=["rerank"], k=[5])
    assert len(report.notes) == 1


def test_the_command_line_says_so_too(tmp_path: Path) -> None:
    np.savez(tmp_path / "flat.npz", test=np.zeros((2, 20)), vectors=np.eye(20), query_vectors=np.ones((2, 20)))
    result = CliRunner().invoke(
        cli.app, ["replay", "--data", str(tmp_path / "flat.npz"), "--methods", "rerank", "--budgets", "5", "-k", "1"]
    )
    assert result.exit_code == 0
    assert "note: for 2 of 2 test queries at least half of the 20 items tie at place 1" in result.stderr


@pytest.mark.services
def test_command_line(world: Planted, tmp_path: Path) -> None:
    data = tmp_path / "world.npz"
    np.savez(data, test=world.test, train=world.anchors, vectors=world.vectors, query_vectors=world.query_vectors)
    options = {
        "--data": data,
        "--budgets": "20,60",
        "-k": "1,5",
        "--seeds": 2,
        "--methods": "rerank,adacur,axn@mix=0.1,select=softmax,crosscut",
        "--rounds": "2,4",
        "--json": tmp_path / "out.json",
        "--plot": tmp_path / "recall.png",
    }
    command = ["replay", *(str(part) for pair in options.items() for part in pair)]
    run = CliRunner().invoke(cli.app, command)
    assert run.exit_code == 0, run.output
    assert "crosscut" in run.output
    assert "share of the top 5 found" in run.output
    assert max(map(len, run.output.splitlines())) <= 80
    records = json.loads((tmp_path / "out.json").read_text())
    assert len(records) == 2 * 4 * 2 * 2
    assert {"method", "k", "budget", "recall", "low", "high", "calls", "seconds"} <= set(records[0])
    assert {record["settings"].get("rounds") for record in records if record["method"] == "adacur"} == {2, 4}
    assert (tmp_path / "recall.png").stat().st_size > 5_000


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["replay"], "needs the scores of test queries"),
        (["replay", "--test", "nowhere.npy"], "there is no file nowhere.npy"),
        (["replay", "--data", "README.md"], "is not a readable numpy file"),
        (["replay", "--data", "{test}"], "holds one array"),
        (["replay", "--test", "[/x].npy"], "there is no file [/x].npy"),
        (["replay", "--test", "{test}", "--methods", "axn@first=best"], "first of axn is one of auto, dense"),
        (["replay", "--test", "{test}", "--budgets", "few"], "--budgets takes whole numbers"),
        (["replay", "--test", "{test}", "--budgets", "0"], "at least 1"),
        (["replay", "--test", "{test}", "--methods", "magic", "-k", "1"], "unknown method 'magic'"),
        (["replay", "--test", "{test}", "--methods", "rerank", "--split", "half", "-k", "1"], "--split takes tuned"),
    ],
)
def test_command_line_errors_are_sentences_with_exit_code_2(
    arguments: list[str],
    message: str,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    np.save(tmp_path / "test.npy", np.ones((2, 5)))
    command = [part.format(test=tmp_path / "test.npy") for part in arguments]
    monkeypatch.setattr("sys.argv", ["crosscut", *command])
    with pytest.raises(SystemExit) as stopped:
        cli.main()
    assert stopped.value.code == 2
    error = capfd.readouterr().err
    assert message in " ".join(error.split())
    assert "Traceback" not in error
