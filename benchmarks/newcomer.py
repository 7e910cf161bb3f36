"""From nothing to a served search over a folder of Markdown: the commands of the README, timed one by one.

    python benchmarks/newcomer.py [--notes FOLDER] [--json benchmarks/results/newcomer.json]

In an empty folder, with an empty virtual environment (made before the clock starts): clone, install, build, serve, and
one search over HTTP. The bar: 4 commands, 3 minutes on two cores. The notes are this repository's own documentation,
unless others are named. Packages come from wherever pip is set up to take them.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import httpx

ROOT = Path(__file__).resolve().parent.parent
PORT = 8765
COMMANDS = (
    "git clone -q {root} crosscut",
    "pip install -q './crosscut[serve]'",
    "crosscut index build {notes} my.index",
    "crosscut serve my.index --port {port}",
)


def measure(notes: Path) -> dict[str, Any]:
    files = sorted(path for path in notes.rglob("*.md"))
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        subprocess.run([sys.executable, "-m", "venv", str(folder / "venv")], check=True)
        bare = {
            key: value for key, value in os.environ.items() if not key.startswith(("PYTHON", "CROSSCUT", "VIRTUAL"))
        }
        environment = {**bare, "PATH": f"{folder / 'venv/bin'}:{os.environ['PATH']}"}
        taken: dict[str, float] = {}
        printed: dict[str, list[str]] = {}
        for command in COMMANDS[:-1]:
            began = time.perf_counter()
            line = command.format(root=ROOT, notes=notes, port=PORT)
            done = subprocess.run(
                line, shell=True, cwd=folder, env=environment, check=True, capture_output=True, text=True
            )
            taken[command.split(" {")[0]] = time.perf_counter() - began
            printed[command] = [*done.stderr.splitlines(), *done.stdout.splitlines()]
        began = time.perf_counter()
        served = [str(folder / "venv/bin/crosscut"), *COMMANDS[-1].format(port=PORT).split()[1:]]
        server = subprocess.Popen(served, cwd=folder, env=environment, stderr=subprocess.DEVNULL)
        try:
            answer = first_answer()
        finally:
            server.terminate()
            server.wait(30)
        taken["crosscut serve, until a search is answered"] = time.perf_counter() - began
    return {
        "machine": {"cores": len(os.sched_getaffinity(0)), "python": platform.python_version()},
        "notes": {"files": len(files), "words": sum(len(path.read_text("utf-8").split()) for path in files)},
        "commands": len(COMMANDS),
        "seconds": taken,
        "total_seconds": sum(taken.values()),
        "printed": printed[COMMANDS[2]],
        "best_hit": answer["hits"][0]["id"],
        "calls": answer["calls"],
    }


def first_answer() -> dict[str, Any]:
    body = {"query": "what happens when a client hangs up", "k": 5}
    end = time.monotonic() + 300
    while time.monotonic() < end:
        try:
            found = httpx.post(f"http://127.0.0.1:{PORT}/search", json=body, timeout=120)
        except httpx.TransportError:
            time.sleep(0.1)
            continue
        answer: dict[str, Any] = found.raise_for_status().json()
        return answer
    raise TimeoutError("the server did not answer within five minutes")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--notes", type=Path, default=ROOT / "docs")
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    told = json.dumps(measure(given.notes.resolve()), indent=1)
    print(told)
    if given.json is not None:
        given.json.write_text(told + "\n")


if __name__ == "__main__":
    main()
