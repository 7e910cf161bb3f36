"""The bundled model: base scores of items without a call, in a scorer, an index and its folder."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from crosscut.bundled.base_scores import BaseScorer
from crosscut.bundled.encoder import BundledEncoder
from crosscut.bundled.lexical import Lexicon
from crosscut.bundled.model_dir import ModelDir, default_dir
from crosscut.datasets.records import Item, ItemList, plain_text
from crosscut.errors import InputError
from crosscut.index import Index
from crosscut.retrieval.bm25 import BM25
from crosscut.scorers.base import BoundScorer

ITEMS = [
    Item("bread", "", "a bread box keeps loaves from drying out"),
    Item("stale", "", "bread goes stale as its starch recrystallises"),
    Item("bank1", "bank", "sloping land beside a body of water"),
    Item("bank2", "bank, banking concern", "a financial institution that accepts deposits"),
    Item("penguin", "penguin", "short-legged flightless birds of cold southern regions"),
    Item("empty", "", ""),
]
QUERIES = [
    "what keeps bread fresh",
    "he cashed a check at the [START] bank [END]",
    "birds that cannot fly",
    "",
    "the of",
]


@pytest.fixture(scope="module")
def scorer() -> BaseScorer:
    return BaseScorer.load()


def test_the_best_answer_scores_highest(scorer: BaseScorer) -> None:
    assert np.argmax(scorer.score(QUERIES[0], ITEMS)) == 0
    assert np.argmax(scorer.score(QUERIES[1], ITEMS)) == 3
    assert np.argmax(scorer.score("they pulled the canoe up on the [START] bank [END] of the stream", ITEMS)) == 2
    assert np.argmax(scorer.score(QUERIES[2], ITEMS)) == 4


def test_every_score_is_known_without_a_call(scorer: BaseScorer) -> None:
    bound = scorer.bind(ITEMS)
    assert bound.free
    assert bound.has_base_scores
    for query, every in zip(QUERIES, bound.base_scores_many(QUERIES), strict=True):
        assert np.isfinite(every).all()
        np.testing.assert_array_equal(bound.base_scores(query), every)
        np.testing.assert_allclose(bound.score(query, np.arange(len(ITEMS))), every, atol=1e-4)


def test_a_score_depends_on_the_pair_alone(scorer: BaseScorer) -> None:
    bound = scorer.bind(ITEMS)
    bound.base_scores(QUERIES[0])
    for query in QUERIES:
        together = bound.base_scores(query, np.array([4, 0, 0, 3]))
        alone = [bound.base_scores(query, np.array([place]))[0] for place in (4, 0, 0, 3)]
        assert together.tolist() == alone
        np.testing.assert_allclose(scorer.bind(ITEMS[3:]).base_scores(query, np.array([1])), together[:1], atol=1e-4)


def test_vectors_and_words_of_an_index_take_the_place_of_reading(
    scorer: BaseScorer, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = BM25(ITEMS)
    fitted = scorer.fitted(words)
    vectors = fitted.precompute(ITEMS)
    expected = fitted.bind(ITEMS).base_scores(QUERIES[1])
    monkeypatch.setattr(BundledEncoder, "encode_items", None)
    found = fitted.bind(ItemList(ITEMS), vectors.astype(np.float16), words).base_scores(QUERIES[1])
    np.testing.assert_allclose(found, expected, atol=1e-4)


def test_statistics_of_a_corpus_are_part_of_the_fingerprint_and_can_be_saved(scorer: BaseScorer) -> None:
    assert scorer.statistics == {}
    fitted = scorer.fitted(BM25(ITEMS))
    other = scorer.fitted(BM25(ITEMS[:2]))
    assert len({scorer.fingerprint, fitted.fingerprint, other.fingerprint}) == 3
    again = scorer.with_statistics(fitted.statistics)
    assert again.fingerprint == fitted.fingerprint
    assert again.score(QUERIES[0], ITEMS).tolist() == fitted.score(QUERIES[0], ITEMS).tolist()
    assert fitted.with_statistics({}).fingerprint == scorer.fingerprint
    assert (
        BaseScorer.load(lexicon=Lexicon.counted(BM25(["a text"]).segments)).fitted(BM25(ITEMS)).lexicon.documents == 1
    )


def test_a_search_makes_no_call_and_says_so(tmp_path: Path) -> None:
    index = Index.build(ITEMS)
    scorer = index.corpus.scorer
    assert scorer is not None
    expected = np.argsort(-scorer.base_scores(QUERIES[0]), kind="stable")[:3]
    for method in (None, "axn", "exact"):
        hits = index.search(QUERIES[0], k=3, budget=2 if method != "exact" else None, method=method)
        assert hits.calls == 0
        assert hits.stop_reason == "base scores"
        assert hits.note is not None
        assert "pip install crosscut-judge" in hits.note
        assert "no call was made" in str(hits)
    assert index.search(QUERIES[0], k=3).ids == [ITEMS[place].id for place in expected]
    with pytest.raises(InputError, match="unknown method"):
        index.search(QUERIES[0], method="nonsense")


def test_an_index_grows_saves_and_loads_with_the_same_scores(tmp_path: Path) -> None:
    index = Index.build(ITEMS[:4])
    before = index.search(QUERIES[0], k=4)
    assert index.scorer is not None
    name = index.scorer.fingerprint
    index.add(ITEMS[4:])
    assert index.scorer.fingerprint == name
    assert index.search(QUERIES[2], k=1).ids == ["penguin"]
    found = {hit.id: hit.score for hit in index.search(QUERIES[0], k=6)}
    assert [found[hit.id] for hit in before] == pytest.approx(before.scores.tolist(), abs=1e-5)
    index.remove(["stale"])
    index.save(tmp_path / "i")
    assert Index.verify(tmp_path / "i") == []
    again = Index.load(tmp_path / "i")
    assert again.scorer is not None
    assert again.scorer.fingerprint == name
    for query in QUERIES[:3]:
        assert again.search(query, k=5).ids == index.search(query, k=5).ids
    again.add([Item("new", "", "fresh bread")])
    assert "new" in again.search(QUERIES[0], k=3).ids


class Letters:
    """An encoder of one's own: counts of letters."""

    fingerprint, dimension = "letters", 3

    def encode_queries(self, texts: list[str]) -> np.ndarray:
        return np.array([[text.count(letter) for letter in "aeb"] for text in texts], np.float32)

    def encode_items(self, items: list[Item], *, progress: object = None) -> np.ndarray:
        return self.encode_queries([plain_text(item) for item in items])


def test_beside_another_encoder_the_index_keeps_vectors_of_the_scorer(tmp_path: Path) -> None:
    index = Index.build(ITEMS[:5], encoder=Letters())
    expected = Index.build(ITEMS[:5]).search(QUERIES[0], k=5)
    index.save(tmp_path / "i")
    again = Index.load(tmp_path / "i", encoder=Letters())
    for one in (index, again):
        assert one.search(QUERIES[0], k=5).ids == expected.ids
    again.add(ITEMS[5:])
    assert len(again.search(QUERIES[0], k=6)) == 6


def test_a_scorer_of_ones_own_can_be_free() -> None:
    class Lengths(BoundScorer):
        has_base_scores = free = True
        n_items = 5

        def base_scores(self, query: object, handles: object = None) -> np.ndarray:
            return np.asarray(np.arange(5) if handles is None else handles, np.float64)

        def score_many(self, requests: object, **how: object) -> list[object]:
            raise AssertionError("no call is made")

    class Own:
        fingerprint = "own"

        def bind(self, items: object) -> BoundScorer:
            return Lengths()

        def score(self, query: str, items: object) -> np.ndarray:
            raise AssertionError("no call is made")

    hits = Index.build(["a", "b", "c", "d", "e"], scorer=Own(), encoder=None, method="rerank").search("q", k=2)
    assert (hits.scores.tolist(), hits.calls, hits.note) == ([4.0, 3.0], 0, None)


def test_vectors_do_not_depend_on_batch_mates() -> None:
    encoder = BundledEncoder.load()
    together = encoder.encode_items(ITEMS)
    assert together.shape == (len(ITEMS), encoder.dimension)
    np.testing.assert_allclose(np.linalg.norm(together, axis=1), 1, atol=1e-5)
    alone = np.concatenate([encoder.encode_items([item]) for item in ITEMS])
    np.testing.assert_allclose(together, alone, atol=1e-5)
    asked = BundledEncoder.load(threads=1).encode_queries(QUERIES)
    assert (asked == np.concatenate([encoder.encode_queries([query]) for query in QUERIES])).all()


def test_titles_and_marks_mean_the_same() -> None:
    encoder = BundledEncoder.load()
    titled, marked = Item("a", "river", "a bank"), "river [ENT] a bank"
    np.testing.assert_array_equal(encoder.encode_items([titled]), encoder.encode_items([marked]))


@pytest.mark.parametrize(
    ("name", "content", "match"),
    [
        ("config.json", "{}", "not the configuration"),
        ("config.json", json.dumps({"format": 4, "query_tokens": 64, "item_tokens": 64}), "has format 4"),
        ("weights.json", "[]", "no weights"),
        ("lexicon.json", "{}", "no readable lexicon"),
        ("tokenizer.json", "{", "not a tokenizer.json"),
        ("dual.onnx", "x", "not a readable ONNX model"),
    ],
)
def test_a_damaged_model_is_refused_in_a_sentence(tmp_path: Path, name: str, content: str, match: str) -> None:
    folder = tmp_path / "model"
    shutil.copytree(default_dir(), folder)
    (folder / name).write_text(content)
    with pytest.raises(InputError, match=match):
        BaseScorer.load(folder).score("query", ["a text"])


def test_missing_files_and_wrong_settings(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="there is no crosscut model"):
        ModelDir(tmp_path)
    with pytest.raises(InputError, match="0 threads"):
        ModelDir(threads=0)
    shutil.copytree(default_dir(), tmp_path / "model")
    (tmp_path / "model" / "dual.onnx").unlink()
    with pytest.raises(InputError, match=r"has no dual\.onnx"):
        BaseScorer.load(tmp_path / "model")


def test_the_model_is_small() -> None:
    assert sum(path.stat().st_size for path in default_dir().iterdir()) <= 26e6
