"""The README's way from a table in PostgreSQL to a served search, as it stands there."""

from __future__ import annotations

import importlib
import re
import socket
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Iterator
from pathlib import Path

import httpx
import numpy as np
import pytest

from crosscut import server
from crosscut.errors import InputError
from crosscut.models.bi_encoder import load_encoder

ROOT = Path(__file__).parents[2]
TEXTS = ["tides follow the moon", "bread rises with yeast", "salt lowers the freezing point of water"]
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning")


def block() -> list[str]:
    """The lines of the README's block that serves a store."""
    code = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text("utf-8"), re.S)
    (found,) = [one for one in code if "stores.PgVector" in one]
    return [line for line in found.splitlines() if line]


@pytest.fixture
def table() -> Iterator[str]:
    """A PostgreSQL server with a table of papers.

    Its folder is not in pytest's, which any other run of pytest closes to the user that the server runs as.
    """
    import psycopg

    folder = tempfile.TemporaryDirectory(prefix="pg", ignore_cleanup_errors=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        pgserver = importlib.import_module("pgserver")

        database = pgserver.get_server(folder.name, cleanup_mode="stop")
    vectors = load_encoder("default").encode_items(TEXTS)
    with psycopg.connect(database.get_uri(), autocommit=True) as connection:
        connection.execute("CREATE EXTENSION IF NOT EXISTS vector")
        connection.execute("CREATE TABLE papers (id bigint PRIMARY KEY, body text, embedding vector(384))")
        for number, (text, vector) in enumerate(zip(TEXTS, vectors, strict=True)):
            written = "[" + ",".join(map(str, np.asarray(vector).tolist())) + "]"
            connection.execute("INSERT INTO papers VALUES (%s, %s, %s::vector)", (number, text, written))
    yield database.get_uri()
    database.cleanup()
    folder.cleanup()


def test_five_lines_serve_a_table(table: str) -> None:
    lines = block()
    assert len(lines) <= 5
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    code = "\n".join(lines).replace("postgresql://me@localhost/library", table)
    code = code.replace("sentence-transformers/all-MiniLM-L6-v2", "default")  # no hub
    code = code.replace("serve(index)", f"serve(index, port={port})")
    process = subprocess.Popen([sys.executable, "-c", code], stderr=subprocess.PIPE, text=True)
    try:
        answer = None
        end = time.monotonic() + 120
        while answer is None and time.monotonic() < end and process.poll() is None:
            try:
                asked = {"query": "the moon and the tides", "k": 2, "budget": 2}
                answer = httpx.post(f"http://127.0.0.1:{port}/search", json=asked, timeout=60)
            except httpx.ConnectError:
                time.sleep(0.1)
        assert answer is not None, process.communicate()[1]
        assert answer.status_code == 200, answer.text
        body = answer.json()
        assert body["hits"][0]["text"] == TEXTS[0]
        assert body["calls"] <= 2
    finally:
        process.terminate()
        process.communicate(timeout=30)


def test_a_server_refuses_a_level_that_there_is_not() -> None:
    with pytest.raises(InputError, match="debug, info, warning or error; got 'loud'"):
        server.serve({}, log_level="loud")
