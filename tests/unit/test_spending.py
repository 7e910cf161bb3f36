"""Calls spent while an index is built: how they are shared out, what they buy, and that little never hurts."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from crosscut import Index, TextScorer
from crosscut.errors import InputError
from crosscut.index.spending import Spending, middles, share_out
from crosscut.measures import recall
from crosscut.methods import Parts
from crosscut.methods.learning import learn
from crosscut.scorers.adapters import MatrixScorer
from crosscut.scorers.base import BoundScorer, Scorer, ScoreResult
from crosscut.search.prior import Past
from crosscut.searcher import Searcher
from crosscut.spaces.base import Vectors
from crosscut.spaces.cur import CUR
from tests.unit.test_index_learning import LATER, QUERIES, WORLD, Known, quality, score
from tests.unit.test_prior import N

WORLDS = Path(__file__).parents[2] / "benchmarks" / "matrices"


@pytest.mark.parametrize(
    ("calls", "queries", "n", "expected"),
    [
        (2_000, 100, 2_500, Spending(0, 40, 50)),  # just enough
        (8_000, 100, 2_500, Spending(0, 80, 100)),  # half of them pay for one anchor query, which is not enough
        (8_000, 100, 2_000, Spending(2, 40, 100)),
        (20_000, 100, 2_500, Spending(4, 96, 104)),
        (20_000, 1_000, 2_500, Spending(4, 100, 100)),
        (20_000, 1_000, 1_000_000, Spending(0, 200, 100)),  # an anchor query costs more than there is
        (20_000, 20, 1_000, Spending(20, 0, 0)),  # queries too few to learn from
        (10**9, 500, 1_000, Spending(200, 300, 400)),
        (10**9, 200, 1_000, Spending(100, 100, 400)),
    ],
)
def test_calls_are_shared_out(calls: int, queries: int, n: int, expected: Spending) -> None:
    assert share_out(calls, queries, n, 200) == expected


def test_no_share_is_over_what_there_is() -> None:
    rng = np.random.default_rng(0)
    for _ in range(2000):
        calls, queries, n = (int(10 ** rng.uniform(*span)) for span in ((0, 7), (0, 4), (0, 6)))
        try:
            plan = share_out(calls, queries, n, int(rng.integers(1, 300)), searchable=bool(rng.random() < 0.8))
        except InputError:
            continue
        assert plan.calls(n) <= calls
        assert plan.anchors + plan.searches <= queries
        assert plan.anchors >= 8 or plan.searches >= 40
        assert plan.each <= n or not plan.searches


def test_too_few_calls_say_what_would_be_enough() -> None:
    with pytest.raises(InputError, match=r"1,000 calls for 60 train queries.*40 queries and 2,000 calls.*20,000 calls"):
        share_out(1_000, 60, 2_500, 200)
    with pytest.raises(InputError, match="do not go together"):
        Index.build(["a", "b"], scorer=lambda query, texts: [0.0] * len(texts), encoder=None, calls=10)


def test_anchor_queries_are_the_middles_of_clusters() -> None:
    rng = np.random.default_rng(0)
    centres = 5 * np.eye(6)[:4]
    vectors = np.concatenate([centres[j] + 0.1 * rng.normal(size=(20, 6)) for j in range(4)])
    chosen = middles(vectors, 4)
    assert sorted(chosen // 20) == [0, 1, 2, 3]  # one of every group, and not one at its edge
    for j in chosen:
        group = vectors[j // 20 * 20 : j // 20 * 20 + 20]
        far = np.linalg.norm(group - group.mean(axis=0), axis=1)
        assert far[j % 20] == far.min()
    same = np.ones((10, 6))
    assert len(set(middles(same, 3).tolist())) == 3  # where queries are all alike, any of them
    assert len(middles(vectors, 0)) == 0


def built(calls: int | None, queries: list[str] | None = None, **more: Any) -> Index:
    items = [{"id": f"i{j}", "text": f"item {j}"} for j in range(N)]
    scorer = TextScorer(score, fingerprint="planted")
    asked = QUERIES if queries is None else queries
    options: dict[str, Any] = {"encoder": Known(), "bm25": False, "dtype": np.float32, "queries": asked, "calls": calls}
    return Index.build(items, scorer=scorer, **options, **more)


def test_an_index_spends_what_it_may_and_keeps_what_it_was_taught(tmp_path: Path) -> None:
    index = built(6_000)
    assert 5_000 < index.build_calls <= 6_000
    assert len(index.anchor_queries) == 5
    assert index.taught is not None
    assert index.taught.prior is not None
    prior = index.corpus.prior
    assert prior is not None
    assert prior.bought
    assert prior.d == WORLD.vectors.shape[1] + 5
    nothing = Index.build(
        [{"id": f"i{j}", "text": f"item {j}"} for j in range(N)],
        scorer=TextScorer(score, fingerprint="planted"),
        encoder=Known(),
        bm25=False,
        dtype=np.float32,
    )
    assert 1 - quality(index) < 0.6 * (1 - quality(nothing))
    index.save(tmp_path / "my.index")
    again = Index.load(tmp_path / "my.index", scorer=TextScorer(score, fingerprint="planted"), encoder=Known())
    assert [h.ids for h in again.search_many(LATER, 10, 30)] == [h.ids for h in index.search_many(LATER, 10, 30)]
    again.keep_log(tmp_path / "searches.log")
    again.search_many(LATER, 10, 60)
    got = again.learn()  # thirty searches teach nothing
    assert got.prior is again.corpus.prior
    assert "stays" in got.why
    again.forget(["i3"])  # its scores taught, and nothing is left to learn again from
    assert again.corpus.prior is None


def test_the_same_build_again_finds_what_was_paid_and_pays_nothing(tmp_path: Path) -> None:
    index = built(6_000, store=tmp_path / "scores")
    again = built(6_000, store=tmp_path / "scores")
    assert index.build_calls > 5_000
    assert again.build_calls == 0
    assert again.anchor_queries == index.anchor_queries
    assert index.taught is not None
    assert again.taught is not None
    assert again.taught.why == index.taught.why


def test_pairs_that_are_sent_again_while_an_index_is_built_are_calls(tmp_path: Path) -> None:
    class Twice(BoundScorer):
        """Sends every pair twice, where that may be."""

        def __init__(self, items: Any) -> None:
            self.items = items

        def score_many(self, requests: Any, *, deadline: Any = None, retries: Any = ()) -> list[ScoreResult]:
            for budget, (_, handles) in zip(retries, requests, strict=True):
                budget.take(len(handles))
            return [
                ScoreResult.of(score(q, [item.text for item in self.items.get(handles)])) for q, handles in requests
            ]

    class Model:
        fingerprint = "twice"
        bind = Twice
        score = Scorer.score

    items = [{"id": f"i{j}", "text": f"item {j}"} for j in range(N)]
    index = Index.build(items, scorer=Model(), encoder=Known(), bm25=False, queries=QUERIES, calls=2_000, anchors=0)
    assert 1_900 < index.build_calls <= 2_000


def test_what_was_taught_beside_anchors_outlives_items_that_come_and_go() -> None:
    index = built(6_000)
    before = quality(index)
    index.remove([f"i{j}" for j in range(40)])
    index.compact()
    index.add([{"id": f"i{j}", "text": f"item {j}"} for j in range(40)])
    assert index.corpus.prior is not None
    assert quality(index) > before - 0.1
    assert index.corpus.prior is not None


def test_few_anchor_queries_are_not_kept_where_searches_teach_nothing() -> None:
    rng = np.random.default_rng(0)
    noise = rng.normal(size=WORLD.scores.shape)
    items = [{"id": f"i{j}", "text": f"item {j}"} for j in range(N)]
    scorer = TextScorer(
        lambda query, texts: noise[int(query.split()[1]), [int(text.split()[1]) for text in texts]],
        fingerprint="noise",
    )
    index = Index.build(items, scorer=scorer, encoder=Known(), bm25=False, queries=QUERIES, calls=5_000)
    assert index.corpus.prior is None
    assert not index.anchor_queries
    assert index.corpus.anchors is None
    assert index.build_calls > 0


def test_a_budget_is_never_worse_than_nothing_on_a_real_matrix() -> None:
    with np.load(WORLDS / "wordnet-feeling.npz", allow_pickle=False) as archive:
        data = {name: archive[name].astype(np.float64) for name in archive.files if archive[name].dtype.kind == "f"}
    space = Vectors(data["vectors"].astype(np.float32))
    parts = Parts(encoder=space, n=space.n)

    def searched(made: Parts, scores: np.ndarray, vectors: np.ndarray, budget: int) -> list[np.ndarray]:
        searcher = Searcher(MatrixScorer(scores), parts=made)
        found = searcher.search_many(range(len(scores)), 10, budget, query_vectors=vectors)
        return [hits.scored for hits in found]

    def quality(made: Parts) -> float:
        found = searched(made, data["test"], data["query_vectors"], 50)
        return float(np.mean([recall(row, scored, 10) for row, scored in zip(data["test"], found, strict=True)]))

    none = quality(parts)
    for count in (1, 2, 4):
        chosen = middles(data["anchor_query_vectors"], count)
        others = np.setdiff1d(np.arange(60), chosen)
        anchored = replace(parts, anchors=CUR(data["train"][chosen]))
        found = searched(anchored, data["train"][others], data["anchor_query_vectors"][others], 50)
        log = [
            Past(data["anchor_query_vectors"][j], scored, data["train"][j, scored])
            for j, scored in zip(others, found, strict=True)
        ]
        got = learn(log, space, anchors=anchored.anchors, n=space.n)
        assert got.prior is not None
        assert quality(replace(anchored, prior=got.prior)) > none + 0.03


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"calls": 5000.0}, "must be a whole number; got 5000.0"),
        ({"calls": "9"}, "must be a whole number; got '9'"),
        ({"anchors": -1}, "must be at least 0; got -1"),
        ({"seed": -1}, "must be at least 0; got -1"),
        ({"seed": 2.5}, "must be a whole number; got 2.5"),
        ({"per_query": 0}, "must be at least 1; got 0"),
        ({"method": "crosscut@rank=0"}, "the rank of a space must be at least 1"),
        ({"method": "axn@space=anchors,mix=0.5"}, "does not live in the space"),
        ({"method": "adacur@first_share=0"}, "the first round must be above 0"),
    ],
)
def test_numbers_that_are_none_are_refused_before_anything_is_paid(given: dict[str, Any], said: str) -> None:
    def paid(query: str, texts: list[str]) -> list[float]:
        raise AssertionError("a call was made")

    (name,) = given
    with pytest.raises(InputError, match=said if name == "method" else f"{name} {said}"):
        Index.build(["a", "b"], scorer=paid, queries=[f"query {j}" for j in range(50)], **given)
    index = Index.build(["a", "b"], scorer=paid)
    for every in (1.5, True):
        with pytest.raises(InputError, match=f"learn_every must be a whole number; got {every}"):
            index.keep_log(None, learn_every=every)  # type: ignore[arg-type]
    queries = [f"query {j}" for j in range(20)]
    wrong: list[tuple[dict[str, Any], str]] = [
        ({"k": 0}, "k must be at least 1"),
        ({"budget": 2.5}, "budget must be a whole number"),
        ({"methods": ["nope"]}, "unknown method"),
        ({"methods": ["adacur"]}, "needs scores of anchor queries"),
        ({"methods": []}, "nothing to choose from"),
    ]
    for how, message in wrong:
        with pytest.raises(InputError, match=message):
            index.tune(queries, **how)
    qrels = {query: {"0": 1.0} for query in queries}
    with pytest.raises(InputError, match="needs scores of anchor queries"):
        index.tune(qrels=qrels, methods=["rerank", "adacur"])
    for judged in ({"a query": {"0": 1}}, {query: {"0": 0} for query in queries}):
        with pytest.raises(InputError, match="too few to calibrate on"):
            index.calibrate(judged)
