"""An index measured on judged queries: k-NN recall against the scorer's own truth, relevance against judgements.

More calls can find what the scorer likes and people do not, so both are reported. Relevance is computed by ir-measures:
queries that a run misses count as zero.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from crosscut.errors import InputError, MissingDependency
from crosscut.index import Index
from crosscut.index.over import StoreIndex
from crosscut.measures import interval, recall
from crosscut.methods import Exact, Method, parse
from crosscut.scores.engines import EngineChoice
from crosscut.search.hits import Hits
from crosscut.types import Floats, Progress

MEASURES = ("nDCG@10", "RR@10", "R@100", "Success@1")
DEPTH = 100


@dataclass(frozen=True)
class Judged:
    """One measure of one method at one budget."""

    method: str
    budget: int | None
    measure: str
    value: float
    low: float
    high: float
    calls: float  # mean per query
    queries: int

    def json(self) -> dict[str, Any]:
        return dict(vars(self))


Truth: TypeAlias = Floats | list[dict[Any, float]]
"""Scores of queries with every item (q × n); over a store, those that deep searches found, id → score."""


def truth_of(
    index: Index, queries: Sequence[str], progress: Progress | None = None, *, engine: EngineChoice = "local"
) -> tuple[Truth, int]:
    """Scores of queries with every item of the index (q × n; −inf: removed), and the calls they took.

    Over a store: with what two deep searches of each query reach (`StoreIndex.truth`).
    """
    if isinstance(index, StoreIndex):
        return index.truth(queries)
    state = index._state
    truth = np.full((len(queries), len(state.items)), -np.inf)
    there = np.flatnonzero(state.alive)
    truth[:, there], calls = index._seller(engine, progress).scores(state, queries, there)
    return truth, calls


def evaluate(
    index: Index,
    queries: dict[str, str],
    judgements: dict[str, dict[str, float]],
    *,
    methods: Sequence[str | Method],
    budgets: Sequence[int],
    k: Sequence[int] = (10,),
    truth: Truth | None = None,
    progress: Progress | None = None,
) -> list[Judged]:
    """Every method at every budget.

    Parameters
    ----------
    queries
        Id → text.
    judgements
        Query id → item id → relevance; may be empty.
    truth
        (q × n) from `truth_of`, in the order of the queries; None leaves k-NN recall out.
    """
    if not queries:
        raise InputError("there are no queries to evaluate on")
    records: list[Judged] = []
    texts = list(queries.values())
    done = 0
    for method in map(parse, methods):
        for budget in (None,) if isinstance(method, Exact) else budgets:
            found = index.search_many(texts, max(DEPTH, *k), budget, method=method)
            calls = float(np.mean([hits.calls for hits in found]))
            values: dict[str, Floats] = {}
            if truth is not None:
                for size in k:
                    shares = [_recall(row, hits, size, index) for row, hits in zip(truth, found, strict=True)]
                    values[f"recall of top {size}"] = np.array(shares)
            if judgements:
                run = {id: {str(hit.id): hit.score for hit in hits} for id, hits in zip(queries, found, strict=True)}
                values |= _relevance({id: judgements.get(id, {}) for id in queries}, run)
            for measure, each in values.items():
                low, high = interval(each)
                records.append(Judged(str(method), budget, measure, float(each.mean()), low, high, calls, len(each)))
            done += 1
            if progress is not None:
                progress("searching", done, len(methods) * len(budgets))
    return records


def _recall(truth: Floats | dict[Any, float], hits: Hits, k: int, index: Index) -> float:
    if not isinstance(truth, dict):
        return recall(truth, hits.scored, min(k, len(index)))
    best = sorted(truth.values(), reverse=True)[:k]  # of what deep searches have reached
    return sum(score >= best[-1] for score in hits.scores[:k]) / len(best) if best else 0.0


def _relevance(judgements: dict[str, dict[str, float]], run: dict[str, dict[str, float]]) -> dict[str, Floats]:
    """Values (judged queries) of each measure."""
    try:
        import ir_measures
    except ImportError as error:
        raise MissingDependency("relevance is measured by ir-measures", "eval") from error
    qrels = {id: {item: int(value) for item, value in judged.items()} for id, judged in judgements.items() if judged}
    values: dict[str, dict[str, float]] = {measure: dict.fromkeys(qrels, 0.0) for measure in MEASURES}
    wanted = [ir_measures.parse_measure(measure) for measure in MEASURES]
    for metric in ir_measures.iter_calc(wanted, qrels, run):
        values[str(metric.measure)][metric.query_id] = float(metric.value)
    return {measure: np.array(list(each.values())) for measure, each in values.items() if each}
