"""The log of past searches: every search or none, bounded, and nothing left of what is forgotten."""

from __future__ import annotations

import logging
import sqlite3
import threading
from pathlib import Path

import numpy as np
import pytest

from crosscut.errors import InputError, StoreError
from crosscut.index.log import Logged, SearchLog, query_hash

pytestmark = pytest.mark.usefixtures("unsynced")


def logged(number: int, ids: tuple[str, ...] = ("a", "b", "ü\n")) -> Logged:
    rng = np.random.default_rng(number)
    vector, scores = rng.normal(size=4).astype(np.float32), rng.normal(size=len(ids)).astype(np.float32)
    return Logged(query_hash(f"query {number}"), "scorer", float(number), list(ids), vector, scores)


def times(log: SearchLog) -> list[float]:
    return [search.time for search in log.read()]


def test_what_is_appended_is_read(tmp_path: Path) -> None:
    log = SearchLog(tmp_path / "past" / "searches.log")
    assert log.read() == []
    assert not log.path.exists()
    drawn = logged(1, ("\ud800", "x"))._replace(chances=np.array([0.5, 1], np.float32))
    log.append([logged(0), drawn])
    SearchLog(log.path).append([logged(2)])
    log.append([])
    for found, given in zip(SearchLog(log.path).read(), [logged(0), drawn, logged(2)], strict=True):
        assert found[:4] == given[:4]
        np.testing.assert_array_equal(found.vector, given.vector)
        np.testing.assert_array_equal(found.scores, given.scores)
        np.testing.assert_array_equal(found.chances, given.chances)


@pytest.mark.parametrize("harm", ["scores = zeroblob(12)", "ids = '[]'", "crc = 7", "vector = 'text'"])
def test_a_damaged_search_is_left_out_and_the_others_are_not(tmp_path: Path, harm: str) -> None:
    log = SearchLog(tmp_path / "searches.log")
    log.append([logged(0), logged(1), logged(2)])
    with sqlite3.connect(log.path) as other:
        other.execute(f"UPDATE search SET {harm} WHERE id = 2")
    other.close()
    assert times(log) == [0.0, 2.0]


def test_a_file_that_is_no_log_is_refused_and_unharmed(tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_text("my notes" * 100)
    with pytest.raises(StoreError, match="is no log of searches"):
        SearchLog(path).begin()
    assert path.read_text() == "my notes" * 100
    with pytest.raises(InputError, match="a log of searches is a file"):
        SearchLog("")


def test_the_log_is_bounded_and_the_newest_searches_stay(tmp_path: Path) -> None:
    log = SearchLog(tmp_path / "searches.log", limit=1 << 16)
    for start in range(0, 1000, 10):
        log.append([logged(number) for number in range(start, start + 10)])
        assert log.path.stat().st_size <= (1 << 16) + 8192
    assert times(log) == [float(number) for number in range(1000 - len(log.read()), 1000)]
    assert len(log.read()) > 50
    with pytest.raises(InputError, match="at least 65536 bytes; got 10"):
        SearchLog(log.path, limit=10)


def test_threads_append_at_once(tmp_path: Path) -> None:
    log = SearchLog(tmp_path / "searches.log")
    threads = [threading.Thread(target=lambda j=j: [log.append([logged(j)]) for _ in range(20)]) for j in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(times(log)) == sorted([0.0, 1.0, 2.0, 3.0] * 20)


def test_nothing_is_left_of_what_is_forgotten(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    target, link = tmp_path / "elsewhere" / "real.log", tmp_path / "searches.log"
    link.symlink_to(target)
    log = SearchLog(link, limit=1 << 16)
    for number in range(500):  # also what was dropped at the limit
        log.append([logged(number, (f"secret {number}", "b"))])
    log.append([logged(1), logged(2, ("secret", "b")), logged(3, ("secret",))])
    before = log.read()
    assert b"secret" in target.read_bytes()
    asked = ["query 1", "never asked"]
    secrets = ["secret", *(f"secret {number}" for number in range(500))]
    assert log.forget(queries=asked, ids=secrets) == len(before)
    found = log.read()
    assert [one.ids for one in found] == [["b"]] * (len(before) - 2)
    assert found[-1].scores.tolist() == logged(2, ("secret", "b")).scores[1:].tolist()
    for path in (target, *tmp_path.glob("elsewhere/*")):
        assert b"secret" not in path.read_bytes()
        assert query_hash("query 1").encode() not in path.read_bytes()
    assert log.forget(ids=["secret"]) == 0
    assert link.is_symlink()


def test_a_log_that_was_opened_before_others_forgot_logs_nothing_more(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "searches.log"
    old, other = SearchLog(path), SearchLog(path)
    old.begin()
    other.append([logged(0)])
    began = other.since
    assert other.forget(ids=["a"]) == 1
    with caplog.at_level(logging.WARNING):
        for number in (1, 2):
            old.append([logged(number)])
    assert caplog.text.count("load the index again") == 1
    other.append([logged(3)], since=began)  # of a search that began before
    other.append([logged(4)])  # the item may be there anew
    assert times(SearchLog(path)) == [0.0, 4.0]
    old.forget(ids=["b"])
    old.append([logged(5)])  # it may know the other still
    assert times(SearchLog(path)) == [0.0, 4.0]
    assert old.forgot
