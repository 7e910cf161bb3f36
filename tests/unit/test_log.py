"""The log of past searches: whole records or none, bounded, and what is forgotten is gone."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from crosscut.errors import InputError
from crosscut.index.log import Logged, SearchLog, query_hash


def logged(number: int, ids: tuple[str, ...] = ("a", "b", "ü\n")) -> Logged:
    rng = np.random.default_rng(number)
    vector, scores = rng.normal(size=4).astype(np.float32), rng.normal(size=len(ids)).astype(np.float32)
    return Logged(query_hash(f"query {number}"), "scorer", float(number), list(ids), vector, scores)


def same(one: Logged, other: Logged) -> bool:
    return (
        one[:4] == other[:4] and np.array_equal(one.vector, other.vector) and np.array_equal(one.scores, other.scores)
    )


def test_what_is_appended_is_read(tmp_path: Path) -> None:
    log = SearchLog(tmp_path / "past" / "searches.log")
    assert log.read() == []
    log.append([logged(0), logged(1)])
    SearchLog(log.path).append([logged(2)])
    log.append([])
    assert all(same(found, logged(j)) for j, found in enumerate(log.read()))
    assert len(log.read()) == 3


@pytest.mark.parametrize("cut", [1, 10, 17, 60])
def test_a_torn_record_is_passed_over_and_the_next_is_not(tmp_path: Path, cut: int) -> None:
    log = SearchLog(tmp_path / "searches.log")
    log.append([logged(0), logged(1)])
    log.path.write_bytes(log.path.read_bytes()[:-cut])
    assert [found.time for found in log.read()] == [0.0]
    log.append([logged(2)])
    assert [found.time for found in log.read()] == [0.0, 2.0]


def test_every_damaged_byte_costs_one_record(tmp_path: Path) -> None:
    log = SearchLog(tmp_path / "searches.log")
    log.append([logged(0), logged(1), logged(2)])
    whole = log.path.read_bytes()
    third = len(whole) // 3
    for place in range(third, 2 * third):
        log.path.write_bytes(whole[:place] + bytes([whole[place] ^ 0xFF]) + whole[place + 1 :])
        assert [found.time for found in log.read()] == [0.0, 2.0]


def test_the_log_is_bounded_and_the_newest_stay(tmp_path: Path) -> None:
    log = SearchLog(tmp_path / "searches.log", limit=4096)
    for number in range(100):
        log.append([logged(number)])
        assert log.path.stat().st_size <= 4096
    times = [found.time for found in log.read()]
    assert times == [float(number) for number in range(100 - len(times), 100)]
    assert len(times) > 5
    with pytest.raises(InputError, match="at least 4096 bytes; got 10"):
        SearchLog(log.path, limit=10)


def test_what_is_forgotten_is_gone_from_the_file(tmp_path: Path) -> None:
    log = SearchLog(tmp_path / "searches.log")
    log.append([logged(0), logged(1), logged(2, ("secret", "b")), logged(3, ("secret",))])
    assert b"query 1" not in log.path.read_bytes()  # never the text
    assert log.forget(queries=["query 1", "never asked"], ids=["secret"]) == 3
    found = log.read()
    assert [one.time for one in found] == [0.0, 2.0]
    assert found[1].ids == ["b"]
    assert found[1].scores.tolist() == logged(2, ("secret", "b")).scores[1:].tolist()
    assert b"secret" not in log.path.read_bytes()
    assert query_hash("query 1").encode() not in log.path.read_bytes()
    assert log.forget(ids=["secret"]) == 0
