"""Contents of a release, and the files that deploy it."""

from __future__ import annotations

import subprocess
import sys
import tarfile
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
        metadata = archive.read(next(name for name in names if name.endswith("METADATA"))).decode()
    assert {name.split("/")[0] for name in names} <= {"crosscut", f"{wheel.name.split('-py3')[0]}.dist-info"}
    assert all(f"Programming Language :: Python :: 3.{minor}" in metadata for minor in (11, 12, 13))
    with tarfile.open(source) as archive:
        tops = {name.split("/")[1] for name in archive.getnames() if "/" in name}
    assert not tops & {"benchmarks", "tests", "models", ".ci"}
    assert {"src", "docs", "README.md", "LICENSE"} <= tops
