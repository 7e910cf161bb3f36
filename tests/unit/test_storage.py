"""Files on disk: complete after any kill, interrupt or refusal, never somebody else's, and never believed unread."""

from __future__ import annotations

import datetime
import errno
import json
import mmap
import os
import random
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import crosscut
from crosscut.ann.ivf import IVF
from crosscut.datasets import Item
from crosscut.errors import CrosscutError, InputError, LockedError, WriteError
from crosscut.index import Index
from crosscut.index.folder import KIND
from crosscut.index.items import as_items
from crosscut.score_store import ScoreStore
from crosscut.score_store.keys import text_hash
from crosscut.scorers.adapters import TextScorer
from crosscut.spaces.factorization.factors import Factors, Fitting
from crosscut.spaces.sparse import Normalisation
from crosscut.storage import Folder, Kind, Lock, checksum_of, generations, put_down, write_file
from tests.unit.test_index import Planted, build, planted_items

WORDS = Kind("words", "words.json", 1)
WORLD = Planted()
STEPS = ("mkdir", "open", "fsync", "replace", "unlink", "rmdir")


def loaded(path: Path, **how: Any) -> Index:
    return Index.load(path, scorer=TextScorer(WORLD.score, fingerprint="planted"), encoder=WORLD, **how)


def save_words(path: Path, value: int) -> Folder:
    folder = Folder(path, WORDS)
    folder.save({"value": value}, lambda files: files.array("numbers", np.full(100, value)))
    return folder


def words(path: Path) -> int:
    def read(saved: Any) -> int:
        numbers = saved.array("numbers", "<i8", (100,))
        assert (numbers == saved.facts["value"]).all()
        return int(numbers[0])

    return Folder(path, WORDS).load(read)


class Fails:
    """Makes the n-th call of the operating system that changes something fail: before it, or right after it."""

    def __init__(self, patch: pytest.MonkeyPatch, at: int, error: BaseException, after: bool) -> None:
        self.count = 0
        for name in STEPS:
            if name == "open":
                patch.setattr(os, "open", self.wrapped(os.open, at, error, after))
            else:
                patch.setattr(os, name, self.wrapped(getattr(os, name), at, error, after))

    def wrapped(self, real: Callable[..., Any], at: int, error: BaseException, after: bool) -> Callable[..., Any]:
        def call(*args: Any, **how: Any) -> Any:
            self.count += 1
            if self.count == at and not after:
                raise error
            result = real(*args, **how)
            if self.count == at:
                raise error
            return result

        return call


FAULTS: list[BaseException] = [KeyboardInterrupt(), OSError(errno.EIO, "Input/output error")]


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("error", FAULTS, ids=["interrupt", "io error"])
def test_a_save_that_stops_at_any_step_leaves_old_or_new(tmp_path: Path, error: BaseException, after: bool) -> None:
    path = tmp_path / "words"
    seen = set()
    for at in range(1, 200):
        shutil.rmtree(path, ignore_errors=True)
        save_words(path, 1)
        mine = Folder(path, WORDS)
        mine.load(lambda saved: None)
        message = ""
        with pytest.MonkeyPatch.context() as patch:
            fails = Fails(patch, at, error, after)
            try:
                with mine.lock():
                    mine.write({"value": 2}, lambda files: files.array("numbers", np.full(100, 2)))
            except (KeyboardInterrupt, WriteError) as stopped:
                message = str(stopped)
        if fails.count < at:
            break
        value = words(path)
        seen.add(value)
        if isinstance(error, OSError) and message:
            assert ("unharmed" in message) == (value == 1), "the message says what is there"
        mine.unchanged()  # who was interrupted may save again
        save_words(path, 3)
        assert words(path) == 3
        assert sum(entry.is_dir() for entry in path.iterdir()) == 1, "what was left is cleared away"
    assert at > 8, "every step was tried"
    assert seen == {1, 2}


@pytest.mark.parametrize("error", FAULTS, ids=["interrupt", "io error"])
def test_an_index_is_whole_after_any_step_of_its_save(tmp_path: Path, error: BaseException) -> None:
    path = tmp_path / "a.index"
    build(WORLD, stop=6).save(path)
    shutil.copytree(path, tmp_path / "kept")
    for at in range(1, 400):
        shutil.rmtree(path)
        shutil.copytree(tmp_path / "kept", path)
        index = loaded(path)
        index.add(planted_items(6, 8))
        with pytest.MonkeyPatch.context() as patch:
            fails = Fails(patch, at, error, after=bool(at % 2))
            try:
                index.save()
            except (KeyboardInterrupt, WriteError):
                index.close()
        if fails.count < at:
            break
        again = loaded(path)
        assert len(again) in (6, 8)
        assert not Index.verify(path)
        again.add(planted_items(10, 11))  # the lock is free
        again.close()
    assert at > 20


def test_killed_at_any_step_old_or_new_is_there(tmp_path: Path) -> None:
    """One process that forks: a child for every step."""
    root = str(Path(__file__).parents[2])
    script = f"""
import sys
sys.path[:0] = [{root!r}]
from tests.unit.test_storage import kill_at_every_step
kill_at_every_step(sys.argv[1])
"""
    subprocess.run([sys.executable, "-c", script, str(tmp_path)], check=True, timeout=120)


def kill_at_every_step(folder: str) -> None:
    found = set()
    for at in range(1, 100):
        path = Path(folder) / "words"
        shutil.rmtree(path, ignore_errors=True)
        save_words(path, 1)
        child = os.fork()
        if not child:
            with pytest.MonkeyPatch.context() as patch:
                Dies(patch, at)
                save_words(path, 2)
            os._exit(0)
        _, status = os.waitpid(child, 0)
        found.add(words(path))
        save_words(path, 3)
        assert words(path) == 3
        assert sum(entry.is_dir() for entry in path.iterdir()) == 1
        if status == 0:
            break
    assert at > 8
    assert found == {1, 2}


class Dies(Fails):
    """The same with a kill."""

    def __init__(self, patch: pytest.MonkeyPatch, at: int) -> None:
        super().__init__(patch, at, KeyboardInterrupt(), after=False)

    def wrapped(self, real: Callable[..., Any], at: int, error: BaseException, after: bool) -> Callable[..., Any]:
        def call(*args: Any, **how: Any) -> Any:
            self.count += 1
            if self.count == at:
                os.kill(os.getpid(), 9)
            return real(*args, **how)

        return call


def test_folders_of_others_are_kept(tmp_path: Path) -> None:
    path = tmp_path / "data"
    (path / "202401").mkdir(parents=True)
    (path / "202401" / "sales.csv").write_text("1,2")
    with pytest.raises(InputError, match=r"holds something else \(202401 …\); save to an empty folder"):
        build(WORLD, stop=5).save(path)
    (tmp_path / "empty").mkdir()
    index = build(WORLD, stop=5)
    index.save(tmp_path / "empty")
    for name in ("202401", "000001-0123abcd"):  # the second has the name of a generation, and no mark
        shutil.copytree(path / "202401", tmp_path / "empty" / name)
    for _ in range(3):
        index.save()
    assert (tmp_path / "empty" / "202401" / "sales.csv").read_text() == "1,2"
    assert (tmp_path / "empty" / "000001-0123abcd" / "sales.csv").read_text() == "1,2"
    assert len(loaded(tmp_path / "empty")) == 5
    assert len(list((tmp_path / "empty").glob("0*/.crosscut"))) == 2  # the generation and its segment
    (tmp_path / "empty" / "index.json").write_text('{"format": "something"}')
    for mark in list((tmp_path / "empty").glob("0*/.crosscut")):
        shutil.rmtree(mark.parent)
    with pytest.raises(InputError, match="belongs to something else"):
        index.save(tmp_path / "empty")


def test_loading_beside_saving(tmp_path: Path) -> None:
    path = tmp_path / "words"
    save_words(path, 0)
    stop = threading.Event()

    def saving() -> None:
        value = 0
        while not stop.is_set():
            save_words(path, value := value + 1)

    thread = threading.Thread(target=saving)
    thread.start()
    try:
        found = [words(path) for _ in range(300)]
    finally:
        stop.set()
        thread.join()
    assert found == sorted(found)
    assert found[-1] > 0


def test_an_index_is_loaded_anew_when_it_moved_while_its_arrays_were_opened(tmp_path: Path) -> None:
    path = build(WORLD, stop=20).save(tmp_path / "a.index")
    moved = False
    real = generations.Saved.array

    def array(self: Any, name: str, *args: Any, **how: Any) -> Any:
        nonlocal moved
        if name == "vectors" and not moved:
            moved = True
            other = loaded(path)
            other.remove(["i3"])  # the segment is written anew
            other.add(planted_items(20, 31))
            other.save()
        return real(self, name, *args, **how)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(generations.Saved, "array", array)
        index = loaded(path)
    assert len(index) == 30
    index.add(planted_items(31, 32))  # and it knows what it has loaded
    index.close()


def test_an_index_saved_elsewhere_lets_go_of_where_it_came_from(tmp_path: Path) -> None:
    a, b = tmp_path / "a.index", tmp_path / "b.index"
    build(WORLD, stop=20).save(a)
    index = loaded(a)
    index.add(planted_items(20, 21))
    with pytest.raises(LockedError, match=r"the index at .*a\.index' is being changed by another process"):
        loaded(a).add(planted_items(21, 22))
    with Lock(b, "index"), pytest.raises(LockedError, match=r"b\.index"):
        index.save(b)
    with pytest.raises(LockedError):
        loaded(a).add(planted_items(21, 22))  # not saved: the right is kept
    index.save(b)
    other = loaded(a)
    other.add(planted_items(21, 22))
    other.close()
    index.add(planted_items(30, 31))
    with pytest.raises(LockedError, match=r"b\.index"):
        loaded(b).add(planted_items(31, 32))
    index.close()
    assert (len(loaded(a)), len(loaded(b))) == (20, 21)


# -- damage --------------------------------------------------------------------------------------------------------


def _index(path: Path) -> Callable[[], Any]:
    build(WORLD, stop=40, queries=4).save(path)

    def look() -> Any:
        index = loaded(path)
        hits = index.search("query 50 apple", 5, 20)
        return hits.ids, [item.metadata for item in index.items], index.anchor_queries, index.method

    return look


def _ivf(path: Path) -> Callable[[], Any]:
    vectors = np.random.default_rng(0).normal(size=(300, 8)).astype(np.float32)
    IVF.build(vectors, lists=8).save(path)

    def look() -> Any:
        index = IVF.load(path)
        found = index.search(vectors[7], 5, rule=8)
        return found.ids.tolist(), found.scores.tolist(), index.rule, index.metric

    return look


def _factors(path: Path) -> Callable[[], Any]:
    rng = np.random.default_rng(0)
    fitting = Fitting("als", 10, 0, 1.0, 1.0, 5, [1.0], [1.0], [1.0], 0)
    Factors(rng.normal(size=(30, 4)), rng.normal(size=(5, 4)), Normalisation(0.5, 2.0), fitting).save(path)

    def look() -> Any:
        again = Factors.load(path)
        return again.array.tolist(), again.query_factors.tolist(), again.normalisation, again.fitting

    return look


@pytest.fixture(scope="module", params=[_index, _ivf, _factors], ids=["index", "ivf", "factors"])
def target(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Any, Any]:
    path = tmp_path_factory.mktemp("damage") / "target"
    look = request.param(path)
    return path, look, look()


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(seed=st.integers(0, 2**32))
def test_damage_is_an_error_or_harmless(target: tuple[Path, Any, Any], seed: int) -> None:
    path, look, right = target
    rng = random.Random(seed)
    files = sorted(file for file in path.rglob("*") if file.is_file() and file.name != "lock")
    victim = rng.choice(files)
    good = victim.read_bytes()
    victim.write_bytes(damaged(good, rng))
    try:
        found = look()
    except CrosscutError as error:
        found = right if str(path) in str(error) else str(error)
    finally:
        victim.write_bytes(good)
    assert found == right, f"{victim.name} was changed, and nobody said so"


def damaged(good: bytes, rng: random.Random) -> bytes:
    """The bytes of a file after an accident."""
    data = bytearray(good)
    how = rng.choice(["flip", "cut", "grow", "zero", "swap"])
    place = rng.randrange(max(len(data), 1))
    if how == "flip" and data:
        data[place] ^= 1 << rng.randrange(8)
    elif how == "cut":
        del data[place:]
    elif how == "grow":
        data += rng.randbytes(rng.randrange(1, 9))
    elif how == "zero":
        data[place : place + 64] = bytes(len(data[place : place + 64]))
    else:
        other = rng.randrange(max(len(data), 1))
        data[place : place + 8], data[other : other + 8] = data[other : other + 8], data[place : place + 8]
    return bytes(data)


def rewritten(path: Path, name: str, change: Callable[[Any], Any]) -> None:
    """Change an array of a saved index and make every checksum fit: a folder made by hand."""
    record = json.loads((path / "index.json").read_text())
    homes = {record["folder"]: record["files"], **record["parts"]}
    home = next(home for home, files in homes.items() if name in files)
    array = change(np.load(path / home / name))
    data = generations.npy_header(array.dtype, array.shape) + array.tobytes()
    (path / home / name).write_bytes(data)
    homes[home][name] = {"bytes": len(data), "blake2b": generations.digest(data).hexdigest()}
    del record["checksum"]
    (path / "index.json").write_text(json.dumps({**record, "checksum": checksum_of(record)}))


@pytest.mark.parametrize(
    ("name", "change", "said"),
    [
        ("item-starts.npy", lambda a: a[::-1].copy(), "does not divide"),
        ("item-order.npy", lambda a: a + 1000, "names items outside"),
        ("bm25-items.npy", lambda a: a + 1000, "names items outside"),
        ("bm25-starts.npy", lambda a: a[::-1].copy(), "do not divide"),
        ("vectors.npy", lambda a: a.astype(">f4"), "holds >f4"),
        ("vectors.npy", lambda a: a[:-1].copy(), "has shape"),
        ("vectors.npy", lambda a: a.view(np.int32), "holds <i4"),
        ("anchors.npy", lambda a: a[:-1].copy(), "has shape"),
    ],
)
def test_arrays_that_do_not_fit_are_refused_before_compiled_code_reads_them(
    tmp_path: Path, name: str, change: Callable[[Any], Any], said: str
) -> None:
    path = build(WORLD, stop=30, queries=3).save(tmp_path / "a.index")
    rewritten(path, name, change)
    with pytest.raises(InputError, match=f"is damaged: {name} .*{said}"):
        loaded(path)
    assert said in Index.verify(path)[0]


def test_the_record_says_when_it_was_changed(tmp_path: Path) -> None:
    path = build(WORLD, stop=10).save(tmp_path / "a.index")
    record = json.loads((path / "index.json").read_text())
    (path / "index.json").write_text(json.dumps(record))  # other spaces, same meaning
    assert len(loaded(path)) == 10
    record["seed"] = 7
    (path / "index.json").write_text(json.dumps(record))
    with pytest.raises(InputError, match=r"index\.json does not match its checksum"):
        loaded(path)
    (path / "index.json").write_text(json.dumps({**record, "version": 1}))
    with pytest.raises(InputError, match="has version 1, this crosscut reads 5; update crosscut or build it again"):
        loaded(path)


# -- disks ---------------------------------------------------------------------------------------------------------


def refusing(patch: pytest.MonkeyPatch, code: int) -> None:
    def fsync(handle: int) -> None:
        raise OSError(code, os.strerror(code))

    patch.setattr(os, "fsync", fsync)


REFUSALS = {errno.ENOSPC: "no room to write to", errno.EROFS: "cannot be written to", errno.EIO: "failed"}


@pytest.mark.parametrize("code", REFUSALS)
def test_a_disk_that_refuses_is_a_sentence_everywhere(tmp_path: Path, code: int) -> None:
    write_file(tmp_path / "file", [b"old"])
    makes = {name: make(tmp_path / name) for name, make in (("index", _index), ("ivf", _ivf), ("factors", _factors))}
    before = {name: look() for name, look in makes.items()}
    index, ivf, factors = loaded(tmp_path / "index"), IVF.load(tmp_path / "ivf"), Factors.load(tmp_path / "factors")
    attempts = [
        lambda: write_file(tmp_path / "file", [b"new"]),
        lambda: index.save(),
        lambda: ivf.save(tmp_path / "ivf"),
        lambda: factors.save(tmp_path / "factors"),
        lambda: ivf.save(tmp_path / "new"),
    ]
    with pytest.MonkeyPatch.context() as patch:
        refusing(patch, code)
        for attempt in attempts:
            with pytest.raises(WriteError, match=REFUSALS[code]):
                attempt()
    assert (tmp_path / "file").read_bytes() == b"old"
    assert {name: look() for name, look in makes.items()} == before
    assert not list(tmp_path.rglob("*.tmp"))


def test_a_file_in_the_way_is_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(WriteError, match="failed"):
        build(WORLD, stop=5).save(tmp_path / "file" / "a.index")
    with pytest.raises(WriteError, match="failed"):
        write_file(tmp_path / "file" / "a", [b""])


# -- what can be kept ----------------------------------------------------------------------------------------------


def test_content_is_converted_or_refused_when_it_is_given(tmp_path: Path) -> None:
    metadata = {
        "count": np.int64(3),
        "share": np.float32(0.5),
        "day": datetime.date(2024, 1, 2),
        "at": datetime.datetime(2024, 1, 2, 3, 4),
        "numpy day": np.datetime64("2024-01-02"),
        "tags": {"b", "a"},
        "pair": (1, 2),
        "numbers": np.arange(2),
        "inner": {1: {"yes": np.bool_(True)}},
    }
    (item,) = as_items([Item("a", "", "item 1", metadata)])
    assert item.metadata == {
        "count": 3,
        "share": 0.5,
        "day": "2024-01-02",
        "at": "2024-01-02T03:04:00",
        "numpy day": "2024-01-02",
        "tags": ["a", "b"],
        "pair": [1, 2],
        "numbers": [0, 1],
        "inner": {"1": {"yes": True}},
    }
    index = Index.build(
        [{"id": "a", "text": "item 1", **metadata}],
        scorer=TextScorer(WORLD.score, fingerprint="planted"),
        encoder=WORLD,
    )
    assert index.search("query 1", 1, 1, filter={"day": {"lt": datetime.date(2024, 2, 1)}}).ids == ["a"]
    assert index.search("query 1", 1, 1, filter={"day": {"lt": datetime.date(2023, 2, 1)}}).ids == []
    index.save(tmp_path / "a.index")
    assert loaded(tmp_path / "a.index").items == index.items
    calls = 0

    def paid(query: str, texts: Any) -> Any:
        nonlocal calls
        calls += len(texts)
        return [0.0] * len(texts)

    circle: dict[str, Any] = {}
    circle["self"] = circle
    wrongs: list[tuple[Any, str]] = [
        ({"text": "a", "raw": b"bytes"}, "the metadata of item '0', 'raw', holds b'bytes', a bytes"),
        ({"text": "a", "what": object()}, "an? object"),
        ({"text": "\ud800"}, "the text of item '0' is no valid Unicode"),
        ({"text": "a", "deep": [{"x": "\udfff"}]}, "no valid Unicode"),
        ({"text": "a", ("b", "c"): 1}, "a key in .* is a tuple"),
        ({"text": "a", "circle": circle}, "nested more than 50 deep"),
    ]
    for wrong, said in wrongs:
        with pytest.raises(InputError, match=said):
            Index.build([wrong], scorer=paid, encoder=None, method="hybrid")
        with pytest.raises(InputError, match=said):
            index.add([{"id": "0", **wrong}])
    with pytest.raises(InputError, match="a query is no valid Unicode"):
        Index.build(["a"], scorer=paid, encoder=None, queries=["\ud800"])
    assert calls == 0
    assert len(index) == 1


# -- forgetting ----------------------------------------------------------------------------------------------------


def contents(folder: Path) -> bytes:
    return b"\0".join(path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file())


def test_what_was_removed_is_gone_from_disk_and_counts_no_more(tmp_path: Path) -> None:
    index = build(WORLD, stop=40, queries=4)
    index.add([{"id": "secret", "text": "item 40 xylophone", "owner": "Zacharias"}])
    path = index.save(tmp_path / "a.index")
    assert b"xylophon" in contents(path)
    index.remove(["secret", "i3"])
    index.save()
    for word in (b"xylophon", b"Zacharias", b'"secret"', b'"i3"'):
        assert word not in contents(path)
    again = loaded(path)
    assert [item.id for item in again.items] == [item.id for item in index.items]
    assert len(again.corpus.items) == 39
    assert Folder(path, KIND).record()["items"] == 39
    whole = build(WORLD, stop=41, queries=4)
    whole.remove(["i3", "i40"])
    asked = "query 50 damson"
    assert index.corpus.bm25 is not None
    assert again.corpus.bm25 is not None
    np.testing.assert_allclose(
        index.corpus.bm25.scores(asked)[index.corpus.alive], again.corpus.bm25.scores(asked), rtol=1e-6
    )
    for method in ("crosscut", "rerank", "adacur", "exact"):
        found = [one.search(asked, 5, None if method == "exact" else 30, method=method) for one in (index, again)]
        if method != "adacur":  # which draws by position
            assert found[0].ids == found[1].ids


@pytest.mark.parametrize("space", ["cur", "als", "encoder"])
def test_an_index_without_what_it_removed_is_one_that_never_had_it(tmp_path: Path, space: Any) -> None:
    queries = 0 if space == "encoder" else 8
    index = build(WORLD, stop=60, queries=queries, space=space, **({"per_query": 20} if space == "als" else {}))
    before = index.search("query 50", 5, 40).ids
    gone = [f"i{j}" for j in range(60) if f"i{j}" not in before][:40]
    index.remove(gone[:20])
    assert len(index.corpus.items) == 60, "few: positions stay"
    index.remove(gone[20:])
    assert len(index.corpus.items) == 20, "most: what is left closes up by itself"
    assert index.search("query 50", 5, None, method="exact").ids == before
    index.add(planted_items(70, 75))
    index.save(tmp_path / "a.index")
    asked = [f"query {j}" for j in range(60, 70)]
    found = [hits.ids for hits in index.search_many(asked, 5, 15)]
    assert [hits.ids for hits in loaded(tmp_path / "a.index").search_many(asked, 5, 15)] == found


def test_forgetting_reaches_the_score_store(tmp_path: Path) -> None:
    index = build(WORLD, stop=30, queries=4, store=tmp_path / "scores")
    store = ScoreStore(tmp_path / "scores", scorer_fingerprint="planted")
    texts = [item.text for item in index.items]
    asked = index.anchor_queries
    store.put_pairs(["another"], texts, [0, 0], [4, 5], [0.5, 0.25])
    name = text_hash(texts[4])
    assert name in contents(tmp_path / "scores")
    right = np.delete(store.matrix(asked, texts), 4, axis=1)
    assert index.forget(["i4"]).items == 1
    assert name not in contents(tmp_path / "scores")
    assert "i4" not in index
    rest = texts[:4] + texts[5:]
    again = ScoreStore(tmp_path / "scores", scorer_fingerprint="planted")
    assert not again.verify()
    np.testing.assert_array_equal(again.matrix(asked, rest), right)
    assert again.pairs(["another"], texts).columns.tolist() == [5]
    assert np.isnan(again.get(asked[0], texts, [4])).all()
    hits = index.search(asked[0], 3, 29, method="exact")
    assert (hits.calls, hits.cached) == (0, 29), "what is known of the others stays free"
    mine = build(WORLD, stop=10, cache=crosscut.MemoryCache())
    with pytest.raises(InputError, match="kept by position"):
        mine.forget(["i1"])
    assert "i1" in mine, "refused before anything is done"


def test_pages_of_a_map_are_put_down_and_nothing_is_lost(tmp_path: Path) -> None:
    def resident() -> int:
        return int(Path("/proc/self/statm").read_text().split()[1]) * mmap.PAGESIZE

    rows, columns = 1 << 14, 1 << 9
    path = tmp_path / "rows.npy"
    np.save(path, np.ones((rows, columns), np.float32))  # 32 MiB
    read = np.load(path, mmap_mode="r")
    before = resident()
    assert read[:].sum() == rows * columns
    assert resident() - before > 16 << 20
    put_down(read[10:20].view(np.uint32))  # of any part of it, all of it
    assert resident() - before < 8 << 20
    assert read[7, 7] == 1
    modes: list[tuple[Literal["r+", "c"], float]] = [("r+", 5.0), ("c", 6.0)]
    for mode, stays in modes:  # what was written to a copy on write is nowhere else
        written = np.load(path, mmap_mode=mode)
        written[3, 3] = stays
        put_down(written)
        assert written[3, 3] == stays
    put_down(np.ones(3))
