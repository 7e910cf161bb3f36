"""An index that is built in its folder: the same as one in memory, resumed after a kill, and cheap to change."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from crosscut.ann import clustered
from crosscut.datasets import Item
from crosscut.errors import InputError
from crosscut.index import Index, build
from crosscut.index.corpus import LocalCorpus
from crosscut.retrieval import BM25

WORDS = ["river", "bank", "money", "crane", "music", "reason", "idea", "virus", "vaccine", "stone"]
N, D = 600, 16


def rows(n: int = N, start: int = 0) -> list[dict[str, Any]]:
    rng = np.random.default_rng(7)
    texts = [" ".join(rng.choice(WORDS, 6)) for _ in range(start + n)]
    return [
        {"id": f"i{j}", "title": f"title {j}", "text": f"{texts[j]} {j}", "year": j % 50, "tags": [f"t{j % 3}", "all"]}
        for j in range(start, start + n)
    ]


def vectors(n: int = N) -> np.ndarray:
    made = np.random.default_rng(1).normal(size=(n, D))
    return (made / np.linalg.norm(made, axis=1, keepdims=True)).astype(np.float16)


def letters(query: str, texts: list[str]) -> list[float]:
    return [-abs(len(text) - int(query.split()[-1])) for text in texts]


def scorer(query: str, texts: list[str]) -> list[float]:
    return [-abs(int(text.split()[-1]) - int(query.split()[-1])) for text in texts]


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    path = tmp_path / "corpus.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows()))
    return path


@pytest.fixture
def large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clustered, "SMALL", 100)
    monkeypatch.setattr(build, "PORTION_IN_FOLDER", 64)


def found(index: Index, **options: Any) -> list[tuple[str, float, int]]:
    hits = index.search("bank money 17", 10, 60, query_vector=vectors()[17].astype(np.float32), **options)
    return [(hit.id, hit.score, hit.round) for hit in hits]


@pytest.mark.parametrize("small", [True, False])
def test_it_is_the_index_that_is_built_in_memory(
    tmp_path: Path, corpus: Path, small: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(clustered, "SMALL", 10_000 if small else 100)
    monkeypatch.setattr(build, "PORTION_IN_FOLDER", 64)
    streamed = Index.build(corpus, scorer=scorer, vectors=vectors(), path=tmp_path / "a.index")
    memory = Index.build(corpus, scorer=scorer, vectors=vectors())
    assert streamed.items == memory.items
    assert [item.id for item in streamed.items] == [f"i{j}" for j in range(N)]
    for options in (
        {},
        {"filter": {"year": {"gte": 20}}},
        {"filter": {"tags": "t1"}},
        {"method": "rerank@first=lexical"},
    ):
        assert found(streamed, **options) == found(memory, **options)
    assert not (tmp_path / "a.index.building").exists()
    assert Index.verify(tmp_path / "a.index") == []
    with pytest.raises(InputError, match="there is an index at"):
        Index.build(corpus, scorer=scorer, vectors=vectors(), path=tmp_path / "a.index")


PROGRAM = """
import sys, time
import numpy as np
from crosscut.index import Index, build
from tests.unit.test_build_in_folder import scorer
build.PORTION_IN_FOLDER = 50

def embed(texts):
    time.sleep(float(sys.argv[3]))
    out = np.array([[hash_of(text, j) for j in range(8)] for text in texts])
    return out

def hash_of(text, j):
    return (sum(map(ord, text)) * (j + 3) % 97) / 97 - 0.5

Index.build(sys.argv[1], scorer=scorer, vectors=embed, path=sys.argv[2])
"""


@pytest.mark.slow
def test_a_killed_build_goes_on_and_comes_to_the_same(tmp_path: Path, corpus: Path) -> None:
    def start(name: str, pause: float) -> subprocess.Popen[bytes]:
        return subprocess.Popen([sys.executable, "-c", PROGRAM, str(corpus), str(tmp_path / name), str(pause)])

    assert start("whole", 0).wait() == 0
    progress: list[int] = []
    for _ in range(3):
        process = start("killed", 0.3)
        record = tmp_path / "killed.building" / "index.json"
        while process.poll() is None:
            time.sleep(0.02)
            try:
                count = json.loads(record.read_text())["items"]
            except (OSError, ValueError):
                continue
            if count > (progress[-1] if progress else 0):
                progress.append(count)
                os.kill(process.pid, signal.SIGKILL)
        process.wait()
    assert progress == sorted(progress)
    assert 0 < progress[-1] < N
    assert not (tmp_path / "killed" / "index.json").exists()
    assert start("killed", 0).wait() == 0
    whole, killed = (Index.load(tmp_path / name, scorer=scorer) for name in ("whole", "killed"))
    assert whole.items == killed.items
    assert (np.asarray(whole.corpus.vectors) == np.asarray(killed.corpus.vectors)).all()
    assert not (tmp_path / "killed.building").exists()


def test_words_follow_what_comes_and_goes(tmp_path: Path, corpus: Path, large: None) -> None:
    index = Index.build(corpus, scorer=scorer, vectors=vectors(), path=tmp_path / "a.index")
    index.add([Item("new", "", "zebra crossing 3")], vectors=vectors()[:1])
    index.remove(["i3", "i5"])
    state = index.corpus
    assert state.bm25 is not None
    alive = np.flatnonzero(state.alive)
    stay = [state.items[place] for place in alive.tolist()]
    fresh = BM25(stay)
    for query in ("zebra river", "bank money crane", "title 7"):
        np.testing.assert_allclose(state.bm25.scores(query)[alive], fresh.scores(query), rtol=1e-5)
        np.testing.assert_array_equal(state.bm25.top(query, 20), alive[fresh.top(query, 20)])


def test_what_is_forgotten_is_in_no_file(tmp_path: Path, corpus: Path, large: None) -> None:
    path = tmp_path / "a.index"
    index = Index.build(corpus, scorer=scorer, vectors=vectors(), path=path)
    secret = index["i42"].text.encode()
    assert any(secret in file.read_bytes() for file in path.glob("0*/*"))
    index.add([Item("n1", "", "a later one 1"), Item("n2", "", "a later secret 2")], vectors=vectors()[:2])
    before = found(index)
    index.forget(["i42", "n2"])
    for file in filter(Path.is_file, tmp_path.rglob("*")):
        if file != corpus:
            assert secret not in file.read_bytes()
            assert b"later secret" not in file.read_bytes()
    again = Index.load(path, scorer=scorer)
    assert len(again) == N
    assert again["n1"].text == "a later one 1"
    assert found(again) == before
    assert Index.verify(path) == []
    assert [item.id for item in again.items] == [f"i{j}" for j in range(N) if j != 42] + ["n1"]
    index.save()  # the index that forgot goes on from the new files


def embedded(texts: list[str]) -> np.ndarray:
    return np.array([vectors()[int(text.split()[-1])] for text in texts])


def test_train_queries_passages_and_a_store_of_scores_are_as_in_memory(
    tmp_path: Path, corpus: Path, large: None
) -> None:
    settings: dict[str, Any] = {
        "scorer": letters,
        "encoder": None,
        "passages": 4,
        "queries": ["a 5", "a 30"],
        "space": "cur",
    }
    settings["vectors"] = lambda texts: np.array([[len(text), text.count("a"), 1.0] for text in texts]) / 50
    memory = Index.build(corpus, store=tmp_path / "one", **settings)
    streamed = Index.build(corpus, store=tmp_path / "two", path=tmp_path / "a.index", **settings)
    assert len(streamed) == len(memory) > N
    assert streamed.build_calls == memory.build_calls == 2 * len(memory)
    again = Index.load(tmp_path / "a.index", scorer=letters, store=tmp_path / "two")
    assert again.anchor_queries == ("a 5", "a 30")
    for index in (memory, streamed, again):
        assert index.passages == memory.passages
        hits = index.search("a 30", 5, 50, query_vector=[1.0, 0.1, 0.02])
        assert hits.calls == 0  # all of them are known
        assert [hit.score for hit in hits] == [0] * 5
        assert [index[hit.id].text for hit in hits] == [memory[hit.id].text for hit in hits]


def test_a_folder_of_long_files_is_cut_as_in_memory_and_goes_on(
    tmp_path: Path, large: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same passages, vectors and answers, whether a build was stopped in between or not; not of other files."""
    notes = tmp_path / "notes"
    (notes / "inner").mkdir(parents=True)
    rng = np.random.default_rng(3)
    for number in range(40):
        sentences = [f"{' '.join(rng.choice(WORDS, 9))} {n}." for n in range(rng.integers(1, 60))]
        name = f"inner/{number}.md" if number % 2 else f"{number}.txt"
        (notes / name).write_text(f"# Note {number}\n\n" + " ".join(sentences))

    def embed(texts: list[str]) -> np.ndarray:
        return np.array([[text.count(word) + 0.01 * len(text) for word in WORDS] for text in texts])

    def answers(index: Index) -> list[tuple[str, float, str]]:
        vector = np.arange(len(WORDS)) / 10
        return [(hit.id, hit.score, hit.text) for hit in index.search("a 300", 10, 60, query_vector=vector)]

    def build(path: Path | None = None) -> Index:
        return Index.build(notes, scorer=letters, vectors=embed, path=path)

    memory = build()
    assert memory.passages is not None
    assert len(memory) > 120
    for after in (0, 1, 2):  # saves
        path = tmp_path / f"stopped-{after}"
        with monkeypatch.context() as patch:
            left = iter(range(after))
            commit = LocalCorpus.save

            def interrupted(self: Any, *args: Any, left: Any = left, commit: Any = commit) -> Any:
                saved = commit(self, *args)
                if next(left, None) is None:
                    raise KeyboardInterrupt
                return saved

            patch.setattr(LocalCorpus, "save", interrupted)
            with pytest.raises(KeyboardInterrupt):
                build(path)
        if after == 2:  # another file than the one that was read
            (notes / "0.txt").write_text("A crane is a bird. " * 80)
            memory = build()
        streamed = build(path)
        assert streamed.passages == memory.passages
        assert sorted(streamed.items) == sorted(memory.items)
        assert answers(streamed) == answers(memory)
        assert streamed["0.txt"] == memory["0.txt"]


def test_the_command_streams(tmp_path: Path, corpus: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from typer.testing import CliRunner

    from crosscut.cli import index as command

    np.save(tmp_path / "vectors.npy", vectors())
    streamed: list[Path] = []
    run = build.build_in_folder

    def noted(path: Path, *how: Any) -> None:
        streamed.append(path)
        run(path, *how)

    monkeypatch.setattr("crosscut.index.index.build_in_folder", noted)
    wanted = ["--vectors", str(tmp_path / "vectors.npy"), "--metadata", "year"]
    for name, more, large in (
        ("a", ["--stream"], 10**9),
        ("b", [], 100),
        ("c", [], 10**9),
        ("d", ["--in-memory"], 100),
    ):
        monkeypatch.setattr(command, "STREAMED", large)
        result = CliRunner().invoke(command.app, ["build", str(corpus), str(tmp_path / name), *wanted, *more, "--json"])
        assert result.exit_code == 0, result.output
        assert json.loads(result.stdout)["items"] == N
        assert Index.load(tmp_path / name)["i17"].metadata["year"] == 17
    assert streamed == [tmp_path / "a", tmp_path / "b"]


@pytest.mark.parametrize("streamed", [True, False])
def test_a_method_that_cannot_work_is_refused_before_anything_is_read_or_bought(tmp_path: Path, streamed: bool) -> None:
    def unread() -> Iterator[dict[str, Any]]:
        raise AssertionError("an item was read")
        yield {}

    def paid(query: str, texts: list[str]) -> list[float]:
        raise AssertionError("a call was made")

    path = tmp_path / "my.index" if streamed else None
    message = "needs item vectors or scores of anchor queries or factors and has none: build the index with an encoder"
    with pytest.raises(InputError, match=f"crosscut {message}"):
        Index.build(unread(), scorer=paid, encoder=None, path=path)
    with pytest.raises(InputError, match="anncur needs scores of anchor queries and has none: build the index with"):
        Index.build(unread(), scorer=paid, encoder=lambda texts: vectors(len(texts)), method="anncur", path=path)
    with pytest.raises(InputError, match="axn needs factors and has none"):
        Index.build(unread(), scorer=paid, queries=["a 1", "b 2"], method="axn@space=factors", path=path)
    without: list[dict[str, Any]] = [{"encoder": None}, {"vectors": vectors()}]
    for more in without:
        with pytest.raises(InputError, match=r"space='als' starts from an encoder's vectors .* or space='cur'"):
            Index.build(unread(), scorer=paid, queries=["a query"], space="als", path=path, **more)
    with pytest.raises(InputError, match="first='lexical' needs words of the items and has none"):
        Index.build(unread(), scorer=paid, vectors=vectors(), bm25=False, method="rerank@first=lexical", path=path)
    assert not list(tmp_path.iterdir())
