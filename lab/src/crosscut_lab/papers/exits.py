"""Early exit (Busolin et al. 2024): φ_h and C(q), and every exit rule against A-kNN at N and against N′ (table 2).

| column | meaning |
|---|---|
| R*@1, R*@k | share of the true nearest neighbours found |
| R@100, mRR@10 | against qrels, where there are any |
| lists, vectors | visited and scanned per query, in the mean |
| N′ | the smallest fixed number of lists with the rule's R*@1 |
| lists/N′ | below 1, a rule earns its place; with a 95 % interval over queries |
| ms | per query, in batches of 500, centroid ranking included; median of interleaved runs |
| p | paired t-test against A-kNN at N, on mRR@10 (R*@1 without qrels), Bonferroni-corrected |
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from crosscut.ann.ivf import IVF, NearestMany
from crosscut.ann.ivf.kernels import STAYED
from crosscut.ann.ivf.learning import Observations, observe
from crosscut.ann.ivf.rules import TAU
from crosscut.ann.ivf.tuning import TAUS, Tuned, fewest, tune
from crosscut.errors import InputError
from crosscut.evaluation.replay import ScoreData
from crosscut.types import Array, Floats, Progress
from crosscut_lab.report import Records, record

Gold = Sequence[Sequence[int]]
TIMED = 500
"""Test queries in a timed batch."""


@dataclass(frozen=True)
class RuleResult:
    """One rule on the test queries."""

    name: str
    rule: dict[str, Any]
    recall_1: float
    recall_k: float
    recall_100: float | None
    mrr_10: float | None
    lists: float
    vectors: float
    rival: int  # N′
    against_rival: float
    against_rival_interval: tuple[float, float]  # 95 %, over queries
    ms: float
    speedup: float
    fewer_vectors: float
    p: float


def table_2(
    index: IVF,
    tuned: Tuned,
    queries: npt.ArrayLike,
    *,
    k: int = 100,
    gold: Gold | None = None,
    repeats: int = 5,
    threads: int | None = None,
    progress: Progress | None = None,
) -> tuple[list[RuleResult], dict[str, Any]]:
    """A row per tuned rule, on test queries; and the oracle's limit with the line of fixed numbers of lists."""
    report = progress or (lambda what, done, total: None)
    points = np.ascontiguousarray(queries, dtype=np.float32)
    report("searching the test queries", 0, repeats + 1)
    observed = observe(index, points, k, tuned.lists)
    found = {one.name: index.search_many(points, k, rule=one.rule, threads=threads) for one in tuned.choices}
    seconds: dict[str, list[float]] = {name: [] for name in found}
    timed = points[:TIMED]
    for repeat in range(repeats):  # the rules in turn
        report("searching the test queries", repeat + 1, repeats + 1)
        for one in tuned.choices:
            started = time.perf_counter()
            index.search_many(timed, k, rule=one.rule, threads=threads)
            seconds[one.name].append((time.perf_counter() - started) / len(timed))
    medians = {name: float(np.median(values)) for name, values in seconds.items()}
    judged = {name: None if gold is None else judge(out.ids, gold) for name, out in found.items()}
    compared = {
        name: observed.recall(out.lists) if (of := judged[name]) is None else of[0] for name, out in found.items()
    }
    rows = [
        RuleResult(
            name=one.name,
            rule=parameters(one.rule.json()),
            **_recalls(observed, found[one.name], found["fixed"], k),
            **_judgements(judged[one.name]),
            ms=1000 * medians[one.name],
            speedup=medians["fixed"] / medians[one.name],
            p=_paired(compared[one.name], compared["fixed"], len(found) - 1),
        )
        for one in tuned.choices
    ]
    return rows, {**limits(observed, tuned.lists), "frontier": frontier(tuned, observed)}


def _recalls(observed: Observations, out: NearestMany, fixed: NearestMany, k: int) -> dict[str, Any]:
    """Result of a rule: quality, cost, and the difference to its rival."""
    reached, lists = float(observed.recall(out.lists).mean()), float(out.lists.mean())
    rival = fewest(observed, reached)
    return {
        "recall_1": reached,
        "recall_k": float(observed.recall(out.lists, k).mean()),
        "lists": lists,
        "vectors": float(out.vectors.mean()),
        "fewer_vectors": float(fixed.vectors.mean() / out.vectors.mean()),
        "rival": rival,
        "against_rival": lists / rival,
        "against_rival_interval": earned(observed, out.lists),
    }


def _judgements(judged: tuple[Floats, Floats] | None) -> dict[str, Any]:
    return {
        name: None if judged is None else float(judged[j].mean()) for j, name in enumerate(("mrr_10", "recall_100"))
    }


def parameters(rule: dict[str, Any]) -> dict[str, Any]:
    """A rule as JSON, without what it has learned."""
    settings = {key: value for key, value in rule.items() if key not in ("trees", "coefficients")}
    return {key: parameters(value) if isinstance(value, dict) else value for key, value in settings.items()}


def earned(observed: Observations, lists: npt.NDArray[np.int64], draws: int = 500) -> tuple[float, float]:
    """A 95 % bootstrap interval of lists / N′: queries are drawn anew, and N′ is found anew for each draw."""
    rng = np.random.default_rng(0)
    hits, needed = observed.recall(lists), observed.ranks[:, 0]
    ratios = []
    for _ in range(draws):
        some = rng.integers(0, len(lists), len(lists))
        found = round(float(hits[some].sum()))
        ratios.append(lists[some].mean() / np.sort(needed[some])[max(found - 1, 0)])
    low, high = np.quantile(ratios, [0.025, 0.975])
    return float(low), float(high)


def limits(observed: Observations, lists: int) -> dict[str, Any]:
    """The oracle, which stops when it has found the neighbour or, if N lists do not, at once."""
    needed = observed.ranks[:, 0]
    within = needed <= lists
    return {
        "oracle_lists": float(np.where(within, needed, 1).mean()),
        "oracle_recall_1": float(within.mean()),
    }


def frontier(tuned: Tuned, test: Observations) -> dict[str, list[list[float]]]:
    """Mean lists and R*@1 on test queries over every parameter of every kind of rule, beside the line of N′."""
    line: dict[str, list[list[float]]] = {}
    for choice in tuned.choices:
        points = []
        for rule in choice.rule.variants():
            after = test.stops(rule)
            points.append([round(float(after.mean()), 2), round(float(test.recall(after).mean()), 4)])
        line[choice.name] = sorted(points)
    return line


def judge(ids: npt.NDArray[np.int64], gold: Gold) -> tuple[Floats, Floats]:
    """mRR@10 and R@100 of every query that has qrels."""
    judged = [j for j, items in enumerate(gold) if len(items)]
    first, deep = np.zeros(len(judged)), np.zeros(len(judged))
    for at, j in enumerate(judged):
        hits = np.flatnonzero(np.isin(ids[j, :100], list(gold[j])))
        first[at] = 1 / (hits[0] + 1) if len(hits) and hits[0] < 10 else 0.0
        deep[at] = len(hits) / len(set(gold[j]))
    return first, deep


def _paired(values: Floats, against: Floats, tests: int) -> float:
    from scipy.stats import ttest_rel

    if not np.any(values != against):
        return 1.0
    return float(min(1.0, ttest_rel(values, against).pvalue * max(tests, 1)))


def as_table(rows: Sequence[RuleResult], limit: dict[str, Any], k: int) -> tuple[list[str], list[list[str]]]:
    """Names of columns, and rows of cells; * and ** mark p < 0.05 and p < 0.01."""
    judged = any(row.mrr_10 is not None for row in rows)
    names = ["rule", "R*@1", f"R*@{k}", *(["R@100", "mRR@10"] if judged else [])]
    names += ["lists", "vectors", "N′", "lists/N′", "ms", "speed-up"]
    cells = []
    for row in rows:
        mark = "**" if row.p < 0.01 else "*" if row.p < 0.05 else ""
        shown = [row.name, f"{row.recall_1:.3f}" + ("" if judged else mark), f"{row.recall_k:.3f}"]
        if judged:
            shown += [f"{row.recall_100:.3f}", f"{row.mrr_10:.3f}{mark}"]
        low, high = row.against_rival_interval
        earns = f"{row.against_rival:.2f} [{low:.2f}, {high:.2f}]"
        shown += [f"{row.lists:.1f}", f"{row.vectors:,.0f}", str(row.rival), earns]
        cells.append([*shown, f"{row.ms:.3f}", f"{row.speedup:.2f}×"])
    oracle = [f"{limit['oracle_recall_1']:.3f}", "–", *(["–", "–"] if judged else []), f"{limit['oracle_lists']:.1f}"]
    cells.append(["oracle", *oracle, *["–"] * 5])
    return names, cells


def clustered(data: ScoreData) -> tuple[IVF, Array]:
    """Return the item vectors in the paper's number of clusters, 16 √n rounded up to a power of two; test queries."""
    if data.vectors is None or data.query_vectors is None:
        raise InputError("the study of exits needs vectors of items and of queries")
    rows = np.asarray(data.vectors.rows(np.arange(data.vectors.n)), np.float32)
    count = max(4, min(1 << int(np.ceil(np.log2(16 * np.sqrt(len(rows))))), len(rows) // 8))
    return IVF.build(rows, lists=count, seed=0), np.asarray(data.query_vectors, np.float32)


def exits(data: ScoreData, k: int = 100) -> Records:
    """φ_h against h, for queries that need few lists and for others; the distribution of C(q) (early exit, fig. 1)."""
    index, queries = clustered(data)
    k = min(k, data.test.shape[1] // 4)
    seen = observe(index, queries, k=k)
    kept = seen.traces[:, :, STAYED] / k
    needed = seen.needed(seen.most)
    records = []
    for name, chosen in (("all", needed > 0), (f"C(q) ≤ {TAU}", needed <= TAU), (f"C(q) > {TAU}", needed > TAU)):
        if chosen.any():
            for place in range(1, min(seen.most, 60)):
                values = np.asarray(kept[chosen, place], np.float64)
                records.append(record(f"φ, {name}", k, place + 1, values))
    for place in range(1, min(seen.most, 60)):
        records.append(record("share with C(q) ≤ x", k, place, (needed <= place).astype(np.float64)))
    return records


def exit_rules(data: ScoreData, k: int = 100) -> Records:
    """Every exit rule at equal R*@1, learned and tuned on the train queries: τ ∈ {2 … 15}, hyper-parameters of the
    forests searched (early exit, table 2). x is the mean number of lists."""
    index, queries = clustered(data)
    train = data.anchor_query_vectors
    if train is None:
        raise InputError("exit rules are learned on train queries: their vectors are missing")
    k = min(k, data.test.shape[1] // 4)
    tuned = tune(index, np.asarray(train, np.float32), k=k, taus=TAUS, trials=4)
    rows, limit = table_2(index, tuned, queries, k=k, repeats=1)
    records: Records = [
        {"method": row["name"], "k": 1, "x": row["lists"], "recall": row["recall_1"], **row}
        for row in map(asdict, rows)
    ]
    records.append({"method": "oracle", "k": 1, "x": limit["oracle_lists"], "recall": limit["oracle_recall_1"]})
    return records
