"""The figures of learning and of the rivals, for users and in the lab, are those of the committed results."""

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
    return (ROOT / "docs" / "lab" / "learning.md").read_text("utf-8")


def test_the_page_for_users_tells_the_same() -> None:
    report = program("learning_report")
    told = " ".join((ROOT / "docs" / "learning.md").read_text("utf-8").split())
    gone = {
        (world["world"], *key): cell["misses"]
        for world in report.worlds()
        for key, cell in report.cells(world["runs"][f"{report.sizes_of(world)[0]}/0"]).items()
    }
    means = {}
    for budget in (50, 100):
        shares = [share for (_, k, b), share in gone.items() if (k, b) == (10, budget)]
        means[budget] = f"{100 * sum(shares) / len(shares):.0f} %"
    assert f"it finds {means[50]} of what the top ten missed before with 50 calls, and {means[100]} with 100" in told
    assert f"it finds {100 * gone['squad-13k', 10, 50]:.0f} % of the misses" in told
    sizes = [world["items"] for world in report.worlds()]
    assert len(sizes) == 8
    assert f"eight worlds of {min(sizes)} to {max(sizes):,} items" in told
    fewest = [report.sizes_of(world)[0] for world in report.worlds()]
    assert f"After {min(fewest)} to {max(fewest)} past searches of 100 calls" in told
    large = next(world for world in report.worlds() if world["world"] == "wordnet-30k")
    cell = report.cells(large["runs"]["1000/0"])[10, 50]
    assert f"with 50 calls from {cell['before']:.3f} to {cell['after']:.3f}" in told
    points = json.loads((ROOT / "benchmarks/results/growth-wordnet-30k.json").read_text())["points"]
    anchored = next(p["recall"] for p in points if report._at(p, "crosscut, anchors", 10, 50) and p["items"] == 30_000)
    assert f"{40 * 30_000:,} calls before the first search, bring {anchored:.3f}" in told
    assert report.worse() == []
    assert "In no measured world is a search significantly worse" in told


def test_the_tables_of_learning_are_those_of_the_results(learning: str) -> None:
    report = program("learning_report")
    assert report.table() in learning
    assert report.growth() in learning
    assert report.shares() in learning
    assert report.worse() == []
    assert report.summary() in learning
    assert report.spending() in learning
    assert report.exploring() in learning
    assert report.by_items() in learning
    assert report.first_stages() in learning
    assert report.words() in learning
    assert report.by_words() in learning
    assert report.by_words().endswith(" 0 worse.")
    late = json.loads((ROOT / "benchmarks/results/first_stage.json").read_text())
    assert f"{late['milliseconds']:.0f} ms a query for a thousand items" in learning
    assert report.hurt() == []
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
    told = " ".join(learning.split())
    assert "takes {:.2f} and {:.1f} ms then".format(*(cost["milliseconds_with"] for cost in (small, large))) in told
    assert "takes {:.2f} and {:.1f} ms in the".format(*(cost["milliseconds_before"] for cost in (small, large))) in told
    assert "{:.2f} and {:.2f} times as long".format(*(cost["ratio_to_before"] for cost in (small, large))) in told


def test_the_tables_of_rivals_are_those_of_the_results() -> None:
    assert program("rivals_report").tables() in (ROOT / "docs" / "lab" / "rivals.md").read_text("utf-8")


def test_the_tables_of_indexing_are_those_of_the_results() -> None:
    report = program("indexing_report")
    page = (ROOT / "docs" / "lab" / "indexing.md").read_text("utf-8")
    assert page.partition(report.MARK)[2] == report.tables(ROOT / "benchmarks" / "results")


@pytest.mark.parametrize("name", ["squad-sentences", "wordnet-cognition", "wordnet-time"])
def test_the_pages_of_each_world_are_those_of_the_results(name: str) -> None:
    told = json.loads((ROOT / "benchmarks" / "results" / f"reproduction-{name}.json").read_text("utf-8"))
    made = program("reproduction").page(name, told)
    assert (ROOT / "docs" / "reproduction" / f"{name}.md").read_text("utf-8") == made


def test_what_past_searches_stand_for_is_that_of_the_results(learning: str) -> None:
    results = ROOT / "benchmarks/results"
    past = json.loads((results / "learning-squad-13k.json").read_text())
    points = json.loads((results / "growth-squad-13k.json").read_text())["points"]
    after = {cell["budget"]: cell["after"] for cell in past["runs"]["180/0"]["cells"] if cell["k"] == 10}
    anchored = {
        point["budget"]: point["recall"]
        for point in points
        if (point["method"], point["items"], point["k"]) == ("crosscut, anchors", 13_447, 10)
    }
    told = " ".join(learning.split())
    assert f"{after[50]:.3f} at 50 calls, where the anchor queries bring {anchored[50]:.3f}" in told
    assert f"{after[100]:.3f} at 100 calls, where they bring {anchored[100]:.3f}" in told
    rivals = json.loads((results / "rivals-squad-13k.json").read_text())["methods"]
    beside = rivals["crosscut, learned, 20 anchor queries"]["cells"]
    both = [cell["recall"] for cell in beside if cell["k"] == 10 and cell["budget"] in (50, 100)]
    assert "learning beside the anchor scores, bring {:.3f} and {:.3f}".format(*both) in told
    assert f"{20 * 13_447:,} calls" in told
    assert f"{18_000 / (20 * 13_447):.0%}".replace("%", " %") in told


def test_past_searches_and_anchors_at_thirty_thousand_items_are_those_of_the_results(learning: str) -> None:
    results = ROOT / "benchmarks/results"
    past = json.loads((results / "learning-wordnet-30k.json").read_text())
    points = json.loads((results / "growth-wordnet-30k.json").read_text())["points"]
    after = {(cell["k"], cell["budget"]): cell["after"] for cell in past["runs"]["1000/0"]["cells"]}
    there = {(p["method"], p["k"], p["budget"]): p["recall"] for p in points if p["items"] == 30_000}
    anchored = {cell: there["crosscut, anchors", *cell] for cell in ((10, 50), (10, 100), (100, 200))}
    told = " ".join(learning.split())
    assert "40 anchor queries are 40 × 30,000 calls" in told
    assert f"{after[10, 50]:.3f} at 50 calls and {after[10, 100]:.3f} at 100" in told
    assert f"bring {anchored[10, 50]:.3f} and {anchored[10, 100]:.3f}" in told
    assert f"it is {after[100, 200]:.3f}, where they bring {anchored[100, 200]:.3f}" in told
    assert f"plain reranking finds {there['rnr', 10, 100]:.3f} with 100 calls" in told
