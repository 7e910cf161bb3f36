"""Figures of the pages stand in the committed results, whether or not they stand between markers.

Of every page, in prose and in tables, outside code: numbers with two or three decimals, shares in per cent, ratios
("2.6×", "three times" apart) and counts from a thousand on ("13,447") have to be the rounding of a number in the JSON
files that the page is made from. It is a net, not a proof: a figure of another row would slip through. What is no
measurement (settings, the papers' own figures, trials that were not kept) is listed by name.

So nobody changes a number by mistake either: figures.json has a digest of the numbers of every page, those between
markers apart, which `benchmarks/figures.py` compares. Who changes one on purpose looks it up in the results and runs
`python -m tests.test_figures`, which writes the digests anew, and prints what the results do not hold.

A page with a figure needs a line in SOURCES.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parent.parent
RESULTS = ROOT / "benchmarks" / "results"
FIGURE = re.compile(r"(?<![\w.])[+−-]?(\d*\.\d{2,3})(?![\d.])")
COUNT = re.compile(r"(?<![\w.,])(\d{1,3}(?:,\d{3})+)(?![\d,]|\.\d)")
RATIO = re.compile(r"(?<![\w.,])(\d+(?:\.\d)?)(?= ?×| times)")
SHARE = re.compile(r"(?<![\w.,])(\d+(?:\.\d)?)(?= ?%)")
NUMBER = re.compile(r"(?<![A-Za-z])[+−-]?\d[\d.,]*|[+−-]?\.\d+")
FILLED_IN = re.compile(r"<!-- figures?: .*? -->.*?<!-- end -->", re.S)
DIGESTS = Path(__file__).parent / "figures.json"
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
    "docs/lab/index.md": ["reproduction-*.json", "readme.json", "loop.json", "models_*.json"],
    "docs/lab/indexing.md": ["indexing-*.json", "distillation-*.json"],
    "docs/lab/ivf.md": ["ivf.json", "exits.json", "rounds.json"],
    "docs/lab/timing.md": ["loop.json", "hub_scorer.json", "encoding.json"],
    "docs/lab/rounds.md": ["flights.json"],
    "docs/lab/stores.md": ["stores.json", "candidates.json"],
    "docs/lab/scale.md": ["scale.json"],
    "docs/lab/serving.md": ["server.json", "fuzz_server.json", "operations.json"],
    "docs/lab/target_recall.md": ["target_recall.json"],
    "docs/budgets.md": ["flights.json"],
    "docs/stores.md": ["stores.json"],
    "docs/serving.md": ["server.json", "operations.json"],
    "docs/scale.md": ["scale.json"],
    "docs/scores.md": ["store.json"],
    "docs/index_format.md": ["soak.json"],
    "docs/ivf.md": ["ivf.json"],
    "docs/scorers.md": ["hub_scorer.json"],
    "README.md": ["readme.json", "models_*.json"],
    "docs/learning.md": ["learning-*.json", "growth-*.json", "cost_of_learning.json"],
    "docs/lab/learning.md": [
        *("learning-*.json", "learning_asked-*.json", "growth-*.json", "cost_of_learning.json", "at_size-*.json"),
        *("anchors_share-*.json", "spending-*.json"),
        *("exploring-*.json", "first_stage.json", "rivals-*.json", "words.json"),
    ],
    "docs/lab/rivals.md": ["rivals-*.json", "learning-*.json"],
    "docs/model_card.md": ["models_*.json", "calibration.json", "relevance-search.json", "downstream.json"],
    "docs/relevance.md": ["calibration.json", "fusion.json"],
    "docs/lab/relevance.md": ["calibration.json", "downstream.json", "fusion.json", "two_scorers.json"],
    "docs/costs.md": ["*.json"],
    "docs/quickstart.md": ["*.json"],
    "docs/concepts.md": ["*.json"],
    "docs/comparison.md": ["*.json"],
    "docs/faq.md": ["*.json"],
    "docs/papers/recipes.md": ["papers.json"],
}
GENERATED = {"docs/api.md", "docs/api_rooms.md", "docs/cli.md"}  # from docstrings and help texts, with their examples
SETTINGS: dict[str, set[str]] = {
    "README.md": {"3.11", "3.13"},
    "docs/index_format.md": {"200,000"},  # items from which vectors are clustered
    "docs/ivf.md": {"200,000", ".95"},
    "docs/methods.md": {"0.001", "0.03"},
    "docs/lab/indexing.md": {"1.6", "47"},  # ratios of the calls of two rows, of seconds to those of calls
    "docs/lab/ivf.md": {
        *("2.95", "5.13", "65,536", "0.017"),  # the paper's
        *("0.023", "0.027", "0.055", "1.82", "200,000", "1,055"),  # differences of two rows, a setting, milliseconds
    },
    "docs/learning.md": {"1,200,000", "2,000"},  # 40 × 30,000; a setting
    "docs/lab/learning.md": {
        *(
            "0.789",
            "0.651",
            "0.486",
            "18,000",
            "32,000",
            "4,000",
            "8,000",
            "16,000",
        ),  # compared to the letter by test_learning_docs.py
        *(".685", ".782", ".623", "2,000", "262,144"),  # trials on train queries that were not kept; a setting
    },
    "docs/model_card.md": {
        *("1,000", "4,096", "2,600", "4,000", "8,246", "128"),  # sizes of collections, of batches, of token vectors
        *(".392", ".559", ".574"),  # trials on train queries that were not kept
    },
    "docs/papers/adacur.md": {"25,657"},  # sizes of the papers' collections
    "docs/papers/anncur.md": {"3,374", "2,400"},
    "docs/papers/axn.md": {"117,659"},
    "docs/papers/early-exit.md": {"100,000", "200,000"},
    "docs/papers/recipes.md": {"1,000", "10,000"},
    "docs/papers/inventory.md": {".01", ".001", "10,000", "100"},  # settings that the papers tried
    "docs/reproduction.md": {".880"},  # trials on held-out anchor queries that were not kept
    "docs/reproduction_models.md": {
        *("3,000", "2,500", "13,447", "3,374", "10,031", "99"),  # sizes of collections; a share of energy
        *("1,200", ".025", ".167", ".017"),  # a query of forty; a run whose results were not kept
    },
    "docs/lab/rivals.md": {"1.17"},  # Qdrant's version
    "docs/scale.md": {"1,000", "200,000"},
    "docs/lab/scale.md": {"1,000"},
    "docs/serving.md": {"95"},  # the share of searches that are as fast
    "docs/stores.md": {"117,659"},  # items of the world there
    "docs/scores.md": {"4,096"},
    "docs/scorers.md": {".98"},  # what eight bits have to keep
}
"""Of a page: what is a setting or a paper's figure."""


def numbers(value: Any) -> Iterator[float]:
    """Every number inside a JSON value, and every key that is one."""
    if isinstance(value, dict):
        yield from (float(key) for key in value if key.isdigit())
        for inner in value.values():
            yield from numbers(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from numbers(inner)
    elif isinstance(value, float | int) and not isinstance(value, bool):
        yield float(value)


@dataclass(frozen=True)
class Known:
    """The roundings of every number of some results, by how a page would write it."""

    decimals: dict[int, set[str]]  # with two and with three decimals; half of an interval, too
    counts: set[int]
    ratios: set[str]
    shares: set[str]


@cache
def known(patterns: tuple[str, ...], results: Path) -> Known:
    told = [json.loads(path.read_text("utf-8")) for name in patterns for path in sorted(results.rglob(name))]
    values = [abs(one) for value in told for one in numbers(value)]
    half = [one for value in told for one in halves(value)]
    decimals = {places: {f"{one:.{places}f}" for one in [*values, *half] if one < 1000} for places in (2, 3)}
    ratios = {f"{one:.{places}f}" for one in values if one < 10_000 for places in (0, 1)}
    parts = [one for one in values if one <= 3]
    shares = {f"{100 * one:.{places}f}" for part in parts for one in (part, abs(1 - part)) for places in (0, 1)}
    return Known(decimals, {round(one) for one in values if one < 1e10}, ratios, shares | ratios)


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


def figures(text: str) -> Iterator[tuple[str, str]]:
    """What kind of number, and how it is written."""
    for kind, pattern in (("decimals", FIGURE), ("counts", COUNT), ("ratios", RATIO), ("shares", SHARE)):
        yield from ((kind, figure) for figure in dict.fromkeys(pattern.findall(text)))


def missing(page: str, patterns: list[str]) -> list[str]:
    """Figures of a page that its results do not hold."""
    found = known(tuple(patterns), RESULTS)
    return [
        figure
        for kind, figure in figures(CODE.sub(" ", (ROOT / page).read_text("utf-8")))
        if figure not in SETTINGS.get(page, set()) and not _is_known(kind, figure, found)
    ]


def _is_known(kind: str, figure: str, found: Known) -> bool:
    if kind == "counts":
        return int(figure.replace(",", "")) in found.counts
    if kind == "decimals":
        whole = figure if figure[0] != "." else f"0{figure}"
        return whole in found.decimals[len(whole.partition(".")[2])]
    return figure in (found.ratios if kind == "ratios" else found.shares)


def every_page() -> list[str]:
    """README and the docs that people write."""
    paths = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    return [name for path in paths if (name := path.relative_to(ROOT).as_posix()) not in GENERATED]


def digest(text: str) -> str:
    """Of all numbers of a page in their order, but those that are code or filled in from the results."""
    numbers = NUMBER.findall(CODE.sub(" ", FILLED_IN.sub(" ", text)))
    return hashlib.sha256(" ".join(numbers).encode()).hexdigest()[:12]


def digests() -> dict[str, str]:
    """Of every page but those that a test compares with the results to the letter."""
    made = (page for page in every_page() if not page.startswith("docs/reproduction/"))
    return {page: digest((ROOT / page).read_text("utf-8")) for page in made}


def test_no_number_has_changed_unnoticed() -> None:
    kept = json.loads(DIGESTS.read_text("utf-8"))
    changed = [page for page, made in digests().items() if kept.get(page) != made]
    assert changed == [], "numbers differ: look them up in benchmarks/results, then run python -m tests.test_figures"


@pytest.mark.parametrize("page", SOURCES)
def test_figures_are_in_the_results(page: str) -> None:
    assert missing(page, SOURCES[page]) == []


def test_every_page_with_a_figure_says_where_it_comes_from() -> None:
    lacking = {
        page: left
        for page in every_page()
        if page not in SOURCES
        and (left := [one for _, one in figures(CODE.sub(" ", (ROOT / page).read_text("utf-8")))])
        and not set(left) <= SETTINGS.get(page, set())
    }
    assert lacking == {}


def test_a_figure_that_is_nowhere_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "page.md").write_text(
        "recall .123 and 0.456, not `0.789`, ± .050, version 1.2.3, 12.5×, 2.5×, +.321,"
        " 9,999 and 13,447 items, 77 % and 12 %"
    )
    (tmp_path / "results").mkdir()
    made = {"recall": 0.1234, "low": 0.1, "high": 0.2, "items": {"13447": 2.51}}
    (tmp_path / "results" / "a.json").write_text(json.dumps(made))
    monkeypatch.setattr("tests.test_figures.ROOT", tmp_path)
    monkeypatch.setattr("tests.test_figures.RESULTS", tmp_path / "results")
    assert missing("page.md", ["*.json"]) == ["0.456", ".321", "9,999", "12.5", "77"]


def test_any_digit_counts() -> None:
    text = "| rnr | 0.123 | 47.1 ms | 12 of 40 | 13,447 |, +.05, 5 %, 2.6×; `0.9`, <!-- figure: a -->71 %<!-- end -->"
    assert digest(text.replace("71", "72").replace("0.9", "0.8")) == digest(text)
    for place, letter in enumerate(text):
        if letter.isdigit() and place < text.index("`"):
            assert digest(f"{text[:place]}{(int(letter) + 1) % 10}{text[place + 1 :]}") != digest(text)


if __name__ == "__main__":
    for name in every_page():
        if lacking := missing(name, SOURCES.get(name, ["*.json"])):
            print(name, lacking)  # noqa: T201
    DIGESTS.write_text(json.dumps(digests(), indent=1) + "\n", "utf-8")
