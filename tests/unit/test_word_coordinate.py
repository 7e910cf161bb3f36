"""Words as one more coordinate of the default method: used where they predict scores, harmless where they do not."""

from __future__ import annotations

import numpy as np
import pytest

import crosscut
from crosscut.ann.clustered import Clustered
from crosscut.ann.ivf import IVF
from crosscut.ann.topk import Indexed
from crosscut.errors import InputError
from crosscut.measures import recall
from crosscut.methods import Parts
from crosscut.methods import crosscut as default
from crosscut.methods.weights import FREE
from crosscut.scorers.adapters import MatrixScorer
from crosscut.search.prior import CAUTION, LEVEL, Prior
from crosscut.search.stages import Retriever
from crosscut.searcher import Searcher
from crosscut.spaces.base import Vectors
from crosscut.spaces.cur import CUR
from tests.fake_store import FakeStore


class Counts(Retriever):
    """A retriever whose scores are known beforehand; queries are numbers."""

    def __init__(self, scores: np.ndarray) -> None:
        self.given = scores

    @staticmethod
    def of(parts: Parts) -> np.ndarray:
        assert isinstance(parts.words, Counts)
        return parts.words.given

    def scores(self, query: str) -> np.ndarray:
        return self.given[int(query)].astype(np.float32)


def world(telling: float, n: int = 900, queries: int = 24, seed: int = 0) -> tuple[np.ndarray, Parts, np.ndarray]:
    """Scores in part by the encoder, in part by words that have nothing to do with it."""
    rng = np.random.default_rng(seed)
    vectors = rng.normal(size=(n, 32)) / np.sqrt(32)
    wanted = rng.normal(size=(queries, 32))
    words = np.where(rng.random((queries, n)) < 0.1, rng.gamma(2.0, size=(queries, n)), 0.0)
    scores = wanted @ vectors.T + telling * np.sqrt(words) + 0.1 * rng.normal(size=words.shape)
    return scores, Parts(encoder=Vectors(vectors), words=Counts(words), n=n), wanted + rng.normal(size=wanted.shape)


def found(scores: np.ndarray, parts: Parts, queries: np.ndarray, method: str, budget: int = 60) -> float:
    hits = Searcher(MatrixScorer(scores), method=method, parts=parts).search_many(
        range(len(scores)), 10, budget, query_vectors=queries
    )
    return float(np.mean([recall(row, one.scored, 10) for row, one in zip(scores, hits, strict=True)]))


def test_words_help_where_they_predict_scores_and_are_harmless_elsewhere() -> None:
    scores, parts, queries = world(telling=1.0)
    assert found(scores, parts, queries, "crosscut") > found(scores, parts, queries, "crosscut@words=0") + 0.1
    scores, parts, queries = world(telling=0.0)
    assert found(scores, parts, queries, "crosscut") > found(scores, parts, queries, "crosscut@words=0") - 0.03


def test_beside_anchor_scores_too() -> None:
    scores, parts, queries = world(telling=1.0, queries=48)
    rest = Counts(Counts.of(parts)[24:])
    with_anchors = Parts(encoder=parts.encoder, words=rest, anchors=CUR(scores[:24]), n=parts.n)
    ours, plain = (
        found(scores[24:], with_anchors, queries[24:], method) for method in ("crosscut", "crosscut@words=0")
    )
    assert ours > plain + 0.05


def test_predictions_are_the_ridge_over_vectors_and_words() -> None:
    """Against the closed form: u = (XᵀX + μ I)⁻¹ Xᵀ y over [V / spread ‖ constant ‖ ω φ]."""
    scores, parts, queries = world(telling=1.0, n=200, queries=1)
    assert parts.encoder is not None
    searcher = Searcher(MatrixScorer(scores), method="crosscut@rounds=2,slope=0", parts=parts)
    hits = searcher.search(0, 10, 40, query_vector=queries[0], trace=True)
    first, second = hits.trace
    words = Counts.of(parts)[0]
    vectors = parts.encoder.rows(np.arange(200))
    spread = np.sqrt(((vectors - vectors.mean(axis=0)) ** 2).sum(axis=1).mean())
    space = np.column_stack([vectors / spread, np.full(200, 10 * FREE), np.sqrt(words / words.max())])
    known = space[first.positions]
    u = np.linalg.solve(known.T @ known + default.ALONE * np.eye(space.shape[1]), known.T @ scores[0, first.positions])
    np.testing.assert_allclose(second.estimates, (space @ u)[second.positions], rtol=1e-3)
    left = np.setdiff1d(np.arange(200), first.positions)
    expected = left[np.argsort(-(space @ u)[left], kind="stable")][: len(second.positions)]
    assert set(second.positions) == set(expected.tolist())


def test_predictions_after_learning_are_those_of_the_prior_and_words() -> None:
    """Against a Gaussian process in closed form, with more dimensions than a prior treats separately."""
    rng = np.random.default_rng(0)
    n, d = 150, 60
    vectors, q = rng.normal(size=(n, d)), rng.normal(size=d)
    words = np.where(rng.random(n) < 0.3, rng.gamma(2.0, size=n), 0.0)
    scores = vectors @ rng.normal(size=d) + 3 * np.sqrt(words)
    half = rng.normal(size=(d, d)) / 4
    prior = Prior(rng.normal(size=d), np.zeros(d), 0.5, half @ half.T + np.eye(d), 0.2, 50)
    parts = Parts(encoder=Vectors(vectors), words=Counts(words[None]), prior=prior, n=n)
    hits = Searcher(MatrixScorer(scores[None]), method="crosscut@rounds=2", parts=parts).search(
        0, 10, 40, query_vector=q, trace=True
    )
    first, second = hits.trace
    sigma = prior.floor * np.eye(d) + prior.directions.T @ prior.directions
    apart = vectors - vectors.mean(axis=0)
    spread = np.sqrt(np.mean(np.einsum("nd,de,ne->n", apart, sigma, apart)))
    share = spread * np.sqrt(words / words.max())
    noise = CAUTION * prior.noise
    kernel = vectors @ sigma @ vectors.T + LEVEL * noise + np.outer(share, share)
    expected, seen = vectors @ prior.at(q), first.positions
    dual = np.linalg.solve(kernel[np.ix_(seen, seen)] + noise * np.eye(len(seen)), scores[seen] - expected[seen])
    np.testing.assert_allclose(second.estimates, (expected + kernel[:, seen] @ dual)[second.positions], rtol=1e-5)


def test_a_filter_holds_and_nothing_is_scored_twice() -> None:
    scores, parts, queries = world(telling=1.0)
    allowed = np.arange(0, 900, 3)
    searcher = Searcher(MatrixScorer(scores), method="crosscut", parts=parts)
    for hits in searcher.search_many(range(5), 10, 50, query_vectors=queries[:5], allow=allowed.tolist()):
        assert set(hits.scored.tolist()) <= set(allowed.tolist())
        assert len(set(hits.scored.tolist())) == hits.calls == 50


def test_batches_equal_singles() -> None:
    scores, parts, queries = world(telling=1.0)
    searcher = Searcher(MatrixScorer(scores), method="crosscut", parts=parts)
    together = searcher.search_many(range(6), 10, 50, query_vectors=queries[:6])
    for j, hits in enumerate(together):
        alone = searcher.search(j, 10, 50, query_vector=queries[j])
        assert [hit.id for hit in alone] == [hit.id for hit in hits]


def test_a_query_without_a_shared_word_is_searched_by_vectors() -> None:
    scores, parts, queries = world(telling=0.0, queries=2)
    silent = Parts(encoder=parts.encoder, words=Counts(np.zeros_like(scores)), n=parts.n)
    plain = Parts(encoder=parts.encoder, n=parts.n)
    ours, theirs = (
        Searcher(MatrixScorer(scores), method="crosscut@first=dense", parts=made).search(
            0, 10, 60, query_vector=queries[0]
        )
        for made in (silent, plain)
    )
    assert [hit.id for hit in ours] == [hit.id for hit in theirs]


def test_where_words_cannot_be_read_they_only_choose_round_one(monkeypatch: pytest.MonkeyPatch) -> None:
    scores, parts, queries = world(telling=1.0)
    monkeypatch.setattr(default, "SMALL", 899)
    assert found(scores, parts, queries, "crosscut") == found(scores, parts, queries, "crosscut@words=0")


def test_over_a_store_without_n_nothing_changes() -> None:
    _, parts, _ = world(telling=1.0)
    assert parts.encoder is not None
    store = FakeStore([str(row) for row in range(900)], parts.encoder.rows(np.arange(900)))
    scorer = MatrixScorer(np.zeros((1, 900)))
    searchers = [
        Searcher(scorer, method=f"crosscut@words={words},first=dense", parts=Parts(Indexed(store), words=parts.words))
        for words in (0, 1)
    ]
    ours, plain = (one.search(0, 5, 30, query_vector=np.ones(32)) for one in searchers)
    assert ours.scored.tolist() == plain.scored.tolist()


def test_over_a_clustered_index_words_order_what_it_finds() -> None:
    scores, parts, queries = world(telling=1.0)
    assert parts.encoder is not None
    index = Indexed(Clustered(IVF.build(parts.encoder.rows(np.arange(900)).astype(np.float32), lists=8, rule=8)))
    over = Parts(encoder=index, words=parts.words, n=900)
    flat = found(scores, parts, queries, "crosscut")
    assert abs(found(scores, over, queries, "crosscut") - flat) < 0.03
    assert found(scores, over, queries, "crosscut@words=0") < flat - 0.1


def test_less_than_nothing_is_refused() -> None:
    with pytest.raises(InputError, match=r"0 or more; got -1"):
        crosscut.Index.build(["a b", "b c"], encoder=None, method="crosscut@words=-1")
