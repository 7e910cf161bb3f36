from __future__ import annotations

import subprocess
import sys

from typer.testing import CliRunner

from crosscut_lab.cli import app


def test_list_names_the_methods() -> None:
    found = CliRunner().invoke(app, ["list"])
    assert found.exit_code == 0
    assert "crosscut" in found.output.split()


def test_crosscut_does_not_import_the_lab() -> None:
    code = "import sys, crosscut, crosscut.cli, crosscut.evaluation.replay; print('crosscut_lab' in sys.modules)"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "False"
