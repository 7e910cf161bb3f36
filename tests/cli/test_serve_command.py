"""`crosscut serve`, as a process of its own."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import httpx
import pytest

pytest.importorskip("fastapi")
pytest.importorskip("uvicorn")

from typer.testing import CliRunner

import crosscut
import crosscut.server
from crosscut.cli import app
from crosscut.cli.serve import named, serve
from crosscut.errors import InputError


def test_it_serves_until_it_is_stopped(tmp_path: Path) -> None:
    folder = tmp_path / "my.index"
    texts = [f"a text about {word}" for word in ("rivers", "banks", "cats")]
    crosscut.Index.build(texts, encoder=None, method="hybrid").save(folder)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [sys.executable, "-c", "from crosscut.cli import main; main()", "serve", str(folder), "--preload"]
    environment = {**os.environ, "CROSSCUT_TOKEN": "hidden-4711"}
    process = subprocess.Popen([*command, "--port", str(port)], stderr=subprocess.PIPE, text=True, env=environment)
    try:
        url = f"http://127.0.0.1:{port}"
        end = time.monotonic() + 120
        while time.monotonic() < end and process.poll() is None:
            try:
                if httpx.get(f"{url}/ready").status_code == 200:
                    break
            except httpx.TransportError:
                time.sleep(0.1)
        headers = {"authorization": "Bearer hidden-4711"}
        found = httpx.post(f"{url}/search", json={"query": "cats", "budget": 3, "k": 1}, headers=headers, timeout=60)
        assert found.status_code == 200
        assert len(found.json()["hits"]) == 1
        assert httpx.get(f"{url}/info").status_code == 401
    finally:
        process.send_signal(signal.SIGTERM)
        _, log = process.communicate(timeout=60)
    assert process.returncode in (0, -signal.SIGTERM)
    events = [json.loads(line) for line in log.splitlines()]
    assert "stopped" in [event["event"] for event in events]
    assert "hidden-4711" not in log
    assert [event["calls"] for event in events if event.get("route") == "/search"] == [found.json()["calls"]]


def test_wrong_options_are_said(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no index at"):
        serve([tmp_path / "none"])
    with pytest.raises(InputError, match="max_budget"):
        serve([tmp_path / "none"], max_budget=0)
    with pytest.raises(InputError, match="level of the log"):
        crosscut.server.serve({}, log_level="loud")


def test_index_names() -> None:
    assert named([Path("a/law.index"), Path("news=b/2024.index")]) == {
        "law": Path("a/law.index"),
        "news": Path("b/2024.index"),
    }
    with pytest.raises(InputError, match="both called 'law'"):
        named([Path("a/law.index"), Path("b/law.index")])


def test_options_come_from_the_environment(tmp_path: Path) -> None:
    done = CliRunner().invoke(app, ["serve", str(tmp_path)], env={"CROSSCUT_SERVE_MAX_BUDGET": "0"})
    assert "max_budget must be 1 or more; got 0" in str(done.exception)
    done = CliRunner().invoke(app, ["serve", str(tmp_path), "--budget", "20", "--max-budget", "10"])
    assert "over the cap of 10" in str(done.exception)
