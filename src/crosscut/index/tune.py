"""Choosing a method, its settings and its stopping rules on train queries.

The truth of a train query is its score with every item. Anchor queries have it already, and cost nothing: they are held
out of the anchors in turn. Other queries are scored exhaustively first, and what that costs is known beforehand.

The choice is made coordinate by coordinate, method first, on the mean recall at the budget. Of what is within one
standard error of the best, the first in the list is taken, and the default method stands first.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from crosscut.errors import InputError
from crosscut.index.state import NEEDS_ANCHORS, TAKES_FIRST, FirstChoice, State
from crosscut.measures import interval, recall
from crosscut.scorers.base import Request
from crosscut.search.hits import Hits
from crosscut.search.recall import TARGETS, Path, RecallModel, calibrate, path_of
from crosscut.search.stopping import Patience
from crosscut.types import Floats, Positions, Progress

CHOOSING_FOLDS = 4
CALIBRATION_FOLDS = 8
MOST = 100
"""Train queries looked at."""
LOSS = 0.005
"""Recall that patience may cost."""


@dataclass(frozen=True)
class Trial:
    """One candidate on the train queries."""

    method: str
    first: FirstChoice
    settings: dict[str, Any]
    recall: float
    low: float
    high: float
    error: float  # standard error of the mean

    @property
    def name(self) -> str:
        told = [f"first={self.first}"] if self.first != "auto" else []
        told += [f"{name}={value:g}" for name, value in self.settings.items()]
        return self.method + (f"@{','.join(told)}" if told else "")


@dataclass(frozen=True)
class Target:
    """What `target_recall` came to on train queries, each judged by a model that had not seen it."""

    target: float
    recall: float
    calls: float
    fixed_calls: float | None  # the smallest fixed budget with that mean recall


@dataclass(frozen=True)
class Tuning:
    """What was tried, what was chosen, and what it cost."""

    k: int
    budget: int
    queries: int
    calls: int  # of the scorer, for the truth
    trials: tuple[Trial, ...]
    chosen: Trial
    patience: int | None
    patience_recall: float | None
    patience_calls: float | None
    targets: tuple[Target, ...] = ()
    model: RecallModel | None = field(default=None, repr=False)

    def json(self) -> dict[str, Any]:
        """For the manifest and for `--json`."""
        plain = {name: value for name, value in vars(self).items() if not name.startswith("_")}
        plain["trials"] = [{"name": trial.name, **vars(trial)} for trial in self.trials]
        plain["chosen"] = {"name": self.chosen.name, **vars(self.chosen)}
        plain["targets"] = [vars(target) for target in self.targets]
        plain["model"] = None if self.model is None else self.model.json()
        return plain


class Known:
    """A bound scorer of texts whose scores with every item are known."""

    def __init__(self, queries: Sequence[str], scores: npt.NDArray[Any]) -> None:
        self.rows = {query: row for row, query in enumerate(queries)}
        self.scores = scores  # (q × n)
        self.n_items = scores.shape[1]

    def score(self, query: Any, positions: Positions) -> Floats:
        return np.asarray(self.scores[self.rows[query], positions], np.float64)

    def score_many(self, requests: Sequence[Request]) -> list[Floats]:
        return [self.score(query, positions) for query, positions in requests]


@dataclass(frozen=True)
class Fold:
    """Train queries with their truth, and a state that has not seen them."""

    state: State
    queries: list[str]
    vectors: npt.NDArray[Any] | None  # (q × d)
    truth: npt.NDArray[Any]  # (q × n)

    def search(self, method: str, first: FirstChoice, settings: dict[str, Any], k: int, budget: int) -> list[Hits]:
        searcher = self.state.searcher(method, first, settings)
        allow = None if self.state.alive.all() else self.state.alive
        return searcher.search_many(self.queries, k, budget, query_vectors=self.vectors, allow=allow)

    def recalls(self, found: Sequence[Hits], k: int) -> list[float]:
        """Share of each query's true top k that was scored; what is removed is not there."""
        alive = self.state.alive
        there = np.where(alive, self.truth, -np.inf)
        size = min(k, int(alive.sum()))
        return [recall(row, hits.scored, size) for row, hits in zip(there, found, strict=True)]


def folds_of(
    state: State,
    queries: list[str],
    truth: npt.NDArray[Any],
    vectors: npt.NDArray[Any] | None,
    *,
    held_out: bool,
    folds: int,
    seed: int = 0,
) -> list[Fold]:
    """Folds of the train queries; with `held_out` they are the anchors, and a fold leaves its own out."""
    if len(set(queries)) != len(queries):
        raise InputError(f"{len(queries)} train queries, {len(set(queries))} of them distinct: give each once")

    def fold(rows: npt.NDArray[np.int64], rest: npt.NDArray[np.int64] | None) -> Fold:
        asked = [queries[row] for row in rows]
        parts: dict[str, Any] = {"scorer": Known(asked, truth[rows]), "cache": None}
        if rest is not None:
            parts["anchors"] = np.asarray(truth[rest])
        return Fold(state.changed(**parts), asked, None if vectors is None else vectors[rows], truth[rows])

    order = np.random.default_rng(seed).permutation(len(queries))
    if not held_out:
        return [fold(order[:MOST], None)]
    folds = min(folds, len(order) // 2)
    return [fold(part[: -(-MOST // folds)], np.setdiff1d(order, part)) for part in np.array_split(order, folds)]


def tune(
    make_folds: Callable[[int], list[Fold]],
    k: int,
    budget: int,
    calls: int,
    progress: Progress | None = None,
) -> Tuning:
    """The best choice of parts at (k, budget); `make_folds(count)` gives the train queries in folds."""
    folds = make_folds(CHOOSING_FOLDS)
    state = folds[0].state
    trials: list[Trial] = []

    def attempt(method: str, first: FirstChoice = "auto", **settings: Any) -> Trial:
        shares = np.array([s for f in folds for s in f.recalls(f.search(method, first, settings, k, budget), k)])
        low, high = interval(shares)
        error = float(shares.std() / np.sqrt(len(shares)))
        trials.append(Trial(method, first, settings, float(shares.mean()), low, high, error))
        if progress is not None:
            progress("trying methods and settings", len(trials), 16)
        return trials[-1]

    names = ["crosscut", *(m for m in NEEDS_ANCHORS if state.anchors is not None)]
    names += ["axn"] * (state.vectors is not None) + ["rnr"]
    best = _best_trial([attempt(name) for name in names])
    for setting, values in _grid(best.method, state).items():
        options = [best]
        for value in values:
            if setting == "first":
                options.append(attempt(best.method, value, **best.settings))
            else:
                options.append(attempt(best.method, best.first, **{**best.settings, setting: value}))
        best = _best_trial(options)
    patience, patience_recall, patience_calls = _patience(folds, best, k, budget)
    model: RecallModel | None = None
    targets: tuple[Target, ...] = ()
    queries = sum(len(fold.queries) for fold in folds)
    if "rounds" in _grid(best.method, state) and queries >= 20:
        if progress is not None:
            progress("calibrating target_recall", 15, 16)
        model, targets = _targets(make_folds(CALIBRATION_FOLDS), best, k, budget)
    return Tuning(
        k, budget, queries, calls, tuple(trials), best, patience, patience_recall, patience_calls, targets, model
    )


def _grid(method: str, state: State) -> dict[str, tuple[Any, ...]]:
    """What is tried of a method, one setting after another."""
    grid: dict[str, tuple[Any, ...]] = {}
    if method in ("crosscut", "axn", "adacur"):
        grid["rounds"] = (5, 20) if method == "crosscut" else (10, 20)
    if method in TAKES_FIRST:
        grid["first"] = (*["dense"] * (state.vectors is not None), *["lexical"] * (state.bm25 is not None))
    if method == "crosscut":
        grid |= {"ridge": (0.3, 3.0), "stretch": (1.0, 10.0)}
    if method == "axn":
        grid["mix"] = (0.3, 0.8)
    if method == "anncur":
        grid["split"] = (0.3, 0.7)
    return grid


def _best_trial(trials: Sequence[Trial]) -> Trial:
    top = max(trials, key=lambda trial: trial.recall)
    return next(trial for trial in trials if trial.recall >= top.recall - top.error)


def _patience(folds: Sequence[Fold], best: Trial, k: int, budget: int) -> tuple[int | None, float | None, float | None]:
    """The least patience that loses at most `LOSS` of the recall, if it saves a tenth of the calls."""
    for rounds in (1, 2, 3):
        shares: list[float] = []
        calls: list[int] = []
        for fold in folds:
            searcher = fold.state.searcher(best.method, best.first, best.settings)
            allow = None if fold.state.alive.all() else fold.state.alive
            found = searcher.search_many(
                fold.queries, k, budget, query_vectors=fold.vectors, allow=allow, stop=Patience(rounds)
            )
            shares += fold.recalls(found, k)
            calls += [hits.calls for hits in found]
        if np.mean(shares) >= best.recall - LOSS and np.mean(calls) <= 0.9 * budget:
            return rounds, float(np.mean(shares)), float(np.mean(calls))
    return None, None, None


def _targets(folds: Sequence[Fold], best: Trial, k: int, budget: int) -> tuple[RecallModel, tuple[Target, ...]]:
    step = max(5, k // 5)
    settings = {**best.settings, "rounds": max(2, budget // step)}
    paths: list[Path] = []
    for fold in folds:
        for row, hits in enumerate(fold.search(best.method, best.first, settings, k, budget)):
            paths.append(path_of(hits, np.where(fold.state.alive, fold.truth[row], -np.inf), k))
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
