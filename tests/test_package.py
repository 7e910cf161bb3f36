"""The package as a whole."""

from __future__ import annotations

import subprocess
import sys

import pytest

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
