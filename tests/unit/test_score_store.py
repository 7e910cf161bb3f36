"""The score store: nothing torn, nothing lost, nothing reused that should not be, nothing left after forgetting."""

from __future__ import annotations

import logging
import os
import shutil
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crosscut.datasets import Item
from crosscut.errors import InputError, LockedError, StoreError
from crosscut.score_store import Keys, ScoreStore, scorers
from crosscut.score_store.keys import text_hash
from crosscut.scorers import Meter
from crosscut.scorers.meter import QueryLedger
from tests import hash_scorer

pytestmark = pytest.mark.usefixtures("unsynced")
QUERIES = [f"query {number}" for number in range(12)]
ITEMS = [f"item {number}" for number in range(100)]
TRUTH = hash_scorer.expected(QUERIES, ITEMS)


def fill(store: ScoreStore, rows: int = 4, columns: int = 40) -> ScoreStore:
    for row in range(0, len(QUERIES), rows):
        for start in range(0, len(ITEMS), columns):
            part = TRUTH[row : row + rows, start : start + columns]
            store.put_block(QUERIES[row : row + rows], ITEMS, part, start=start, seconds=0.1)
    return store


@pytest.fixture
def store(tmp_path: Path) -> ScoreStore:
    return ScoreStore(tmp_path / "store", scorer_fingerprint="hash")


def reopened(store: ScoreStore) -> ScoreStore:
    return ScoreStore(store.path, scorer_fingerprint=store.scorer_fingerprint)


def contents(folder: Path) -> bytes:
    """All files of a folder, joined."""
    return b"\0".join(path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file())


# -- reading and writing -----------------------------------------------------------------------------------------------


def test_scores_are_read_in_any_order_and_selection(store: ScoreStore, tmp_path: Path) -> None:
    store.put_block(QUERIES[:2], ITEMS, TRUTH[:2] + 1)  # later ones replace them
    fill(store)
    for one in (store, reopened(store)):
        np.testing.assert_array_equal(one.matrix(QUERIES, ITEMS), TRUTH)
        np.testing.assert_array_equal(one.matrix(QUERIES[::-2], ITEMS[70:3:-3]), TRUTH[::-2, 70:3:-3])
        repeated = [*ITEMS[:5], ITEMS[2], *ITEMS[:3]]
        np.testing.assert_array_equal(one.matrix(QUERIES[:2], repeated), TRUTH[:2, [0, 1, 2, 3, 4, 2, 0, 1, 2]])
        assert not list(one.missing(QUERIES, ITEMS))
    store.export(tmp_path / "m.npy", QUERIES[2:7], ITEMS[::-1])
    np.testing.assert_array_equal(np.load(tmp_path / "m.npy", mmap_mode="r"), TRUTH[2:7, ::-1])
    summary = store.summary()
    assert (summary.scores, summary.queries) == (TRUTH.size + 200, 12)
    assert summary.pairs_per_second is not None
    assert summary.bytes > TRUTH.nbytes


def test_reading_creates_nothing(tmp_path: Path) -> None:
    store = ScoreStore(tmp_path / "store", scorer_fingerprint="hash")
    assert np.isnan(store.matrix(QUERIES, ITEMS, partial=True)).all()
    assert (store.summary().scores, store.epoch, store.forget(ITEMS)) == (0, 0, 0)
    assert not (tmp_path / "store").exists()
    with pytest.raises(StoreError, match="there is no score store"):
        ScoreStore.open(tmp_path / "store")
    store.create()
    assert scorers(tmp_path / "store") == ["hash"]


def test_a_changed_text_or_model_reuses_no_score(store: ScoreStore) -> None:
    fill(store)
    changed = [*ITEMS[:10], "item 10, edited", *ITEMS[11:]]
    assert [(row, lacking.tolist()) for row, lacking in store.missing(QUERIES[:2], changed)] == [(0, [10]), (1, [10])]
    assert [row for row, _ in store.missing(["query 0 ", *QUERIES[1:]], ITEMS)] == [0]
    other = ScoreStore(store.path, scorer_fingerprint="another model")
    assert np.isnan(other.matrix(QUERIES, ITEMS, partial=True)).all()
    other.put_block(QUERIES[:1], ITEMS, TRUTH[:1] + 1)
    np.testing.assert_array_equal(reopened(store).matrix(QUERIES, ITEMS), TRUTH)
    assert scorers(store.path) == ["another model", "hash"]
    with pytest.raises(StoreError, match="scores of 2 scorers"):
        ScoreStore.open(store.path)
    with pytest.raises(StoreError, match="never reused"):
        ScoreStore.open(store.path, "a third")


def test_missing_scores_are_an_error_or_nan(store: ScoreStore, tmp_path: Path) -> None:
    store.put_block(QUERIES[:2], ITEMS, TRUTH[:2, 20:50], start=20)
    with pytest.raises(InputError, match="140 of 200 scores are not in"):
        store.matrix(QUERIES[:2], ITEMS)
    with pytest.raises(InputError, match="70 of 200 scores are not in"):
        store.export(tmp_path / "m.npy", QUERIES[:2], ITEMS)
    assert not (tmp_path / "m.npy").exists()
    partial = store.matrix(QUERIES[:2], ITEMS, partial=True)
    assert np.isnan(partial).sum() == 140
    np.testing.assert_array_equal(partial[:, 20:50], TRUTH[:2, 20:50])


@settings(max_examples=25, deadline=None)
@given(st.data())
def test_any_sequence_of_writes_is_read_back(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    store = ScoreStore(tmp_path_factory.mktemp("scores"), scorer_fingerprint="hash")
    known = np.full(TRUTH.shape, np.nan, np.float32)
    order = data.draw(st.permutations(range(len(ITEMS))))
    corpora = [np.arange(len(ITEMS)), np.array(order[:60])]
    for _ in range(data.draw(st.integers(1, 8))):
        kind = data.draw(st.sampled_from(["dense", "pairs", "forget", "reopen"]))
        chosen = data.draw(st.sampled_from(corpora))
        texts = [ITEMS[position] for position in chosen]
        if kind == "dense":
            rows = data.draw(st.lists(st.integers(0, 11), min_size=1, max_size=4, unique=True))
            start = data.draw(st.integers(0, len(texts) - 1))
            stop = data.draw(st.integers(start + 1, len(texts)))
            block = TRUTH[np.ix_(rows, chosen[start:stop])]
            store.put_block([QUERIES[row] for row in rows], texts, block, start=start)
            known[np.ix_(rows, chosen[start:stop])] = block
        elif kind == "pairs":
            pairs = data.draw(st.lists(st.tuples(st.integers(0, 11), st.integers(0, len(texts) - 1)), min_size=1))
            asked, places = (np.array(part) for part in zip(*pairs, strict=True))
            store.put_pairs(QUERIES, texts, asked, places, TRUTH[asked, chosen[places]])
            known[asked, chosen[places]] = TRUTH[asked, chosen[places]]
        elif kind == "forget":
            gone = data.draw(st.lists(st.integers(0, 99), max_size=5, unique=True))
            assert store.forget([ITEMS[position] for position in gone]) >= np.isfinite(known[:, gone]).sum()
            known[:, gone] = np.nan
            everything = contents(store.path)
            assert not any(text_hash(ITEMS[position]) in everything for position in gone)
        else:
            store = reopened(store)
    for one in (store, reopened(store)):
        np.testing.assert_array_equal(one.matrix(QUERIES, ITEMS, partial=True), known)
    assert not store.verify()


@pytest.mark.parametrize(
    "wrong",
    [
        lambda store: store.put_block(QUERIES[:2], ITEMS, TRUTH[:3]),
        lambda store: store.put_block(QUERIES[:1], ITEMS, TRUTH[:1], start=1),
        lambda store: store.put_block(QUERIES[:1], ITEMS, [[np.nan] * 100]),
        lambda store: store.put_block(QUERIES[:1], ITEMS, [[1e300] * 100]),
        lambda store: store.put_block(QUERIES[:1], "one text", TRUTH[:1, :1]),
        lambda store: store.put_block([7], ITEMS, TRUTH[:1]),
        lambda store: store.put_block(QUERIES[:1], [None] * 100, TRUTH[:1]),
        lambda store: store.put_pairs(QUERIES, ITEMS, [0, 1], [0], [1.0]),
        lambda store: store.put_pairs(QUERIES, ITEMS, [0], [100], [1.0]),
        lambda store: store.put_pairs(QUERIES, ITEMS, [-1], [0], [1.0]),
        lambda store: ScoreStore(store.path, scorer_fingerprint=""),
    ],
)
def test_wrong_input_is_refused_and_writes_nothing(store: ScoreStore, wrong: Callable[[ScoreStore], None]) -> None:
    with pytest.raises(InputError):
        wrong(store)
    assert store.summary().scores == 0


def test_the_key_of_an_item_is_its_title_and_text() -> None:
    titled, text = Item("1", "bank", "of a river"), "bank [ENT] of a river"
    near = [titled, text, "bank\nof a river", Item("2", "", text), Item("3", "bank of", "a river"), Item("4", "a", "")]
    names = Keys.of(near).names
    assert names[1] == names[3]  # a text is an item without a title
    assert len(set(names)) == len(near) - 1
    assert Keys.of([Item("9", "bank", "of a river", {"year": 1})]).names == names[:1]
    assert Keys.of(near).at(np.array([4, 1])) == [names[4], names[1]]
    assert Keys.of(["ab", "c"]).digest != Keys.of(["a", "bc"]).digest
    assert Keys.of(["lone \ud800 surrogate"]).names != Keys.of(["lone  surrogate"]).names


# -- threads, processes, forks -----------------------------------------------------------------------------------------


def test_many_threads_write_and_read_at_once(store: ScoreStore) -> None:
    failures: list[BaseException] = []

    def write(row: int) -> None:
        try:
            for start in range(0, 100, 10):
                store.put_block([QUERIES[row]], ITEMS, TRUTH[row : row + 1, start : start + 10], start=start)
                seen = store.get(QUERIES[row], ITEMS, np.arange(start + 10))
                np.testing.assert_array_equal(seen, TRUTH[row, : start + 10])
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=write, args=(row,)) for row in range(len(QUERIES))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    np.testing.assert_array_equal(reopened(store).matrix(QUERIES, ITEMS), TRUTH)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore:This process")
def test_a_child_that_is_forked_while_threads_write_can_write_too(store: ScoreStore) -> None:
    fill(store)
    stop = threading.Event()

    def write() -> None:
        while not stop.is_set():
            store.put_pairs(QUERIES, ITEMS, [0], [0], TRUTH[0, :1])

    writers = [threading.Thread(target=write) for _ in range(2)]
    for writer in writers:
        writer.start()
    children = []
    for row in range(10):
        child = os.fork()
        if not child:
            code = 1
            try:
                store.put_pairs(["child"], ITEMS, [0], [row], TRUTH[0, row : row + 1])
                code = 0 if (store.get(QUERIES[1], ITEMS) == TRUTH[1]).all() else 2
            finally:
                os._exit(code)
        children.append(child)
    codes = [os.waitpid(child, 0)[1] for child in children]
    stop.set()
    for writer in writers:
        writer.join()
    assert codes == [0] * 10
    np.testing.assert_array_equal(reopened(store).get("child", ITEMS, np.arange(10)), TRUTH[0, :10])
    assert not store.verify()


# -- damage, locks, disks ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("harm", ["scores", "list"])
def test_what_does_not_fit_its_checksum_counts_as_missing(
    store: ScoreStore, harm: str, caplog: pytest.LogCaptureFixture
) -> None:
    fill(store)
    store.put_pairs(["pairs"], ITEMS, [0, 0], [3, 50], [0.5, 0.25])
    victim = {
        "scores": "UPDATE record SET scores = zeroblob(160) WHERE id = 17",  # query 4, items 40 … 79
        "list": "UPDATE item_list SET hashes = zeroblob(32) WHERE id = 2",
    }
    store.database.write(lambda connection: connection.execute(victim[harm]))
    again = reopened(store)
    with caplog.at_level(logging.WARNING):
        if harm == "list":
            assert np.isnan(again.get("pairs", ITEMS)).all()
        else:
            lacking = [(row, positions.tolist()) for row, positions in again.missing(QUERIES, ITEMS)]
            assert [len(positions) for _, positions in lacking] == [40]
            again.matrix(QUERIES, ITEMS, partial=True)
    assert caplog.text.count("does not fit its checksum") == 1
    assert len(again.verify()) == (1 if harm == "scores" else 2)  # the list, and its record
    assert not again.verify()
    fill(again)
    np.testing.assert_array_equal(again.matrix(QUERIES, ITEMS), TRUTH)


def test_files_that_are_no_stores_are_refused(tmp_path: Path, store: ScoreStore) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match="is a file"):
        ScoreStore(tmp_path / "file", scorer_fingerprint="hash")
    fill(store).database.close()
    data = bytearray(store.database.path.read_bytes())
    for place in range(len(data) // 3, len(data), 7):
        data[place] ^= 0x55
    store.database.path.write_bytes(data)
    with pytest.raises(StoreError, match="is damaged"):
        reopened(store).verify()
    store.database.path.write_bytes(b"x" * 5000)
    for attempt in (lambda: ScoreStore.open(store.path), lambda: fill(reopened(store))):
        with pytest.raises(StoreError, match="is no score store, or is damaged"):
            attempt()
    store.database.path.unlink()
    with sqlite3.connect(store.database.path) as other:
        other.execute("CREATE TABLE notes (text)")
    other.close()
    with pytest.raises(StoreError, match="a database, but no score store"):
        fill(reopened(store))
    newer = ScoreStore(tmp_path / "newer", scorer_fingerprint="hash").create()
    newer.database.write(lambda connection: connection.execute("PRAGMA user_version = 2"))
    with pytest.raises(StoreError, match="has format 2, this version reads 1"):
        reopened(newer).matrix(QUERIES, ITEMS)


def test_a_store_in_a_folder_with_an_odd_name(tmp_path: Path) -> None:
    for name in ("what?mode=memory", "50%25 #1", "ü ; DROP"):
        store = fill(ScoreStore(tmp_path / name, scorer_fingerprint="x/y:z"))
        np.testing.assert_array_equal(reopened(store).matrix(QUERIES, ITEMS), TRUTH)
        assert (tmp_path / name / "scores.sqlite").stat().st_size > TRUTH.nbytes


def _locked(store: ScoreStore) -> sqlite3.Connection:
    other = sqlite3.connect(store.database.path, isolation_level=None, check_same_thread=False)
    other.execute("BEGIN EXCLUSIVE")
    return other


def test_a_search_goes_on_without_a_store_that_is_locked(store: ScoreStore, caplog: pytest.LogCaptureFixture) -> None:
    fill(store)
    cache = store.cache(ITEMS, flush_pairs=1)
    other = _locked(store)
    with pytest.raises(LockedError, match=r"was locked by another process or thread for 0\.1 s"):
        store.database.read("SELECT number FROM epoch", wait=0.1)
    account = QueryLedger(QUERIES[0], budget=10)
    with caplog.at_level(logging.WARNING):
        Meter(hash_scorer.make().bind(ITEMS), cache=cache, deadline=0.2).score([account], [np.arange(10)])
    assert (account.calls, account.cached) == (10, 0)
    assert "stored scores are not used" in caplog.text
    other.execute("ROLLBACK")
    other.close()
    cache.flush()
    again = QueryLedger(QUERIES[0], budget=10)
    Meter(hash_scorer.make().bind(ITEMS), cache=cache).score([again], [np.arange(10)])
    assert (again.calls, again.cached) == (0, 10)


def test_a_writer_waits_for_another(store: ScoreStore) -> None:
    fill(store)
    other = _locked(store)
    threading.Timer(0.3, lambda: other.execute("ROLLBACK")).start()
    store.put_block(["later"], ITEMS, TRUTH[:1])
    np.testing.assert_array_equal(store.get("later", ITEMS), TRUTH[0])


DISK = """
mount -t tmpfs -o size=700k tmpfs {disk} || exit 77
{python} -c '{code}'
mount -o remount,size=40m {disk} && {python} -c '{code}'
mount -o remount,ro {disk} && {python} -c '{code}'
"""
ON_DISK = """
import numpy as np
from crosscut.errors import StoreError
from crosscut.score_store import ScoreStore
store = ScoreStore("DISK/store", scorer_fingerprint="hash")
items = [str(n) for n in range(1000)]
before = store.summary().scores
try:
    for row in range(before // 1000, before // 1000 + 200):
        store.put_block([f"query {row}"], items, np.full((1, 1000), row))
except StoreError as error:
    print(error)
again = ScoreStore("DISK/store", scorer_fingerprint="hash")
rows = again.summary().scores // 1000
assert not again.verify()
assert (again.matrix([f"query {row}" for row in range(rows)], items) == np.arange(rows)[:, None]).all()
print("rows", rows)
"""


def test_a_disk_that_is_full_and_a_disk_that_is_read_only(tmp_path: Path) -> None:
    unshare = shutil.which("unshare")
    if unshare is None:
        pytest.skip("a disk of its own needs unshare")
    (tmp_path / "disk").mkdir()
    code = ON_DISK.replace("DISK", str(tmp_path / "disk"))
    script = DISK.format(disk=tmp_path / "disk", python=sys.executable, code=code)
    done = subprocess.run([unshare, "-rm", "sh", "-c", script], capture_output=True, text=True, check=False)
    if done.returncode in (1, 77) and "rows" not in done.stdout:
        pytest.skip(f"no disk can be mounted here: {done.stderr}")
    full, rows, more, forbidden, same = done.stdout.splitlines()
    assert "no room to write" in full
    assert 0 < int(rows.split()[1]) < 200
    assert int(more.split()[1]) == int(rows.split()[1]) + 200
    assert "cannot be written to" in forbidden
    assert same == more


# -- the cache of searches ---------------------------------------------------------------------------------------------


def test_the_cache_of_a_search(store: ScoreStore) -> None:
    store.put_block(QUERIES[:1], ITEMS, TRUTH[:1, :30])
    scorer = hash_scorer.make().bind(ITEMS)
    with store.cache(ITEMS, flush_pairs=1000) as cache:
        meter = Meter(scorer, cache=cache)
        account = QueryLedger(QUERIES[0], budget=10)
        meter.score([account], [np.arange(25, 35)])
        assert (account.calls, account.cached) == (5, 5)
        np.testing.assert_allclose(account.scores, TRUTH[0, account.positions])
        again = QueryLedger(QUERIES[0], budget=0)
        Meter(scorer, cache=cache).score([again], [np.arange(25, 35)])  # known at once, though not yet written
        assert (again.calls, again.cached) == (0, 10)
        assert np.isnan(reopened(store).get(QUERIES[0], ITEMS, [34])).all()
    later = reopened(store).cache(ITEMS)
    np.testing.assert_array_equal(later.get(QUERIES[0], np.array([34, 3, 35])), [*TRUTH[0, [34, 3]], np.nan])
    with pytest.raises(InputError, match="kept under texts"):
        later.get(7, np.array([1]))
    dropped = reopened(store).cache(ITEMS)
    dropped.put(QUERIES[2], np.array([7]), np.array([TRUTH[2, 7]]))
    del dropped
    assert reopened(store).get(QUERIES[2], ITEMS, [7]) == TRUTH[2, 7]
    eager = reopened(store).cache(ITEMS, flush_pairs=1)
    eager.put(QUERIES[3], np.array([4, 5]), TRUTH[3, 4:6].astype(float))
    np.testing.assert_array_equal(reopened(store).get(QUERIES[3], ITEMS, [4, 5]), TRUTH[3, 4:6])
    np.testing.assert_array_equal(eager.get(QUERIES[3], np.array([5, 6])), [TRUTH[3, 5], np.nan])


def test_a_cache_reads_no_item_that_is_not_asked_for(store: ScoreStore) -> None:
    class Large(list[str]):
        read = 0

        def __getitem__(self, position: Any) -> Any:
            self.read += 1
            return super().__getitem__(position)

        def __iter__(self) -> Any:
            raise AssertionError("every item is read")

    items = Large()
    items.extend(ITEMS)
    keys = Keys(())
    keys._contents = items
    cache = store.cache(keys)
    cache.put(QUERIES[0], np.array([3, 4]), np.array([0.5, 0.25]))
    cache.flush()
    assert cache.get(QUERIES[0], np.array([4, 9])).tolist()[0] == 0.25
    assert items.read <= 4


def test_a_score_that_float32_cannot_hold_is_not_stored(store: ScoreStore, caplog: pytest.LogCaptureFixture) -> None:
    cache = store.cache(ITEMS, flush_pairs=10)
    with caplog.at_level(logging.WARNING):
        for query in QUERIES:
            scores = TRUTH[0].astype(np.float64)
            scores[5] = -1e300
            cache.put(query, np.arange(100), scores)
    assert caplog.text.count("cannot hold") == 1
    assert np.isnan(cache.get(QUERIES[3], np.array([5]))).all()
    assert store.summary().scores == 99 * 12


def test_a_failing_disk_does_not_stop_a_search(store: ScoreStore, monkeypatch: pytest.MonkeyPatch) -> None:
    cache = store.cache(ITEMS, flush_pairs=1, flush_seconds=0.0)
    with monkeypatch.context() as patch:
        patch.setattr(store, "write", lambda *_, **__: (_ for _ in ()).throw(StoreError("no room to write")))
        cache.put(QUERIES[0], np.array([1]), np.array([TRUTH[0, 1]]))
        np.testing.assert_array_equal(cache.get(QUERIES[0], np.array([1])), TRUTH[0, 1])
        with pytest.raises(StoreError, match="no room"):
            cache.flush()
    cache.flush()
    assert reopened(store).get(QUERIES[0], ITEMS, [1]) == TRUTH[0, 1]


# -- forgetting --------------------------------------------------------------------------------------------------------


def test_nothing_is_left_of_forgotten_items(store: ScoreStore) -> None:
    fill(store)
    other = ScoreStore(store.path, scorer_fingerprint="other")
    other.put_pairs(QUERIES, ITEMS, [0, 0], [3, 4], [0.123, 0.25])
    gone = [np.float32(0.123).tobytes(), text_hash(ITEMS[3]), TRUTH[7, 3].tobytes()]
    assert all(one in contents(store.path) for one in gone)
    assert ScoreStore(store.path, scorer_fingerprint="a third").forget([ITEMS[3], "never scored"]) == 13
    assert not any(one in contents(store.path) for one in gone)
    again = reopened(store)
    assert [positions.tolist() for _, positions in again.missing(QUERIES, ITEMS)] == [[3]] * 12
    assert other.pairs(QUERIES, ITEMS).columns.tolist() == [4]
    assert not again.verify()
    assert again.forget([ITEMS[3]]) == 0
    again.put_block(QUERIES, ITEMS, TRUTH)  # and they may come again
    np.testing.assert_array_equal(again.matrix(QUERIES, ITEMS), TRUTH)


def test_a_cache_from_before_forgetting_writes_nothing_more(
    store: ScoreStore, caplog: pytest.LogCaptureFixture
) -> None:
    fill(store)
    caches = [store.cache(ITEMS), reopened(store).cache(ITEMS)]
    for cache in caches:
        cache.put("p", np.array([3, 4]), np.array([0.5, 0.25]))
    reopened(store).forget([ITEMS[3]])
    with caplog.at_level(logging.WARNING):
        for cache in caches:
            for _ in range(2):
                cache.put("p", np.array([3, 5]), np.array([0.5, 0.75]))
                cache.flush()
            larger = cache.over([*ITEMS, "another"])  # it has read the items before, too
            larger.put("r", np.array([100]), np.array([0.5]))
            larger.flush()
    assert caplog.text.count("load the index again") == 4
    assert text_hash(ITEMS[3]) not in contents(store.path)
    assert not len(store.pairs(["p", "r"], ITEMS).scores)
    fresh = store.cache(ITEMS)
    fresh.put("p", np.array([3]), np.array([0.5]))
    fresh.flush()
    assert store.pairs(["p"], ITEMS).columns.tolist() == [3]
