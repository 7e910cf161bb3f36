"""The score store: nothing torn, nothing lost, nothing reused that should not be."""

from __future__ import annotations

import errno
import json
import multiprocessing
import os
import shutil
import struct
import subprocess
import sys
import threading
import zlib
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crosscut.datasets import Item
from crosscut.errors import InputError, StoreError
from crosscut.scorers import Meter
from crosscut.scorers.meter import QueryLedger
from crosscut.scores import Keys, ScoreStore, scorers
from crosscut.scores.consolidate import STALE_SECONDS
from crosscut.storage import TEMPORARY
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


def blocks(store: ScoreStore) -> list[Path]:
    return sorted((store.folder / "blocks").glob("*.scores"))


def reopened(store: ScoreStore) -> ScoreStore:
    return ScoreStore(store.path, scorer_fingerprint=store.scorer_fingerprint)


def test_what_is_put_is_there_in_any_order_and_selection(store: ScoreStore) -> None:
    fill(store)
    for one in (store, reopened(store)):
        np.testing.assert_array_equal(one.matrix(QUERIES, ITEMS), TRUTH)
        np.testing.assert_array_equal(one.matrix(QUERIES[::-2], ITEMS[70:3:-3]), TRUTH[::-2, 70:3:-3])
        repeated = [*ITEMS[:5], ITEMS[2], *ITEMS[:3]]
        np.testing.assert_array_equal(one.matrix(QUERIES[:2], repeated), TRUTH[:2, [0, 1, 2, 3, 4, 2, 0, 1, 2]])
        assert not list(one.missing(QUERIES, ITEMS))


def test_nothing_is_made_before_something_is_written(tmp_path: Path) -> None:
    ScoreStore(tmp_path / "store", scorer_fingerprint="hash")
    assert not (tmp_path / "store").exists()
    ScoreStore.create(tmp_path / "store", "hash")
    assert scorers(tmp_path / "store") == ["hash"]


def test_a_changed_text_or_model_reuses_no_score(store: ScoreStore) -> None:
    fill(store)
    changed = [*ITEMS[:10], "item 10, edited", *ITEMS[11:]]
    assert [(row, lacking.tolist()) for row, lacking in store.missing(QUERIES[:2], changed)] == [(0, [10]), (1, [10])]
    assert [row for row, _ in store.missing(["query 0 ", *QUERIES[1:]], ITEMS)] == [0]
    other = ScoreStore(store.path, scorer_fingerprint="another model")
    assert other.coverage(QUERIES, ITEMS).known == 0
    other.put_block(QUERIES[:1], ITEMS, TRUTH[:1] + 1)
    np.testing.assert_array_equal(reopened(store).matrix(QUERIES, ITEMS), TRUTH)
    assert sorted(scorers(store.path)) == ["another model", "hash"]
    with pytest.raises(StoreError, match="scores of 2 scorers"):
        ScoreStore.open(store.path)
    with pytest.raises(StoreError, match="never reused"):
        ScoreStore.open(store.path, "a third")


def test_missing_scores_are_an_error_or_nan(store: ScoreStore) -> None:
    store.put_block(QUERIES[:2], ITEMS, TRUTH[:2, 20:50], start=20)
    with pytest.raises(InputError, match="140 of 200 scores are not in"):
        store.matrix(QUERIES[:2], ITEMS)
    partial = store.matrix(QUERIES[:2], ITEMS, partial=True)
    assert np.isnan(partial).sum() == 140
    np.testing.assert_array_equal(partial[:, 20:50], TRUTH[:2, 20:50])
    coverage = store.coverage(QUERIES[:2], ITEMS)
    assert (coverage.pairs, coverage.known, coverage.missing) == (200, 60, 140)


def test_pairs(store: ScoreStore) -> None:
    rows, columns = np.array([3, 0, 3, 7]), np.array([5, 9, 1, 99])
    store.put_pairs(QUERIES, ITEMS, rows, columns, TRUTH[rows, columns])
    found = reopened(store).pairs(QUERIES, ITEMS)
    assert list(zip(found.rows.tolist(), found.columns.tolist(), strict=True)) == [(0, 9), (3, 1), (3, 5), (7, 99)]
    np.testing.assert_array_equal(found.scores, TRUTH[found.rows, found.columns])
    for _ in range(10):
        store.put_pairs(QUERIES, ITEMS, rows, columns, TRUTH[rows, columns])
    store.consolidate()
    assert len(blocks(store)) == 1
    np.testing.assert_array_equal(reopened(store).pairs(QUERIES, ITEMS).scores, found.scores)


@settings(max_examples=25, deadline=None)
@given(st.data())
def test_any_sequence_of_writes_reads_back(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    store = ScoreStore(tmp_path_factory.mktemp("scores"), scorer_fingerprint="hash")
    known = np.full(TRUTH.shape, np.nan, np.float32)
    order = data.draw(st.permutations(range(len(ITEMS))))
    corpora = [np.arange(len(ITEMS)), np.array(order[:60])]
    for _ in range(data.draw(st.integers(1, 8))):
        kind = data.draw(st.sampled_from(["dense", "pairs", "consolidate", "reopen"]))
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
        elif kind == "consolidate":
            store.consolidate()
        else:
            store = reopened(store)
    np.testing.assert_array_equal(store.matrix(QUERIES, ITEMS, partial=True), known)
    np.testing.assert_array_equal(reopened(store).matrix(QUERIES, ITEMS, partial=True), known)


def test_a_consolidated_matrix_is_a_memory_map_and_takes_the_place_of_its_blocks(store: ScoreStore) -> None:
    fill(store)
    matrix = store.consolidate(QUERIES, ITEMS)
    assert isinstance(matrix, np.memmap)
    assert not matrix.flags.writeable
    np.testing.assert_array_equal(matrix, TRUTH)
    assert not blocks(store)
    (file,) = (store.folder / "matrices").glob("*.npy")
    np.testing.assert_array_equal(np.load(file), TRUTH)  # anybody can read it
    again = reopened(store)
    assert isinstance(again.matrix(QUERIES[2:7], ITEMS), np.memmap)
    np.testing.assert_array_equal(again.matrix(QUERIES[2:7], ITEMS), TRUTH[2:7])
    np.testing.assert_array_equal(again.matrix(QUERIES[::3], ITEMS[::-1]), TRUTH[::3, ::-1])
    assert again.coverage().bytes <= 4.5 * TRUTH.size + 5000


def test_a_larger_matrix_replaces_a_smaller_one(store: ScoreStore) -> None:
    store.put_block(QUERIES[:5], ITEMS, TRUTH[:5])
    store.consolidate(QUERIES[:5], ITEMS)
    store.put_block(QUERIES[5:], ITEMS, TRUTH[5:])
    with pytest.raises(InputError, match="query 0 has 1 of 101 scores missing"):
        store.consolidate(QUERIES, [*ITEMS, "one more"])
    reader = reopened(store)
    assert store.consolidate(QUERIES, ITEMS) is not None
    assert len(list((store.folder / "matrices").glob("*.npy"))) == 1
    np.testing.assert_array_equal(reader.matrix(QUERIES, ITEMS), TRUTH)  # finds what has replaced its files


def test_consolidating_without_a_list_takes_complete_rows(store: ScoreStore) -> None:
    fill(store)
    store.put_block(["half"], ITEMS, TRUTH[:1, :50])
    store.consolidate()
    assert len(blocks(store)) == 1
    assert isinstance(reopened(store).matrix(QUERIES, ITEMS), np.memmap)
    assert np.isnan(store.get("half", ITEMS)).sum() == 50


@pytest.mark.parametrize("harm", ["truncate", "extend", "empty", "flip scores", "flip header", "flip queries"])
def test_a_damaged_block_is_reported_and_counts_as_missing(store: ScoreStore, harm: str) -> None:
    fill(store)
    victim = blocks(store)[4]  # queries 4 … 7, items 40 … 79
    data = bytearray(victim.read_bytes())
    if harm == "truncate":
        data = data[:-7]
    elif harm == "extend":
        data += b"0"
    elif harm == "empty":
        data = bytearray()
    else:
        place = {"flip scores": -5, "flip header": 30, "flip queries": -(4 * 40 * 4) - 3}[harm]
        data[place] ^= 4
    victim.write_bytes(bytes(data))
    again = reopened(store)
    lacking = {row: positions.tolist() for row, positions in again.missing(QUERIES, ITEMS)}
    assert lacking == {row: list(range(40, 80)) for row in range(4, 8)}
    assert [damage.path for damage in again.damaged] == [victim]
    partial = again.matrix(QUERIES, ITEMS, partial=True)
    np.testing.assert_array_equal(np.where(np.isnan(partial), TRUTH, partial), TRUTH)
    assert again.verify()
    assert again.set_aside_damaged() == 1
    assert not reopened(store).verify()
    again.put_block(QUERIES[4:8], ITEMS, TRUTH[4:8, 40:80], start=40)
    np.testing.assert_array_equal(reopened(store).matrix(QUERIES, ITEMS), TRUTH)


@pytest.mark.parametrize("harm", ["flip", "flip unseen", "truncate", "gone"])
def test_a_damaged_matrix_loses_its_damaged_rows_only(store: ScoreStore, harm: str) -> None:
    fill(store).consolidate(QUERIES, ITEMS)
    (file,) = (store.folder / "matrices").glob("*.npy")
    before = file.stat()
    data = bytearray(file.read_bytes())
    data[-500] ^= 1  # in the last but one row
    if harm == "truncate":
        data = data[:-401]
    file.write_bytes(bytes(data))
    expected = [10, 11] if harm == "truncate" else [10]
    if harm == "gone":
        file.unlink()
        expected = list(range(12))
    if harm == "flip unseen":  # neither size nor time has changed: rows are checked all the same when they are read
        os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))
    else:
        with pytest.raises(InputError, match="scores are not in"):
            reopened(store).matrix(QUERIES, ITEMS)
    again = reopened(store)
    assert [row for row, _ in again.missing(QUERIES, ITEMS)] == expected
    assert again.damaged
    assert again.set_aside_damaged() == (harm == "gone")
    for row in expected:
        again.put_block(QUERIES[row : row + 1], ITEMS, TRUTH[row : row + 1])
    again.consolidate(QUERIES, ITEMS)
    repaired = reopened(store)
    assert isinstance(repaired.matrix(QUERIES, ITEMS), np.memmap)
    np.testing.assert_array_equal(repaired.matrix(QUERIES, ITEMS), TRUTH)
    assert not repaired.verify()


def test_a_copied_matrix_is_read_once_and_then_trusted(store: ScoreStore) -> None:
    fill(store).consolidate(QUERIES, ITEMS)
    (file,) = (store.folder / "matrices").glob("*.npy")
    os.utime(file, ns=(1, 1))
    assert isinstance(reopened(store).matrix(QUERIES, ITEMS), np.memmap)


def test_a_damaged_item_list_is_written_again(store: ScoreStore) -> None:
    fill(store)
    (file,) = (store.folder / "items").glob("*.scores")
    file.write_bytes(file.read_bytes()[:-1])
    again = reopened(store)
    np.testing.assert_array_equal(again.matrix(QUERIES, ITEMS), TRUTH)  # the corpus is at hand, the list not needed
    assert np.isnan(reopened(store).matrix(QUERIES, ITEMS[:7], partial=True)).all()  # here it is
    again.put_block(["new"], ITEMS, TRUTH[:1])
    np.testing.assert_array_equal(reopened(store).matrix(QUERIES, ITEMS[:7]), TRUTH[:, :7])


def test_many_threads_write_and_read_at_once(store: ScoreStore) -> None:
    failures: list[BaseException] = []

    def write(row: int) -> None:
        try:
            for start in range(0, 100, 10):
                store.put_block([QUERIES[row]], ITEMS, TRUTH[row : row + 1, start : start + 10], start=start)
                seen = store.get(QUERIES[row], ITEMS, np.arange(start + 10))
                np.testing.assert_array_equal(seen, TRUTH[row, : start + 10])
                if start == 50:
                    store.consolidate()
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=write, args=(row,)) for row in range(len(QUERIES))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    np.testing.assert_array_equal(reopened(store).matrix(QUERIES, ITEMS), TRUTH)


def test_a_file_that_goes_while_consolidation_looks_at_it(store: ScoreStore) -> None:
    store.put_block(QUERIES, ITEMS, TRUTH)
    (store.folder / "blocks" / f"gone{TEMPORARY}").symlink_to("nowhere")  # listed, and not there
    store.consolidate()
    np.testing.assert_array_equal(store.matrix(QUERIES, ITEMS), TRUTH)


def _write_rows(path: str, rows: list[int]) -> None:
    store = ScoreStore(path, scorer_fingerprint="hash")
    for row in rows:
        for start in range(0, 100, 20):
            store.put_block([QUERIES[row]], ITEMS, TRUTH[row : row + 1, start : start + 20], start=start)
        store.consolidate()


def test_many_processes_write_and_consolidate_at_once(store: ScoreStore) -> None:
    context = multiprocessing.get_context("spawn")
    processes = [context.Process(target=_write_rows, args=(str(store.path), list(range(n, 12, 3)))) for n in range(3)]
    for process in processes:
        process.start()
    while any(process.is_alive() for process in processes):
        partial = store.matrix(QUERIES, ITEMS, partial=True)  # a reader in between sees right scores or none
        np.testing.assert_array_equal(partial[~np.isnan(partial)], TRUTH[~np.isnan(partial)])
        store.refresh()
    for process in processes:
        process.join()
    assert [process.exitcode for process in processes] == [0, 0, 0]
    np.testing.assert_array_equal(reopened(store).matrix(QUERIES, ITEMS), TRUTH)


# -- disks that fail ---------------------------------------------------------------------------------------------------


def _refusing(code: int, at: str) -> Callable[..., int]:
    def refuse(*_: object, **__: object) -> int:
        raise OSError(code, os.strerror(code), at)

    return refuse


@pytest.mark.parametrize("call", ["fsync", "replace"])
@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EROFS, errno.EIO])
def test_a_failing_disk_is_a_sentence_and_leaves_the_store_as_it_was(
    store: ScoreStore, monkeypatch: pytest.MonkeyPatch, call: str, code: int
) -> None:
    store.put_block(QUERIES[:4], ITEMS, TRUTH[:4])
    with monkeypatch.context() as patch:
        patch.setattr(os, call, _refusing(code, call))
        words = {errno.ENOSPC: "no room to write", errno.EROFS: "cannot be written to", errno.EIO: "failed"}[code]
        for attempt in (
            lambda: store.put_block(QUERIES[4:], ITEMS, TRUTH[4:]),
            lambda: store.put_pairs(QUERIES, ITEMS, [5], [5], [1.0]),
            lambda: store.consolidate(QUERIES[:4], ITEMS),
        ):
            with pytest.raises(StoreError, match=words) as caught:
                attempt()
            assert "unharmed" in str(caught.value)
            assert caught.value.__cause__ is not None
        np.testing.assert_array_equal(reopened(store).matrix(QUERIES[:4], ITEMS), TRUTH[:4])
    assert not list(store.path.rglob("*.tmp"))
    assert not store.verify()
    store.put_block(QUERIES[4:], ITEMS, TRUTH[4:])  # the disk is back
    np.testing.assert_array_equal(store.consolidate(QUERIES, ITEMS), TRUTH)


def test_a_file_size_limit_of_the_system_is_a_full_disk(store: ScoreStore) -> None:
    store.put_block(QUERIES[:4], ITEMS, TRUTH[:4])
    code = f"""
import resource, numpy as np
from crosscut.errors import StoreError
from crosscut.scores import ScoreStore
resource.setrlimit(resource.RLIMIT_FSIZE, (4000, 4000))
store = ScoreStore({str(store.path)!r}, scorer_fingerprint="hash")
try:
    store.put_block(["big"], [str(n) for n in range(5000)], np.zeros((1, 5000)))
except StoreError as error:
    print(error)
print(store.coverage().scores)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "no room to write" in done.stdout
    assert "make room and run the same again" in done.stdout
    assert done.stdout.endswith("400\n")
    assert not list(store.path.rglob("*.tmp"))


DISK = """
mount -t tmpfs -o size=40k tmpfs {disk} || exit 77
{python} -c '{code}'
mount -o remount,size=4m {disk} && {python} -c '{code}'
mount -o remount,ro {disk} && {python} -c '{code}'
"""
ON_DISK = """
import numpy as np
from crosscut.errors import StoreError
from crosscut.scores import ScoreStore
store = ScoreStore("DISK/store", scorer_fingerprint="hash")
items = [str(n) for n in range(1000)]
before = store.coverage().scores
try:
    for row in range(before // 1000, before // 1000 + 10):
        store.put_block([f"query {row}"], items, np.full((1, 1000), row))
except StoreError as error:
    print(error)
again = ScoreStore("DISK/store", scorer_fingerprint="hash")
rows = again.coverage().scores // 1000
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
    assert 0 < int(rows.split()[1]) < 10
    assert int(more.split()[1]) == int(rows.split()[1]) + 10
    assert "cannot be written to" in forbidden
    assert same == more


def test_a_folder_without_permission_is_a_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "mkdir", _refusing(errno.EACCES, "mkdir"))  # root may write anywhere
    with pytest.raises(StoreError, match="cannot be written to"):
        ScoreStore.create(tmp_path / "locked" / "store", "hash")


def test_a_store_in_a_folder_that_refuses_everything_can_be_read(
    store: ScoreStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(store).consolidate(QUERIES, ITEMS)
    real = os.open

    def read_only(path: str, flags: int, *rest: int, **more: int) -> int:
        if flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT):
            raise OSError(errno.EROFS, os.strerror(errno.EROFS), path)
        return real(path, flags, *rest, **more)

    monkeypatch.setattr(os, "open", read_only)
    monkeypatch.setattr(Path, "mkdir", _refusing(errno.EROFS, "mkdir"))
    again = reopened(store)
    np.testing.assert_array_equal(again.matrix(QUERIES, ITEMS), TRUTH)
    with pytest.raises(StoreError, match="cannot be written to"):
        ScoreStore.create(store.path, "new model")


def test_what_a_killed_writer_left_is_swept(store: ScoreStore) -> None:
    fill(store)
    old, new = (store.folder / "blocks" / f"x.scores.{name}.tmp" for name in ("old", "new"))
    orphan = store.folder / "matrices" / "orphan.npy"
    for path in (old, new, orphan):
        path.write_bytes(b"torn")
    os.utime(old, (1, old.stat().st_mtime - STALE_SECONDS - 10))
    store.consolidate(QUERIES, ITEMS)
    assert [path.exists() for path in (old, new, orphan)] == [False, True, False]
    np.testing.assert_array_equal(reopened(store).matrix(QUERIES, ITEMS), TRUTH)


# -- the rest ----------------------------------------------------------------------------------------------------------


def test_the_format_is_what_the_documentation_says(store: ScoreStore) -> None:
    store.put_block(QUERIES[:2], ITEMS, TRUTH[:2, 10:30], start=10)
    data = blocks(store)[0].read_bytes()
    magic, length, checksum = struct.unpack("<8sII", data[:16])
    header = json.loads(data[16 : 16 + length])
    assert (magic, checksum) == (b"CCSCORE1", zlib.crc32(data[16 : 16 + length]))
    assert (header["kind"], header["start"], header["stop"], header["scorer"]) == ("dense", 10, 30, "hash")
    offset = 16 + length
    arrays = {}
    for name, kind, shape, crc in header["arrays"]:
        size = int(np.dtype(kind).itemsize * np.prod(shape))
        assert zlib.crc32(data[offset : offset + size]) == crc
        arrays[name] = np.frombuffer(data[offset : offset + size], kind).reshape(shape)
        offset += size
    assert offset == len(data)
    np.testing.assert_array_equal(arrays["scores"], TRUTH[:2, 10:30])
    assert arrays["queries"].tobytes() == b"".join(Keys.of(QUERIES[:2]).names)


def test_keys_are_the_content_of_texts() -> None:
    assert Keys.of(["ab", "c"]).digest != Keys.of(["a", "bc"]).digest
    assert Keys.of(["a", "b"]).digest == Keys.of(("a", "b")).digest
    assert Keys.of(["lone \ud800 surrogate"]).names != Keys.of(["lone  surrogate"]).names
    assert Keys.of([]).hashes.shape == (0, 16)
    for wrong in ("one text", [1, 2], ["a", None]):
        with pytest.raises(InputError):
            Keys.of(wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "wrong",
    [
        lambda store: store.put_block(QUERIES[:2], ITEMS, TRUTH[:3]),
        lambda store: store.put_block(QUERIES[:1], ITEMS, TRUTH[:1], start=1),
        lambda store: store.put_block(QUERIES[:1], ITEMS, [[np.nan] * 100]),
        lambda store: store.put_block(QUERIES[:1], ITEMS, [[1e300] * 100]),
        lambda store: store.put_pairs(QUERIES, ITEMS, [0, 1], [0], [1.0]),
        lambda store: store.put_pairs(QUERIES, ITEMS, [0], [100], [1.0]),
        lambda store: store.put_pairs(QUERIES, ITEMS, [-1], [0], [1.0]),
        lambda store: store.consolidate(QUERIES),
        lambda store: ScoreStore(store.path, scorer_fingerprint=""),
    ],
)
def test_wrong_input_is_refused_and_writes_nothing(store: ScoreStore, wrong: Callable[[ScoreStore], None]) -> None:
    with pytest.raises(InputError):
        wrong(store)
    assert store.coverage().scores == 0


def test_folders_that_are_no_stores(tmp_path: Path, store: ScoreStore) -> None:
    with pytest.raises(StoreError, match="there is no score store"):
        ScoreStore.open(tmp_path / "nowhere")
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match="is a file"):
        ScoreStore(tmp_path / "file", scorer_fingerprint="hash")
    fill(store)
    (store.folder / "store.json").write_text('{"format": 2, "scorer": "hash"}')
    with pytest.raises(StoreError, match="format 2"):
        reopened(store)
    (store.folder / "store.json").write_text('{"format": 1, "scorer": "hush"}')
    with pytest.raises(StoreError, match="names the scorer 'hush'"):
        ScoreStore.open(store.path)
    (store.folder / "store.json").write_bytes(b'{"format": 1, "scorer": "\xff"}')
    with pytest.raises(StoreError, match="cannot be read"):
        ScoreStore.open(store.path)
    (store.folder / "store.json").write_text("{")
    with pytest.raises(StoreError, match="cannot be read"):
        reopened(store)
    fresh = ScoreStore(tmp_path / "fresh", scorer_fingerprint="x/y:z")  # no name for a folder
    fresh.put_block(QUERIES[:1], ITEMS, TRUTH[:1])
    np.testing.assert_array_equal(ScoreStore.open(tmp_path / "fresh").matrix(QUERIES[:1], ITEMS), TRUTH[:1])
    block = blocks(fresh)[0]
    (fresh.folder / "blocks" / block.name).write_bytes(b"CCSCORE2" + block.read_bytes()[8:])
    with pytest.raises(StoreError, match="has format 2"):
        ScoreStore.open(tmp_path / "fresh")


def test_a_full_disk_does_not_stop_a_search(store: ScoreStore, monkeypatch: pytest.MonkeyPatch) -> None:
    cache = store.cache(ITEMS, flush_pairs=1)
    with monkeypatch.context() as patch:
        patch.setattr("os.fsync", _refusing(errno.ENOSPC, "fsync"))
        cache.put(QUERIES[0], np.array([1]), np.array([TRUTH[0, 1]]))
        np.testing.assert_array_equal(cache.get(QUERIES[0], np.array([1])), TRUTH[0, 1])
        with pytest.raises(StoreError, match="no room"):
            cache.flush()
    cache.flush()
    assert reopened(store).get(QUERIES[0], ITEMS, [1]) == TRUTH[0, 1]


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
    forgotten = reopened(store).cache(ITEMS)
    forgotten.put(QUERIES[2], np.array([7]), np.array([TRUTH[2, 7]]))
    del forgotten
    assert reopened(store).get(QUERIES[2], ITEMS, [7]) == TRUTH[2, 7]
    eager = reopened(store).cache(ITEMS, flush_pairs=1)
    eager.put(QUERIES[3], np.array([4, 5]), TRUTH[3, 4:6].astype(float))
    np.testing.assert_array_equal(reopened(store).get(QUERIES[3], ITEMS, [4, 5]), TRUTH[3, 4:6])
    np.testing.assert_array_equal(eager.get(QUERIES[3], np.array([5, 6])), [TRUTH[3, 5], np.nan])


def test_titles_are_part_of_the_key_and_texts_keep_theirs() -> None:
    titled, text = Item("1", "bank", "of a river"), "bank [ENT] of a river"
    near: list[Item | str] = [
        titled,
        text,
        "bank\nof a river",
        Item("2", "", text),
        Item("3", "bank of", "a river"),
        Item("4", "a", ""),
    ]
    names = Keys.of(near).names
    assert names[1] == names[3]  # a text is an item without a title
    assert len(set(names)) == len(near) - 1
    assert Keys.of([titled]).digest != Keys.of([text]).digest
    mixed: list[Item | str] = [Item("9", "", "a"), "b"]
    assert Keys.of(mixed).digest == Keys.of(["a", "b"]).digest
    assert Keys.of([Item("9", "bank", "of a river", {"year": 1})]).names == names[:1]  # what is scored, and no more
    # as they were when items were kept as texts: scores of then are still found
    assert Keys.of(["of a river"]).names[0].hex() == "d338cf2f710919a17890dbf5057501a5"
    assert Keys.of(["a", "bc"]).digest == "ccf0e993a4b2c54ac6a63aae701f56fa"


def test_scores_of_items_without_titles_are_found_again(store: ScoreStore) -> None:
    store.put_block(QUERIES[:2], ["a", "b"], np.arange(4.0).reshape(2, 2))
    again = store.get(QUERIES[1], [Item("1", "", "b"), Item("2", "a title", "b"), Item("3", "", "a")])
    assert again.tolist()[::2] == [3.0, 2.0]
    assert np.isnan(again[1])
