"""Every command of the README and the docs runs, in the order they stand, on a small corpus.

A block that cannot be run here says so in a comment before it: `<!-- not run: why -->`.
"""

from __future__ import annotations

import importlib.util
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

import crosscut
from crosscut.cli import app

ROOT = Path(__file__).parent.parent
BLOCK = re.compile(r"(?:<!-- ([^\n]*?) -->\n)?```(sh|python)\n(.*?)\n```", re.S)
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
TOPICS = ["vaccine", "virus", "river", "bank", "music", "crane", "reason", "idea"]


def blocks(page: Path, language: str) -> list[str]:
    """Blocks of a page that are to be run."""
    found = BLOCK.findall(page.read_text(encoding="utf-8"))
    return [code for note, kind, code in found if kind == language and not note.startswith(("not run", "test command"))]


def corpus(folder: Path) -> None:
    items = [
        {
            "id": str(j),
            "title": TOPICS[j % 8],
            "text": f"what {TOPICS[j % 8]} {TOPICS[j // 8 % 8]} number {j} is about",
            "language": "en" if j % 2 else "de",
            "year": 1990 + j,
        }
        for j in range(40)
    ]
    (folder / "corpus.jsonl").write_text("".join(json.dumps(item) + "\n" for item in items))
    (folder / "more.jsonl").write_text(json.dumps({"id": "more", "text": "one more about vaccines"}) + "\n")
    (folder / "train.txt").write_text("".join(f"tell me about a {a} and a {b}\n" for a in TOPICS for b in TOPICS[:3]))
    (folder / "queries.txt").write_text("how do vaccines work\nwhere is the river\n")
    scifact = folder / "scifact"
    scifact.mkdir()
    (scifact / "corpus.jsonl").write_text("".join(json.dumps({"_id": i["id"], **i}) + "\n" for i in items[:6]))
    (scifact / "queries.jsonl").write_text('{"_id": "q1", "text": "rivers"}\n{"_id": "q2", "text": "banks"}\n')
    (scifact / "qrels.tsv").write_text("q1\t2\t1\nq2\t3\t1\n")
    (folder / "items.jsonl").write_text("".join(json.dumps(item) + "\n" for item in items[:5]))
    (folder / "train.tsv").write_text("t1\ta river\nt2\ta bank\n")
    (folder / "pairs.tsv").write_text("q1\t2\nq2\t0\n")
    rng = np.random.default_rng(0)
    u, v = rng.normal(size=(60, 6)), rng.normal(size=(300, 6))
    for name, array in {"test": u[:20] @ v.T, "train": u[20:] @ v.T, "v": v, "u": u[:20]}.items():
        np.save(folder / f"{name}.npy", array)


def run(command: list[str], folder: Path) -> subprocess.CompletedProcess[str]:
    home = str(Path(sys.executable).parent)
    environment = {**os.environ, "PATH": f"{home}{os.pathsep}{os.environ['PATH']}", "COLUMNS": "100"}
    return subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, timeout=300, check=False
    )


@pytest.mark.parametrize("page", [page for page in PAGES if blocks(page, "sh")], ids=lambda page: page.stem)
def test_shell_blocks_run(page: Path, tmp_path: Path) -> None:
    corpus(tmp_path)
    for code in blocks(page, "sh"):
        done = run(["bash", "-euo", "pipefail", "-c", code], tmp_path)
        assert done.returncode == 0, f"{code}\n{done.stdout}\n{done.stderr}"


@pytest.mark.parametrize("page", [page for page in PAGES if blocks(page, "python")], ids=lambda page: page.stem)
def test_python_blocks_run(page: Path, tmp_path: Path) -> None:
    corpus(tmp_path)
    if "my.index" in page.read_text(encoding="utf-8") and page.stem != "quickstart":
        assert run(["crosscut", "index", "build", "corpus.jsonl", "my.index"], tmp_path).returncode == 0
    done = run([sys.executable, "-W", "error::SyntaxWarning", "-c", "\n".join(blocks(page, "python"))], tmp_path)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"


def test_every_command_has_help_with_an_example() -> None:
    from typer.main import get_command

    def commands(command: object, path: tuple[str, ...]) -> list[tuple[str, ...]]:
        inner = getattr(command, "commands", None)
        if inner is None:
            return [path]
        return [found for name, each in inner.items() for found in commands(each, (*path, name))]

    for path in commands(get_command(app), ()):
        told = CliRunner().invoke(app, [*path, "--help"])
        assert told.exit_code == 0
        assert "Example" in told.output or path[0] == "train", path


def test_links_of_the_docs_lead_somewhere() -> None:
    for page in PAGES:
        for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text(encoding="utf-8")):
            assert (page.parent / target).exists(), f"{page.name} links to {target}"


def test_the_api_reference_is_up_to_date() -> None:
    """docs/api.md is made from docstrings: python scripts/api_reference.py"""
    spec = importlib.util.spec_from_file_location("api_reference", ROOT / "scripts" / "api_reference.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    page = module.reference()
    assert (ROOT / "docs" / "api.md").read_text("utf-8") == page
    for name in crosscut.__all__:
        assert f"\n## {name}\n" in page.replace("Methods", "methods").replace("Stores", "stores")
