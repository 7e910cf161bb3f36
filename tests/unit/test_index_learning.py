"""An index logs its searches, learns from them, keeps what it learned, and forgets it on request."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from crosscut import Index, TextScorer
from crosscut.datasets.records import Item
from crosscut.errors import CrosscutError, InputError
from crosscut.index.log import SearchLog
from crosscut.types import Progress
from tests.unit.test_prior import N, planted

WORLD = planted(queries=110)
Rows = np.ndarray


class Known:
    """An encoder of texts like `item 3` and `query 7`."""

    fingerprint = "known"
    dimension = WORLD.vectors.shape[1]

    def encode_queries(self, texts: Sequence[str]) -> Rows:
        return WORLD.queries[[int(text.split()[1]) for text in texts]].astype(np.float32)

    def encode_items(self, items: Sequence[Item | str], *, progress: Progress | None = None) -> Rows:
        texts = [item if isinstance(item, str) else item.text for item in items]
        return WORLD.vectors[[int(text.split()[1]) for text in texts]].astype(np.float32)


def score(query: str, texts: Sequence[str]) -> Rows:
    return np.asarray(WORLD.scores[int(query.split()[1]), [int(text.split()[1]) for text in texts]])


def made(fingerprint: str = "planted") -> Index:
    items = [{"id": f"i{j}", "text": f"item {j}"} for j in range(N)]
    scorer = TextScorer(score, fingerprint=fingerprint)
    return Index.build(items, scorer=scorer, encoder=Known(), bm25=False, dtype=np.float32)


QUERIES = [f"query {j}" for j in range(60)]
LATER = [f"query {j}" for j in range(80, 110)]


@pytest.fixture
def taught(tmp_path: Path) -> Index:
    index = made()
    index.keep_log(tmp_path / "searches.log")
    index.search_many(QUERIES, 10, 60)
    return index


def found(index: Index) -> list[list[str]]:
    return [hits.ids for hits in index.search_many(LATER, 10, 30)]


def quality(index: Index) -> float:
    best = [{f"i{j}" for j in np.argsort(-WORLD.scores[int(query.split()[1])])[:10]} for query in LATER]
    return float(np.mean([len(top & set(ids)) / 10 for top, ids in zip(best, found(index), strict=True)]))


def test_searches_are_logged_and_teach(taught: Index, tmp_path: Path) -> None:
    log = SearchLog(tmp_path / "searches.log").read()
    assert len(log) == 60
    assert all(len(search.ids) == 60 for search in log)
    first = log[0]
    assert first.scores.tolist() == pytest.approx([WORLD.scores[0, int(id[1:])] for id in first.ids], rel=1e-6)
    taught.keep_log(None)
    before = quality(taught)
    assert len(SearchLog(tmp_path / "searches.log").read()) == 60  # no more
    taught.keep_log(tmp_path / "searches.log")
    got = taught.learn()
    assert got.prior is not None
    assert got.searches == 60
    taught.keep_log(None)
    assert 1 - quality(taught) < 0.8 * (1 - before)


def test_what_was_learned_is_saved_and_moves_with_its_items(taught: Index, tmp_path: Path) -> None:
    taught.learn()
    taught.keep_log(None)
    taught.remove([f"i{j}" for j in range(5)])
    answer = found(taught)
    taught.save(tmp_path / "my.index")
    again = Index.load(tmp_path / "my.index", scorer=TextScorer(score, fingerprint="planted"), encoder=Known())
    assert again.corpus.prior is not None
    assert len(again.corpus.items) == N - 5
    assert found(again) == answer
    assert Index.verify(tmp_path / "my.index") == []


def test_another_scorers_searches_never_count(taught: Index, tmp_path: Path) -> None:
    other = made("another")
    other.keep_log(tmp_path / "searches.log")
    got = other.learn()
    assert got.searches == 0
    assert got.prior is None


def test_a_log_that_was_begun_anew_takes_nothing_away(taught: Index, tmp_path: Path) -> None:
    assert taught.learn().prior is not None
    taught.keep_log(tmp_path / "new.log")
    taught.search(QUERIES[0], 5, 40)
    got = taught.learn()
    assert got.searches == 1
    assert got.why.endswith("what 60 others taught before stays")
    assert taught.corpus.prior is not None
    assert taught.corpus.prior.searches == 60
    assert taught.log is not None
    taught.log.forget(queries=QUERIES[1:2])  # the prior may contain some of it
    assert taught.learn().prior is None
    assert taught.corpus.prior is None


def test_what_is_forgotten_is_not_remembered_by_what_was_learned(taught: Index, tmp_path: Path) -> None:
    taught.learn()
    assert taught.forget_queries(QUERIES[:1]) == 1
    assert taught.corpus.prior is not None
    assert taught.corpus.prior.searches == 59
    taught.forget(["i7"])
    assert not any("i7" in search.ids for search in SearchLog(tmp_path / "searches.log").read())
    assert taught.forget_queries(QUERIES[1:40]) == 39  # 20 are left: too few
    assert taught.corpus.prior is None
    taught.keep_log(None)
    with pytest.raises(InputError, match="keep_log"):
        taught.learn()


def test_without_its_log_what_was_learned_is_given_up_with_an_item(taught: Index) -> None:
    taught.learn()
    taught.keep_log(None)
    taught.forget(["i7"])
    assert taught.corpus.prior is None


def test_an_index_learns_by_itself(tmp_path: Path) -> None:
    index = made()
    index.keep_log(tmp_path / "searches.log", learn_every=50)
    index.search_many(QUERIES[:30], 10, 60)
    assert index._learner is None
    index.search_many(QUERIES[30:], 10, 60)
    assert index._learner is not None
    index._learner.join(60)
    assert index.corpus.prior is not None
    with pytest.raises(InputError, match="learn_every must be at least 1; got 0"):
        index.keep_log(tmp_path / "searches.log", learn_every=0)


def test_a_log_is_refused_at_once_where_it_cannot_be(tmp_path: Path) -> None:
    index = made()
    notes = tmp_path / "notes.txt"
    notes.write_text("my notes\n")
    for path, said in (
        (notes, "is no log of searches"),
        (tmp_path, "is no log of searches"),
        ("", "is a file, such as 'searches.log'; got ''"),
        (notes / "searches.log", "writing to .* failed"),
    ):
        with pytest.raises(CrosscutError, match=said):
            index.keep_log(path)
        assert index.log is None
    index.search(QUERIES[0], 5, 40)
    assert notes.read_text() == "my notes\n"
    empty = tmp_path / "empty.log"
    empty.touch()
    index.keep_log(empty)
    index.search_many(QUERIES[:2], 5, 40)
    assert len(SearchLog(empty).read()) == 2
