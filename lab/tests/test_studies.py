"""Every study at toy size, and the harness on arms whose outcome is known."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from toys import archive
from typer.testing import CliRunner

from crosscut.evaluation.replay import score_data
from crosscut_lab.cli import app
from crosscut_lab.matrices import load, path_of
from crosscut_lab.studies.harness import Arm, compare
from crosscut_lab.studies.studies import STUDIES

pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.mark.parametrize("name", sorted(STUDIES))
def test_every_study_runs(name: str, tmp_path: Path) -> None:
    path = archive(tmp_path, items=150, train=45, test=6)
    found = CliRunner().invoke(app, ["study", name, str(path), "--seeds", "1", "--output", str(tmp_path)])
    assert found.exit_code == 0, f"{found.output} {found.exception!r}"
    records = json.loads((tmp_path / f"{name}.json").read_text())["records"]
    assert all(0 <= one["recall"] <= 1 for one in records)
    assert any("gain" in one for one in records)


def test_calibration_on_collections(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    evidence = {}
    for name in ("a", "b"):
        scores = rng.normal(size=(90, 30)) * 4 + 15
        right = (rng.random(scores.shape) < 1 / (1 + np.exp(-(scores - 18)))).astype(np.float32)
        for column in ("score", "best_bm25"):
            evidence[f"{name}/test/{column}"] = scores
        evidence[f"{name}/test/relevant"] = evidence[f"{name}/test/best_bm25_relevant"] = right
        evidence[f"{name}/random"] = rng.normal(size=(320, 3)) * 4 + 8
    np.savez(tmp_path / "evidence.npz", **evidence)
    found = CliRunner().invoke(app, ["study", "calibration", str(tmp_path / "evidence.npz"), "--output", str(tmp_path)])
    assert found.exit_code == 0, f"{found.output} {found.exception!r}"
    records = json.loads((tmp_path / "calibration.json").read_text())["records"]
    assert all(one["error"] < 0.2 for one in records if one["scorer"] == "cross-encoder")


def test_gains_are_paired_and_draws_averaged() -> None:
    rng = np.random.default_rng(0)
    scores = rng.normal(size=(8, 60))
    data = score_data(scores, vectors=np.eye(60), query_vectors=scores)  # vectors that know the scores
    blind = score_data(scores, vectors=np.eye(60), query_vectors=-scores)
    arms = [Arm("right", "rerank", data), Arm("wrong", "rerank", blind), Arm("wrong", "rerank", data)]
    right, wrong = compare(arms, [(5, 10)])
    assert right["recall"] == 1
    assert (wrong["recall"], wrong["draws"], wrong["against"]) == (0.5, 2, "right")
    assert wrong["gain"] == -0.5
    assert right["calls"] == 10


def test_matrices_are_found_by_name(tmp_path: Path) -> None:
    assert path_of("wordnet-feeling").is_file()
    matrix = load("wordnet-feeling")
    assert matrix.data.test.shape == (60, 428)
    assert len(load("wordnet-30k").past) == 1000
    found = CliRunner().invoke(app, ["study", "rivals", "nowhere"])
    assert "there is no matrix 'nowhere'" in str(found.exception) + found.output
