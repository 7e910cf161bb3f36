from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crosscut.ann.ivf import IVF, kernels, learning
from crosscut.ann.ivf.learning import Observations, observe
from crosscut.ann.ivf.rules import Cascade, Chance, Classifier, Fixed, Patience, PredictedLists, Rule, Trees, from_json
from crosscut.ann.ivf.tuning import TAUS, candidates, fewest, tune
from crosscut.errors import InputError

K, TAU = 20, 3


def clumps(n: int, d: int = 10, seed: int = 0) -> npt.NDArray[np.float32]:
    rng = np.random.default_rng(seed)
    centres = np.random.default_rng(99).standard_normal((30, d))
    rows = centres[rng.integers(30, size=n)] + 1.2 * rng.standard_normal((n, d))
    return (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)


@pytest.fixture(scope="module")
def index() -> IVF:
    return IVF.build(clumps(3000), lists=60)


@pytest.fixture(scope="module")
def observed(index: IVF) -> Observations:
    return observe(index, clumps(400, seed=1), K, 40)


def slow_results(index: IVF, query: Any, k: int, lists: int) -> list[list[tuple[float, int]]]:
    """RS_h after h = 1 … lists lists: (score, id), best first. Plain Python over plain arrays."""
    near = [float(np.dot(centroid, query)) for centroid in index.centroids]
    order = sorted(range(len(near)), key=lambda j: (-near[j], j))
    seen: list[tuple[float, int]] = []
    results = []
    for j in order[:lists]:
        for place in range(index.starts[j], index.starts[j + 1]):
            seen.append((float(np.dot(index.vectors[place], query)), int(index.ids[place])))
        seen = sorted(seen, key=lambda pair: (-pair[0], pair[1]))[:k]
        results.append(list(seen))
    return results


def members(result: list[tuple[float, int]]) -> set[int]:
    return {name for _, name in result}


def slow_patience(results: list[list[tuple[float, int]]], rounds: int, share: float, k: int, start: int = 1) -> int:
    """|RS_h ∩ RS_{h−1}| ≥ Φ·k for Δ consecutive lists."""
    settled = 0
    for h in range(2, len(results) + 1):
        stayed = len(members(results[h - 1]) & members(results[h - 2]))
        settled = settled + 1 if stayed >= share * k - 1e-9 else 0
        if settled >= rounds and h >= start:
            return h
    return len(results)


@pytest.mark.parametrize(("rounds", "tolerance"), [(1, 0.0), (2, 0.1), (3, 0.05), (5, 0.3), (1, 0.9)])
def test_patience_is_its_definition(index: IVF, rounds: int, tolerance: float) -> None:
    queries = clumps(25, seed=3)
    found = index.search_many(queries, K, rule=Patience(rounds, tolerance, 30))
    for j, query in enumerate(queries):
        results = slow_results(index, query, K, 30)
        stop = slow_patience(results, rounds, 1 - tolerance, K)
        assert found.lists[j] == stop
        assert set(found.ids[j].tolist()) - {-1} == members(results[stop - 1])


@settings(max_examples=30, deadline=None)
@given(
    sets=st.lists(st.frozensets(st.integers(0, 8), max_size=5), min_size=1, max_size=12),
    rounds=st.integers(1, 4),
    tolerance=st.sampled_from([0.0, 0.2, 0.5]),
)
def test_the_watch_of_the_outer_loop_is_the_same_rule(
    sets: list[frozenset[int]], rounds: int, tolerance: float
) -> None:
    watch = Patience(rounds, tolerance).watch(5)
    stopped = next((h for h, now in enumerate(sets, 1) if watch.stable_after(now)), len(sets))
    as_results = [[(0.0, name) for name in now] for now in sets]
    # before the first list there was nothing, and nothing stays of it
    assert stopped == slow_patience(as_results, rounds, 1 - tolerance, 5)


def test_traces_are_what_happened(index: IVF, observed: Observations) -> None:
    for row in range(0, 400, 57):
        results = slow_results(index, observed.queries[row], K, 40)
        for h, result in enumerate(results):
            best, kth, kept, first = observed.traces[row, h]
            assert best == pytest.approx(result[0][0], abs=1e-5)
            assert kth == (pytest.approx(result[-1][0], abs=1e-5) if len(result) == K else -np.inf)
            assert kept == (len(members(result) & members(results[h - 1])) if h else 0)
            assert first == len(members(result) & members(results[0]))


def test_labels_and_recall(index: IVF, observed: Observations) -> None:
    for row in range(0, 400, 31):
        query = observed.queries[row]
        scores = index.vectors.astype(np.float64) @ query
        nearest = int(index.ids[scores.argmax()])
        results = slow_results(index, query, 1, len(index.centroids))
        needed = next(h for h, result in enumerate(results, 1) if result[0][1] == nearest)
        assert observed.ranks[row, 0] == needed
        assert observed.needed(12)[row] == min(needed, 12)
    lists = fewest(observed, 0.9)
    assert observed.recall(lists).mean() >= 0.9 > observed.recall(lists - 1).mean()
    found = index.search_many(observed.queries, K, rule=lists)
    truth = index.search_many(observed.queries, K, rule=60)
    kept = [len(set(a) & set(b)) / K for a, b in zip(found.ids.tolist(), truth.ids.tolist(), strict=True)]
    assert observed.recall(lists, K).mean() == pytest.approx(np.mean(kept))


def test_features_of_table_1(index: IVF, observed: Observations) -> None:
    features = observed.features(TAU)
    for row in (0, 100, 399):
        query = observed.queries[row]
        near = sorted((float(np.dot(c, query)) for c in index.centroids), reverse=True)
        results = slow_results(index, query, K, TAU)
        best, kth = results[-1][0][0], results[-1][-1][0]
        expected = [
            *query,
            *near[:TAU],
            *[near[10 * j - 1] / near[0] if 10 * j <= 60 else 0.0 for j in range(1, 11)],
            *[best, kth, best / kth, best / near[0]],
            *[len(members(results[h]) & members(results[h - 1])) / K for h in range(1, TAU)],
            *[len(members(results[h]) & members(results[0])) / K for h in range(1, TAU)],
        ]
        np.testing.assert_allclose(features[row], expected, rtol=1e-3, atol=1e-5)


@pytest.mark.services
def test_forests_say_what_lightgbm_says() -> None:
    lightgbm = pytest.importorskip("lightgbm")
    rng = np.random.default_rng(0)
    features = rng.standard_normal((500, 6))
    labels = features[:, 0] * features[:, 1] + (features[:, 2] > 0.3)
    forest = lightgbm.train({"verbosity": -1, "num_threads": 1}, lightgbm.Dataset(features, labels), 20)
    trees = learning.trees_of(forest.dump_model())
    mine = [kernels.sum_of_trees(trees.arrays, row) for row in features]
    np.testing.assert_allclose(mine, forest.predict(features), rtol=1e-9, atol=1e-12)
    rule = Classifier(trees)
    assert from_json(json.loads(json.dumps(rule.json()))) == rule


@pytest.fixture(scope="module")
def rules(observed: Observations) -> dict[str, Rule]:
    pytest.importorskip("lightgbm")
    pytest.importorskip("imblearn")
    train, held = observed.some(np.arange(300)), observed.some(np.arange(300, 400))
    stable = learning.learn_prediction(train, 30, stability=True, tau=TAU, check=held)
    classifier = learning.learn_classifier(train, 30, weight=3, tau=TAU, check=held)
    return {
        "fixed": Fixed(7),
        "reg": learning.learn_prediction(train, 30, stability=False, tau=TAU),
        "reg+int": stable,
        "classifier": classifier,
        "cascade reg": Cascade(classifier, PredictedLists(stable.trees, True, 2.0, TAU, 25)),
        "cascade patience": Cascade(classifier, Patience(3, 0.1, 30)),
        "chance": learning.learn_chance(train, 30, rate=0.01),
    }


def slow_stop(rule: Rule, index: IVF, observed: Observations, row: int) -> int:
    """Apply a rule by its definition, one query at a time."""
    features = observed.features(TAU)[row]

    def grown(trees: Trees) -> float:
        total = 0.0
        for node in trees.roots:
            while trees.feature[node] >= 0:
                goes_left = features[trees.feature[node]] <= trees.threshold[node]
                node = trees.left[node] if goes_left else trees.right[node]
            total += trees.value[node]
        return total

    most = rule.lists or 60
    if isinstance(rule, PredictedLists):
        return min(most, max(TAU, int(np.ceil(rule.factor * grown(rule.trees)))))
    if isinstance(rule, Classifier):
        return TAU if grown(rule.trees) < 0 else most
    if isinstance(rule, Cascade):
        if grown(rule.first.trees) < 0:
            return TAU
        if isinstance(rule.then, Patience):
            results = slow_results(index, observed.queries[row], K, most)
            return slow_patience(results, rule.then.rounds, 1 - rule.then.tolerance, K, start=TAU)
        return slow_stop(rule.then, index, observed, row)
    if isinstance(rule, Chance):
        query = observed.queries[row].astype(np.float64)
        near = index.centroids @ query
        mean, spread = near.mean(), near.std()
        near = -np.sort(-near)
        since, last = 0, -np.inf
        for h, result in enumerate(slow_results(index, query, K, most - 1), 1):
            best = result[0][0]
            since = since + 1 if best == last else 0
            last = best
            above, drop, out = (best - near[h]) / spread, (near[0] - near[h]) / spread, (near[0] - mean) / spread
            clues = [above, drop, out, np.log(h), np.log(1 + since), mean, spread]
            pairs = [clues[i] * clues[j] for i in range(7) for j in range(i, 7)]
            odds = rule.coefficients[0] + np.dot(rule.coefficients[1:], [*clues, *pairs])
            if 1 / (1 + np.exp(-odds)) / max(1, h // 4) < rule.rate:
                return h
    return most


@pytest.mark.services
@pytest.mark.parametrize("name", ["fixed", "reg", "reg+int", "classifier", "cascade reg", "cascade patience", "chance"])
def test_rules_match_slow_references(name: str, rules: dict[str, Rule], index: IVF, observed: Observations) -> None:
    rule = rules[name]
    found = index.search_many(observed.queries, K, rule=rule)
    assert (found.lists == observed.stops(rule)).all()
    for row in range(0, 400, 13):
        assert found.lists[row] == slow_stop(rule, index, observed, row)
    assert from_json(rule.json()) == rule
    if name != "fixed":
        assert len(set(found.lists.tolist())) > 1  # it depends on the query


@pytest.mark.services
def test_false_exits_fall_as_the_weight_grows(observed: Observations) -> None:
    pytest.importorskip("lightgbm")
    pytest.importorskip("imblearn")
    train, held = observed.some(np.arange(250)), observed.some(np.arange(250, 400))
    must_go_on = held.needed(30) > TAU
    false_exits = []
    for weight in (1.0, 5.0, 25.0):
        exits = held.stops(learning.learn_classifier(train, 30, weight=weight, tau=TAU)) == TAU
        false_exits.append(int((exits & must_go_on).sum()))
    assert false_exits[0] >= false_exits[1] >= false_exits[2]
    assert false_exits[0] > false_exits[2]


@pytest.mark.services
def test_synthetic_queries_are_made_of_train_queries_alone(
    observed: Observations, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SMOTE before the split would mix held-out queries into what is trained on, and synthetic ones into the check."""
    pytest.importorskip("lightgbm")
    over_sampling = pytest.importorskip("imblearn.over_sampling")
    train, held = observed.some(np.arange(250)), observed.some(np.arange(250, 400))
    seen: list[npt.NDArray[Any]] = []
    original = over_sampling.SMOTE.fit_resample
    monkeypatch.setattr(over_sampling.SMOTE, "fit_resample", lambda self, x, y: seen.append(x) or original(self, x, y))
    checks: list[Any] = []
    grow = learning._forest
    monkeypatch.setattr(learning, "_forest", lambda *a, **b: checks.append((a[1], a[2])) or grow(*a, **b))
    learning.learn_classifier(train, 30, tau=TAU, check=held)
    assert len(seen) == 1
    np.testing.assert_array_equal(seen[0], train.features(TAU))
    (data, check) = checks[0]
    assert len(data[0]) > len(train.queries)  # synthetic ones were made
    np.testing.assert_array_equal(check[0], held.features(TAU))  # and none of them judge
    assert not {tuple(row) for row in held.features(TAU)} & {tuple(row) for row in data[0]}


@pytest.mark.services
def test_tune(tmp_path: Path) -> None:
    own = IVF.build(clumps(3000), lists=60)
    tuned = own.tune(clumps(400, seed=8), target=0.9, k=K, loss=0.03)
    fixed = tuned["fixed"]
    assert fixed.rule == Fixed(tuned.lists)
    for choice in tuned.choices:
        assert choice.rule.lists == tuned.lists
        assert choice.lists <= tuned.lists
    for name in ("patience", "chance"):
        assert tuned[name].recall >= fixed.recall - 0.03
    assert own.rule == tuned.rule
    fresh = observe(own, clumps(300, seed=20), K, 60)
    found = own.search_many(fresh.queries, K)
    assert fresh.recall(found.lists).mean() >= 0.9 - 0.03 - 0.06
    assert found.lists.mean() < tuned.lists
    own.save(tmp_path / "tuned")
    assert IVF.load(tmp_path / "tuned").rule == own.rule
    early = own.tune(clumps(200, seed=8), target=0.9, k=K, rules=["reg"], taus=(2,), trials=2)["reg"].rule
    assert isinstance(early, PredictedLists)
    assert early.tau == 2
    only = own.tune(clumps(200, seed=8), target=0.9, k=K, rules=["chance"])
    assert [choice.name for choice in only.choices] == ["fixed", "chance"]
    with pytest.raises(InputError, match="magic"):
        own.tune(clumps(200, seed=8), target=0.9, k=K, rules=["magic"])
    with pytest.raises(InputError, match="30 queries"):
        own.tune(clumps(10))
    with pytest.raises(InputError, match="target"):
        own.tune(clumps(50), target=1.5)
    with pytest.raises(InputError, match="there are fixed"):
        tuned["magic"]


@pytest.mark.services
def test_tau_and_hyper_parameters_are_searched(index: IVF, observed: Observations) -> None:
    """The paper's §3: τ ∈ {2, 5, 8, 10, 12, 15}, and hyper-parameters of the forests."""
    train, held = observed.some(np.arange(300)), observed.some(np.arange(300, 400))
    made = dict(candidates(train, held, 30, taus=TAUS))
    for name in ("reg", "reg+int", "classifier", "classifier+reg+int"):
        found = {rule.first.tau if isinstance(rule, Cascade) else rule.tau for rule in made[name]}  # type: ignore[attr-defined]
        assert found == set(TAUS), name
    for rule in made["classifier+reg+int"]:
        assert isinstance(rule, Cascade)
        assert isinstance(rule.then, PredictedLists)
        assert rule.first.tau == rule.then.tau
    assert learning.trees_to_try(6, 0) == learning.trees_to_try(6, 0)
    assert learning.trees_to_try(1, 3) == [{"num_leaves": 15, "learning_rate": 0.1, "min_data_in_leaf": 20}]
    one, several = (
        tune(index, clumps(400, seed=8), target=0.9, k=K, rules=["reg"], taus=t) for t in ((TAU,), (2, 3, 5))
    )
    assert several["reg"].lists <= one["reg"].lists or several["reg"].recall > one["reg"].recall
    with pytest.raises(InputError, match="need queries to be judged by"):
        learning.learn_prediction(train, 30, stability=True, tau=TAU, trials=3)
    with pytest.raises(InputError, match="2 lists or more"):
        tune(index, clumps(400, seed=8), target=0.9, k=K, taus=(1,))


def test_learned_rules_are_optional(observed: Observations, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "lightgbm", None)
    names = [name for name, _ in candidates(observed.some(range(200)), observed.some(range(200, 400)), 20)]
    assert names == ["patience", "chance"]


@pytest.mark.parametrize(
    "make",
    [
        lambda: Fixed(0),
        lambda: Patience(0),
        lambda: Patience(2, 1.0),
        lambda: Patience(2, 0.0, 0),
        lambda: Chance((0.0,), rate=2.0),
        lambda: Chance((0.0,)),  # compiled code would read past them
        lambda: Classifier(Trees((0,), (0, -1, -1), (0.5, 0, 0), (1, -1, -1), (9, -1, -1), (0, 1, 2))),
        lambda: Classifier(Trees((0,), (0, -1, -1), (0.5, 0, 0), (1, -1, -1), (0, -1, -1), (0, 1, 2))),  # for ever
        lambda: Classifier(Trees((3,), (-1,), (0.0,), (-1,), (-1,), (1.0,))),
        lambda: Classifier(Trees((0,), (-1,), (0.0,), (-1,), (-1,), (1.0,)), tau=0),
        lambda: from_json({"rule": "magic"}),
        lambda: from_json({"rule": "patience", "round": 3}),
        lambda: from_json({"rule": "cascade", "first": {"rule": "fixed", "lists": 3}, "then": None}),
    ],
)
def test_what_is_refused(make: Any) -> None:
    with pytest.raises(InputError):
        make()


def test_a_rule_learned_on_other_dimensions_is_refused(index: IVF) -> None:
    stump = Trees((0,), (10_000, -1, -1), (0.5, 0, 0), (1, -1, -1), (2, -1, -1), (0, 1, 2))
    for rule in (Classifier(stump, tau=2), PredictedLists(stump, tau=2)):
        with pytest.raises(InputError, match=r"feature 10000 of 28: .* another number of dimensions than 10"):
            index.search(clumps(1)[0], rule=rule)


@pytest.mark.services
def test_forests_learn_where_a_result_is_not_full_after_tau_lists() -> None:
    pytest.importorskip("lightgbm")
    pytest.importorskip("imblearn")
    own = IVF.build(clumps(1500), lists=300)  # five vectors a list
    observed = observe(own, clumps(200, seed=1), 100, 60)
    assert (observed.traces[:, 2, kernels.KTH] == -np.inf).any()
    rule = learning.learn_classifier(observed, 30, tau=3)
    assert (own.search_many(observed.queries, 100, rule=rule).lists == observed.stops(rule)).all()
