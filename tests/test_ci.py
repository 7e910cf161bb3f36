"""What the continuous run promises: one version, nothing skipped, nothing downloaded by hooks."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import crosscut

ROOT = Path(__file__).parent.parent


@pytest.mark.parametrize(("ci", "code"), [("true", 1), ("", 0)])
def test_a_skipped_test_fails_the_continuous_run(tmp_path: Path, ci: str, code: int) -> None:
    hooks = "pytest_collectreport, pytest_runtest_logreport, pytest_sessionfinish, pytest_terminal_summary"
    (tmp_path / "conftest.py").write_text(f"from tests.conftest import {hooks}  # noqa: F401\n")
    (tmp_path / "test_one.py").write_text("import pytest\n@pytest.mark.skip\ndef test_a(): ...\ndef test_b(): ...\n")
    (tmp_path / "test_two.py").write_text("import pytest\npytest.importorskip('no_such_module')\n")
    environment = {**os.environ, "CI": ci, "PYTEST_ADDOPTS": ""}
    environment["PYTHONPATH"] = os.pathsep.join([str(ROOT), str(ROOT / "src")])
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "--rootdir", str(tmp_path), str(tmp_path)]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == code, done.stdout + done.stderr
    assert ("nothing may be with CI=true" in done.stdout) == bool(code)
    if code:
        assert re.search(r"test_two\.py.*test_a|test_a.*test_two\.py", done.stdout)


def test_there_is_one_version_number() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    assert "version" in project["project"]["dynamic"]
    source = (ROOT / project["tool"]["hatch"]["version"]["path"]).read_text(encoding="utf-8")
    assert f'__version__ = "{crosscut.__version__}"' in source
    changes = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    assert re.findall(r"^## (\S+)", changes, re.MULTILINE)[0] == crosscut.__version__


def test_hooks_download_nothing() -> None:
    told = (ROOT / ".pre-commit-config.yaml").read_text(encoding="utf-8")
    assert re.findall(r"- repo: (\S+)", told) == ["local"]
    assert "http" not in told
