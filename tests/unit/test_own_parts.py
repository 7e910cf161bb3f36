"""The examples of CONTRIBUTING.md: a method, a stopping rule and a back end of one's own, wherever there are names."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import crosscut
import crosscut.datasets
from crosscut.methods import base
from crosscut.search import stopping
from tests.served import WORDS, score_words
from tests.unit.test_index import Planted as PlantedTexts
from tests.unit.test_index import build
from tests.worlds import Planted

EXAMPLES = Path(__file__).parents[2] / "examples"
NAMES = ["kernel-ridge", "crosscut-8bit"]


@pytest.fixture(autouse=True)
def own(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The examples, imported; forgotten afterwards."""
    monkeypatch.syspath_prepend(str(EXAMPLES))
    methods, stops = dict(base._METHODS._known), dict(stopping._STOPS._known)
    for name in ("own_method", "own_stop", "own_backend"):
        sys.modules.pop(name, None)
        __import__(name)
    yield
    base._METHODS._known, stopping._STOPS._known = methods, stops


@pytest.mark.parametrize("name", ["own_method", "own_stop", "own_backend", "own_scorer", "own_format"])
def test_examples_are_short(name: str) -> None:
    code = [line for line in (EXAMPLES / f"{name}.py").read_text().splitlines() if line.strip()]
    assert len(code) < 45
    assert len([line for line in code if not line.startswith(("from", "import", '"""'))]) < 40


@pytest.mark.parametrize("name", NAMES)
def test_in_a_searcher_and_a_replay(world: Planted, name: str) -> None:
    searcher = crosscut.Searcher(crosscut.MatrixScorer(world.test), vectors=world.vectors, method=f"{name}@rounds=8")
    hits = searcher.search_many(range(6), 5, 60, query_vectors=world.query_vectors)
    assert all((found.calls, found.rounds) == (60, 8) for found in hits)
    report = crosscut.replay(
        world.test,
        vectors=world.vectors,
        query_vectors=world.query_vectors,
        methods=["crosscut", f"{name}@rounds=8"],
        budgets=[60],
        k=[5],
    )
    assert report.get(f"{name}@rounds=8", 5, 60).recall > 0.5


def test_eight_bits_find_what_float_finds(world: Planted) -> None:
    plain = crosscut.Searcher(crosscut.MatrixScorer(world.test), vectors=world.vectors)
    small = crosscut.Searcher(crosscut.MatrixScorer(world.test), vectors=world.vectors, method="crosscut-8bit")
    for query in range(6):
        mine, theirs = (s.search(query, 10, 80, query_vector=world.query_vectors[query]) for s in (small, plain))
        assert len({*mine.ids} & {*theirs.ids}) >= 8


def test_a_back_end_in_the_place_of_vectors(world: Planted) -> None:
    """A `TopK` is handed to a searcher and to a replay as vectors are, and every method of vectors runs over it."""
    small_vectors: Any = sys.modules["own_backend"].EightBits(world.vectors)

    def replayed(vectors: Any) -> crosscut.Report:
        asked: Any = {"methods": ["rerank", "axn"], "budgets": [60], "k": [5], "seeds": 1}
        return crosscut.replay(world.test, vectors=vectors, query_vectors=world.query_vectors, **asked)

    plain, small = replayed(world.vectors), replayed(small_vectors)
    for method in ("rerank", "axn"):
        assert small.get(method, 5, 60).recall == pytest.approx(plain.get(method, 5, 60).recall, abs=0.1)
    searcher = crosscut.Searcher(crosscut.MatrixScorer(world.test), vectors=small_vectors)
    assert searcher.search(0, 5, 40, query_vector=world.query_vectors[0], stop="above@level=1e9").calls == 40


def test_a_rule_stops_a_replay(world: Planted) -> None:
    asked: Any = {"vectors": world.vectors, "query_vectors": world.query_vectors, "methods": ["crosscut"]}
    asked |= {"budgets": [100], "k": [5], "seeds": 1}
    level = float(np.median(np.sort(world.test, axis=1)[:, -12]))
    whole, part = (crosscut.replay(world.test, **asked, stop=stop) for stop in (None, f"above@level={level}"))
    assert whole.records[0].calls == 100
    assert part.records[0].calls < 100
    assert part.records[0].recall < whole.records[0].recall + 1e-9


def test_a_rule_by_name_stops_a_search(world: Planted) -> None:
    searcher = crosscut.Searcher(crosscut.MatrixScorer(world.test), vectors=world.vectors)
    level = float(np.sort(world.test[0])[-12])
    hits = searcher.search(0, 3, 150, query_vector=world.query_vectors[0], stop=f"above@level={level}")
    assert hits.stop_reason == "above the level"
    assert hits.calls < 150
    assert hits.scores.min() >= level
    with pytest.raises(
        crosscut.InputError, match="unknown stop 'below': choose one of above, confident, never, patience"
    ):
        searcher.search(0, 3, 150, stop="below")


@pytest.mark.parametrize("name", NAMES)
def test_in_an_index(name: str) -> None:
    index = build(PlantedTexts(), queries=20)
    assert index.search("query 50", 5, 60, method=name, stop="above@level=1e9").calls == 60
    report = index.tune(k=5, budget=40, methods=[name, "rerank"])
    assert report.trials[0].method.name == name


def crosscut_command(*words: str, folder: Path) -> str:
    """Return what `crosscut …` prints, with the examples as its plugins."""
    plugins = {"CROSSCUT_PLUGINS": "own_method,own_stop,own_backend"}
    run = subprocess.run(
        [sys.executable, "-m", "crosscut", *words],
        cwd=folder,
        env={**os.environ, **plugins, "PYTHONPATH": os.pathsep.join([str(EXAMPLES), *sys.path])},
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    return run.stdout


def test_replays_on_the_command_line(world: Planted, tmp_path: Path) -> None:
    np.savez(tmp_path / "w.npz", test=world.test, vectors=world.vectors, query_vectors=world.query_vectors)
    methods = "rerank,kernel-ridge@rounds=3,crosscut-8bit"
    asked = ["--data", "w.npz", "--methods", methods, "--budgets", "40", "-k", "5", "--seeds", "1"]
    crosscut_command("replay", *asked, "--json", "out.json", folder=tmp_path)
    records = json.loads((tmp_path / "out.json").read_text())
    assert {record["method"] for record in records} == {"rerank", "kernel-ridge@rounds=3", "crosscut-8bit"}
    assert {record["calls"] for record in records} == {40.0}
    crosscut_command("replay", *asked, "--stop", "above@level=-1e9", "--json", "out.json", folder=tmp_path)
    stopped = {record["method"]: record["calls"] for record in json.loads((tmp_path / "out.json").read_text())}
    assert stopped == {
        "rerank": 40.0,
        "kernel-ridge@rounds=3": 13.0,
        "crosscut-8bit": 8.0,
    }  # five are known after the second round


def test_searches_on_the_command_line(tmp_path: Path) -> None:
    """A saved index, with the bundled models: the command finds the same as the index."""
    index = crosscut.Index.build([f"{word} of {other}" for word in WORDS[:6] for other in WORDS[:6]])
    index.save(tmp_path / "my.index")
    for method, stop in [(name, None) for name in NAMES] + [("crosscut", "above@level=-1e9")]:
        asked = ["--method", method, *(() if stop is None else ("--stop", stop)), "--budget", "20", "-k", "3", "--json"]
        output = json.loads(crosscut_command("search", "my.index", f"{WORDS[0]} {WORDS[1]}", *asked, folder=tmp_path))
        hits = index.search(f"{WORDS[0]} {WORDS[1]}", 3, 20, method=method, stop=stop)
        assert [hit["id"] for hit in output["hits"]] == hits.ids
        assert (output["calls"], output["stop_reason"]) == (hits.calls, hits.stop_reason)


def test_a_scorer_of_ones_own_is_searched_and_kept(tmp_path: Path) -> None:
    from crosscut.scorers.base import Scorer

    overlap: Any = __import__("own_scorer").Overlap()
    assert isinstance(overlap, Scorer)
    texts = [f"{word} of {other}" for word in WORDS for other in WORDS]
    index = crosscut.Index.build(texts, scorer=overlap, encoder=Letters(), store=tmp_path / "scores")
    every = overlap.score("river bank", texts)
    hits = index.search("river bank", 5, len(texts))
    np.testing.assert_array_equal(hits.scores, np.sort(every)[::-1][:5])
    index.close()  # scores are written
    again = crosscut.Index.build(texts, scorer=overlap, encoder=Letters(), store=tmp_path / "scores")
    assert again.search("river bank", 5, len(texts)).calls == 0  # found under its fingerprint


def test_a_format_of_ones_own(tmp_path: Path) -> None:
    read: Any = __import__("own_format").read_cards
    (tmp_path / "a.cards").write_text("Sea\nWaves come\nyear: 2020\nand go.\n\n\nBread\nDough rises.", "utf-8")
    first, second = read(tmp_path / "a.cards")
    assert first == crosscut.datasets.Item("1", "Sea", "Waves come and go.", {"year": "2020"})
    assert (second.id, second.title, second.text) == ("7", "Bread", "Dough rises.")
    index = crosscut.Index.build(read(tmp_path / "a.cards"), scorer=score_words, encoder=Letters())
    assert index.search("dough", 1, 2, filter={"year": "2020"}).ids == ["1"]
    (tmp_path / "b.cards").write_text("Sea\nWaves\n\nBread\n", "utf-8")
    with pytest.raises(crosscut.InputError, match="line 4: the card 'Bread' has no text"):
        list(read(tmp_path / "b.cards"))


class Letters:
    """A dual encoder without a model: counts of letters."""

    fingerprint = "letters"
    dimension = 26

    def encode_queries(self, texts: Sequence[str]) -> np.ndarray:
        return np.array([[text.count(chr(97 + j)) for j in range(26)] for text in texts], np.float32)

    def encode_items(self, items: Sequence[Any], *, progress: Any = None) -> np.ndarray:
        return self.encode_queries([item.text for item in items])


def test_over_http() -> None:
    testing = pytest.importorskip("fastapi.testclient")
    from crosscut.server import make_app

    texts = [f"{word} of {other}" for word in WORDS for other in WORDS]
    index = crosscut.Index.build(texts, scorer=score_words, encoder=Letters())
    asked = {"query": "river bank", "k": 5, "budget": 40}
    with testing.TestClient(make_app(index), base_url="http://127.0.0.1") as client:
        for name in NAMES:
            answer = client.post("/search", json={**asked, "method": f"{name}@rounds=4"}).json()
            own = index.search("river bank", 5, 40, method=f"{name}@rounds=4")
            assert [hit["id"] for hit in answer["hits"]] == own.ids
        early = client.post("/search", json={**asked, "stop": "above@level=-1000"}).json()
        assert early["stop_reason"] == "above the level"
        refused = client.post("/search", json={**asked, "method": "kernel-ridge@speed=3"})
        assert refused.status_code == 422
        assert "kernel-ridge has no setting 'speed'" in refused.text
