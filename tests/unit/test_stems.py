"""Inflected forms share a key, different words do not."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crosscut.encoders.stems import stem, stem_keys


@pytest.mark.parametrize(
    "forms",
    [
        "love loves loved loving",
        "hop hops hopped hopping",
        "hope hopes hoped hoping",
        "carry carries carried carrying",
        "control controls controlled controlling",
        "fill fills filled filling",
        "pass passes passed passing",
        "use uses used using",
        "dance dances danced dancing",
        "activity activities",
        "box boxes",
    ],
)
def test_forms_of_one_word(forms: str) -> None:
    assert len({stem(form) for form in forms.split()}) == 1


def test_different_words_stay_apart() -> None:
    words = ("love", "hop", "hope", "star", "stare", "file", "fill", "control", "bus", "boss", "thing", "1990s", "été")
    assert len({stem(word) for word in words}) == len(words)


@given(st.text(max_size=12))
def test_any_text_has_a_stem(word: str) -> None:
    assert bool(stem(word)) == bool(word)


def test_keys_are_ids_of_the_first_form_and_pieces_keep_their_own() -> None:
    vocabulary = {"[CLS]": 0, "loved": 1, "love": 2, "##s": 3, "##ed": 4, "sea": 5, "loves": 6}
    assert stem_keys(vocabulary, 8).tolist() == [0, 1, 1, 3, 4, 5, 1, 7]
