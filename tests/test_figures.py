"""Figures of the pages stand in the committed results, whether or not they stand between markers.

Every number with two or three decimals on a page, in prose and in tables, outside code, has to be the rounding of a
number in the JSON files that the page is made from, or of half of an interval. It is a net, not a proof: a figure of
another row would slip through. What is no measurement (settings, the papers' own figures) is listed by name.

A page joins by a line in SOURCES; `python -m tests.test_figures` prints what would be missing on each page of the docs.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parent.parent
RESULTS = ROOT / "benchmarks" / "results"
FIGURE = re.compile(r"(?<![\w.])[+−-]?(\d*\.\d{2,3})(?![\d.])")
CODE = re.compile(r"```.*?```|`[^`]*`|<!--.*?-->|\]\([^)]*\)", re.S)
SOURCES: dict[str, list[str]] = {
    "docs/indexing.md": ["indexing-*.json", "distillation-*.json"],
    "docs/reproduction.md": ["reproduction-*.json"],
    "docs/reproduction/squad-sentences.md": ["reproduction-squad-sentences.json"],
    "docs/reproduction/wordnet-time.md": ["reproduction-wordnet-time.json"],
    "docs/reproduction/wordnet-cognition.md": ["reproduction-wordnet-cognition.json"],
    "docs/reproduction_models.md": ["heads.json"],
    "docs/papers/anncur.md": ["papers.json", "at_size-*.json"],
    "docs/papers/adacur.md": ["papers.json", "at_size-*.json"],
    "docs/papers/axn.md": ["papers.json", "at_size-*.json"],
    "docs/papers/early-exit.md": ["papers.json", "exits.json"],
    "docs/lab/index.md": ["reproduction-*.json", "loop.json", "models_*.json"],
    "docs/lab/indexing.md": ["indexing-*.json", "distillation-*.json"],
    "docs/lab/ivf.md": ["ivf.json", "exits.json"],
    "docs/lab/timing.md": ["loop.json"],
    "docs/lab/target_recall.md": ["target_recall.json"],
    "docs/budgets.md": ["flights.json"],
    "docs/stores.md": ["stores.json"],
    "docs/serving.md": ["server.json", "fuzz_server.json", "operations.json"],
    "docs/scale.md": ["scale.json"],
    "docs/scores.md": ["store.json"],
    "docs/ivf.md": ["ivf.json"],
    "docs/scorers.md": ["hub_scorer.json"],
    "README.md": ["reproduction-*.json", "loop.json", "models_*.json"],
}
SETTINGS: dict[str, set[str]] = {
    "README.md": {"3.11", "3.13"},
    "docs/lab/ivf.md": {"2.95", "5.13", "0.017", "0.023", "0.055", "1.82"},  # the paper's; differences of two rows
    "docs/serving.md": {"1.19"},  # a ratio of two memories
    "docs/scorers.md": {".98"},  # what eight bits have to keep
    "docs/reproduction_models.md": {".025", ".167", ".017"},  # a query of forty; a run whose results were not kept
}
"""Of a page: what is a setting or a paper's figure."""


def numbers(value: Any) -> Iterator[float]:
    """Every number inside a JSON value."""
    if isinstance(value, dict):
        for inner in value.values():
            yield from numbers(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from numbers(inner)
    elif isinstance(value, float | int) and not isinstance(value, bool):
        yield float(value)


def known(patterns: list[str]) -> dict[int, set[str]]:
    """The roundings of every number of some results, to two and to three decimals, and of half of their intervals."""
    found: dict[int, set[str]] = {2: set(), 3: set()}
    for pattern in patterns:
        for path in sorted(RESULTS.rglob(pattern)):
            told = json.loads(path.read_text("utf-8"))
            values = [abs(one) for one in numbers(told)] + list(halves(told))
            for places, made in found.items():
                made.update(f"{one:.{places}f}" for one in values if one < 1000)
    return found


def halves(value: Any) -> Iterator[float]:
    """Half of every interval: what stands behind a ±."""
    if isinstance(value, dict):
        if isinstance(value.get("low"), float) and isinstance(value.get("high"), float):
            yield (value["high"] - value["low"]) / 2
        for inner in value.values():
            yield from halves(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from halves(inner)


def missing(page: str, patterns: list[str]) -> list[str]:
    """Figures of a page that its results do not hold."""
    text = CODE.sub(" ", (ROOT / page).read_text("utf-8"))
    found = known(patterns)
    lacking = []
    for figure in dict.fromkeys(FIGURE.findall(text)):
        whole = figure if figure[0] != "." else f"0{figure}"
        places = len(whole.partition(".")[2])
        if whole not in found[places] and figure not in SETTINGS.get(page, set()):
            lacking.append(figure)
    return lacking


@pytest.mark.parametrize("page", SOURCES)
def test_figures_are_in_the_results(page: str) -> None:
    assert missing(page, SOURCES[page]) == []


def test_a_figure_that_is_nowhere_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "page.md").write_text("recall .123 and 0.456, not `0.789`, ± .050, version 1.2.3, 12.5×, +.321")
    (tmp_path / "results").mkdir()
    made = {"recall": 0.1234, "low": 0.1, "high": 0.2}
    (tmp_path / "results" / "a.json").write_text(json.dumps(made))
    monkeypatch.setattr("tests.test_figures.ROOT", tmp_path)
    monkeypatch.setattr("tests.test_figures.RESULTS", tmp_path / "results")
    assert missing("page.md", ["*.json"]) == ["0.456", ".321"]


if __name__ == "__main__":
    for path in [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]:
        name = str(path.relative_to(ROOT))
        print(name, missing(name, SOURCES.get(name, ["*.json"])))  # noqa: T201
