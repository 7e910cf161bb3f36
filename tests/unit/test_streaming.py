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
from crosscut.errors import CrosscutError, InputError
from crosscut.index import Index, streaming
from crosscut.retrieval import BM25
from crosscut.storage import generations

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
    monkeypatch.setattr(generations, "BLOCK", 256)
    monkeypatch.setattr(generations, "LATER", 0)
    monkeypatch.setattr(streaming, "PORTION", 64)


def found(index: Index, **options: Any) -> list[tuple[str, float, int]]:
    hits = index.search("bank money 17", 10, 60, query_vector=vectors()[17].astype(np.float32), **options)
    return [(hit.id, hit.score, hit.round) for hit in hits]


@pytest.mark.parametrize("small", [True, False])
def test_it_is_the_index_that_is_built_in_memory(
    tmp_path: Path, corpus: Path, small: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(clustered, "SMALL", 10_000 if small else 100)
    monkeypatch.setattr(streaming, "PORTION", 64)
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
from crosscut.index import Index, streaming
from tests.unit.test_streaming import scorer
streaming.PORTION, streaming.ENCODED = 50, 40

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
        done = tmp_path / "killed.building" / "done.json"
        while process.poll() is None:
            time.sleep(0.02)
            try:
                count = json.loads(done.read_text())["vectors"]
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
    files = [{path.name: path.read_bytes() for path in (tmp_path / name).glob("0*/*")} for name in ("whole", "killed")]
    assert files[0] == files[1]


def test_changes_cost_what_changed(tmp_path: Path, corpus: Path, large: None) -> None:
    path = tmp_path / "a.index"
    index = Index.build(corpus, scorer=scorer, vectors=vectors(), path=path)
    before = {file.name: file.stat().st_ino for file in path.glob("0*/*")}
    more = rows(10, N)
    index.add(more, vectors=vectors(N + 10)[N:])
    index.remove(["i17", "i18"])
    seen = found(index)
    assert "i17" not in [id for id, _, _ in seen]
    index.save()
    after = {file.name: file.stat().st_ino for file in path.glob("0*/*")}
    assert after["items.npy"] == before["items.npy"]  # the same file under a second name
    assert after["vectors.npy"] == before["vectors.npy"]
    again = Index.load(path, scorer=scorer)
    assert len(again) == N + 8
    assert again["i605"].title == "title 605"
    assert "i17" not in again
    assert found(again) == seen
    assert [hit.id for hit in again.search("x 605", 1, 40, query_vector=vectors(N + 10)[605].astype(np.float32))] == [
        "i605"
    ]
    again.add([{"id": "i17", "text": "come back 17"}], vectors=vectors()[17:18])
    assert again["i17"].text == "come back 17"
    again.save()
    assert Index.verify(path) == []
    assert Index.load(path, scorer=scorer)["i17"].text == "come back 17"


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


def test_removed_texts_leave_the_files_once_an_eighth_is_gone(tmp_path: Path, corpus: Path, large: None) -> None:
    path = tmp_path / "a.index"
    index = Index.build(corpus, scorer=scorer, vectors=vectors(), path=path)
    secret = index["i42"].text.encode()

    def held() -> bool:
        return any(secret in file.read_bytes() for file in filter(Path.is_file, path.rglob("*")))

    index.remove(["i42"])
    index.save()
    assert held()  # saving cost what changed
    seen = found(index)
    gone = [f"i{j}" for j in range(N) if j != 42 and f"i{j}" not in {id for id, _, _ in seen}][: N // 8]
    index.remove(gone)
    index.save()
    assert not held()
    assert len(index.corpus.items) == len(index) == N - 1 - N // 8
    assert Index.verify(path) == []
    again = Index.load(path, scorer=scorer)
    assert {id for id, _, _ in found(again)} == {id for id, _, _ in found(index)}
    assert again.search("x 17", 3, None, method="exact").ids == index.search("x 17", 3, None, method="exact").ids


def test_a_folder_that_is_not_ours_is_not_built_in(tmp_path: Path, corpus: Path) -> None:
    """What stands beside an index under the name of the folder that it is built in is somebody's own."""
    own = tmp_path / "a.index.building"
    own.mkdir()
    (own / "notes.json").write_text("mine")
    with pytest.raises(InputError, match=r"a\.index\.building'.* holds something else"):
        Index.build(corpus, scorer=scorer, vectors=vectors(), path=tmp_path / "a.index")
    Index.build(corpus, scorer=scorer, vectors=vectors()).save(tmp_path / "a.index")
    assert [file.name for file in own.iterdir()] == ["notes.json"]


def stopped(corpus: Path, path: Path, after: int, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A build that was stopped at one of its commits; returns the folder that it goes on from."""
    with monkeypatch.context() as patch:
        left = iter(range(after))
        commit = streaming.StreamedBuild._commit

        def interrupted(self: Any, *args: Any, **how: Any) -> None:
            commit(self, *args, **how)
            if next(left, None) is None:
                raise KeyboardInterrupt

        patch.setattr(streaming.StreamedBuild, "_commit", interrupted)
        with pytest.raises(KeyboardInterrupt):
            Index.build(corpus, scorer=scorer, vectors=embedded, path=path)
    return path.with_name(path.name + streaming.BUILDING)


def embedded(texts: list[str]) -> np.ndarray:
    return np.array([vectors()[int(text.split()[-1])] for text in texts])


@pytest.mark.parametrize("damage", ["flip", "cut", "told", "nonsense", "gone"])
def test_a_damaged_build_begins_anew(
    tmp_path: Path, corpus: Path, large: None, monkeypatch: pytest.MonkeyPatch, damage: str
) -> None:
    monkeypatch.setattr(streaming, "ENCODED", 64)
    monkeypatch.setattr(streaming, "BLOCK", 1024)
    right = found(Index.build(corpus, scorer=scorer, vectors=embedded, path=tmp_path / "right"))
    work = stopped(corpus, tmp_path / "a", 14, monkeypatch)
    assert len(list(work.glob("*.bin"))) == 4
    for file in sorted(work.glob("*.bin")):
        whole, done = file.read_bytes(), (work / "done.json").read_text()
        if damage == "flip":
            file.write_bytes(whole[:100] + bytes([whole[100] ^ 1]) + whole[101:])
        elif damage == "cut":
            file.write_bytes(whole[:-5])
        elif damage == "told":
            (work / "done.json").write_text(done.replace('"items": 6', '"items": 5'))
        elif damage == "nonsense":
            (work / "done.json").write_text(json.dumps([done]))
        else:
            file.unlink()
        again = Index.build(corpus, scorer=scorer, vectors=embedded, path=tmp_path / "a")
        assert found(again) == right
        assert len(again) == N
        for path in (tmp_path / "a").rglob("*"):
            if path.is_file():
                path.unlink()
        assert not work.exists()
        stopped(corpus, tmp_path / "a", 14, monkeypatch)


def test_what_a_build_leaves_goes_with_the_next_save(
    tmp_path: Path, corpus: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    work, path = tmp_path / "a.building", tmp_path / "a"
    with monkeypatch.context() as patch:
        patch.setattr(streaming, "clear", lambda path: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            Index.build(corpus, scorer=scorer, vectors=vectors(), path=path)
    secret = b"title 42"
    assert any(secret in file.read_bytes() for file in work.iterdir())
    index = Index.build(corpus, scorer=scorer, vectors=vectors(), path=path)  # the same again: it was nearly done
    assert len(index) == N
    assert not work.exists()
    with pytest.raises(InputError, match="there is an index"):
        Index.build(corpus, scorer=scorer, vectors=vectors(), path=path)
    work.mkdir()
    (work / ".crosscut").touch()
    (work / "items.bin").write_bytes(secret)
    index.forget(["i42"])
    assert not work.exists()


def test_damage_is_told_where_it_is_read(tmp_path: Path, corpus: Path, large: None) -> None:
    path = tmp_path / "a.index"
    Index.build(corpus, scorer=scorer, vectors=vectors(), path=path)
    for name in ("items.npy", "bm25-items.npy"):
        file = next(path.glob(f"0*/{name}"))
        whole = file.read_bytes()
        file.write_bytes(whole[:512] + bytes(byte ^ 1 for byte in whole[512:]))
        index = Index.load(path, scorer=scorer)  # quick: nothing of it was read
        with pytest.raises(CrosscutError, match=f"{name} does not match its checksum"):
            found(index)
        assert any(name in told for told in Index.verify(path))
        file.write_bytes(whole)
    file = next(path.glob("0*/arrival.npy"))
    whole = file.read_bytes()
    file.write_bytes(whole[:512] + whole[520:528] + whole[512:520] + whole[528:])
    with pytest.raises(CrosscutError, match=r"arrival\.npy does not match its checksum"):
        _ = Index.load(path, scorer=scorer).items
    file.write_bytes(whole)
    assert Index.verify(path) == []


def test_an_index_that_grew_is_clustered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clustered, "SMALL", 300)
    index = Index.build(rows(200), scorer=scorer, vectors=vectors()[:200])
    assert index.corpus.starts is None
    index.add(rows(200, 200), vectors=vectors()[200:400])
    assert index.corpus.starts is not None
    assert [item.id for item in index.items] == [f"i{j}" for j in range(400)]
    assert found(index)[0][0] == "i17"


def test_a_filter_outlives_the_files_it_was_read_from(tmp_path: Path) -> None:
    """Columns are read when a filter first asks for them; by then another process may have saved the index anew."""
    path = tmp_path / "a.index"
    made = [{"id": f"i{j}", "text": f"item {j}", "metadata": {"odd": j % 2}} for j in range(40)]
    Index.build(made, scorer=scorer, vectors=vectors()[:40]).save(path)
    old, other = Index.load(path, scorer=scorer), Index.load(path, scorer=scorer)
    other.add([{"id": "new", "text": "item 40"}], vectors=vectors()[40:41])
    other.save()
    for index in (old, other):
        allowed = index.search("3", 5, 30, query_vector=vectors()[0], filter={"odd": 1})
        assert {int(hit.id[1:]) % 2 for hit in allowed} == {1}


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

    monkeypatch.setattr(streaming, "ENCODED", 64)
    memory = build()
    assert memory.passages is not None
    assert len(memory) > 120
    for after in (0, 1, 3, 5):  # commits: while reading, and while encoding
        path = tmp_path / f"stopped-{after}"
        with monkeypatch.context() as patch:
            left = iter(range(after))
            commit = streaming.StreamedBuild._commit

            def interrupted(self: Any, *args: Any, left: Any = left, commit: Any = commit, **how: Any) -> None:
                commit(self, *args, **how)
                if next(left, None) is None:
                    raise KeyboardInterrupt

            patch.setattr(streaming.StreamedBuild, "_commit", interrupted)
            with pytest.raises(KeyboardInterrupt):
                build(path)
        if after == 5:  # another file than the one that was read
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
    run = streaming.StreamedBuild.run

    def noted(self: streaming.StreamedBuild) -> None:
        streamed.append(self.path)
        run(self)

    monkeypatch.setattr(streaming.StreamedBuild, "run", noted)
    wanted = ["--vectors", str(tmp_path / "vectors.npy"), "--metadata", "year"]
    for name, more, large in (
        ("a", ["--stream"], 10**9),
        ("b", [], 100),
        ("c", [], 10**9),
        ("d", ["--in-memory"], 100),
    ):
        monkeypatch.setattr(command, "STREAMED", large)
        told = CliRunner().invoke(command.app, ["build", str(corpus), str(tmp_path / name), *wanted, *more, "--json"])
        assert told.exit_code == 0, told.output
        assert json.loads(told.stdout)["items"] == N
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
    told = "needs item vectors or scores of anchor queries or factors and has none: build the index with an encoder"
    with pytest.raises(InputError, match=f"crosscut {told}"):
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
