"""Tuning by what people judged, instead of by recall: method, budget, order of hits, stopping rule.

The choice is made coordinate by coordinate on the mean of a measure over judged queries: method and budget first, each
by scorer and fused, then the weights of the fusion, then the stopping rule. Of what is within `LOSS` of the best, the
one with the fewest calls is taken; of those, the first. In memory a pair is paid once for all trials.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from crosscut.errors import InputError
from crosscut.index.core import Core
from crosscut.measures import interval
from crosscut.methods import Crosscut, Method, parse
from crosscut.scorers.caching import CachingScorer
from crosscut.search.hits import Hits
from crosscut.search.ranking import ByScorer, Fused, Rank
from crosscut.search.stopping import Confident, Patience, Stop
from crosscut.types import Floats, Progress, whole

if TYPE_CHECKING:
    from crosscut.index.index import Index

Measure = Literal["nDCG", "MRR", "accuracy"]
MEASURES: tuple[Measure, ...] = ("nDCG", "MRR", "accuracy")
Judgements = Mapping[str, Mapping[Any, float]]
LOSS = 0.005
BUDGETS = (5, 10, 20, 50, 100, 200, 500, 1000)
RIVALS = ("rerank", "hybrid")
WEIGHTS = tuple(
    Fused(scorer=scorer, dense=dense, words=words)
    for scorer in (0.25, 0.5, 1.0, 2.0, 4.0)
    for dense, words in ((1.0, 1.0), (1.0, 0.5), (0.5, 1.0))
)
RULES: tuple[Stop, ...] = (Confident(), Patience(1), Patience(2), Patience(3))
LEAST = 10
"""Judged queries below which nothing is chosen by them."""


@dataclass(frozen=True)
class RelevanceTrial:
    """One way to search, on the judged queries."""

    method: Method
    budget: int
    rank: Rank
    stop: Stop | None  # None: the whole budget is spent
    value: float
    low: float
    high: float
    calls: float  # mean per query

    def json(self) -> dict[str, Any]:
        told = {name: str(getattr(self, name)) for name in ("method", "rank")}
        return {**vars(self), **told, "stop": None if self.stop is None else str(self.stop)}


@dataclass(frozen=True)
class RelevanceTuning:
    """What was tried and chosen; values are those of the queries that it was chosen on."""

    measure: Measure
    k: int
    queries: int
    trials: tuple[RelevanceTrial, ...]
    chosen: RelevanceTrial

    def json(self) -> dict[str, Any]:
        """For the manifest and for `--json`."""
        told = {"trials": [trial.json() for trial in self.trials], "chosen": self.chosen.json()}
        return {**vars(self), **told}


def relevance_of(hits: Hits, right: Mapping[Any, float], k: int, measure: Measure) -> float:
    """One measure of one query."""
    gains = np.array([max(float(right.get(hit.id, 0)), 0.0) for hit in hits[:k]])
    if measure == "accuracy":
        return float(len(gains) > 0 and gains[0] > 0)
    if measure == "MRR":
        found = np.flatnonzero(gains > 0)
        return 1 / (1 + int(found[0])) if len(found) else 0.0
    ideal = np.sort([gain for gain in right.values() if gain > 0])[::-1][:k]
    return float(gains @ _discounts(len(gains)) / (ideal @ _discounts(len(ideal)))) if len(ideal) else 0.0


def _discounts(size: int) -> Floats:
    return np.asarray(1 / np.log2(np.arange(2, size + 2)))


def remembering(index: Index) -> Index:
    """The same index with a memory: a pair that several searches score is paid once, and no search is logged."""
    view = copy.copy(index)
    view.log = None
    state = None if index.store is not None else index._state
    if state is not None and state.scorer is not None:
        view._state = replace(state, scorer=CachingScorer(state.scorer, state.cache), cache=None)
    return view


def tune_relevance(
    index: Index,
    judgements: Judgements,
    k: int,
    budget: int,
    *,
    measure: Measure = "nDCG",
    methods: Sequence[str | Method] | None = None,
    max_calls: int | None = None,
    progress: Progress | None = None,
) -> RelevanceTuning:
    """The best way to search by a measure; `budget` is the most that is tried."""
    asked, tried, budgets = _checked(index, judgements, k, budget, measure, methods, max_calls)
    view = remembering(index)
    view.stop = view.calibration = None
    trials: list[RelevanceTrial] = []

    def attempt(method: Method, size: int, rank: Rank, stop: Stop | None = None) -> RelevanceTrial:
        stop = stop or view.default_stop(method)  # as a search that is told nothing
        found = view.search_many(list(asked), k, size, method=method, rank=rank, stop=stop)
        each = np.array([relevance_of(hits, asked[hits.query], k, measure) for hits in found])
        calls = float(np.mean([hits.calls for hits in found]))
        trials.append(RelevanceTrial(method, size, rank, stop, float(each.mean()), *interval(each), calls))
        if progress is not None:
            progress("trying", len(trials), 2 * len(tried) * len(budgets) + len(WEIGHTS) + len(RULES))
        return trials[-1]

    ranks: tuple[Rank, ...] = (ByScorer(), Fused())
    best = _best([attempt(method, size, rank) for method in tried for size in budgets for rank in ranks])
    best = _best([best, *(attempt(best.method, best.budget, rank) for rank in WEIGHTS)])
    best = _best([best, *(attempt(best.method, best.budget, best.rank, rule) for rule in RULES)])
    return RelevanceTuning(measure, k, len(asked), tuple(trials), best)


def give_up_choice(index: Core) -> None:
    """Let the usual budget and order of hits apply again, where judgements chose them and nobody has since."""
    chosen = (index.tuned or {}).get("chosen", {})
    if index.budget == chosen.get("budget"):
        index.budget = None
    if str(index.rank) == chosen.get("rank"):
        index.rank = ByScorer()


def named_in(index: Core, judgements: Iterable[Mapping[Any, float]]) -> None:
    """Refuse judgements that name no item of the index as relevant: ids that are others, or no texts."""
    right = [id for each in judgements for id, gain in each.items() if gain > 0]
    if index.store is not None or not right or any(id in index for id in right):  # type: ignore[operator]
        return
    there = next((item.id for item in index._state.items), None)
    raise InputError(
        f"none of the {len(right)} items that are judged relevant is in the index: the first of them is {right[0]!r}, "
        f"and the first item of the index {there!r}; ids have to be the same texts"
    )


def _checked(
    index: Index,
    judgements: Judgements,
    k: int,
    budget: int,
    measure: Measure,
    methods: Sequence[str | Method] | None,
    max_calls: int | None,
) -> tuple[dict[str, Mapping[Any, float]], list[Method], list[int]]:
    """Queries that have something to find, methods and budgets; refused where they make no sense, or too many calls."""
    whole("k", k, 1)
    whole("budget", budget, 1)
    asked = {query: right for query, right in judgements.items() if any(gain > 0 for gain in right.values())}
    if len(asked) < LEAST:
        raise InputError(
            f"{len(asked)} queries have a relevant item, and {LEAST} are needed to choose anything by them"
        )
    named_in(index, asked.values())
    if measure not in MEASURES:
        raise InputError(f"measure is one of {', '.join(MEASURES)}; got {measure!r}")
    there = index.methods if methods is None else ()  # of those that can work here: the default, and what reranks
    usual = [name for name in (Crosscut.name, *RIVALS) if name in there]
    tried = [parse(method) for method in (usual if methods is None else methods)]
    if not tried:
        raise InputError("there is no method to try: none of the usual can work here, or methods=[] names none")
    budgets = [*(size for size in BUDGETS if k <= size < budget), budget]  # k hits are wanted
    most = len(asked) * len(tried) * sum(budgets)
    if index.store is not None:  # over a store nothing is remembered from one trial to the next
        most = 2 * most + len(asked) * (len(WEIGHTS) + len(RULES)) * budget
    if max_calls is not None and most > max_calls:
        raise InputError(
            f"tuning would make up to {most} calls and may make {max_calls}; give fewer queries or methods"
        )
    for method in tried:
        method.made(index._made_from())
    return asked, tried, budgets


def _best(trials: Sequence[RelevanceTrial]) -> RelevanceTrial:
    top = max(trial.value for trial in trials)
    return min((trial for trial in trials if trial.value >= top - LOSS), key=lambda trial: trial.calls)
