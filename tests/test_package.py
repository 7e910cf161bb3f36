"""The package as a whole."""

from __future__ import annotations

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


def test_the_tables_of_the_readme_are_those_of_the_results() -> None:
    assert (figures.ROOT / "README.md").read_text(encoding="utf-8") == figures.filled(
        (figures.ROOT / "README.md").read_text(encoding="utf-8")
    )


def test_the_ci_runs_the_test_command_of_the_readme() -> None:
    readme = (figures.ROOT / "README.md").read_text(encoding="utf-8")
    command = readme.split("<!-- test command -->\n```sh\n")[1].split("\n```")[0]
    assert "pytest" in command
    assert "\n" not in command
    assert "<!-- test command -->" in (figures.ROOT / ".ci/run").read_text(encoding="utf-8")
