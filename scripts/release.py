"""Build a release and try it as a user would: python scripts/release.py [--demo] [--out dist]

Wheel and sdist are built and checked (twine), their contents are looked at, the wheel is installed in an empty
environment, and there an index is built, searched and, with --demo, the demo is run. Nothing is uploaded.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import tarfile
import tempfile
import venv
import zipfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
UNWANTED = ("benchmarks/", "tests/", ".ci/", "scripts/")
NEEDED = ("crosscut/__init__.py", "crosscut/py.typed", "crosscut/server/page/index.html")


def run(*command: str | Path, cwd: Path | None = None) -> str:
    """Run a command and show it; its output is returned."""
    print("+", *command, flush=True)
    done = subprocess.run([str(part) for part in command], cwd=cwd, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"{done.stdout}{done.stderr}\nfailed: {' '.join(map(str, command))}")
    return done.stdout


def build(out: Path) -> tuple[Path, Path]:
    """The wheel and the sdist, checked."""
    shutil.rmtree(out, ignore_errors=True)
    run(sys.executable, "-m", "build", "--outdir", out, ROOT)
    (wheel,), (source,) = out.glob("*.whl"), out.glob("*.tar.gz")
    print(run(sys.executable, "-m", "twine", "check", "--strict", wheel, source).strip())
    return wheel, source


def contents(wheel: Path, source: Path) -> None:
    """Refuse what does not belong into a release, and what is missing."""
    with zipfile.ZipFile(wheel) as archive:
        in_wheel = archive.namelist()
    with tarfile.open(source) as archive:
        in_source = [name.partition("/")[2] for name in archive.getnames()]
    for names, where, prefix in ((in_wheel, wheel, ""), (in_source, source, "src/")):
        unwanted = [name for name in names if name.startswith(UNWANTED)]
        missing = [name for name in NEEDED if prefix + name not in names]
        if unwanted or missing:
            sys.exit(f"{where.name}: {unwanted[:3]} do not belong there, {missing} are missing")
        print(f"{where.name}: {len(names)} files, {where.stat().st_size / 1e6:.1f} MB")


def tried(wheel: Path, demo: bool) -> None:
    """Install the wheel in an empty environment, build and search an index there; run the demo, if asked for."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        venv.create(folder / "venv", with_pip=True)
        programs = folder / "venv" / "bin"
        run(programs / "pip", "install", "-q", wheel)
        (folder / "corpus.txt").write_text("Ice floats on water.\nSalt melts ice.\nCats sleep all day.\n")
        run(programs / "crosscut", "index", "build", "corpus.txt", "my.index", cwd=folder)
        output = run(
            programs / "crosscut", "search", "my.index", "why does ice float", "-k", "1", "--budget", "3", cwd=folder
        )
        if "Ice floats" not in output:
            sys.exit(f"the wheel does not find what it should:\n{output}")
        if demo:
            print(run(programs / "crosscut", "demo", "--no-report", "--queries", "2", cwd=folder)[-1500:])


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--out", type=Path, default=ROOT / "dist", help="where wheel and sdist go")
    options.add_argument("--demo", action="store_true", help="run the demo in the empty environment, too")
    options.add_argument("--no-install", action="store_true", help="build and check only")
    given = options.parse_args()
    wheel, source = build(given.out)
    contents(wheel, source)
    if not given.no_install:
        tried(wheel, given.demo)
    print(f"ready: {wheel}, {source}")


if __name__ == "__main__":
    main()
