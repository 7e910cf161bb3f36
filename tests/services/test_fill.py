"""`crosscut fill`: items into a vector store, from the shell."""

from __future__ import annotations

import json
import random
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

import crosscut
from crosscut.cli import app
from crosscut.errors import InputError, StoreUnavailable
from crosscut.models.bi_encoder import load_encoder
from crosscut.stores import LanceDB, PgVector, open_store
from tests import real_stores
from tests.services.test_ray_engine import cluster, ray  # noqa: F401  (a fixture)
from tests.services.test_stores import dsn  # noqa: F401  (a fixture)

pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]
TEXTS = ["tides follow the moon", "bread rises with yeast", "salt lowers the freezing point of water"]


def made(kind: str, folder: Path, d: int = 384) -> Path:
    """A store of one item, which a collection takes its kinds of values from."""
    getattr(real_stores, kind)(real_stores.corpus(vectors=np.full((1, d), 0.05, np.float32)), folder).close()
    return folder


def table(dsn: str, name: str) -> None:  # noqa: F811
    """A table of PostgreSQL of one item, as those who have one made it."""
    psycopg = pytest.importorskip("psycopg")
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute("CREATE EXTENSION IF NOT EXISTS vector")
        connection.execute(f"CREATE TABLE {name} (id bigint PRIMARY KEY, e vector(384), body text, year int)")
        connection.execute(f"INSERT INTO {name} VALUES (3, array_fill(0.05, ARRAY[384])::vector, 'one', 1999)")


def filled(corpus: Path, where: Any, *more: str, name: str = "papers") -> Any:
    arguments = ["fill", str(corpus), str(where), name, "--store-vector", "e", "--store-text", "body", *more]
    return CliRunner().invoke(app, arguments)


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    path = tmp_path / "items.jsonl"
    path.write_text("".join(json.dumps({"id": str(j + 100), "text": text}) + "\n" for j, text in enumerate(TEXTS)))
    return path


def check(store: Any) -> None:
    rows = store.fetch([100, 101, 102])
    order = np.argsort(rows.keys)
    assert [rows.payloads[j]["body"] for j in order] == TEXTS
    assert np.allclose(rows.vectors[order], load_encoder("default").encode_items(TEXTS), atol=1e-5)
    store.close()


@pytest.mark.parametrize("kind", ["lance"])
def test_items_and_their_vectors_are_written(kind: str, corpus: Path, tmp_path: Path) -> None:
    folder = made(kind, tmp_path / "store")
    done = filled(corpus, folder, "--json")
    assert json.loads(done.stdout) == {"written": 3, "items": 4}
    opened = open_store(str(folder), "papers", vector="e", text="body")
    assert isinstance(opened, LanceDB)
    check(opened)
    again = filled(corpus, folder)
    assert isinstance(again.exception, InputError)
    assert "resume=True" in str(again.exception)
    assert "0 items written; 4 in the" in filled(corpus, folder, "--resume").output


def test_by_workers_of_ray(corpus: Path, tmp_path: Path, cluster: Any) -> None:  # noqa: F811
    folder = made("lance", tmp_path / "store")
    done = filled(corpus, folder, "--json", "--engine", "ray", "--workers", "1")
    assert json.loads(done.stdout) == {"written": 3, "items": 4}, done.output
    check(open_store(str(folder), "papers", vector="e", text="body"))


@pytest.mark.filterwarnings("ignore")
def test_into_postgresql(corpus: Path, dsn: str) -> None:  # noqa: F811
    table(dsn, "shelf")
    done = filled(corpus, dsn, "--json", name="shelf")
    assert json.loads(done.stdout) == {"written": 3, "items": 4}, done.output
    opened = open_store(dsn, "shelf", vector="e", text="body")
    assert isinstance(opened, PgVector)
    index = crosscut.Index.over(opened, scorer=lambda query, texts: [float("yeast" in text) for text in texts])
    assert index.search("how does bread rise", k=1, budget=4).ids == [101]
    check(opened)
    assert "resume=True" in str(filled(corpus, dsn, name="shelf").exception)
    more = corpus.with_name("more.jsonl")
    more.write_text(corpus.read_text() + json.dumps({"id": "200", "text": "owls hunt at night", "year": 2001}) + "\n")
    result = filled(more, dsn, "--resume", "--json", "--metadata", "year", name="shelf")
    assert json.loads(result.stdout) == {"written": 1, "items": 5}, result.output
    assert "no column 'colour'" in _refused(corpus, dsn, '{"id": "300", "text": "a", "colour": "red"}')
    assert "300" not in str(open_store(dsn, "shelf", vector="e", text="body").fetch([300]).keys)
    for name in ("shelves", '"shelf"', "Shelf"):
        wrong = str(filled(corpus, dsn, name=name).exception)
        assert f"there is no table {name!r} in the database" in wrong
        assert "letters as they are and without quotes" in wrong


def _refused(corpus: Path, dsn: str, line: str) -> str:  # noqa: F811
    odd = corpus.with_name("odd.jsonl")
    odd.write_text(line + "\n")
    return str(filled(odd, dsn, "--resume", name="shelf").exception)


@pytest.mark.filterwarnings("ignore")
def test_workers_of_ray_write_into_postgresql(corpus: Path, dsn: str, cluster: Any) -> None:  # noqa: F811
    table(dsn, "far")
    done = filled(corpus, dsn, "--json", "--engine", "ray", "--workers", "2", name="far")
    assert json.loads(done.stdout) == {"written": 3, "items": 4}, done.output
    check(open_store(dsn, "far", vector="e", text="body"))


def test_what_cannot_be_filled(corpus: Path, tmp_path: Path) -> None:
    narrow = made("lance", tmp_path / "narrow", 12)
    assert "384 dimensions, and those of the LanceDB table 'papers' have 12" in str(filled(corpus, narrow).exception)
    assert "--engine ray" in str(filled(corpus, narrow, "--gpus", "1").exception)
    with pytest.raises(InputError, match="is no store: give postgresql://"):
        open_store(str(tmp_path / "nowhere"), "papers")


FILLING = """
import sys
import numpy as np
from crosscut.datasets import Item
from crosscut.index import store_corpus
from crosscut.score_store.engines import LocalEngine
from crosscut.stores import open_store
from tests.services.test_fill import Slow
store_corpus.BLOCK = 5
items = (Item(str(j), "", f"text {j}") for j in range(100, 160))
store = open_store(sys.argv[1], "papers", vector="e", text="body")
print("filling", flush=True)
store_corpus.fill(store, items, Slow(), LocalEngine(), resume=True)
store.close()
print("filled", flush=True)
"""


class Slow:
    """Vectors that contain the number of their text."""

    fingerprint = "slow"
    dimension = 4

    def encode_items(self, texts: Any, *, progress: Any = None) -> Any:
        time.sleep(0.02)
        return self.encode_queries([text if isinstance(text, str) else text.text for text in texts])

    def encode_queries(self, texts: Any) -> Any:
        return np.array([[float(text.split()[1]), 1.0, 2.0, 3.0] for text in texts], np.float32)


@pytest.mark.parametrize("kind", ["lance"])
def test_one_that_was_killed_goes_on(kind: str, tmp_path: Path) -> None:
    """Killed again and again in the middle of it, and started again: every item is there once, with its own vector."""
    folder, rng, kills = made(kind, tmp_path / "store", 4), random.Random(kind), 0
    for attempt in range(12):
        command = [sys.executable, "-W", "ignore", "-c", FILLING, str(folder)]
        running = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert running.stdout is not None
        assert running.stdout.readline() == "filling\n"
        try:
            running.wait(rng.uniform(0.0, 0.3) if attempt < 3 else 120)
            break
        except subprocess.TimeoutExpired:
            running.kill()
            running.wait()
            kills += 1
    assert (kills, running.returncode) == (3, 0)
    with closing(open_store(str(folder), "papers", vector="e", text="body")) as store:
        assert store.count() == 61
        rows = store.fetch(list(range(100, 160)))
        assert sorted(rows.keys) == list(range(100, 160))
        vectors = np.asarray(rows.vectors)
        written = {payload["body"]: vectors[place].tolist() for place, payload in enumerate(rows.payloads)}
    assert written == {f"text {j}": [float(j), 1.0, 2.0, 3.0] for j in range(100, 160)}


def test_a_damaged_table_is_an_error(tmp_path: Path) -> None:
    folder = made("lance", tmp_path / "store", 4)
    for file in folder.rglob("data/*.lance"):
        whole = file.read_bytes()
        file.write_bytes(whole[: len(whole) // 3])
    store = open_store(str(folder), "papers", vector="e", text="body")
    with pytest.raises(StoreUnavailable, match="the LanceDB table 'papers'"):
        crosscut.Index.over(store, scorer=lambda query, texts: [0.0] * len(texts), encoder=Slow())
