"""Methods on an index: the same by name as in a `Searcher`, bounded, and refused with what they lack."""

from __future__ import annotations

import numpy as np
import pytest

import crosscut
from crosscut.errors import InputError
from crosscut.index import Index
from crosscut.index.corpus import SEARCHERS
from crosscut.methods import AXN, methods, parse
from crosscut.scorers.adapters import TextScorer
from tests.unit.test_index import Planted, build, planted_items


@pytest.fixture
def world() -> Planted:
    return Planted()


def scores(world: Planted, query: int, n: int = 200) -> np.ndarray:
    return world.score(f"query {query}", [f"item {j}" for j in range(n)])


def test_exact_needs_no_budget_anywhere(world: Planted) -> None:
    index = build(world)
    hits = index.search("query 50", 5, method="exact")
    assert hits.calls == len(index)
    assert hits.ids == [f"i{j}" for j in np.argsort(-scores(world, 50), kind="stable")[:5]]
    assert index.search_many(["query 50"], 5, method="exact")[0].ids == hits.ids
    assert index.search("query 50", 5, method="exact", filter={"colour": "red"}).calls == 100


def test_adacur_draws_its_first_round_as_in_the_paper(world: Planted) -> None:
    index = build(world, queries=20)
    anchors = np.stack([scores(world, j) for j in range(20)]).astype(np.float32)
    searcher = crosscut.Searcher(
        lambda query, places: scores(world, int(query.split()[1]))[places], space=crosscut.CUR(anchors), method="adacur"
    )
    for query in ("query 50", "query 51"):
        mine, theirs = index.search(query, 5, 50, method="adacur"), searcher.search(query, 5, 50)
        assert mine.trace[0].positions.tolist() == theirs.trace[0].positions.tolist()


@pytest.mark.parametrize("method", ["anncur", "axn", "adacur", "crosscut", "rerank"])
def test_no_method_drops_its_first_stage(world: Planted, method: str) -> None:
    index = build(world, queries=20)
    by_words = index.search("query 50 cherry", 5, 40, method=f"{method}@first=lexical")
    assert all(position % 8 == 2 for position in by_words.trace[0].positions.tolist()[:5])
    assert by_words.scored.tolist() != index.search("query 50 cherry", 5, 40, method=method).scored.tolist()


def test_rnr_is_the_encoder_alone_and_hybrid_looks_at_words_too(world: Planted) -> None:
    index = build(world)
    ranked = np.argsort(-(world.items[:200] @ world.encode_queries(["query 50 cherry"])[0]), kind="stable")
    assert index.search("query 50 cherry", 5, 30, method="rerank").scored.tolist() == ranked[:30].tolist()
    hybrid = index.search("query 50 cherry", 5, 30, method="hybrid").scored
    assert {*ranked[:10].tolist()} < {*hybrid.tolist()}
    assert sum(place % 8 == 2 for place in hybrid.tolist()) >= 13


def test_a_share_of_the_query_vector_on_factors(world: Planted) -> None:
    """Transductive factors live in the encoder's space: λ is allowed there, and `tune` may choose it."""
    index = build(world, queries=40, space="als", per_query=30)
    assert index.search("query 50", 5, 60, method="axn@mix=0.8").calls == 60
    report = index.tune([f"query {j}" for j in range(60, 70)], 5, 40, methods=["axn@mix=0.3"])
    assert report.chosen.method.name == "axn"
    assert index.search("query 50", 5, 40).calls <= 40
    assert AXN().grid(index.corpus.parts)["mix"] == (0.3, 0.8)


def test_searchers_do_not_pile_up(world: Planted) -> None:
    index = build(world)
    for rounds in range(1, 2 * SEARCHERS):
        index.search("query 50", 5, 40, method=f"axn@rounds={rounds}")
    assert len(index.corpus._searchers) == SEARCHERS


def test_a_tuning_on_few_queries_says_what_it_left_out(world: Planted) -> None:
    index = build(world, queries=12)
    report = index.tune(k=5, budget=40)
    assert report.model is None
    assert report.notes == ("target_recall was not calibrated: 12 train queries, 20 are needed",)
    with pytest.raises(InputError, match="12 train queries, 20 are needed"):
        index.search("query 50", 5, 40, target_recall=0.9)


def test_tune_tries_every_method_that_can_work(world: Planted) -> None:
    report = build(world, queries=20).tune(k=5, budget=40)
    tried = {trial.method.name for trial in report.trials}
    assert tried == {name for name, kind in methods().items() if kind.tried}
    assert report.json()["chosen"]["method"] == str(report.chosen.method)
    assert parse(report.json()["chosen"]["method"]) == report.chosen.method


def test_tune_without_an_encoder_leaves_out_what_cannot_begin(world: Planted) -> None:
    index = Index.build(
        planted_items(),
        scorer=TextScorer(world.score, fingerprint="planted"),
        encoder=None,
        queries=[f"query {j}" for j in range(20)],
    )
    tried = {trial.method.name for trial in index.tune(k=5, budget=40).trials}
    assert "rerank" not in tried
    assert {"crosscut", "adacur", "hybrid"} <= tried


def test_options_are_checked_by_name(world: Planted) -> None:
    index = build(world)
    with pytest.raises(TypeError, match="filterr"):
        index.search("query 50", 5, 40, filterr={"colour": "red"})  # type: ignore[call-arg]
    with pytest.raises(InputError, match="k must be a whole number; got None"):
        index.search("query 50", None, 40)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="seconds above 0, or None; got '1'"):
        index.search("query 50", 5, 40, deadline="1")  # type: ignore[arg-type]
