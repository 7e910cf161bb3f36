"""Choosing how to search, on queries whose right answers are known.

By recall, the right answer of a query is the scorer's own top k. Anchor queries have it already, and cost nothing: they
are held out of the anchors in turn. Other queries are first scored with every item; over a vector store, with what two
deep searches find. Method, settings and patience are chosen, and `target_recall` is calibrated.

By relevance, it is what people judged. Method, budget, order of hits and stopping rule are chosen.

Either choice is made coordinate by coordinate on the mean over queries.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from crosscut.errors import InputError
from crosscut.index.calibration import Qrels
from crosscut.index.corpus import Corpus, LocalCorpus
from crosscut.measures import interval, recall
from crosscut.methods import Crosscut, Method, Parts, Rerank, methods, parse
from crosscut.methods.base import InRounds
from crosscut.scorers.base import BoundScorer, Request
from crosscut.scorers.caching import CachingScorer
from crosscut.search.hits import Hits
from crosscut.search.ranking import ByScorer, Fused, Order
from crosscut.search.recall import TARGETS, Path, RecallModel, calibrate, path_of
from crosscut.search.stopping import Confident, Patience, Stop
from crosscut.searcher import Searcher
from crosscut.types import Floats, Handles, Positions, Progress, whole

CHOOSING_FOLDS = 4
CALIBRATION_FOLDS = 8
MOST = 100
"""Train queries looked at."""
CALIBRATED = 20
"""Train queries that `target_recall` is calibrated on, at least."""
LOSS = 0.005
"""The loss that patience, or a smaller budget, may have."""
DEEP = 5
"""Budgets that a deep search spends: the truth over a vector store."""
TRIALS = 20
"""Searches of one budget that tuning over a store makes beside them, at most."""
Measure = Literal["nDCG", "MRR", "accuracy"]
MEASURES: tuple[Measure, ...] = ("nDCG", "MRR", "accuracy")
BUDGETS = (5, 10, 20, 50, 100, 200, 500, 1000)
RIVALS = ("rerank", "hybrid")
WEIGHTS = tuple(
    Fused(scorer=scorer, dense=dense, words=words)
    for scorer in (0.25, 0.5, 1.0, 2.0, 4.0)
    for dense, words in ((1.0, 1.0), (1.0, 0.5), (0.5, 1.0))
)
RULES: tuple[Stop, ...] = (Confident(), Patience(1), Patience(2), Patience(3))
BY_SCORER = ByScorer()
JUDGED = 10
"""Judged queries below which nothing is chosen by them."""


@dataclass(frozen=True)
class Trial:
    """One way to search, on the train queries."""

    method: Method
    budget: int
    order: Order
    stop: Stop | None
    value: float
    """Mean of the measure, with its 95 % interval and standard error."""
    low: float
    high: float
    error: float
    calls: float
    """Mean per query."""

    def json(self) -> dict[str, Any]:
        named = {"method": str(self.method), "order": str(self.order)}
        return {**vars(self), **named, "stop": None if self.stop is None else str(self.stop)}


@dataclass(frozen=True)
class Target:
    """Recall that `target_recall` reached on train queries, each predicted by a model that had not seen it."""

    target: float
    recall: float
    calls: float
    fixed_calls: float | None  # the smallest fixed budget with that mean recall


@dataclass(frozen=True)
class Tuning:
    """Result of tuning: the candidates, the choice, and the cost."""

    measure: str
    k: int
    queries: int
    trials: tuple[Trial, ...]
    chosen: Trial
    calls: int = 0
    """Of the scorer, for the right answers."""
    patience: Trial | None = None
    """The patience that saves calls without losing recall, if there is one."""
    targets: tuple[Target, ...] = ()
    model: RecallModel | None = field(default=None, repr=False)
    notes: tuple[str, ...] = ()

    def json(self) -> dict[str, Any]:
        """For the manifest and for `--json`."""
        return {
            **vars(self),
            "trials": [trial.json() for trial in self.trials],
            "chosen": self.chosen.json(),
            "patience": None if self.patience is None else self.patience.json(),
            "targets": [vars(target) for target in self.targets],
            "model": None if self.model is None else self.model.json(),
            "notes": list(self.notes),
        }


class Trials:
    """Runs trials on the same queries and remembers them.

    Parameters
    ----------
    search
        Searches all queries by a method, with a budget, in an order, under a stopping rule.
    values
        The measure of each query (q) from these hits.
    """

    def __init__(
        self,
        search: Callable[[Method, int, Order, Stop | None], list[Hits]],
        values: Callable[[list[Hits]], Sequence[float]],
        total: int,
        progress: Progress | None,
    ) -> None:
        self._search, self._values, self._total, self._progress = search, values, total, progress
        self.done: list[Trial] = []

    def run(self, method: Method, budget: int, order: Order = BY_SCORER, stop: Stop | None = None) -> Trial:
        found = self._search(method, budget, order, stop)
        values = np.array(self._values(found))
        low, high = interval(values)
        error = float(values.std() / np.sqrt(len(values)))
        calls = float(np.mean([hits.calls for hits in found]))
        trial = Trial(method, budget, order, stop, float(values.mean()), low, high, error, calls)
        self.done.append(trial)
        if self._progress is not None:
            self._progress(f"trying {method}", len(self.done), max(self._total, len(self.done)))
        return trial


def usual_methods(parts: Parts) -> list[Method]:
    """Every method that can work on these parts, the default first."""
    every = [Crosscut(), *(kind() for name, kind in methods().items() if kind.tried and name != Crosscut.name)]
    return [one for one in every if one.missing(parts) is None and one.unaided(parts)]


def to_try(parts: Parts, candidates: Sequence[str | Method] | None, usual: list[Method]) -> list[Method]:
    """The methods to try: these, which must work on the parts, or the usual ones; before anything is paid."""
    if candidates is not None:
        usual = [parse(one) for one in candidates]
        for one in usual:
            one.made(parts)
    if not usual:
        raise InputError("there is nothing to choose from: no method that can work here")
    return usual


# -- by recall -------------------------------------------------------------------------------------------------------


class KnownScores:
    """A bound scorer of queries whose scores with every item are known; `scorer` gives the base scores."""

    def __init__(self, queries: Sequence[str], scores: npt.NDArray[Any], scorer: BoundScorer | None = None) -> None:
        self.scorer, self.has_base_scores = scorer, scorer is not None and scorer.has_base_scores
        self.rows = {query: row for row, query in enumerate(queries)}
        self.scores = scores  # (q × n)
        self.n_items = scores.shape[1]

    def base_scores(self, query: Any, positions: Positions | None = None) -> Floats:
        assert self.scorer is not None
        return self.scorer.base_scores(query, positions)

    def base_scores_many(self, queries: Sequence[Any], n: int | None = None) -> list[Floats]:
        assert self.scorer is not None
        return self.scorer.base_scores_many(queries, n)

    def score(self, query: Any, positions: Positions) -> Floats:
        return np.asarray(self.scores[self.rows[query], positions], np.float64)

    def score_many(self, requests: Sequence[Request]) -> list[Floats]:
        return [self.score(query, positions) for query, positions in requests]


@dataclass(frozen=True)
class Fold:
    """Train queries with their truth, and what searches them without having seen them."""

    queries: Sequence[str]
    vectors: npt.NDArray[Any] | None  # (q × d)
    truth: npt.NDArray[Any]  # (q × n) scores; −inf where an item is not there, or not known
    parts: Parts
    searcher: Callable[[Method], Searcher]
    within: Handles | None = None

    def search(self, method: Method, k: int, budget: int, stop: Stop | None = None) -> list[Hits]:
        return self.searcher(method).search_many(
            self.queries, k, budget, query_vectors=self.vectors, within=self.within, stop=stop
        )

    def recalls(self, found: Sequence[Hits], k: int) -> list[float]:
        """Share of each query's true top k that was scored."""
        shares = []
        for row, hits in zip(self.truth, found, strict=True):
            size = min(k, int(np.isfinite(row).sum()))
            shares.append(recall(row, hits.scored[hits.scored < len(row)], size) if size else 0.0)
        return shares


def held_out_folds(
    corpus: LocalCorpus, queries: list[str], truth: npt.NDArray[Any], vectors: Any, *, anchors: bool, folds: int
) -> list[Fold]:
    """Folds of train queries; if these are the `anchors`, a fold leaves its own out of them."""
    if len(set(queries)) != len(queries):
        raise InputError(f"{len(queries)} train queries, {len(set(queries))} of them distinct: give each once")
    truth = np.where(corpus.alive, truth, -np.inf)

    def fold(rows: npt.NDArray[np.int64], rest: npt.NDArray[np.int64] | None) -> Fold:
        asked = [queries[row] for row in rows]
        parts: dict[str, Any] = {"scorer": KnownScores(asked, truth[rows], corpus.scorer), "cache": None}
        if rest is not None:
            parts["anchors"] = np.asarray(corpus.anchors)[rest].astype(np.float32)
            parts["anchor_vectors"] = None if corpus.anchor_vectors is None else corpus.anchor_vectors[rest]
        blind = replace(corpus, **parts)
        some = None if vectors is None else vectors[rows]
        return Fold(asked, some, truth[rows], blind.parts, blind.searcher, blind.within(None))

    order = np.random.default_rng(corpus.seed).permutation(len(queries))
    if not anchors:
        return [fold(order[:MOST], None)]
    folds = min(folds, len(order) // 2)
    return [fold(part[: -(-MOST // folds)], np.setdiff1d(order, part)) for part in np.array_split(order, folds)]


def deep_fold(
    corpus: Corpus, queries: list[str], vectors: Any, budget: int, progress: Progress | None
) -> tuple[Fold, CachingScorer, Callable[[int], Any]]:
    """Train queries over a store: one session for all trials, and what two deep searches find for the truth.

    Also returns the scorer, which counts its calls, and what names a handle.
    """
    view = corpus.view(Rerank())
    scorer = CachingScorer(view.searcher.scorer)

    def searcher(method: Method) -> Searcher:
        return Searcher(scorer, method=method, parts=view.searcher.parts)

    for done, method in enumerate((Rerank(), Crosscut(rounds=20)), 1):
        searcher(method).search_many(queries, 1, budget, query_vectors=vectors)
        if progress is not None:
            progress("deep searches", done, 2)
    known = [scorer.scores.get(query, {}) for query in queries]
    truth = np.full((len(queries), 1 + max((max(one, default=-1) for one in known), default=-1)), -np.inf)
    for row, scores in zip(truth, known, strict=True):
        row[list(scores)] = list(scores.values())
    fold = Fold(queries, vectors, truth, view.searcher.parts, searcher)
    return fold, scorer, lambda handle: view.ids(np.array([handle]))[0]


def tune_by_recall(
    make_folds: Callable[[int], list[Fold]],
    k: int,
    budget: int,
    tried: Sequence[Method],
    progress: Progress | None = None,
) -> Tuning:
    """The best choice of parts at (k, budget), among `tried`; `make_folds(count)` gives the train queries in folds.

    Of what is within one standard error of the best, the first in the list is taken.
    """
    folds = make_folds(CHOOSING_FOLDS)
    queries = sum(len(fold.queries) for fold in folds)
    if not queries:
        raise InputError("there is nothing to choose from: no train queries")

    def search(method: Method, size: int, order: Order, stop: Stop | None) -> list[Hits]:
        return [hits for fold in folds for hits in fold.search(method, k, size, stop)]

    def values(found: list[Hits]) -> list[float]:
        rest = iter(found)
        return [share for fold in folds for share in fold.recalls([next(rest) for _ in fold.queries], k)]

    def first_of(some: Sequence[Trial]) -> Trial:
        top = max(some, key=lambda trial: trial.value)
        return next(trial for trial in some if trial.value >= top.value - top.error)

    trials = Trials(search, values, len(tried) + 10, progress)
    best = first_of([trials.run(method, budget) for method in tried])
    for setting, options in best.method.grid(folds[0].parts).items():
        others = [best.method.with_settings({setting: value}) for value in options]
        best = first_of([best, *(trials.run(method, budget) for method in others)])
    done = tuple(trials.done)
    patient = (trials.run(best.method, budget, stop=Patience(rounds)) for rounds in (1, 2, 3))
    patience = next((one for one in patient if one.value >= best.value - LOSS and one.calls <= 0.9 * budget), None)
    model: RecallModel | None = None
    targets: tuple[Target, ...] = ()
    notes: tuple[str, ...] = ()
    if not isinstance(best.method, InRounds):
        notes = (f"target_recall was not calibrated: {best.method} makes one round",)
    elif queries < CALIBRATED:
        notes = (f"target_recall was not calibrated: {queries} train queries, {CALIBRATED} are needed",)
    else:
        if progress is not None:
            progress("calibrating target_recall", len(trials.done), len(trials.done) + 1)
        model, targets = _targets(make_folds(CALIBRATION_FOLDS), best.method, k, budget)
    return Tuning("recall", k, queries, done, best, 0, patience, targets, model, notes)


def _targets(folds: Sequence[Fold], method: Method, k: int, budget: int) -> tuple[RecallModel, tuple[Target, ...]]:
    step = max(5, k // 5)
    method = method.with_settings({"rounds": max(2, budget // step)})
    paths: list[Path] = []
    for fold in folds:
        for row, hits in enumerate(fold.search(method, k, budget)):
            paths.append(path_of(hits, fold.truth[row], k))
    model = calibrate(paths, k, step)
    fixed = _fixed(paths)
    targets = []
    for target in TARGETS:
        ends = [path.stopped(model.chance(path.features), model.threshold(target)) for path in paths]
        reached, calls = (float(np.mean([end[part] for end in ends])) for part in (0, 1))
        same = next((size for size, share in fixed if share >= reached), None)
        targets.append(Target(target, reached, calls, same))
    return model, tuple(targets)


def _fixed(paths: Sequence[Path]) -> list[tuple[float, float]]:
    """Mean recall of every fixed number of calls."""
    sizes = sorted({size for path in paths for size in path.calls.tolist()})
    means = []
    for size in sizes:
        at = [int(np.searchsorted(path.calls, size, side="right")) - 1 for path in paths]
        means.append((size, float(np.mean([p.recall[j] if j >= 0 else 0.0 for p, j in zip(paths, at, strict=True)]))))
    return means


# -- by relevance ----------------------------------------------------------------------------------------------------


def relevance_of(hits: Hits, gains: Mapping[Any, float], k: int, measure: Measure) -> float:
    """One measure of one query, whose judged items have these gains."""
    found = np.array([max(float(gains.get(hit.id, 0)), 0.0) for hit in hits[:k]])
    if measure == "accuracy":
        return float(len(found) > 0 and found[0] > 0)
    if measure == "MRR":
        right = np.flatnonzero(found > 0)
        return 1 / (1 + int(right[0])) if len(right) else 0.0
    ideal = np.sort([gain for gain in gains.values() if gain > 0])[::-1][:k]
    return float(found @ _discounts(len(found)) / (ideal @ _discounts(len(ideal)))) if len(ideal) else 0.0


def _discounts(size: int) -> Floats:
    return np.asarray(1 / np.log2(np.arange(2, size + 2)))


def tune_by_relevance(
    qrels: Qrels,
    search: Callable[[list[str], Method, int, Order, Stop | None], list[Hits]],
    tried: Sequence[Method],
    budgets: Sequence[int],
    k: int,
    measure: Measure,
    default_stop: Callable[[Method], Stop | None],
    progress: Progress | None = None,
) -> Tuning:
    """The best way to search by a measure: method and budget first, by scorer and fused, then weights, then the rule.

    `default_stop` is the rule of a search that names none. Of what is within `LOSS` of the best, the one with the
    fewest calls is taken; of those, the first.
    """

    def values(found: list[Hits]) -> list[float]:
        return [relevance_of(hits, qrels[hits.query], k, measure) for hits in found]

    def cheapest(some: Sequence[Trial]) -> Trial:
        top = max(trial.value for trial in some)
        return min((trial for trial in some if trial.value >= top - LOSS), key=lambda trial: trial.calls)

    total = 2 * len(tried) * len(budgets) + len(WEIGHTS) + len(RULES)
    trials = Trials(lambda *how: search(list(qrels), *how), values, total, progress)
    orders: tuple[Order, ...] = (ByScorer(), Fused())
    ways = [(method, size, order) for method in tried for size in budgets for order in orders]
    best = cheapest([trials.run(*way, default_stop(way[0])) for way in ways])
    usual = default_stop(best.method)
    best = cheapest([best, *(trials.run(best.method, best.budget, order, usual) for order in WEIGHTS)])
    best = cheapest([best, *(trials.run(best.method, best.budget, best.order, rule) for rule in RULES)])
    return Tuning(measure, k, len(qrels), tuple(trials.done), best)


def judged_queries(qrels: Qrels, corpus: Corpus, measure: str, k: int, budget: int) -> Qrels:
    """The queries that have something to find; refused where they make no sense."""
    whole("k", k, 1)
    whole("budget", budget, 1)
    asked = {query: gains for query, gains in qrels.items() if any(gain > 0 for gain in gains.values())}
    if len(asked) < JUDGED:
        raise InputError(
            f"{len(asked)} queries have a relevant item, and {JUDGED} are needed to choose anything by them"
        )
    check_named(corpus, asked.values())
    if measure not in MEASURES:
        raise InputError(f"measure is one of {', '.join(MEASURES)}; got {measure!r}")
    return asked


def budgets_up_to(k: int, budget: int) -> list[int]:
    """The budgets that are tried, each of which can bring k hits."""
    return [*(size for size in BUDGETS if k <= size < budget), budget]


def check_named(corpus: Corpus, qrels: Iterable[Mapping[Any, float]]) -> None:
    """Refuse judgements that name no item of the index as relevant: ids that are others, or no texts."""
    right = [id for each in qrels for id, gain in each.items() if gain > 0]
    if corpus.place is not None or not right or any(id in corpus for id in right):
        return
    raise InputError(
        f"none of the {len(right)} items that are judged relevant is in the index, the first of them is {right[0]!r}: "
        "ids have to be the same texts as those of the index"
    )
