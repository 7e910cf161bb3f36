"""The LRU cache of results for texts, and batches of one length."""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator

import pytest

from crosscut import threads
from crosscut.models.batching import LRUCache


class Maker:
    """Lengths of texts; remembers what it was asked for."""

    def __init__(self) -> None:
        self.asked: list[list[str]] = []

    def __call__(self, texts: list[str]) -> Iterator[int]:
        self.asked.append(list(texts))
        return iter([len(text) for text in texts])


def test_a_text_is_made_once_and_answers_keep_their_order() -> None:
    kept, make = LRUCache[str, int](10), Maker()
    assert kept.of(["aa", "b", "aa", ""], make) == [2, 1, 2, 0]
    assert make.asked == [["aa", "b", ""]]
    assert kept.of(["ccc", "b"], make) == [3, 1]
    assert make.asked[1:] == [["ccc"]]
    assert kept.of([], make) == []
    assert len(make.asked) == 2


def test_what_was_asked_for_last_is_forgotten_last() -> None:
    kept, make = LRUCache[str, int](2), Maker()
    kept.of(["a"], make)
    kept.of(["bb"], make)
    kept.of(["a"], make)  # asked for again: now `bb` is the older one
    kept.of(["ccc"], make)
    assert len(kept) == 2
    kept.of(["a", "ccc"], make)
    assert make.asked == [["a"], ["bb"], ["ccc"]]
    kept.of(["bb"], make)
    assert make.asked[-1] == ["bb"]


def test_more_than_are_kept_may_be_asked_for_at_once() -> None:
    kept, make = LRUCache[str, int](2), Maker()
    many = [("x" * n) for n in range(5)]
    assert kept.of(many, make) == [0, 1, 2, 3, 4]
    assert kept.of(many, make) == [0, 1, 2, 3, 4]  # the rounds of a large batch find all of it
    assert len(make.asked) == 1
    kept.of(["y"], make)
    assert len(kept) == 2  # and a small one lets go of it


def test_what_fails_is_not_kept() -> None:
    kept = LRUCache[str, int](4)

    def fails(texts: list[str]) -> list[int]:
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        kept.of(["a"], fails)
    with pytest.raises(ValueError, match="argument 2 is shorter"):
        kept.of(["a", "b"], lambda texts: [1])
    assert kept.of(["a"], Maker()) == [1]
    assert len(kept) == 1


def test_threads_get_each_its_own() -> None:
    kept, make = LRUCache[str, int](3), Maker()
    wrong: list[str] = []

    def ask(number: int) -> None:
        for turn in range(200):
            text = "x" * ((number + turn) % 7)
            if kept.of([text], make) != [len(text)]:
                wrong.append(text)

    asking = [threading.Thread(target=ask, args=(number,)) for number in range(4)]
    for thread in asking:
        thread.start()
    for thread in asking:
        thread.join()
    assert not wrong
    assert len(kept) <= 3


def test_a_child_process_has_locks_of_its_own() -> None:
    kept = LRUCache[str, int](3)
    kept._lock.__enter__()  # held by another thread at the fork
    threads._renew_locks()
    assert kept.of(["a"], Maker()) == [1]
    del kept
    gc.collect()
    threads._renew_locks()  # what is gone is not looked for
