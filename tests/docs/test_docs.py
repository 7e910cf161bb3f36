"""Every command of the README and the docs runs, in the order they stand, on a small corpus.

A block that cannot be run here says so in a comment before it: `<!-- not run: why -->`. What a page takes for granted
(a model, a table, a running server) is made by tests/docs/<page>.py before its blocks, and by SERVICES.
"""

from __future__ import annotations

import atexit
import functools
import importlib
import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

import crosscut
from crosscut.cli import app
from tests import fake_endpoint
from tests.served import running

ROOT = Path(__file__).parents[2]
BLOCK = re.compile(r"(?:<!-- ([^\n]*?) -->\n)?```(sh|python)\n(.*?)\n```", re.S)
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
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
    (folder / "train.txt").write_text("".join(f"a text about a {a} and a {b}\n" for a in TOPICS for b in TOPICS[:3]))
    (folder / "queries.txt").write_text("how do vaccines work\nwhere is the river\n")
    asked = [f"{start} {topic}" for start in ("what is a", "facts about the") for topic in TOPICS]
    (folder / "queries.jsonl").write_text(
        "".join(json.dumps({"_id": f"q{j}", "text": text}) + "\n" for j, text in enumerate(asked))
    )
    (folder / "queries.tsv").write_text("".join(f"q{j}\t{text}\n" for j, text in enumerate(asked)))
    relevant = [f"q{j}\t{item}\t1\n" for j in range(len(asked)) for item in range(j % 8, 40, 8)]
    (folder / "qrels.tsv").write_text("".join(relevant))
    scifact = folder / "scifact"
    scifact.mkdir()
    (scifact / "corpus.jsonl").write_text("".join(json.dumps({"_id": i["id"], **i}) + "\n" for i in items[:6]))
    (scifact / "queries.jsonl").write_text('{"_id": "q1", "text": "rivers"}\n{"_id": "q2", "text": "banks"}\n')
    (scifact / "qrels.tsv").write_text("q1\t2\t1\nq2\t3\t1\n")
    (folder / "items.jsonl").write_text("".join(json.dumps(item) + "\n" for item in items[:5]))
    (folder / "notes").mkdir()
    for item in items[:12]:
        (folder / "notes" / f"{item['id']}.md").write_text(f"# {item['title']}\n\n{item['text']}\n")
    (folder / "train.tsv").write_text("t1\ta river\nt2\ta bank\n")
    (folder / "pairs.tsv").write_text("q1\t2\nq2\t0\n")
    rng = np.random.default_rng(0)
    u, v = rng.normal(size=(60, 6)), rng.normal(size=(300, 6))
    for name, array in {"test": u[:20] @ v.T, "train": u[20:] @ v.T, "v": v, "u": u[:20]}.items():
        np.save(folder / f"{name}.npy", array)


def run(command: list[str], folder: Path, **services: str) -> subprocess.CompletedProcess[str]:
    home = str(Path(sys.executable).parent)
    environment = {**os.environ, "PATH": f"{home}{os.pathsep}{os.environ['PATH']}", "COLUMNS": "100", **services}
    environment["PYTHONPATH"] = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    return subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, timeout=300, check=False
    )


@contextmanager
def database(folder: Path) -> Iterator[str]:
    """PostgreSQL with pgvector."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        pgserver = importlib.import_module("pgserver")
        server = pgserver.get_server(folder / "pg", cleanup_mode="stop")
    try:
        yield server.get_uri()
    finally:
        server.cleanup()


@contextmanager
def judge(folder: Path) -> Iterator[str]:
    """A chat model that rates a text by its length."""

    def answer(body: dict[str, Any]) -> Any:
        content = str(len(body["messages"][-1]["content"]) % 10)
        return {"choices": [{"message": {"role": "assistant", "content": content}}]}

    with fake_endpoint.served(answer, "/v1/chat/completions") as endpoint:
        yield endpoint.url


@contextmanager
def server(folder: Path) -> Iterator[str]:
    """`crosscut serve my.index`, with a token for those who may write."""
    from crosscut.server import make_app

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CROSSCUT_WRITE_TOKEN", "may-write")
        with running(make_app(crosscut.Index.load(folder / "my.index"))) as url:
            yield url


SERVICES = {"DATABASE_URL": database, "postgresql://": database, "JUDGE_URL": judge}


@functools.cache
def indexed() -> Path:
    """An index of the corpus, made once."""
    folder = Path(tempfile.mkdtemp())
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    corpus(folder)
    done = run(["crosscut", "index", "build", "corpus.jsonl", "my.index"], folder)
    assert done.returncode == 0, done.stderr
    return folder / "my.index"


def ready(page: Path, language: str, folder: Path, stack: ExitStack) -> dict[str, str]:
    """Return what the blocks of a page need: files, an index, services by the name of their environment variable."""
    corpus(folder)
    text = page.read_text(encoding="utf-8")
    made = any(re.search(r"index build \S+ my\.index", code) for code in blocks(page, language))
    if "my.index" in text and not made:
        shutil.copytree(indexed(), folder / "my.index")
    run_here = "\n".join(blocks(page, language))
    wanted = {start for sign, start in SERVICES.items() if sign in run_here}
    names = {database: "DATABASE_URL", judge: "JUDGE_URL"}
    return {names[start]: stack.enter_context(start(folder)) for start in wanted}


@pytest.mark.parametrize("page", [page for page in PAGES if blocks(page, "sh")], ids=lambda page: page.stem)
def test_shell_blocks_run(page: Path, tmp_path: Path) -> None:
    with ExitStack() as stack:
        services = ready(page, "sh", tmp_path, stack)
        code = blocks(page, "sh")
        if any("localhost:8000" in block for block in code):
            services["CROSSCUT_WRITE_TOKEN"] = "may-write"
            url = stack.enter_context(server(tmp_path))
            code = [block.replace("localhost:8000", url) for block in code]
        for block in code:
            done = run(["bash", "-euo", "pipefail", "-c", block], tmp_path, **services)
            assert done.returncode == 0, f"{block}\n{done.stdout}\n{done.stderr}"


@pytest.mark.parametrize("page", [page for page in PAGES if blocks(page, "python")], ids=lambda page: page.stem)
def test_python_blocks_run(page: Path, tmp_path: Path) -> None:
    granted = ROOT / "tests" / "docs" / f"{page.stem}.py"
    before = [granted.read_text(encoding="utf-8")] if granted.exists() else []
    with ExitStack() as stack:
        services = ready(page, "python", tmp_path, stack)
        code = "\n".join([*before, *blocks(page, "python")])
        done = run([sys.executable, "-W", "error::SyntaxWarning", "-c", code], tmp_path, **services)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"


def test_blocks_that_are_not_run_say_why() -> None:
    """Installing, waiting for requests and downloading: nothing else is left out."""
    for page in PAGES:
        for note, _, code in BLOCK.findall(page.read_text(encoding="utf-8")):
            if note.startswith("not run"):
                assert re.match(r"not run: (installs|waits for requests|\w+ downloads)", note), f"{page.name}: {code}"
        assert not re.search(r"^```(bash|shell|py|console)$", page.read_text(encoding="utf-8"), re.M), page.name


def test_every_command_has_help_with_an_example() -> None:
    from typer.main import get_command

    def commands(command: object, path: tuple[str, ...]) -> list[tuple[str, ...]]:
        inner = getattr(command, "commands", None)
        if inner is None:
            return [path]
        return [found for name, each in inner.items() for found in commands(each, (*path, name))]

    for path in commands(get_command(app), ()):
        result = CliRunner().invoke(app, [*path, "--help"])
        assert result.exit_code == 0
        assert "Example" in result.output or path[0] == "train", path


def test_the_site_builds_without_a_warning(tmp_path: Path) -> None:
    done = run(["mkdocs", "build", "--strict", "--site-dir", str(tmp_path / "site")], ROOT)
    assert done.returncode == 0, done.stderr[-3000:]


def test_links_of_the_docs_lead_somewhere() -> None:
    for page in PAGES:
        for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text(encoding="utf-8")):
            assert (page.parent / target).exists(), f"{page.name} links to {target}"


def test_files_that_the_docs_name_are_there() -> None:
    """Programs and results between backticks: from the root, or from the package."""
    named = re.compile(
        r"(?<![\w/.])((?:tests|benchmarks|scripts|examples|crosscut|[a-z]+)/[\w./*-]+\.(?:py|toml|npz))\b"
    )
    for page in PAGES:
        for found in set(named.findall(page.read_text(encoding="utf-8"))):
            homes = (ROOT, ROOT / "src", ROOT / "src" / "crosscut")
            assert any(any(home.glob(found)) for home in homes), f"{page.name} names {found}"
