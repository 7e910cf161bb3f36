"""Whether a mention names an item."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crosscut.bundled.title_match import LONGEST, Titles
from crosscut.datasets.records import Item


def named(mention: str, *items: Item | str) -> list[float]:
    found: list[float] = Titles.of(items).match(mention).tolist()
    return found


def test_a_name_is_shared_words_over_all_words() -> None:
    assert named("bank", "bank [ENT] sloping land", "central bank [ENT] issues money", "river [ENT] a bank") == [
        1.0,
        pytest.approx(2 / 3),
        0.0,
    ]
    assert named("Central Banks", Item("1", "the central bank", "of a country")) == [pytest.approx(4 / 5)]


def test_parts_and_text_outside_of_brackets_are_names() -> None:
    assert named("autos", "car, auto; motorcar [ENT] four wheels") == [1.0]
    assert named("mercury", "Mercury (planet) [ENT] nearest the sun") == [1.0]
    assert named("mercury planet", "Mercury (planet) [ENT] nearest the sun") == [1.0]


def test_words_that_are_common_or_short_are_names_too() -> None:
    assert named("The Who", "The Who [ENT] a band", "who [ENT] a pronoun") == [1.0, pytest.approx(2 / 3)]
    assert named("if", "if…else [ENT] a statement", "if [ENT] a word") == [pytest.approx(2 / 3), 1.0]
    assert named("C", "C [ENT] a language") == [1.0]


def test_without_a_title_a_short_text_is_the_name() -> None:
    long = "bank " + " ".join(f"word{number}" for number in range(LONGEST))
    assert named("bank", "bank", long, "", Item("1", "bank", ""), "!!! [ENT] ???") == [1.0, 0.0, 0.0, 1.0, 0.0]
    assert named("bank", "bank " * 1000) == [0.0]  # it is not read
    assert named("", "bank", "") == [0.0, 0.0]
    assert named("!!!", "!!! [ENT] bank") == [0.0]
    assert named("bank") == []


WORDS = st.lists(st.sampled_from(["red", "big", "dog", "dogs", "a", "x1"]), max_size=4).map(" ".join)
TITLES = st.lists(WORDS, max_size=3).map(", ".join)


@given(st.lists(TITLES, max_size=8), WORDS, st.data())
def test_it_is_what_a_plain_loop_finds(titles: list[str], mention: str, data: st.DataObject) -> None:
    def words(text: str) -> set[str]:
        return {"dog" if word == "dogs" else word for word in text.replace(",", " ").split()}

    def dice(name: str) -> float:
        ours, theirs = words(mention), words(name)
        return 2 * len(ours & theirs) / (len(ours) + len(theirs)) if ours and theirs else 0.0

    expected = [max(map(dice, [title, *title.split(",")])) for title in titles]
    texts = [f"{title} [ENT] text" if title.strip(", ") else title for title in titles]
    made = Titles.of(texts)
    np.testing.assert_allclose(made.match(mention), expected)
    some = np.asarray(
        data.draw(st.lists(st.sampled_from(range(len(texts))), max_size=6) if texts else st.just([])), int
    )
    np.testing.assert_array_equal(made.taken(some).match(mention), made.match(mention)[some])
