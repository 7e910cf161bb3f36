"""Scores as probabilities: of a pair and a scorer, whatever is listed with it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from crosscut.cli import app
from crosscut.errors import InputError
from crosscut.index import Index
from crosscut.scorers.adapters import TextScorer
from crosscut.scorers.calibration import (
    Calibration,
    JudgedScores,
    brier_skill,
    calibrate,
    calibration_error,
)
from crosscut.types import Floats
from tests.unit.test_index import Planted, build


def planted(queries: int, seed: int = 0, scale: float = 1.0, shift: float = 0.0) -> list[JudgedScores]:
    """Queries whose items are relevant with a chance that rises with their score."""
    rng = np.random.default_rng(seed)
    made = []
    for _ in range(queries):
        scores = np.sort(rng.normal(size=10) + rng.normal())[::-1]
        chance = 1 / (1 + np.exp(1.5 - 2.5 * scores))
        made.append(JudgedScores(scale * scores + shift, (rng.random(10) < chance).astype(np.float64)))
    return made


def chances(calibration: Calibration, judged: list[JudgedScores]) -> Floats:
    return np.concatenate([calibration.probabilities(query.scores) for query in judged])


def test_probabilities_are_right_on_other_queries() -> None:
    made = calibrate(planted(200), "a")
    unseen = planted(1000, seed=1)
    truth = np.concatenate([query.relevant for query in unseen])
    said = chances(made, unseen)
    assert calibration_error(said, truth) < 0.03
    assert brier_skill(said, truth) > 0.2
    assert made.error is not None
    assert made.skill is not None
    assert made.error == pytest.approx(calibration_error(said, truth), abs=0.04)
    assert made.skill == pytest.approx(brier_skill(said, truth), abs=0.06)


def test_the_scale_of_a_scorer_changes_nothing() -> None:
    one, other = calibrate(planted(60), "a"), calibrate(planted(60, scale=250.0, shift=-9.0), "b")
    assert chances(other, planted(50, seed=2, scale=250.0, shift=-9.0)) == pytest.approx(
        chances(one, planted(50, seed=2)), abs=1e-6
    )


def test_measures_by_hand() -> None:
    chance, truth = np.array([0.2, 0.2, 0.8, 0.8]), np.array([0.0, 1.0, 1.0, 1.0])
    assert calibration_error(chance, truth, bins=2) == pytest.approx((0.3 + 0.2) / 2)
    assert brier_skill(chance, truth) == pytest.approx(1 - ((0.04 + 0.64 + 0.04 + 0.04) / 4) / (0.75 * 0.25))


def test_too_few_judgements_are_refused() -> None:
    with pytest.raises(InputError, match="9 judged queries"):
        calibrate(planted(9), "a")
    with pytest.raises(InputError, match="0 relevant"):
        calibrate([JudgedScores(query.scores, 0 * query.relevant) for query in planted(20)], "a")


def test_probabilities_never_turn_the_order_of_scores_around() -> None:
    wrong = [JudgedScores(query.scores, 1 - query.relevant) for query in planted(50)]
    assert (np.diff(calibrate(wrong, "a").probabilities(np.linspace(-5, 5, 20))) >= 0).all()


def test_a_calibration_is_saved_and_belongs_to_its_scorer() -> None:
    made = calibrate(planted(50), "a", calls=7)
    assert Calibration.from_json(json.loads(json.dumps(made.json()))) == made
    with pytest.raises(InputError, match="calibrated for scorer a, and this one is b"):
        made.check("b")


def judged_by(world: Planted, queries: range) -> dict[str, dict[str, float]]:
    """Qrels in which an item is relevant with a chance that rises with its score."""
    rng = np.random.default_rng(5)
    made = {}
    for j in queries:
        scores = world.score(f"query {j}", [f"item {i}" for i in range(200)])
        chance = 1 / (1 + np.exp(6 - scores))
        made[f"query {j}"] = {f"i{i}": float(rng.random() < chance[i]) for i in range(200)}
    return made


@pytest.fixture
def world() -> Planted:
    return Planted()


@pytest.fixture
def calibrated(world: Planted) -> Index:
    index = build(world)
    index.calibrate(judged_by(world, range(50)), budget=40)
    return index


def test_hits_have_probabilities_and_a_threshold_is_respected(world: Planted, calibrated: Index) -> None:
    assert calibrated.calibration is not None
    assert (calibrated.calibration.queries, calibrated.calibration.calls) == (50, 2000)
    right = judged_by(world, range(50, 100))
    found = calibrated.search_many(list(right), budget=40)
    said = np.array([hit.probability for hits in found for hit in hits])
    truth = np.array([right[hits.query][hit.id] for hits in found for hit in hits])
    assert calibration_error(said, truth) < 0.1
    assert brier_skill(said, truth) > 0
    for hits in found[:10]:
        some = calibrated.search(hits.query, budget=40, threshold=0.5)
        assert some.ids == [hit.id for hit in hits if hit.probability is not None and hit.probability >= 0.5]
        assert some.calls == hits.calls
    with pytest.raises(InputError, match=r"0 … 1; got 1\.5"):
        calibrated.search("query 70", threshold=1.5)


@pytest.mark.parametrize(
    "other",
    [
        {"k": 1},
        {"budget": 15},
        {"filter": lambda item: item.id in ("i1", "i2", "i3", "i4")},
        {"filter": lambda item: int(item.id[1:]) % 3 == 0},
        {"order": "fused"},
    ],
)
def test_a_probability_does_not_depend_on_what_is_listed_with_it(calibrated: Index, other: dict[str, Any]) -> None:
    def probabilities(**options: Any) -> dict[str, float | None]:
        return {hit.id: hit.probability for hit in calibrated.search("query 70", **{"k": 200, **options})}

    everything, some = probabilities(method="exact"), probabilities(**other)
    assert len(some) > 0
    assert some == pytest.approx({id: everything[id] for id in some})


def test_without_judgements_there_are_no_probabilities(world: Planted, tmp_path: Path) -> None:
    index = build(world)
    hits = index.search("query 70", budget=40)
    assert hits[0].probability is None
    assert hits.to_json()["calibrated"] is False
    with pytest.raises(InputError, match=r"threshold=0\.5 needs an index that is calibrated"):
        index.search("query 70", threshold=0.5)
    with pytest.raises(InputError, match="would make up to 2000 calls and may make 100"):
        index.calibrate(judged_by(world, range(50)), budget=40, max_calls=100)


def test_a_calibration_is_saved_with_the_index(world: Planted, calibrated: Index, tmp_path: Path) -> None:
    calibrated.save(tmp_path / "saved")
    again = Index.load(tmp_path / "saved", scorer=TextScorer(world.score, fingerprint="planted"), encoder=world)
    assert again.calibration == calibrated.calibration
    other = Index.load(
        tmp_path / "saved", scorer=TextScorer(world.score, fingerprint="another"), encoder=world, any_scorer=True
    )
    assert other.search("query 70", budget=40)[0].probability is None
    with pytest.raises(InputError, match="calibrated for scorer planted, and this one is another"):
        other.search("query 70", budget=40, threshold=0.5)


def test_the_command_calibrates_and_the_search_respects_it(
    world: Planted, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    build(world).save(tmp_path / "my.index")
    load: Any = Index.load
    monkeypatch.setattr(
        Index,
        "load",
        lambda path, **_: load(path, scorer=TextScorer(world.score, fingerprint="planted"), encoder=world),
    )
    right = judged_by(world, range(60))
    queries, qrels = tmp_path / "queries.tsv", tmp_path / "qrels.tsv"
    queries.write_text("".join(f"q{j}\tquery {j}\n" for j in range(60)))
    qrels.write_text(
        "".join(f"q{text.split()[1]}\t{id}\t{int(value)}\n" for text, one in right.items() for id, value in one.items())
    )
    run = CliRunner()
    asked = ["calibrate", str(tmp_path / "my.index"), str(queries)]
    result = run.invoke(app, [*asked, "--qrels", str(qrels), "--limit", "50", "--budget", "40"])
    assert result.exit_code == 0, result.output
    assert "calibrated on 50 judged queries" in result.output
    search = ["search", str(tmp_path / "my.index"), "query 70", "--budget", "40"]
    hits = json.loads(run.invoke(app, [*search, "--threshold", "0.3", "--json"]).stdout)["hits"]
    assert all(hit["probability"] >= 0.3 for hit in hits)
    assert isinstance(run.invoke(app, asked).exception, InputError)
