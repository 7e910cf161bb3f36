"""The figures of docs/learning.md and docs/rivals.md are those of the committed results."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parent.parent


def program(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, ROOT / "benchmarks" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def learning() -> str:
    return (ROOT / "docs" / "learning.md").read_text("utf-8")


def test_the_tables_of_learning_are_those_of_the_results(learning: str) -> None:
    report = program("learning_report")
    assert report.table() in learning
    assert report.growth() in learning
    assert report.shares() in learning
    assert report.worse() == []
    assert report.summary() in learning
    assert "No cell of these is significantly worse" in learning


def test_the_cost_of_learning_is_that_of_the_results(learning: str) -> None:
    costs = json.loads((ROOT / "benchmarks/results/cost_of_learning.json").read_text())
    assert costs["learning"]["pairs"] == 1_000_000
    assert f"{costs['learning']['cpu_seconds']:.0f} s of one core" in learning
    assert f"{costs['learning']['gigabytes_after']:.1f} GB" in learning
    assert f"{costs['learning']['seconds']:.0f} s by the clock" in learning
    small, large = costs["searching"]
    fastest = [f"{100 * (cost['ratio'] - 1):.0f} %" for cost in (small, large)]
    medians = [f"{100 * (cost['ratio_of_medians'] - 1):.0f} %" for cost in (small, large)]
    assert f"{fastest[0]} at {small['items']:,} items and {fastest[1]} at {large['items']:,} items" in learning
    assert f"{medians[0]} and {medians[1]} by medians" in learning


def test_the_tables_of_rivals_are_those_of_the_results() -> None:
    assert program("rivals_report").tables() in (ROOT / "docs" / "rivals.md").read_text("utf-8")
