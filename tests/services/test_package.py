"""The package as a whole."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import crosscut

ROOT = Path(__file__).parents[2]


def test_every_public_name_is_there() -> None:
    assert all(getattr(crosscut, name) is not None for name in crosscut.__all__)
    assert set(crosscut.__all__) <= set(dir(crosscut))
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        crosscut.nothing  # noqa: B018


def test_importing_loads_nothing_heavy() -> None:
    code = "import sys, crosscut; crosscut.Searcher; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert not {"torch", "numba", "matplotlib", "ray", "fastapi", "sklearn", "pandas", "rich", "typer"} & set(loaded)


def test_importing_the_command_line_loads_no_numerical_package() -> None:
    code = "import sys, crosscut.cli; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert not {"numpy", "torch", "numba", "scipy", "httpx", "fastapi"} & set(loaded)


def test_the_ci_runs_the_test_command_of_the_readme() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    command = readme.split("<!-- test command -->\n```sh\n")[1].split("\n```")[0]
    assert "pytest" in command
    assert "\n" not in command
    assert "<!-- test command -->" in (ROOT / ".ci/run").read_text(encoding="utf-8")


def test_the_card_has_the_size_of_the_bundled_models() -> None:
    folder = ROOT / "src/crosscut/data/models"
    size = sum(path.stat().st_size for path in folder.iterdir())
    assert size < 40e6
    assert f"{size / 1e6:.1f} MB of package data" in (ROOT / "docs/reference/model-card.md").read_text(encoding="utf-8")
