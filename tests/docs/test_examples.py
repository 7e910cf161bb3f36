"""The examples run."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = [path for path in sorted(Path(__file__).parents[2].glob("examples/*.py")) if "own_" not in path.stem]
"""Those that do something by themselves; parts of one's own are run by test_own_parts.py."""


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_example_runs(example: Path) -> None:
    run = subprocess.run([sys.executable, str(example)], capture_output=True, text=True, timeout=300, check=False)
    assert run.returncode == 0, run.stderr
    assert run.stdout.strip()
