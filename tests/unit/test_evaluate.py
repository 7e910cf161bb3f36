"""An index measured on judged queries."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from crosscut.errors import InputError
from crosscut.evaluation.evaluate import evaluate, exhaustive_scores, no_call_baselines, records_of
from crosscut.index import Index
from crosscut.index.passages import Passages
from crosscut.search.ranking import parse_order
from tests.unit.test_index import Planted, best, build


def test_exact_search_is_perfect_and_a_short_one_is_not() -> None:
    world = Planted(noise=1.0)
    index = build(world)
    index.remove(["i0", "i1"])
    asked = {f"q{j}": f"query {j}" for j in range(50, 62)}
    judged = {id: {best(world, int(id[1:]), range(2, 200), 1)[0]: 1.0} for id in asked}
    judged["q50"] = {"i7": 1.0, "i9": 1.0}  # people disagree with the scorer here
    truth, calls = exhaustive_scores(index, list(asked.values()))
    assert calls == 12 * 198
    assert isinstance(truth, np.ndarray)
    assert np.isneginf(truth[:, :2]).all()
    measured = evaluate(
        index, asked, judged, methods=["exact", "rerank"], budgets=[10, 40], k=[1, 10], exhaustive=truth
    )
    found = {(r.method, r.budget, r.measure): r for r in records_of(measured)}
    assert found["exact", None, "recall of top 10"].value == 1.0
    assert found["exact", None, "Success@1"].value == pytest.approx(11 / 12)
    assert found["exact", None, "Success@1"].queries == 12
    short, longer = (found["rerank", budget, "recall of top 10"] for budget in (10, 40))
    assert short.calls == 10
    assert short.value < longer.value < 1.0
    assert short.low <= short.value <= short.high
    by_hand = [hits.scored.tolist() for hits in index.search_many(list(asked.values()), 100, 10, method="rerank")]
    tops = [best(world, j, range(2, 200), 10) for j in range(50, 62)]
    wanted = np.mean([len({f"i{p}" for p in a} & set(b)) / 10 for a, b in zip(by_hand, tops, strict=True)])
    assert short.value == pytest.approx(wanted)


def long_documents(score: Any = "best") -> Index:
    def sentences(j: int) -> str:
        return " ".join(f"Here is sentence {i} about subject{j}." for i in range(12))

    documents = [{"id": f"d{j}", "text": sentences(j)} for j in range(20)]
    words = {f"subject{j}": j for j in range(20)}

    def scorer(query: str, texts: list[str]) -> list[float]:  # it likes what is far from what was asked for
        return [float(abs(words[query] - words[text.split()[-1].strip(".")])) for text in texts]

    return Index.build(documents, scorer=scorer, encoder=None, passages=Passages(20, score=score), method="hybrid")


def test_documents_are_judged_where_passages_are_the_items() -> None:
    index = long_documents()
    asked = {f"q{j}": f"subject{j}" for j in range(12)}
    judged = {f"q{j}": {f"d{j}": 1.0} for j in range(12)}
    found = no_call_baselines(index, asked, judged)
    assert [(point.method, point.each["Success@1"].mean(), point.each["R@100"].mean()) for point in found] == [
        ("bm25", 1.0, 1.0)
    ]


def test_hits_are_judged_in_the_order_they_have() -> None:
    index = long_documents()
    asked = {f"q{j}": f"subject{j}" for j in range(12)}
    judged = {f"q{j}": {f"d{j}": 1.0} for j in range(12)}
    plain = evaluate(index, asked, judged, methods=["hybrid"], budgets=[60])[0]
    assert plain.each["RR@10"].max() < 0.5
    index.order = parse_order("fused@scorer=0,words=1")
    assert evaluate(index, asked, judged, methods=["hybrid"], budgets=[60])[0].each["Success@1"].mean() == 1.0


def test_relevance_may_be_a_part_of_one() -> None:
    index = long_documents()
    asked = {f"q{j}": f"subject{j}" for j in range(12)}
    whole, parts = (
        no_call_baselines(index, asked, {f"q{j}": {f"d{j}": 2 * unit, f"d{j + 1}": unit} for j in range(12)})[0].each
        for unit in (1.0, 0.25)
    )
    for name, values in whole.items():
        np.testing.assert_allclose(parts[name], values)
    assert parts["Success@1"].mean() == 1.0


def test_judgements_of_other_items_are_refused() -> None:
    index = build(Planted(), stop=40)
    judged = {f"query {j}": {f"d{j}": 1.0, "i3": 0.0} for j in range(12)}
    message = r"none of the 12 items that are judged relevant is in the index, the first of them is 'd0'"
    with pytest.raises(InputError, match=message):
        index.calibrate(judged)
    with pytest.raises(InputError, match=message):
        index.tune(qrels=judged)
    with pytest.raises(InputError, match=message):
        evaluate(index, {query: query for query in judged}, judged, methods=["rerank"], budgets=[5])
    judged["query 11"]["i3"] = 1.0
    assert len(evaluate(index, {query: query for query in judged}, judged, methods=["rerank"], budgets=[5])) == 1


@pytest.mark.parametrize("score", ["best", "mean"])
def test_documents_of_passages_have_probabilities(score: Any) -> None:
    index = long_documents(score)
    index.calibrate({f"subject{j}": {f"d{(j + 10) % 20}": 1.0} for j in range(20)}, budget=80)
    assert index.calibration is not None
    hits = index.search("subject3", k=10, budget=80)
    assert (np.diff(hits.values) <= 1e-12).all()
    assert [hit.probability for hit in hits] == index.calibration.probabilities(hits.scores).tolist()
    least = hits[4].probability
    assert least is not None
    some = index.search("subject3", k=10, budget=80, threshold=least)
    assert some.ids == [hit.id for hit in hits if hit.probability is not None and hit.probability >= least]
