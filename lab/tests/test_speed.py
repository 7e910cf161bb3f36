"""Every timing and load test at toy size."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from crosscut_lab.cli import app
from crosscut_lab.speed import soak
from crosscut_lab.speed.programs import PROGRAMS
from crosscut_lab.speed.timing import in_turns

pytestmark = pytest.mark.filterwarnings("ignore")
NEEDS = {"ivf": "faiss", "server": "uvicorn", "cross-encoder": "sentence_transformers"}


@pytest.mark.parametrize("name", sorted(PROGRAMS))
def test_every_timing_runs(name: str, tmp_path: Path) -> None:
    if name in NEEDS:
        pytest.importorskip(NEEDS[name])
    size = "8" if name == "cross-encoder" else "1500"
    path = tmp_path / "out.json"
    found = CliRunner().invoke(app, ["speed", name, "-n", size, "--repeats", "1", "--json", str(path)])
    assert found.exit_code == 0, f"{found.output} {found.exception!r}"
    assert json.loads(path.read_text())["records"]


def test_what_is_compared_runs_in_turns() -> None:
    ran: list[str] = []
    ticks = iter(range(100))
    found = in_turns({"a": lambda: ran.append("a"), "b": lambda: ran.append("b")}, 2, lambda: float(next(ticks)))
    assert ran == ["a", "b"] * 3
    assert found == {"a": 1.0, "b": 1.0}


def test_a_small_soak_loses_nothing() -> None:
    outcomes, notes = soak.stops(21, 3, lambda _: None)
    assert outcomes["stops"] == 21
    assert not {"unreadable", "lost", "found"} & set(outcomes), notes
    damaged, notes = soak.damages(15, 3)
    assert damaged["damages"] == 15
    assert not {"crash", "not noticed by verify"} & set(damaged), notes


def test_the_soak_sees_what_it_looks_for(tmp_path: Path) -> None:
    space = soak.prepare(tmp_path / "start")
    assert space.numbers() == set(range(soak.ITEMS))
    assert space.bytes_of(soak.canary(5))
    outcomes: Counter[str] = Counter()
    index = space.load()
    index.remove([soak.item(9)["id"]])
    index.save()
    soak.check(space, "search", outcomes, [])
    assert outcomes["lost"] == 1


def test_pairs_on_the_wire_are_those_reported(tmp_path: Path) -> None:
    found: Any = CliRunner().invoke(app, ["wire", "--searches", "120", "--json", str(tmp_path / "wire.json")])
    outcomes = json.loads((tmp_path / "wire.json").read_text())["outcomes"]
    assert outcomes["searches"] >= 120
    assert outcomes["pairs"] > 1000
    assert outcomes["interrupts"] + outcomes["cancellations"] > 0
    assert found.exit_code == 0, outcomes
