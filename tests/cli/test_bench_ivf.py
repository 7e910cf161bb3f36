"""`crosscut bench ivf`: every exit rule on vectors of one's own."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from crosscut.ann.ivf import IVF
from crosscut.ann.ivf.learning import Observations
from tests.vectors import clumps


@pytest.mark.slow
def test_bench_ivf(tmp_path: Path) -> None:
    from typer.testing import CliRunner

    from crosscut.cli import app

    np.save(tmp_path / "items.npy", clumps(1500))
    np.save(tmp_path / "train.npy", clumps(150, seed=4))
    np.save(tmp_path / "test.npy", clumps(40, seed=5))
    (tmp_path / "gold.json").write_text(json.dumps([[j, j + 1] if j % 2 else [] for j in range(40)]))
    files = ["--vectors", str(tmp_path / "items.npy"), "--queries", str(tmp_path / "train.npy")]
    more = ["--test-queries", str(tmp_path / "test.npy"), "--judgements", str(tmp_path / "gold.json")]
    rest = ["--lists", "40", "-k", "10", "--repeats", "1", "--json", str(tmp_path / "out.json")]
    done = CliRunner().invoke(app, ["bench", "ivf", *files, *more, *rest, "--save", str(tmp_path / "ivf")])
    assert done.exit_code == 0, done.output
    record = json.loads((tmp_path / "out.json").read_text())
    rows = {row["name"]: row for row in record["rows"]}
    assert {"fixed", "patience", "chance"} <= set(rows)
    assert rows["fixed"]["lists"] == record["N"]
    assert rows["fixed"]["p"] == 1.0
    assert record["limits"]["oracle_lists"] <= rows["fixed"]["lists"]
    assert 0 <= rows["patience"]["mrr_10"] <= 1
    assert "trees" not in json.dumps(record["rows"])
    assert IVF.load(tmp_path / "ivf").rule.lists == record["N"]
    plain = CliRunner().invoke(app, ["bench", "ivf", *files, "--lists", "40", "-k", "10", "--repeats", "1"])
    assert plain.exit_code == 0, plain.output
    assert "patience" in plain.output
    assert "mRR" not in plain.output


def test_what_a_rule_earns_has_an_interval() -> None:
    from crosscut.evaluation.clustered import earned

    rng = np.random.default_rng(0)
    needed = rng.geometric(0.1, 4000)  # the list that holds the neighbour
    observed = Observations.__new__(Observations)
    object.__setattr__(observed, "ranks", needed[:, None])
    fixed = earned(observed, np.full(4000, 20))  # N′ is the rule itself
    assert 0.95 <= fixed[0] <= 1.0 <= fixed[1] <= 1.06
    oracle = earned(observed, np.where(needed <= 20, needed, 1))  # finds as much, and stops where it should
    assert oracle[1] < 0.5
    few = Observations.__new__(Observations)
    object.__setattr__(few, "ranks", needed[:60, None])
    wide = earned(few, np.full(60, 20))
    assert wide[1] - wide[0] > fixed[1] - fixed[0]
