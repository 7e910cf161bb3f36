"""The order of hits: by the scorer, or by all the evidence."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from crosscut.errors import InputError
from crosscut.index import Index
from crosscut.index.tuning import relevance_of
from crosscut.scorers.adapters import TextScorer
from crosscut.search.hits import Hit, Hits
from crosscut.search.ranking import Fused, parse_order
from tests.unit.test_index import Planted, planted_items


def wrong(seed: int = 3) -> Any:
    """A scorer that knows nothing."""

    def score(query: str, texts: Sequence[str]) -> Any:
        return [float(np.random.default_rng([seed, *map(ord, query + text)]).normal()) for text in texts]

    return TextScorer(score, fingerprint="wrong")


@pytest.fixture(scope="module")
def index() -> Index:
    return Index.build(planted_items(), scorer=wrong(), encoder=Planted(), dtype=np.float32)


def test_names_are_values() -> None:
    assert str(parse_order("fused@scorer=2")) == "fused@scorer=2"
    assert parse_order("fused@scorer=2,words=0") == Fused(scorer=2.0, words=0.0)
    with pytest.raises(InputError, match="unknown order 'best': choose one of fused, scorer"):
        parse_order("best")
    with pytest.raises(InputError, match="not all 0"):
        Fused(scorer=0.0, dense=0.0, words=0.0)


def test_fused_is_the_sum_of_what_is_known_of_all_that_was_scored(index: Index) -> None:
    world, query = Planted(), "query 7 cherry"
    hits = index.search(query, k=8, budget=60, order="fused@scorer=0.7,words=2")
    plain = index.search(query, k=200, budget=60)
    assert hits.calls == plain.calls == 60
    state = index.corpus
    assert state.bm25 is not None
    positions = np.array([hit.position for hit in plain])
    dense = world.encode_items([item.text for item in state.items]) @ world.encode_queries([query])[0]

    def z(values: Any) -> Any:
        return (values - values.mean()) / values.std()

    total = 0.7 * z(plain.scores) + z(dense[positions].astype(float)) + 2 * z(state.bm25.scores(query)[positions])
    order = np.argsort(-total, kind="stable")[:8]
    assert hits.ids == [plain[int(place)].id for place in order]
    assert hits.values == pytest.approx(total[order])
    assert [hit.score for hit in hits] == [plain[int(place)].score for place in order]
    assert hits[0].item is not None


def test_it_guards_against_a_scorer_that_is_wrong(index: Index) -> None:
    world = Planted()
    found: dict[str, list[float]] = {"scorer": [], "fused": []}
    for j in range(30):
        right = set(np.argsort(-(world.items[:200] @ (world.queries[j] + 0.7)))[:10].tolist())
        for order, shares in found.items():
            hits = index.search(f"query {j}", k=10, budget=100, order=order)
            shares.append(len({hit.position for hit in hits} & right) / 10)
    assert np.mean(found["fused"]) > np.mean(found["scorer"]) + 0.3


def test_the_order_of_hits_is_saved(index: Index, tmp_path: Path) -> None:
    fused = index.search("query 50", budget=60, order="fused")
    index.order = parse_order("fused")
    index.save(tmp_path / "saved")
    again = Index.load(tmp_path / "saved", scorer=wrong(), encoder=Planted())
    assert again.search("query 50", budget=60).ids == fused.ids
    index.order = parse_order("scorer")


def test_judgements_choose_the_order_that_people_want(index: Index, tmp_path: Path) -> None:
    world = Planted()
    judged = {f"query {j}": {f"i{np.argmax(world.items[:200] @ (world.queries[j] + 0.7))}": 1.0} for j in range(30)}
    with pytest.raises(InputError, match="may make 100"):
        index.tune(qrels=judged, budget=40, max_calls=100)
    with pytest.raises(InputError, match="measure is one of nDCG, MRR, accuracy; got 'recall'"):
        index.tune(qrels=judged, measure="recall")  # type: ignore[call-overload]
    report = index.tune(qrels=judged, budget=40, measure="accuracy")
    assert report.chosen.order.name == "fused"
    by_scorer = [trial.value for trial in report.trials if str(trial.order) == "scorer"]
    assert report.chosen.value > max(by_scorer) + 0.2
    assert report.chosen.value >= max(trial.value for trial in report.trials) - 0.005
    assert (index.budget, index.order, index.method) == (
        report.chosen.budget,
        report.chosen.order,
        report.chosen.method,
    )
    hits = index.search("query 40")
    assert hits.budget == report.chosen.budget
    assert len(hits) == report.k == 10  # no budget is too small for that
    index.save(tmp_path / "tuned")
    again = Index.load(tmp_path / "tuned", scorer=wrong(), encoder=world)
    assert (again.budget, again.order, again.stop) == (index.budget, index.order, index.stop)
    assert again.search("query 40").ids == hits.ids


def test_a_new_tuning_replaces_what_judgements_chose() -> None:
    world = Planted()
    index = Index.build([f"item {i}" for i in range(60)], scorer=wrong(), encoder=world)
    judged = {f"query {j}": {f"{np.argmax(world.items[:60] @ (world.queries[j] + 0.7))}": 1.0} for j in range(12)}
    queries = [f"query {j}" for j in range(20, 30)]
    index.tune(qrels=judged, budget=20, k=5, measure="accuracy")
    assert (index.budget, index.order.name) == (5, "fused")
    index.tune(queries, k=5, budget=30)
    assert (index.budget, str(index.order)) == (None, "scorer")
    index.tune(qrels=judged, budget=20, k=5, measure="accuracy")
    index.budget, index.order = 40, parse_order("fused@scorer=8")  # not by tuning: a choice of one's own stays
    index.tune(queries, k=5, budget=30)
    assert (index.budget, str(index.order)) == (40, "fused@scorer=8")


def test_measures_of_one_query_by_hand() -> None:
    hits = Hits("q", tuple(Hit(id, 0.0, 1, 0.0, 0) for id in "abc"), 0, 0, 0, "budget")
    right = {"b": 2.0, "c": 1.0, "x": 0.0, "z": 3.0}
    ideal = 3 + 2 / np.log2(3) + 1 / 2
    assert relevance_of(hits, right, 3, "nDCG") == pytest.approx((2 / np.log2(3) + 1 / 2) / ideal)
    assert relevance_of(hits, right, 3, "MRR") == 0.5
    assert relevance_of(hits, right, 3, "accuracy") == 0.0
    assert relevance_of(hits, {"a": 1.0}, 3, "accuracy") == 1.0
