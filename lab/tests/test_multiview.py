"""Several vectors per item, and searches within a shortlist."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from tests.worlds import planted

import crosscut
from crosscut.datasets import Item
from crosscut.datasets.records import plain_text
from crosscut.errors import InputError
from crosscut.methods import AXN, Rerank
from crosscut_lab.papers.multiview import MultiView, runs, sentences, views, windows


def test_an_item_is_as_close_as_its_best_view() -> None:
    rng = np.random.default_rng(0)
    counts = rng.integers(1, 5, 30)
    vectors = rng.standard_normal((counts.sum(), 6)).astype(np.float32)
    queries = rng.standard_normal((4, 6))
    owner = np.repeat(np.arange(30), counts)
    made = MultiView(vectors, counts)
    expected = np.array([[max(vectors[owner == i] @ q) for i in range(30)] for q in queries])
    np.testing.assert_allclose(made.scores(queries), expected, rtol=1e-4, atol=1e-5)
    for row, found in zip(expected, made.rank(queries, 7), strict=True):
        assert found.tolist() == np.argsort(-row)[:7].tolist()
    assert (made.n, made.d) == (30, 6)


def test_one_view_each_is_the_dense_retriever() -> None:
    world = planted()
    scorer = crosscut.MatrixScorer(world.test)
    plain = crosscut.Searcher(scorer, vectors=world.vectors, method="axn")
    many = crosscut.Searcher(
        scorer, vectors=world.vectors, method=AXN(first=MultiView(world.vectors, np.ones(world.n)))
    )
    for query in range(3):
        ours, theirs = (
            searcher.search(query, 5, 40, query_vector=world.query_vectors[query]) for searcher in (many, plain)
        )
        assert ours.scored.tolist() == theirs.scored.tolist()


def test_texts_are_cut_under_their_title() -> None:
    assert sentences(" One. Two two!  Three? ") == ["One.", "Two two!", "Three?"]
    assert windows(3, 2)("a b c d e f") == ["a b c", "c d e", "d e f"]
    assert windows(3, 2)("a b") == ["a b"]
    assert windows(3, 2)("") == []
    assert views(Item("7", "bank", "Of a river. Of money."), sentences) == [
        Item("7", "bank", "Of a river. Of money."),
        Item("7", "bank", "Of a river."),
        Item("7", "bank", "Of money."),
    ]
    assert [view.text for view in views("no title. but two", sentences, most=2)] == ["no title. but two", "no title."]
    assert [view.text for view in views("one", sentences)] == ["one"]


def test_encoded_views_find_what_one_vector_blurs() -> None:
    letters = "abcdefgh"

    class Counts:
        def encode_items(self, items: Sequence[Item | str]) -> np.ndarray:
            table = np.array([[plain_text(item).count(letter) for letter in letters] for item in items], np.float32)
            return table / np.maximum(np.linalg.norm(table, axis=1, keepdims=True), 1e-9)

    texts = ["aab bbc. ggg. dde", "gg d. d", "abc"]
    made = MultiView.encode(Counts(), texts)
    assert made.counts.tolist() == [4, 3, 1]
    query = Counts().encode_items(["g"])
    assert made.rank(query, 1)[0].tolist() == [0]
    assert np.argmax(Counts().encode_items(texts) @ query[0]) == 1
    assert "8 views" in repr(made)


def test_refusals() -> None:
    with pytest.raises(InputError, match="sum to 4"):
        MultiView(np.ones((3, 2)), [2, 2])
    with pytest.raises(InputError, match="1 view or more"):
        MultiView(np.ones((3, 2)), [3, 0])
    with pytest.raises(InputError, match="views are floats"):
        MultiView(np.ones((3, 2), int), [3])
    with pytest.raises(InputError, match="leave words out"):
        windows(3, 4)
    made = MultiView(np.ones((3, 2)), [1, 2])
    with pytest.raises(InputError, match="2 dimensions"):
        made.scores(np.ones((1, 3)))
    with pytest.raises(InputError, match="at least 1 view"):
        MultiView.encode(made, ["a"], most=0)  # type: ignore[arg-type]
    world = planted()
    with pytest.raises(InputError, match="2 items and the search has 200"):
        crosscut.Searcher(crosscut.MatrixScorer(world.test), vectors=world.vectors, method=AXN(first=made))
    single = MultiView(world.vectors, np.ones(200))
    searcher = crosscut.Searcher(crosscut.MatrixScorer(world.test), vectors=world.vectors, method=Rerank(first=single))
    with pytest.raises(InputError, match="this query has none"):
        searcher.search(0, 5, 20)


@pytest.mark.parametrize("method", ["adacur", "axn", "tour", "crosscut"])
def test_a_shortlist_bounds_every_round(method: str) -> None:
    world = planted()
    settings: dict[str, Any] = {"first": "dense"} if method != "tour" else {}
    searcher = world.searcher(method, shortlist=60, **settings)
    vectors = world.query_vectors
    top = np.argsort(-(vectors @ world.vectors.T), axis=1)[:, :60]
    for query, hits in enumerate(searcher.search_many(range(6), 10, 40, query_vectors=vectors)):
        assert hits.calls == 40
        assert set(hits.scored) <= set(top[query])
        assert hits.trace[0].positions.tolist() == top[query][: len(hits.trace[0].positions)].tolist()
        alone = searcher.search(query, 10, 40, query_vector=vectors[query])
        assert alone.scored.tolist() == hits.scored.tolist()
    all_of_it = searcher.search(0, 10, 100, query_vector=vectors[0])
    assert (all_of_it.calls, all_of_it.stop_reason) == (60, "exhausted")
    assert set(all_of_it.scored) == set(top[0])
    free, wide = world.searcher(method, **settings), world.searcher(method, shortlist=world.n, **settings)
    assert (
        free.search(1, 10, 40, query_vector=vectors[1]).scored.tolist()
        == wide.search(1, 10, 40, query_vector=vectors[1]).scored.tolist()
    )


def test_a_shortlist_with_filters_given_items_and_none() -> None:
    world = planted()
    searcher = world.searcher("axn", shortlist=30)
    vector = world.query_vectors[0]
    hits = searcher.search(0, 5, 50, query_vector=vector, allow=range(100), candidates=[7, 150, 3])
    assert hits.calls == 30
    assert hits.trace[0].positions[:2].tolist() == [7, 3]
    assert max(hits.scored) < 100
    drawn = world.searcher("adacur", shortlist=30)
    with pytest.raises(InputError, match="draws at random"):
        drawn.search(0, 5, 20)
    assert drawn.search(0, 5, 20, candidates=list(range(30))).calls == 20
    with pytest.raises(InputError, match="at least 1 item; got 0"):
        world.searcher("axn", shortlist=0)
    with pytest.raises(InputError, match="rerank has no setting 'shortlist'"):
        world.searcher("rerank", shortlist=10)


def test_runs_of_sentences_are_merged_views() -> None:
    split = runs(2)
    assert split("One. Two. Three.") == ["One.", "Two.", "Three.", "One. Two.", "Two. Three."]
    assert runs(5)("One. Two.") == ["One.", "Two.", "One. Two."]
    assert split("") == []
    with pytest.raises(InputError, match="hold nothing"):
        runs(0)
