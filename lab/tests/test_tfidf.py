"""TF-IDF by scikit-learn: the papers' formula, and a first stage like BM25."""

from __future__ import annotations

import re
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crosscut import Searcher
from crosscut.datasets import Item
from crosscut.errors import InputError
from crosscut_lab.rivals.tfidf import TfIdf

WORDS = ["river", "rivers", "Bank", "money", "the", "a", "x1"]
TEXTS = st.lists(st.lists(st.sampled_from(WORDS), min_size=1, max_size=8).map(" ".join), min_size=1, max_size=12)


def by_hand(texts: list[str], query: str) -> np.ndarray:
    """Cosines of tf · (ln((1 + n) / (1 + df)) + 1), word by word."""
    bags = [Counter(re.findall(r"\w+", text.lower())) for text in texts]
    seen = Counter(word for bag in bags for word in bag)
    weight = {word: np.log((1 + len(texts)) / (1 + count)) + 1 for word, count in seen.items()}

    def vector(bag: Counter[str]) -> dict[str, float]:
        raw = {word: count * weight[word] for word, count in bag.items() if word in weight}
        length = np.sqrt(sum(value**2 for value in raw.values())) or 1.0
        return {word: value / length for word, value in raw.items()}

    asked = vector(Counter(re.findall(r"\w+", query.lower())))
    return np.array([sum(value * asked.get(word, 0.0) for word, value in vector(bag).items()) for bag in bags])


@settings(max_examples=40, deadline=None)
@given(TEXTS, st.lists(st.sampled_from([*WORDS, "unknown"]), max_size=5).map(" ".join))
def test_it_is_the_formula(texts: list[str], query: str) -> None:
    index = TfIdf(texts)
    found = index.scores(query)
    assert (found.shape, found.dtype.name, index.n) == ((len(texts),), "float32", len(texts))
    np.testing.assert_allclose(found, by_hand(texts, query), atol=1e-6)
    best = index.rank([query, query], 3)
    assert best[0].tolist() == best[1].tolist() == np.argsort(-found, kind="stable")[:3].tolist()


def test_titles_count_and_marks_are_no_words() -> None:
    index = TfIdf([Item("1", "Bank", "sloping land"), "start to end", "money [ENT] coins"])
    assert index.scores("the [START] bank [END] of a river").nonzero()[0].tolist() == [0]
    assert not index.scores("ent").any()
    with pytest.raises(InputError, match="the corpus is empty"):
        TfIdf([])
    with pytest.raises(InputError, match="none of the 2 items has a word"):
        TfIdf(["", "…"])


def test_it_is_a_first_stage() -> None:
    texts = ["red cat", "blue dog", "red dog", "green bird"]
    searcher = Searcher(
        lambda query, handles: np.zeros(len(handles)), n=4, words=TfIdf(texts), method="rerank@first=lexical"
    )
    assert searcher.search("red red cat", 2, 2).scored.tolist() == [0, 2]
