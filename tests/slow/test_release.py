"""What a release is made of, and the files that run it elsewhere."""

from __future__ import annotations

import re
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_a_release_is_built_and_checked_without_benchmarks(tmp_path: Path) -> None:
    command = [sys.executable, str(ROOT / "scripts" / "release.py"), "--no-install", "--out", str(tmp_path / "dist")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("PASSED") == 2
    (wheel,) = (tmp_path / "dist").glob("*.whl")
    (source,) = (tmp_path / "dist").glob("*.tar.gz")
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        told = archive.read(next(name for name in names if name.endswith("METADATA"))).decode()
    assert {name.split("/")[0] for name in names} <= {"crosscut", f"{wheel.name.split('-py3')[0]}.dist-info"}
    assert all(f"Programming Language :: Python :: 3.{minor}" in told for minor in (11, 12, 13))
    with tarfile.open(source) as archive:
        tops = {name.split("/")[1] for name in archive.getnames() if "/" in name}
    assert not tops & {"benchmarks", "tests", "models", ".ci"}
    assert {"src", "docs", "README.md", "LICENSE"} <= tops


def test_the_image_is_small_and_not_run_by_root() -> None:
    told = (ROOT / "Dockerfile").read_text(encoding="utf-8")
    assert told.count("FROM python:3.12-slim") == 2  # what builds is not what runs
    user = told.index("USER crosscut")
    assert user < told.index("ENTRYPOINT")
    assert not re.search(r"^(RUN|COPY)", told[user:], re.M)
    copied = re.findall(r"^COPY (?!--from)(.+) \S+$", told, re.M)
    kept = [line[1:] for line in (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines() if line[:1] == "!"]
    assert {name for line in copied for name in line.split()} == set(kept)
    assert all((ROOT / name).exists() for name in kept)
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    assert set(re.findall(r"\.\[(\w+)\]", told)) <= set(extras)


def test_the_composed_server_wants_a_token_and_writes_nothing_but_the_index() -> None:
    told = (ROOT / "compose.yaml").read_text(encoding="utf-8")
    assert "${CROSSCUT_TOKEN:?" in told
    assert "read_only: true" in told
    assert '"127.0.0.1:8000:8000"' in told
    from typer.main import get_command

    from crosscut.cli import app

    known = {option.name for option in get_command(app).commands["serve"].params}  # type: ignore[attr-defined]
    assert {name.lower() for name in re.findall(r"CROSSCUT_SERVE_(\w+):", told)} <= known
