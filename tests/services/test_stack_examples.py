"""Every input is searched in four lines, every client has its answer in six: the examples say how, and run."""

from __future__ import annotations

import ast
import csv
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import numpy as np
import pytest

import crosscut
from crosscut.server import Settings, make_app
from tests.served import running

EXAMPLES = Path(__file__).parents[2] / "examples"
INPUTS = sorted(EXAMPLES.glob("inputs/*.py"))
CLIENTS = sorted([*EXAMPLES.glob("clients/*.py"), *EXAMPLES.glob("clients/*.sh")])
ARTICLES = {
    "ice": ("Ice", "Ice floats because it is less dense than water."),
    "salt": ("Salt", "Salt melts ice on roads in winter."),
    "tide": ("Tides", "Tides follow the moon around the earth."),
    "cats": ("Cats", "Cats sleep for most of the day."),
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    import pyarrow as pa
    import pyarrow.parquet as pq

    path = tmp_path_factory.mktemp("stacks")
    rows = [{"pk": id, "headline": title, "body": text} for id, (title, text) in ARTICLES.items()]
    with (path / "articles.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    pq.write_table(pa.Table.from_pylist(rows), path / "articles.parquet")
    (path / "notes").mkdir()
    for id, (title, text) in ARTICLES.items():
        (path / "notes" / f"{id}.md").write_text(f"# {title}\n\n{text}\n")
    vectors = np.random.default_rng(0).normal(size=(4, 8))
    np.save(path / "vectors.npy", vectors)
    np.save(path / "query.npy", vectors[0])
    crosscut.Index.build(path / "articles.csv", text="body", title="headline", id="pk").save(path / "my.index")
    return path


@pytest.fixture(scope="module")
def url(folder: Path) -> Iterator[str]:
    with running(make_app(crosscut.Index.load(folder / "my.index"), Settings())) as address:
        yield address


def code(path: Path) -> str:
    """A program without its docstring, comments and empty lines."""
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".py":
        tree = ast.parse(text)
        tree.body = tree.body[1:]
        return ast.unparse(tree)
    return "\n".join(line for line in text.splitlines() if line and not line.startswith("#"))


def lines(path: Path) -> int:
    return len([line for line in code(path).splitlines() if line.strip()])


def ran(path: Path, folder: Path, url: str = "") -> str:
    program = code(path).replace("http://127.0.0.1:8000", url)
    command = [sys.executable, "-c", program] if path.suffix == ".py" else ["bash", "-euo", "pipefail", "-c", program]
    run = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=300, check=False)
    assert run.returncode == 0, run.stderr
    return run.stdout


@pytest.mark.parametrize("path", INPUTS, ids=lambda path: path.stem)
def test_an_input_is_searched_in_four_lines(path: Path, folder: Path) -> None:
    assert lines(path) <= 4
    best = ast.literal_eval(ran(path, folder))[0]
    assert best in ("ice", "ice.md")


@pytest.mark.parametrize("path", CLIENTS, ids=lambda path: path.stem)
def test_a_client_has_its_answer_in_six_lines(path: Path, folder: Path, url: str) -> None:
    assert lines(path) <= 6
    output = ran(path, folder, url)
    assert "Ice floats" in output or "'ice'" in output or " ice " in output or "index=1" in output


def test_nothing_is_missing() -> None:
    assert {path.stem for path in INPUTS} == {
        "from_csv", "from_parquet", "from_frame", "from_folder", "from_langchain", "from_vectors"
    }  # fmt: skip
    assert {path.stem for path in CLIENTS} == {
        *("ask_langchain", "ask_llama_index", "ask_haystack", "ask_pyterrier", "ask_mcp"),
        *("ask_cohere_v1", "ask_cohere_v2", "ask_curl"),
    }


def test_a_newcomer_serves_a_folder_of_markdown_with_the_commands_of_the_readme(folder: Path, tmp_path: Path) -> None:
    """The readme's own commands after the installation, on a folder of Markdown."""
    readme = (EXAMPLES.parent / "README.md").read_text(encoding="utf-8")
    commands = [
        line.partition("   #")[0].split()
        for line in readme.splitlines()
        if line.startswith(("crosscut index build", "crosscut serve"))
    ]
    assert [command[1] for command in commands[:2]] == ["index", "serve"]
    built, served = commands[:2]
    assert built[3:5] == ["notes/", "my.index"]
    assert served[2] == "my.index"
    target = str(tmp_path / "my.index")
    program = [sys.executable, "-m", "crosscut"]
    done = subprocess.run([*program, *built[1:4], target], cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{probe.getsockname()[1]}"
    process = subprocess.Popen([*program, "serve", target, "--port", url.rpartition(":")[2]], stderr=subprocess.DEVNULL)
    try:
        end = time.monotonic() + 120
        while time.monotonic() < end and process.poll() is None:
            try:
                if httpx.get(f"{url}/ready").status_code == 200:
                    break
            except httpx.TransportError:
                time.sleep(0.1)
        found = httpx.post(
            f"{url}/search", json={"query": "why does ice float", "k": 1, "budget": 4}, timeout=60
        ).json()
        assert found["hits"][0]["id"] == "ice.md"
    finally:
        process.terminate()
        process.wait(timeout=60)
