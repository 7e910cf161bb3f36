"""An index measured on judged queries."""

from __future__ import annotations

import numpy as np
import pytest

from crosscut.evaluation.judged import evaluate, truth_of
from tests.test_index import Planted, best, build


def test_exact_search_is_perfect_and_a_short_one_is_not() -> None:
    world = Planted(noise=1.0)
    index = build(world)
    index.remove(["i0", "i1"])
    asked = {f"q{j}": f"query {j}" for j in range(50, 62)}
    judged = {id: {best(world, int(id[1:]), range(2, 200), 1)[0]: 1.0} for id in asked}
    judged["q50"] = {"i7": 1.0, "i9": 1.0}  # people disagree with the scorer here
    truth, calls = truth_of(index, list(asked.values()))
    assert calls == 12 * 198
    assert isinstance(truth, np.ndarray)
    assert np.isneginf(truth[:, :2]).all()
    records = evaluate(index, asked, judged, methods=["exact", "rnr"], budgets=[10, 40], k=[1, 10], truth=truth)
    found = {(r.method, r.budget, r.measure): r for r in records}
    assert found["exact", None, "recall of top 10"].value == 1.0
    assert found["exact", None, "Success@1"].value == pytest.approx(11 / 12)
    assert found["exact", None, "Success@1"].queries == 12
    short, longer = (found["rnr", budget, "recall of top 10"] for budget in (10, 40))
    assert short.calls == 10
    assert short.value < longer.value < 1.0
    assert short.low <= short.value <= short.high
    by_hand = [hits.scored.tolist() for hits in index.search_many(list(asked.values()), 100, 10, method="rnr")]
    tops = [best(world, j, range(2, 200), 10) for j in range(50, 62)]
    wanted = np.mean([len({f"i{p}" for p in a} & set(b)) / 10 for a, b in zip(by_hand, tops, strict=True)])
    assert short.value == pytest.approx(wanted)
