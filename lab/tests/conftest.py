"""Entry points of `lab/pyproject.toml` for tests from a clone in which crosscut-lab is not installed."""

from __future__ import annotations

import os
import sys
import tempfile
import tomllib
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

settings.register_profile("patient", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("patient")

LAB = Path(__file__).parents[1]


def register_entry_points() -> None:
    """Put metadata of this distribution on the path of this process and of its children."""
    project = tomllib.loads((LAB / "pyproject.toml").read_text())["project"]
    folder = Path(tempfile.mkdtemp(prefix="crosscut-lab-"))
    info = folder / f"crosscut_lab-{project['version']}.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: crosscut-lab\nVersion: {project['version']}\n")
    groups = [
        f"[{group}]\n" + "".join(f"{name} = {target}\n" for name, target in entries.items())
        for group, entries in project["entry-points"].items()
    ]
    (info / "entry_points.txt").write_text("\n".join(groups))
    paths = [str(LAB / "src"), str(folder)]
    sys.path[:0] = paths
    os.environ["PYTHONPATH"] = os.pathsep.join([*paths, os.environ.get("PYTHONPATH", "")])


try:
    distribution("crosscut-lab")
except PackageNotFoundError:
    register_entry_points()


@pytest.fixture(scope="session", autouse=True)
def isolated(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Use a cache folder of the tests."""
    os.environ["CROSSCUT_CACHE"] = str(tmp_path_factory.mktemp("cache"))
