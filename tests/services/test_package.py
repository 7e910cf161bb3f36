"""The package as a whole."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest
from benchmarks import figures

import crosscut


def test_every_public_name_is_there() -> None:
    assert all(getattr(crosscut, name) is not None for name in crosscut.__all__)
    assert set(crosscut.__all__) <= set(dir(crosscut))
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        crosscut.nothing  # noqa: B018


def test_importing_loads_nothing_heavy() -> None:
    code = "import sys, crosscut; crosscut.Searcher; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert not {"torch", "numba", "matplotlib", "ray", "fastapi", "sklearn", "pandas", "rich", "typer"} & set(loaded)


def test_the_help_of_the_command_loads_no_numbers() -> None:
    code = "import sys, crosscut.cli; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert not {"numpy", "torch", "numba", "scipy", "httpx", "fastapi"} & set(loaded)


def test_figures_and_the_picture_are_those_of_the_results() -> None:
    """`python benchmarks/figures.py` writes them."""
    made = figures.made()
    assert {"README.md", "timing.md", "misses.svg"} <= {path.name for path in made}
    for path, text in made.items():
        assert path.read_text(encoding="utf-8") == text, path.name


def test_every_number_of_the_readme_is_filled_in_by_the_results() -> None:
    """Between markers, or a part of what is said to be done: sizes of k and budget, versions, addresses."""
    readme = (figures.ROOT / "README.md").read_text(encoding="utf-8")
    prose = re.sub(r"<!-- figure.*?<!-- end -->|```.*?```|`[^`]*`|\]\([^)]*\)|<!--.*?-->", "", readme, flags=re.S)
    numbers = set(re.findall(r"(?<![\w.])\d[\d,.]*\d|(?<![\w.])\d", prose))
    assert numbers <= {"100", "3.11", "3.13", "2022", "2023", "2024", "2.0"}, numbers


def test_the_ci_runs_the_test_command_of_the_readme() -> None:
    readme = (figures.ROOT / "README.md").read_text(encoding="utf-8")
    command = readme.split("<!-- test command -->\n```sh\n")[1].split("\n```")[0]
    assert "pytest" in command
    assert "\n" not in command
    assert "<!-- test command -->" in (figures.ROOT / ".ci/run").read_text(encoding="utf-8")


def test_the_card_tells_how_much_the_models_in_the_box_take() -> None:
    folder = figures.ROOT / "src/crosscut/data/models"
    size = sum(path.stat().st_size for path in folder.iterdir())
    assert size < 40e6
    assert f"{size / 1e6:.1f} MB of package data" in (figures.ROOT / "docs/model_card.md").read_text(encoding="utf-8")
