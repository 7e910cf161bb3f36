"""BM25 over segments, against bm25s, an independent implementation."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crosscut.errors import InputError
from crosscut.retrieval import bm25
from crosscut.retrieval.bm25 import BM25, Postings, stems, term_of

WORDS = ["river", "rivers", "bank", "banks", "money", "the", "of", "a", "thinking", "thought", "x1"]
TEXTS = st.lists(st.lists(st.sampled_from(WORDS), max_size=8).map(" ".join), min_size=1, max_size=12)
QUERIES = ("river money", "thought bank x1", "x1", "the zebra")


@settings(deadline=None)
@given(TEXTS, st.lists(st.sampled_from(WORDS), max_size=5).map(" ".join))
def test_scores_agree_with_bm25s(texts: list[str], query: str) -> None:
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
@given(st.lists(TEXTS, min_size=1, max_size=4), st.data())
def test_segments_and_removed_items_score_like_a_new_build(several: list[list[str]], data: st.DataObject) -> None:
    texts = [text for each in several for text in each]
    alive = np.array(data.draw(st.lists(st.booleans(), min_size=len(texts), max_size=len(texts))), np.bool_)
    segments = [Postings.count(each) for each in several]
    grown, stay = BM25.over(segments, alive), np.flatnonzero(alive)
    built = BM25([texts[place] for place in stay.tolist()])
    order = np.array(data.draw(st.permutations(stay.tolist())), np.int64)
    joined = BM25.over([Postings.join(segments, order)])
    assert set(joined.segments[0].terms.tolist()) == set(built.segments[0].terms.tolist())
    for query in QUERIES:
        np.testing.assert_allclose(grown.scores(query)[stay], built.scores(query), rtol=1e-6)
        np.testing.assert_allclose(joined.scores(query), grown.scores(query)[order], rtol=1e-6)
        assert not grown.scores(query)[~alive].any()
        np.testing.assert_array_equal(grown.top(query, 5), stay[built.top(query, 5)])


def test_the_best_of_the_allowed_items_come_in_order_of_score_then_of_position() -> None:
    texts = ["bank"] * 3 + ["river bank"] * 2 + ["sea"] * 400 + ["river river"]
    bm25 = BM25(texts)
    for query in ("river bank", "bank sea", "sea", "zebra"):
        scores = bm25.scores(query)
        every = np.lexsort((np.arange(len(texts)), -scores))
        every = every[scores[every] > 0]
        np.testing.assert_array_equal(bm25.top(query, 7), every[:7])
        np.testing.assert_array_equal(bm25.top(query, 7, exclude=every[1:3]), every[~np.isin(every, every[1:3])][:7])
        within = np.array([1, 4, 200, 405])
        np.testing.assert_array_equal(bm25.top(query, 7, within=within), every[np.isin(every, within)])


def test_a_marked_mention_counts_twice_and_marks_are_no_words() -> None:
    bm25 = BM25(["bank [ENT] sloping land", "start to end", "money"])
    marked = bm25.scores("the [START] bank [END] of a river")
    assert marked[0] == pytest.approx(2 * bm25.scores("the bank of a river")[0])
    assert marked[1] == 0


def test_texts_without_words_score_nothing() -> None:
    assert BM25([]).scores("bank").shape == (0,)
    assert BM25([""]).scores("bank").tolist() == [0.0]
    assert BM25([]).top("bank", 3).tolist() == []


def test_a_word_is_counted_at_most_255_times() -> None:
    postings = Postings.count(["bank " * 1000])
    assert (postings.counts.tolist(), postings.lengths.tolist()) == ([255], [1000])


def test_damaged_postings_are_refused_or_harmless() -> None:
    postings = Postings.count(["bank of a river", "money"])
    with pytest.raises(InputError, match="do not divide"):
        Postings(postings.terms, postings.starts[:-1], postings.items, postings.counts, postings.lengths)
    items = postings.items.copy()
    items[:] = 1 << 20  # positions that are not there
    bad = Postings(postings.terms, postings.starts, items, postings.counts, postings.lengths)
    assert BM25.over([bad]).scores("bank").tolist() == [0.0, 0.0]
    assert bad.of_term(np.uint64(term_of("zebra"))) == slice(0, 0)


def test_terms_of_few_and_of_many_items_score_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    index = BM25([" ".join(rng.choice(["salt", "ice", "sea", "river"], size)) for size in rng.integers(1, 300, 500)])
    few = index.scores("salt river ice")
    monkeypatch.setattr(bm25, "FEW", 0)
    assert np.array_equal(index.scores("salt river ice"), few)
