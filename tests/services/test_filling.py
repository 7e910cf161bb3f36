"""Items into a vector store, block by block: here, and by workers of Ray that write into it themselves."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from crosscut.errors import InputError
from crosscut.index import Index
from crosscut.score_store.engines import LocalEngine, RayEngine
from crosscut.stores.base import Store
from tests import real_stores
from tests.coding import Coding
from tests.fake_store import MemoryStore
from tests.services.test_ray_engine import cluster, ray  # noqa: F401  (a fixture)
from tests.services.test_stores import dsn  # noqa: F401  (a fixture)

pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]


def empty(kind: str, where: Any) -> Store:
    made = real_stores.corpus(vectors=np.full((1, 8), 0.5, np.float32))
    return getattr(real_stores, kind)(made, where, exact=True)


def records(start: int, stop: int) -> list[dict[str, Any]]:
    return [{"id": str(j), "text": f"item {j}", "lang": "en", "year": 1900 + j} for j in range(start, stop)]


def over(store: Store, encoder: Any) -> Index:
    return Index.over(store, scorer=lambda query, texts: [float(len(text)) for text in texts], encoder=encoder)


def check(store: Store, start: int, stop: int) -> None:
    """Every item is there once, with its own vector and text."""
    names = [store.named(str(j)) for j in range(start, stop)]
    rows = store.fetch(names)
    assert sorted(map(str, rows.keys)) == sorted(map(str, names))
    wanted = Coding().encode_queries([f"item {j}" for j in range(start, stop)])
    for key, vector, payload in zip(rows.keys, rows.vectors, rows.payloads, strict=True):
        assert payload["body"] == f"item {key}"
        assert np.allclose(vector, wanted[int(key) - start], atol=1e-6)


@pytest.mark.parametrize("kind", ["postgres", "edge"])
def test_workers_of_ray_fill_a_store(
    kind: str,
    cluster: Any,  # noqa: F811
    request: pytest.FixtureRequest,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One of them dies over a block. PostgreSQL is written by the workers, a shard in this process by it."""
    monkeypatch.setattr("crosscut.index.store_corpus.BLOCK", 100)
    store = empty(kind, request.getfixturevalue("dsn") if kind == "postgres" else tmp_path / "store")
    assert (store.recipe is None) == (kind == "edge")
    if kind == "postgres":
        monkeypatch.setattr(store, "write", None)  # not by this process
    before = store.count()
    index = over(store, Coding(str(tmp_path)))
    reported: list[int] = []
    engine = RayEngine(workers=2)
    written = index.add(records(100, 1050), engine=engine, progress=lambda what, done, total: reported.append(done))
    assert (tmp_path / "died").exists()
    assert written == 950
    assert reported == sorted(reported)
    assert reported[-1] == 950
    assert store.count() == before + 950
    check(store, 100, 1050)
    with pytest.raises(InputError, match=r"are in .* already, one is .*resume=True"):
        index.add(records(1000, 1100), engine=engine)
    assert index.add(records(100, 1100), engine=engine, resume=True) == 50
    check(store, 100, 1100)
    hits = index.search("item 1099", 5, 40)
    assert hits.calls == 40
    store.close()


def test_without_ray_items_go_in_block_by_block_and_go_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("crosscut.index.store_corpus.BLOCK", 50)
    store = empty("edge", tmp_path / "store")
    index = over(store, Coding())
    path = tmp_path / "items.jsonl"
    path.write_text("".join(f'{{"id": "{j}", "text": "item {j}"}}\n' for j in range(100, 400)))

    class Stopped(Exception):
        pass

    def stop(what: str, done: int, total: int) -> None:
        if what == "adding items" and done >= 150:
            raise Stopped

    with pytest.raises(Stopped):
        index.add(path, engine="local", progress=stop)
    check(store, 100, 250)
    assert index.add(path, resume=True) == 150
    check(store, 100, 400)
    store.close()


def test_what_cannot_be_said_so(tmp_path: Path) -> None:
    store = empty("edge", tmp_path / "store")
    with pytest.raises(InputError, match="items are encoded on the way"):
        over(store, Coding()).add(records(1, 3), vectors=np.zeros((2, 8)), resume=True)
    with pytest.raises(InputError, match="in this process"):
        over(store, Coding()).add(records(1, 3), engine=LocalEngine(workers=2))
    store.close()


def test_vectors_of_other_dimensions_are_no_failure_of_the_store() -> None:
    index = over(MemoryStore([], np.zeros((0, 8))), Coding())
    with pytest.raises(InputError, match=r"vectors of shape \(1, 3\), those of the store in memory have 8 dimensions"):
        index.add([{"id": "1", "text": "item 1"}], vectors=np.ones((1, 3)))
