"""BM25 against bm25s, an independent implementation."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crosscut.encoders.words import STOP_WORDS, WORD, stems
from crosscut.retrievers import BM25
from crosscut.retrievers.filed import FiledBM25
from crosscut.storage import Folder, Kind

WORDS = ["river", "rivers", "bank", "banks", "money", "the", "of", "a", "thinking", "thought", "x1"]
TEXTS = st.lists(st.lists(st.sampled_from(WORDS), max_size=8).map(" ".join), min_size=1, max_size=12)


@settings(deadline=None)
@given(TEXTS, st.lists(st.sampled_from(WORDS), max_size=5).map(" ".join))
def test_it_agrees_with_bm25s(texts: list[str], query: str) -> None:
    bm25s = pytest.importorskip("bm25s")
    ours = BM25(texts)
    tokens = [stems(text) for text in texts]
    asked = [stem for stem in stems(query) if any(stem in each for each in tokens)]
    if not asked:
        assert not ours.scores(query).any()
        return
    theirs = bm25s.BM25(k1=1.2, b=0.75, method="lucene")
    theirs.index(tokens, show_progress=False)
    np.testing.assert_allclose(ours.scores(query), theirs.get_scores(asked), rtol=1e-4, atol=1e-6)


@settings(deadline=None)
@given(TEXTS, TEXTS)
def test_extending_is_building_at_once(first: list[str], second: list[str]) -> None:
    grown, whole = BM25(first).extended(second), BM25(first + second)
    np.testing.assert_allclose(grown.scores("river money thought"), whole.scores("river money thought"))


@settings(deadline=None)
@given(st.lists(TEXTS, min_size=1, max_size=4), st.data())
def test_words_are_those_of_what_is_there_whatever_came_before(several: list[list[str]], data: st.DataObject) -> None:
    filed = FiledBM25(several[0])
    texts, alive = list(several[0]), np.ones(len(several[0]), np.bool_)
    for more in several[1:]:
        gone = data.draw(st.lists(st.integers(0, len(texts) - 1), unique=True))
        new = [place for place in gone if alive[place]]
        alive = alive.copy()
        alive[gone] = False
        filed = filed.among(alive, data.draw(st.sampled_from([None, [texts[place] for place in new]])))
        filed = filed.extended(more)
        texts, alive = texts + more, np.append(alive, np.ones(len(more), np.bool_))
    there = np.flatnonzero(alive)
    whole = BM25([texts[place] for place in there.tolist()])
    for query in ("river money", "thought bank x1"):
        np.testing.assert_allclose(filed.scores(query)[there], whole.scores(query), rtol=1e-5)
        np.testing.assert_allclose(filed.taken(there).scores(query), whole.scores(query), rtol=1e-5)


def test_a_mention_counts_twice_and_marks_are_no_words(tmp_path: Path) -> None:
    bm25 = BM25(["bank [ENT] sloping land", "start to end", "money"])
    marked = bm25.scores("the [START] bank [END] of a river")
    assert marked[0] == pytest.approx(2 * bm25.scores("the bank of a river")[0])
    assert marked[1] == 0
    folder = Folder(tmp_path / "words", Kind("words", "words.json", 1))
    folder.save({}, bm25.write)
    again = folder.load(lambda saved: BM25.read(saved, bm25.n))
    np.testing.assert_array_equal(again.scores("bank"), bm25.scores("bank"))
    assert BM25([]).scores("bank").shape == (0,)
    assert BM25([""]).scores("bank").tolist() == [0.0]


def test_stop_words_are_words() -> None:
    assert all(WORD.fullmatch(word) or len(word) == 1 for word in STOP_WORDS)
