"""A scorer that knows part of its score without a call: f = g + costly, and the loop regresses the rest."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import crosscut
from crosscut.ann import clustered
from crosscut.ann.baseline import OfCandidates
from crosscut.ann.ivf import IVF
from crosscut.ann.linear import topk_of
from crosscut.ann.topk import Ask, Found, Indexed
from crosscut.datasets import Item, Items
from crosscut.evaluation.evaluate import no_call_baselines
from crosscut.scorers.base import BoundScorer, Request, Scorer, ScoreResult
from crosscut.search.stopping import Confident
from crosscut.types import Floats, Handles
from tests.fake_store import FakeStore, MemoryStore
from tests.worlds import Planted, planted


class Corrected(BoundScorer):
    """f = g + c: g rough and known everywhere, c a small correction that takes a call."""

    has_base_scores = True

    def __init__(self, known: np.ndarray, costly: np.ndarray) -> None:
        self.base, self.costly = known, costly
        self.n_items = known.shape[1]

    def base_scores(self, query: Any, handles: Handles | None = None) -> Floats:
        return self.base[query].copy() if handles is None else self.base[query, handles]

    def score_many(self, requests: Sequence[Request]) -> list[ScoreResult]:
        return [ScoreResult.of(self.base[query, handles] + self.costly[query, handles]) for query, handles in requests]


@pytest.fixture
def corrected() -> tuple[Planted, Corrected]:
    world = planted(n=1500, queries=30, rank=8)
    rough = np.random.default_rng(5).normal(size=world.test.shape)
    return world, Corrected(6 * rough, world.test)  # most of f is g, and no vector predicts g


def recall(scorer: Corrected, found: list[crosscut.Hits], k: int) -> float:
    truth = np.argsort(-(scorer.base + scorer.costly), axis=1, kind="stable")[:, :k]
    return float(np.mean([len({*hits.ids} & {*row.tolist()}) / k for hits, row in zip(found, truth, strict=True)]))


def searched(scorer: Any, world: Planted, budget: int, **how: Any) -> list[crosscut.Hits]:
    searcher = crosscut.Searcher(scorer, vectors=how.pop("vectors", world.vectors), **how.pop("made", {}))
    return searcher.search_many(range(30), 10, budget, query_vectors=world.query_vectors, **how)


def test_round_one_takes_what_is_known_and_the_rest_is_a_correction(corrected: tuple[Planted, Corrected]) -> None:
    world, scorer = corrected
    found = searched(scorer, world, 40)
    for query, hits in enumerate(found):
        most = np.argsort(-scorer.base[query], kind="stable")[:4]
        assert hits.trace[0].positions.tolist() == most.tolist()
        assert hits.trace[0].estimates.tolist() == scorer.base[query, most].tolist()
    black_box = crosscut.MatrixScorer(scorer.base + scorer.costly)
    assert recall(scorer, found, 10) > 0.9
    assert recall(scorer, found, 10) > recall(scorer, searched(black_box, world, 40), 10) + 0.3


def test_it_beats_reranking_by_what_is_known(corrected: tuple[Planted, Corrected]) -> None:
    world, scorer = corrected
    first = [np.argsort(-row, kind="stable")[:30].tolist() for row in scorer.base]
    reranked = searched(scorer, world, 30, candidates=first, made={"method": "rerank"})
    assert recall(scorer, searched(scorer, world, 30), 10) > recall(scorer, reranked, 10)


def test_the_papers_methods_see_a_black_box(corrected: tuple[Planted, Corrected]) -> None:
    world, scorer = corrected
    black_box = crosscut.MatrixScorer(scorer.base + scorer.costly)
    mine, theirs = (searched(s, world, 40, made={"method": "axn"}) for s in (scorer, black_box))
    assert [hits.scored.tolist() for hits in mine] == [hits.scored.tolist() for hits in theirs]


def test_over_an_index_base_scores_order_a_pool(
    corrected: tuple[Planted, Corrected], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(clustered, "SMALL", 0)
    world, scorer = corrected
    index = IVF.build(world.vectors, lists=20, rule=20)
    assert (
        recall(scorer, searched(scorer, world, 40, vectors=index), 10)
        > recall(scorer, searched(scorer, world, 40), 10) - 0.03
    )


def test_filters_hold(corrected: tuple[Planted, Corrected]) -> None:
    world, scorer = corrected
    for hits in searched(scorer, world, 40, allow=np.arange(0, 1500, 3)):
        assert (hits.scored % 3 == 0).all()
        assert hits.calls == 40


def test_it_stops_when_the_next_items_would_not_change_the_top(corrected: tuple[Planted, Corrected]) -> None:
    world, scorer = corrected
    whole = searched(scorer, world, 200, made={"method": "crosscut@rounds=20"})
    early = searched(scorer, world, 200, made={"method": "crosscut@rounds=20"}, stop="confident")
    assert all(hits.stop_reason in ("confident", "budget") for hits in early)
    assert np.mean([hits.calls for hits in early]) < 120
    assert recall(scorer, early, 10) > recall(scorer, whole, 10) - 0.03
    careful = searched(scorer, world, 200, made={"method": "crosscut@rounds=20"}, stop=Confident(misses=1e-4))
    assert np.mean([h.calls for h in careful]) > np.mean([h.calls for h in early])


class Shared(Scorer):
    """Base scores are shared words, a call adds the length of the item. The number of items is never passed."""

    fingerprint = "shared-1"

    def __init__(self) -> None:
        self.asked: list[int] = []

    def bind(self, items: Items) -> Any:
        asked = self.asked

        class Bound:
            has_base_scores = True

            def base_scores(self, query: str, handles: Handles) -> list[int]:
                asked.append(len(handles))
                return [3 * len({*query.split()} & {*item.text.split()}) for item in items.get(handles)]

            def score_many(self, requests: Sequence[Request]) -> list[np.ndarray]:
                return [
                    np.array(self.base_scores(query, handles)) + [len(item.text) % 7 / 7 for item in items.get(handles)]
                    for query, handles in requests
                ]

        return Bound()


def shelf(n: int, start: int = 0) -> list[Item]:
    kinds = ["river", "bank", "music", "crane", "idea"]
    return [Item(str(j), "", f"{kinds[j % 5]} {kinds[j // 5 % 5]} {'x' * (j % 11)}") for j in range(start, start + n)]


def test_a_scorer_of_ones_own_knows_a_part_of_every_item_of_an_index(tmp_path: Path) -> None:
    scorer = Shared()
    vectors = np.random.default_rng(0).normal(size=(220, 8)).astype(np.float32)
    index = crosscut.Index.build(shelf(200), scorer=scorer, encoder=None, vectors=vectors[:200])
    hits = index.search("river music", k=3, budget=100, query_vector=vectors[0])
    assert scorer.asked[0] == 200
    assert (hits.stop_reason, hits.calls < 100) == ("confident", True)
    assert hits.ids == index.search("river music", k=3, method="exact").ids
    index.add(shelf(20, 200), vectors=vectors[200:])
    index.remove(["0"])
    del scorer.asked[:]
    index.search("river music", k=3, budget=100, query_vector=vectors[0])
    assert scorer.asked[0] == 220
    index.save(tmp_path / "i")
    again = crosscut.Index.load(tmp_path / "i", scorer=Shared())
    assert again.search("river music", k=3, budget=100, query_vector=vectors[0]).stop_reason == "confident"
    judged = {"q": {"16": 1.0}}
    assert "base scores" in [made.method for made in no_call_baselines(index, {"q": "river music"}, judged)]


@pytest.mark.parametrize(
    ("known", "message"),
    [
        (lambda handles: [0.0], "one number per item"),
        (lambda handles: np.full(len(handles), np.nan), "NaN or an infinity"),
        (lambda handles: ["much"] * len(handles), "base scores of 1,500 items failed"),
        (lambda handles: handles.nowhere, "base scores of 1,500 items failed"),
    ],
)
def test_what_is_known_is_looked_at_before_a_call(
    corrected: tuple[Planted, Corrected], known: Callable[[Handles], Any], message: str
) -> None:
    world, _ = corrected

    class Wrong:
        has_base_scores = True

        def base_scores(self, query: Any, handles: Handles) -> Any:
            return known(handles)

        def score_many(self, requests: Sequence[Request]) -> Any:
            raise AssertionError("nothing is paid for")

    with pytest.raises(crosscut.ScorerError, match=message) as caught:
        searched(Wrong(), world, 40)
    assert caught.value.calls == 0


def test_over_a_store_what_is_known_is_read_of_candidates() -> None:
    scorer = Shared()
    index = crosscut.Index.over(
        MemoryStore(shelf(500), np.random.default_rng(0).normal(size=(500, 8))), scorer=scorer, encoder=None
    )
    hits = index.search("river music", k=3, budget=30, query_vector=np.ones(8))
    assert hits.stop_reason == "confident"
    assert hits.calls < 30
    assert sum(scorer.asked) < 300  # of 500 items
    first = hits.trace[0]
    assert np.isfinite(first.estimates).all()  # what is known of them
    assert (np.diff(first.estimates) <= 0).all()


class ThroughStore(BoundScorer):
    """A scorer of rows, over a store that gives them handles."""

    has_base_scores = True

    def __init__(self, scorer: Corrected, store: FakeStore) -> None:
        self.scorer, self.store, self.read = scorer, store, 0

    def base_scores(self, query: Any, handles: Handles | None = None) -> Floats:
        assert handles is not None
        self.read += len(handles)
        return self.scorer.base_scores(query, np.array([self.store.seen[handle] for handle in handles], np.int64))

    def score_many(self, requests: Sequence[Request]) -> list[ScoreResult]:
        rows = [(query, np.array([self.store.seen[h] for h in handles], np.int64)) for query, handles in requests]
        return self.scorer.score_many(rows)


@pytest.mark.parametrize("linear", [True, False])
def test_over_a_store_candidates_are_corrected(linear: bool) -> None:
    """Of what is known, the part that is linear in the vectors goes into the question, the rest orders its answer."""
    world = planted(n=1500, queries=30, rank=8)
    close = np.einsum("qd,nd->qn", world.query_vectors, world.vectors)
    rough = 0.0 if linear else np.random.default_rng(5).normal(size=close.shape)
    scorer = Corrected(3 * close + rough, 0.3 * world.test)
    black_box = crosscut.MatrixScorer(scorer.base + scorer.costly)
    truth = np.argsort(-(scorer.base + scorer.costly), axis=1, kind="stable")[:, :10]
    found, read, plain = [], [], []
    for query, vector in enumerate(world.query_vectors):
        store = FakeStore([str(j) for j in range(1500)], world.vectors)
        bound = ThroughStore(scorer, store)
        hits = crosscut.Searcher(bound, vectors=store).search(query, 10, 30, query_vector=vector)
        found.append(len({store.seen[h] for h in hits.scored} & {*truth[query].tolist()}) / 10)
        read.append(bound.read)
        hits_of_vectors = crosscut.Searcher(black_box, vectors=world.vectors).search(query, 10, 30, query_vector=vector)
        plain.append(len({*hits_of_vectors.scored.tolist()} & {*truth[query].tolist()}) / 10)
    assert np.mean(read) < 300
    assert np.mean(found) > (0.99 if linear else 0.9)
    assert np.mean(found) >= np.mean(plain)


def test_what_is_known_of_candidates_is_checked() -> None:
    class Wrong(Shared):
        def bind(self, items: Items) -> Any:
            bound = super().bind(items)
            bound.base_scores = lambda query, handles: np.full(len(handles), np.nan)
            return bound

    store = MemoryStore(shelf(50), np.random.default_rng(0).normal(size=(50, 8)))
    index = crosscut.Index.over(store, scorer=Wrong(), encoder=None)
    with pytest.raises(crosscut.ScorerError, match="NaN or an infinity for query 'river music'") as caught:
        index.search("river music", k=3, budget=30, query_vector=np.ones(8))
    assert caught.value.calls == 0


def test_what_is_known_of_candidates_is_read_once() -> None:
    asked: list[int] = []

    def read(handles: Handles) -> Floats:
        asked.extend(handles.tolist())
        return np.asarray(handles * 2.0 + 1.0, np.float64)

    rows = np.arange(20.0)[:, None] * [1.0, 0.0]
    known = OfCandidates(read, lambda handles: rows[handles], np.array([1.0, 1.0]))
    assert known.direction == 0.0  # too little to go by
    assert known.at(np.array([3, 7, 3])).tolist() == [7.0, 15.0, 7.0]
    assert known.at(np.array([7, 0, 19])).tolist() == [15.0, 1.0, 39.0]
    assert sorted(asked) == [0, 3, 7, 19]
    np.testing.assert_allclose(known.direction, [2.0, 2.0])  # g = 1 + 2 (q · v)


def test_a_store_is_asked_for_what_follows_from_the_vectors_and_for_more_than_is_wanted() -> None:
    rng = np.random.default_rng(0)
    vectors, query = rng.normal(size=(400, 6)), rng.normal(size=6)
    known_of = 2.0 * vectors @ query + 1.0
    noted: list[Ask] = []

    class Noting(FakeStore):
        def top(self, asks: Sequence[Ask]) -> list[Found]:
            noted.extend(asks)
            return super().top(asks)

    store = Noting([str(j) for j in range(400)], vectors)
    known = OfCandidates(lambda handles: known_of[[store.seen[h] for h in handles]], store.rows, query)
    known.at(store.sample(20, rng))
    (found,) = topk_of(Indexed(store)).top([Ask(np.zeros(6), 5, base=known)])
    np.testing.assert_allclose(noted[-1].vector, 2.0 * query)
    assert noted[-1].count >= 8 * 5
    assert [store.seen[handle] for handle in found.handles] == np.argsort(-known_of)[:5].tolist()
