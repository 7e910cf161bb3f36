"""One harness for all studies: arms are searched on the test queries of a matrix and compared query by query."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from crosscut.evaluation.replay import ScoreData
from crosscut.measures import interval, paired_interval, recall
from crosscut.methods import Method, parse
from crosscut.scorers.adapters import MatrixScorer
from crosscut.searcher import Searcher
from crosscut.types import Floats
from crosscut_lab.report import Records

Cell = tuple[int, int]  # k and budget


@dataclass(frozen=True)
class Arm:
    """One way to search a data set.

    Arms of one name are draws of the same thing: their recalls are averaged query by query.
    """

    name: str
    method: str | Method
    data: ScoreData
    index_calls: int = 0  # of the scorer, before the first search
    parts: dict[str, Any] = field(default_factory=dict)  # of `Parts`, in place of the data set's own
    concurrency: int = 1
    stop: str | None = None
    against: str | None = None  # the arm that this one is compared with; None: the first of the study
    facts: dict[str, Any] = field(default_factory=dict)  # for the records

    def searcher(self, seed: int = 0) -> Searcher:
        scorer = MatrixScorer(self.data.test)
        scorer.concurrency = self.concurrency
        parts = replace(self.data.parts, seed=seed, **self.parts)
        return Searcher(scorer, method=parse(self.method), parts=parts)

    def run(self, cells: Iterable[Cell], seed: int = 0) -> tuple[dict[Cell, Floats], dict[Cell, float]]:
        """Return the recall of every test query and the mean calls, by cell."""
        searcher, recalls, calls = self.searcher(seed), {}, {}
        wanted: dict[int, list[int]] = {}
        for k, budget in cells:
            wanted.setdefault(budget, []).append(k)
        for budget, ks in wanted.items():
            hits = self.data.search(searcher, max(ks), min(budget, self.data.test.shape[1]), stop=self.stop)
            for k in ks:
                values = [recall(row, one.scored, k) for row, one in zip(self.data.test, hits, strict=True)]
                recalls[k, budget] = np.asarray(values)
                calls[k, budget] = float(np.mean([one.calls for one in hits]))
        return recalls, calls


def compare(arms: Iterable[Arm], cells: Iterable[Cell]) -> Records:
    """Run arms and return a record an arm and cell, with the gain over the arm it is compared with."""
    cells = list(cells)
    found: dict[str, tuple[Arm, list[dict[Cell, Floats]], list[dict[Cell, float]]]] = {}
    for arm in arms:
        sizes = [(k, budget) for k, budget in cells if k <= min(budget, arm.data.test.shape[1])]
        recalls, calls = arm.run(sizes)
        _, several, all_calls = found.setdefault(arm.name, (arm, [], []))
        several.append(recalls)
        all_calls.append(calls)
    first = next(iter(found), None)
    records = []
    for name, (arm, several, all_calls) in found.items():
        base = found.get(arm.against or str(first))
        for k, budget in several[0]:
            values = np.mean([one[k, budget] for one in several], axis=0)
            low, high = interval(values)
            made = {
                "arm": name, "method": str(arm.method), "k": k, "budget": budget, "recall": float(values.mean()),
                "low": low, "high": high, "calls": float(np.mean([one[k, budget] for one in all_calls])),
                "index_calls": arm.index_calls, "draws": len(several), **arm.facts,
            }  # fmt: skip
            if base is not None and base[0] is not arm and len(base[1][0].get((k, budget), ())) == len(values):
                theirs = np.mean([one[k, budget] for one in base[1]], axis=0)
                gain, gain_low, gain_high = paired_interval(values, theirs)
                made |= {"against": base[0].name, "gain": gain, "gain_low": gain_low, "gain_high": gain_high}
            records.append(made)
    return records


def tuned(data: ScoreData, method: Method, *, jointly: bool = False, k: int = 10, budget: int = 100) -> Method:
    """Return the best of a method's grid on a data set: one setting after another, or all combinations."""
    import itertools

    def mean(one: Method) -> float:
        return float(Arm("", one, data).run([(k, budget)])[0][k, budget].mean())

    grid = method.grid(data.parts)
    if jointly:
        names = list(grid)
        choices = itertools.product(*([getattr(method, name), *values] for name, values in grid.items()))
        return max((method.with_settings(dict(zip(names, one, strict=True))) for one in choices), key=mean)
    best, most = method, mean(method)
    for name, values in grid.items():
        for value in values:
            other = method.with_settings({**best.settings, name: value})
            if (found := mean(other)) > most:
                best, most = other, found
    return best
