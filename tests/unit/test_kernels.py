"""Compiled loops that are kept on disk."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

LOOP = """
from typing import NamedTuple
import numpy as np
from crosscut.linalg.kernels import compiled

class {name}(NamedTuple):
    values: np.ndarray

@compiled()
def total(given):
    result = 0.0
    for value in given.values:
        result += value
    return result

print(total({name}(np.arange({size}.0))), len(total.stats.cache_hits))
"""


def ran(folder: Path, name: str, size: int) -> list[str]:
    (folder / "loop.py").write_text(LOOP.format(name=name, size=size), "utf-8")
    places = {**os.environ, "PYTHONPATH": os.pathsep.join([str(folder), *sys.path])}
    places.pop("NUMBA_CACHE_DIR", None)
    done = subprocess.run([sys.executable, "-c", "import loop"], env=places, capture_output=True, text=True, check=True)
    return done.stdout.split()


def test_what_an_older_version_kept_is_compiled_anew(tmp_path: Path) -> None:
    """The class that a kept loop was compiled for has another name in the next version."""
    assert ran(tmp_path, "Before", 4) == ["6.0", "0"]
    assert ran(tmp_path, "Before", 4) == ["6.0", "1"]  # it is kept
    assert ran(tmp_path, "Behind", 5) == ["10.0", "0"]
    assert ran(tmp_path, "Behind", 5) == ["10.0", "1"]
