"""Scores as probabilities."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression
from typer.testing import CliRunner

from crosscut.cli import app
from crosscut.datasets import Item
from crosscut.errors import InputError
from crosscut.index import Index
from crosscut.linalg.logistic import logistic
from crosscut.scorers.adapters import TextScorer
from crosscut.scorers.calibration import (
    Calibration,
    JudgedScores,
    against_random,
    brier_skill,
    calibrate,
    calibration_error,
    clues,
)
from crosscut.search.hits import Scored
from crosscut.types import Floats
from tests.fake_store import MemoryStore
from tests.unit.test_index import Planted, build

ROOT = Path(__file__).parents[2]


def planted(
    queries: int, seed: int = 0, scale: float = 1.0, shift: float = 0.0, draw: str = "normal", of: int = 10
) -> list[JudgedScores]:
    """Queries whose best items are relevant with a chance that falls with the distance from the first."""
    rng = np.random.default_rng(seed)
    made = []
    for _ in range(queries):
        scores = np.sort(getattr(rng, draw)(size=of) + rng.normal())[::-1][:10]
        chance = 1 / (1 + np.exp(1.5 - 2.5 * (scores - scores.mean())))
        made.append(JudgedScores(scale * scores + shift, (rng.random(10) < chance).astype(np.float64)))
    return made


def chances(calibration: Calibration, judged: list[JudgedScores]) -> Floats:
    return np.concatenate([calibration.probabilities(query.scores, query.scores) for query in judged])


def test_the_regression_is_that_of_scikit_learn() -> None:
    rng = np.random.default_rng(1)
    x = rng.normal(size=(300, 4))
    truth = (rng.random(300) < 1 / (1 + np.exp(-x @ [1, -2, 0.5, 0]))).astype(np.float64)
    theirs = LogisticRegression(C=1 / 3.0, fit_intercept=False, tol=1e-10, max_iter=1000).fit(x, truth).coef_[0]
    assert logistic(x, truth, 3.0) == pytest.approx(theirs, abs=1e-4)


def test_probabilities_are_what_happens_on_other_queries() -> None:
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
    middle = (said > 0.4) & (said < 0.6)
    assert 0.4 < truth[middle].mean() < 0.6


def test_a_scorer_of_another_scale_has_the_same_probabilities() -> None:
    one, other = calibrate(planted(60), "a"), calibrate(planted(60, scale=250.0, shift=-9.0), "b")
    assert chances(other, planted(50, seed=2, scale=250.0, shift=-9.0)) == pytest.approx(
        chances(one, planted(50, seed=2)), abs=1e-6
    )


def test_a_score_is_compared_with_the_best_of_the_others() -> None:
    rows = clues("both", np.array([5.0, 3.0, 1.0]), np.array([1.0, 5.0, 3.0]))
    spread = np.std([5, 3, 1])
    wanted = np.array([[2.0, 2.0], [0.0, -2.0], [-2.0, -4.0]])
    assert rows == pytest.approx(np.concatenate([wanted / spread, wanted], 1))
    deeper = clues("shape", np.array([-100.0]), np.concatenate([np.arange(10.0), np.full(90, -100.0)]))
    assert deeper == pytest.approx(np.array([[-104.5, -109.0]]) / np.std(np.arange(10.0)))


@pytest.mark.parametrize("length", [2, 5, 8])
def test_a_search_that_was_cut_short_is_not_thought_less_of(length: int) -> None:
    made = calibrate(planted(200, draw="exponential", of=100), "a")
    queries = planted(500, seed=3, draw="exponential", of=100)
    whole = np.array([made.probabilities(query.scores[:length], query.scores) for query in queries])
    cut = np.array([made.probabilities(query.scores[:length], query.scores[:length], cut=True) for query in queries])
    plain = np.array([made.probabilities(query.scores[:length], query.scores[:length]) for query in queries])
    truth = np.concatenate([query.relevant[:length] for query in queries])
    assert abs(cut.mean() - whole.mean()) < 0.5 * abs(plain.mean() - whole.mean())
    assert calibration_error(cut.ravel(), truth) < 0.6 * calibration_error(plain.ravel(), truth)
    short = [JudgedScores(query.scores[:length], query.relevant[:length], cut=True) for query in planted(200)]
    assert calibrate(short, "a").among.mean[0] > calibrate([replace(q, cut=False) for q in short], "a").among.mean[0]


def test_searches_tell_whether_they_were_cut_short(world: Planted) -> None:
    index = build(world)
    index.calibrate(judged_by(world, range(60)), budget=40)
    made = index.calibration
    assert made is not None
    hits = index.search("query 70", k=3, budget=5)
    assert hits.cut
    scores = Scored.of(hits.trace).scores
    assert [hit.probability for hit in hits] == made.probabilities(hits.scores, scores, cut=True).tolist()
    assert [hit.probability for hit in hits] > made.probabilities(hits.scores, scores).tolist()
    few = index.search("query 70", k=3, filter=lambda item: item.id in ("i1", "i2", "i3", "i4"))
    assert not few.cut
    scores = Scored.of(few.trace).scores
    assert [hit.probability for hit in few] == made.probabilities(few.scores, scores).tolist()


def test_measures_by_hand() -> None:
    chance, truth = np.array([0.2, 0.2, 0.8, 0.8]), np.array([0.0, 1.0, 1.0, 1.0])
    assert calibration_error(chance, truth, bins=2) == pytest.approx((0.3 + 0.2) / 2)
    assert brier_skill(chance, truth) == pytest.approx(1 - ((0.04 + 0.64 + 0.04 + 0.04) / 4) / (0.75 * 0.25))


def test_too_little_to_learn_from_is_refused() -> None:
    with pytest.raises(InputError, match="9 judged queries"):
        calibrate(planted(9), "a")
    nothing = [JudgedScores(query.scores, 0 * query.relevant) for query in planted(20)]
    with pytest.raises(InputError, match="0 relevant"):
        calibrate(nothing, "a")
    with pytest.raises(InputError, match="random pairs"):
        against_random(np.zeros(100), "a")


def test_ties_and_single_scores_have_probabilities_too() -> None:
    made = calibrate(planted(50), "a")
    for scores in ([1.0], [1.0, 1.0], [2.0, 2.0, 2.0]):
        said = made.probabilities(np.array(scores), np.array(scores))
        assert ((said > 0) & (said < 1)).all()


def test_a_calibration_is_kept_and_belongs_to_its_scorer() -> None:
    made = calibrate(planted(50), "a", calls=7)
    assert Calibration.from_json(json.loads(json.dumps(made.json()))) == made
    with pytest.raises(InputError, match="calibrated for scorer a, and this one is b"):
        made.check("b")


def judged_by(world: Planted, queries: range) -> dict[str, dict[str, float]]:
    """Items are relevant as a coin falls that depends on the score."""
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


def test_an_index_gives_probabilities_and_respects_a_threshold(world: Planted, tmp_path: Path) -> None:
    index = build(world)
    assert index.search("query 70", budget=40)[0].probability is None
    with pytest.raises(InputError, match=r"threshold=0\.5 needs an index that is calibrated"):
        index.search("query 70", threshold=0.5)
    with pytest.raises(InputError, match="would make up to 2000 calls and may make 100"):
        index.calibrate(judged_by(world, range(50)), budget=40, max_calls=100)
    made = index.calibrate(judged_by(world, range(50)), budget=40)
    assert (made.queries, made.calls, index.calibration) == (50, 2000, made)
    right = judged_by(world, range(50, 100))
    found = index.search_many(list(right), budget=40)
    said = np.array([hit.probability for hits in found for hit in hits])
    truth = np.array([right[hits.query][hit.id] for hits in found for hit in hits])
    assert calibration_error(said, truth) < 0.1
    assert brier_skill(said, truth) > 0
    for hits in found:
        kept = index.search(hits.query, budget=40, threshold=0.5)
        assert kept.ids == [hit.id for hit in hits if hit.probability is not None and hit.probability >= 0.5]
        assert kept.calls == hits.calls
        one = index.search(hits.query, k=1, budget=40)  # how many are asked for changes nothing
        assert one[0].probability == hits[0].probability
    with pytest.raises(InputError, match=r"0 … 1; got 1\.5"):
        index.search("query 70", threshold=1.5)
    index.save(tmp_path / "kept")
    again = Index.load(tmp_path / "kept", scorer=TextScorer(world.score, fingerprint="planted"), encoder=world)
    assert again.calibration == made
    other = Index.load(
        tmp_path / "kept", scorer=TextScorer(world.score, fingerprint="another"), encoder=world, any_scorer=True
    )
    assert other.search("query 70", budget=40)[0].probability is None
    with pytest.raises(InputError, match="calibrated for scorer planted, and this one is another"):
        other.search("query 70", budget=40, threshold=0.5)


def test_without_judgements_random_pairs_will_do(world: Planted) -> None:
    index = build(world)
    made = index.calibrate(queries=[f"query {j}" for j in range(40)], pairs=400)
    assert (made.queries, made.random, made.calls) == (0, 400, 400)
    scores = [world.score(f"query {j}", [f"item {i}" for i in range(200)]) for j in range(40)]
    assert made.alone.mean[0] == pytest.approx(np.mean(scores), abs=0.5)
    assert made.alone.scale[0] == pytest.approx(np.std(scores), rel=0.15)
    hits = index.search("query 70", budget=40)
    said = [hit.probability for hit in hits]
    assert said == sorted(said, key=lambda one: -1 if one is None else -one)
    alone = index.probabilities([0.0, 3.0, 30.0])
    assert 0 < alone[0] < alone[1] < alone[2] <= 1
    anchored = build(world, queries=20)
    assert anchored.calibrate().calls == 0


def test_over_a_store_random_pairs_will_do_too(world: Planted) -> None:
    items = [Item(f"i{j}", "", f"item {j}") for j in range(100)]
    store = MemoryStore(items, np.asarray(world.items[:100], np.float64))
    index = Index.over(store, scorer=TextScorer(world.score, fingerprint="planted"), encoder=world)
    for queries in (None, [f"query {j}" for j in range(40)]):
        made = index.calibrate(queries=queries, pairs=80)
        assert (made.queries, made.random, made.calls) == (0, 80, 80)
    assert index.search("query 70", budget=40)[0].probability is not None


TEXTS = [
    "Vaccines train the immune system to recognise a germ.",
    "Bread is baked from flour, water and yeast.",
    "A river is a natural flowing watercourse.",
    "Antibodies bind to what is foreign to the body.",
    "The market was quiet on Monday.",
    "A compiler translates a program into machine code.",
    "Whales are mammals that live in the sea.",
    "The violin has four strings.",
    "Glaciers are rivers of ice.",
    "Tea is made from leaves.",
    "Copper conducts electricity well.",
    "The goalkeeper may use both hands.",
]


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
    queries = tmp_path / "queries.tsv"
    queries.write_text("".join(f"q{j}\tquery {j}\n" for j in range(60)))
    qrels = tmp_path / "qrels.tsv"
    qrels.write_text(
        "".join(f"q{text.split()[1]}\t{id}\t{int(value)}\n" for text, one in right.items() for id, value in one.items())
    )
    run = CliRunner()
    told = run.invoke(
        app,
        [
            "calibrate",
            str(tmp_path / "my.index"),
            str(queries),
            "--judgements",
            str(qrels),
            "--limit",
            "50",
            "--budget",
            "40",
        ],
    )
    assert told.exit_code == 0, told.output
    assert "calibrated on 50 judged queries" in told.output
    answer = run.invoke(
        app, ["search", str(tmp_path / "my.index"), "query 70", "--budget", "40", "--threshold", "0.3", "--json"]
    )
    hits = json.loads(answer.stdout)["hits"]
    assert all(hit["probability"] >= 0.3 for hit in hits)
    plain = run.invoke(app, ["search", str(tmp_path / "my.index"), "query 70", "--budget", "40"])
    assert "probability" in plain.stdout


def test_the_level_of_a_query_counts() -> None:
    """Some queries have more that is relevant than others, and their scores are higher as a whole."""
    rng = np.random.default_rng(0)
    judged = []
    for level in rng.normal(size=200) * 3:
        scores = np.sort(level + rng.normal(size=10))[::-1]
        judged.append(JudgedScores(scores, (rng.random(10) < 1 / (1 + np.exp(-level))).astype(float)))
    made = calibrate(judged[:100], "planted")
    assert made.among.kind == "level"
    high, low = (made.among.chance(level + np.linspace(1, -1, 10)).mean() for level in (4.0, -4.0))
    assert high > 0.8
    assert low < 0.2
