"""The library against the papers, transcribed in plain numpy from their text."""

from __future__ import annotations

from typer.testing import CliRunner

from crosscut_lab.cli import app
from crosscut_lab.papers.transcriptions import compare, shares


def test_searches_are_those_of_the_papers() -> None:
    found = compare(500)
    assert sum(made for _, made in found.values()) >= 500
    assert set(found) == {
        "anncur", "adacur", "axn", "axn, λ, β(s − α)", "tour, kl", "tour, mse", "fixed-item", "item-cur", "patience",
    }  # fmt: skip
    assert all(agreed == made for agreed, made in found.values()), found


def test_rounds_share_the_budget_equally() -> None:
    assert shares(23, 5) == [4, 4, 4, 4, 7]
    assert shares(3, 5) == [1, 1, 1]


def test_the_command() -> None:
    found = CliRunner().invoke(app, ["transcriptions", "--searches", "40", "--seed", "7"])
    assert found.exit_code == 0, found.output
    assert "adacur" in found.output
