"""Choosing a method, its settings and its stopping rules on train queries.

The truth of a train query is its score with every item. Anchor queries have it already, and cost nothing: they are held
out of the anchors in turn. Other queries are scored exhaustively first, and what that costs is known beforehand.

The choice is made coordinate by coordinate, method first, on the mean recall at the budget. Of what is within one
standard error of the best, the first in the list is taken, and the default method stands first.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from crosscut.errors import InputError
from crosscut.index.state import State
from crosscut.measures import interval, recall
from crosscut.methods import Crosscut, Method, Parts, methods, parse
from crosscut.methods.base import InRounds
from crosscut.scorers.base import BoundScorer, Request
from crosscut.search.hits import Hits
from crosscut.search.recall import TARGETS, Path, RecallModel, calibrate, path_of
from crosscut.search.stopping import Patience, Stop
from crosscut.types import Floats, Positions, Progress, whole

CHOOSING_FOLDS = 4
CALIBRATION_FOLDS = 8
MOST = 100
"""Train queries looked at."""
CALIBRATED = 20
"""Train queries that `target_recall` is calibrated on, at least."""
LOSS = 0.005
"""Recall that patience may cost."""


@dataclass(frozen=True)
class Trial:
    """One candidate on the train queries."""

    method: Method
    recall: float
    low: float
    high: float
    error: float  # standard error of the mean

    def json(self) -> dict[str, Any]:
        return {**vars(self), "method": str(self.method)}


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
    notes: tuple[str, ...] = ()  # what was left out, and why

    def json(self) -> dict[str, Any]:
        """For the manifest and for `--json`."""
        plain = {name: value for name, value in vars(self).items() if not name.startswith("_")}
        plain["trials"] = [trial.json() for trial in self.trials]
        plain["chosen"] = self.chosen.json()
        plain["notes"] = list(self.notes)
        plain["targets"] = [vars(target) for target in self.targets]
        plain["model"] = None if self.model is None else self.model.json()
        return plain


class KnownScores:
    """A bound scorer of texts whose scores with every item are known; `scorer` tells what takes no call of them."""

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
    """Train queries with their truth, and a state that has not seen them."""

    state: State
    queries: list[str]
    vectors: npt.NDArray[Any] | None  # (q × d)
    truth: npt.NDArray[Any]  # (q × n)

    def search(self, method: Method, k: int, budget: int, stop: Stop | None = None) -> list[Hits]:
        allow = None if self.state.alive.all() else self.state.alive
        searcher = self.state.searcher(method)
        return searcher.search_many(self.queries, k, budget, query_vectors=self.vectors, allow=allow, stop=stop)

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
        parts: dict[str, Any] = {"scorer": KnownScores(asked, truth[rows], state.scorer), "cache": None}
        if rest is not None:
            parts["anchors"] = np.asarray(truth[rest])
        return Fold(replace(state, **parts), asked, None if vectors is None else vectors[rows], truth[rows])

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
    tried: Sequence[Method],
    progress: Progress | None = None,
) -> Tuning:
    """The best choice of parts at (k, budget), among `tried`; `make_folds(count)` gives the train queries in folds."""
    folds = make_folds(CHOOSING_FOLDS)
    parts = folds[0].state.parts
    queries = sum(len(fold.queries) for fold in folds)
    if not queries:
        raise InputError("there is nothing to choose from: no train queries")
    trials: list[Trial] = []

    def attempt(method: Method) -> Trial:
        shares = np.array([share for fold in folds for share in fold.recalls(fold.search(method, k, budget), k)])
        low, high = interval(shares)
        error = float(shares.std() / np.sqrt(len(shares)))
        trials.append(Trial(method, float(shares.mean()), low, high, error))
        if progress is not None:
            progress(f"trying {method}", len(trials), len(tried) + 10)
        return trials[-1]

    best = _best_trial([attempt(method) for method in tried])
    for setting, values in best.method.grid(parts).items():
        options = [best.method.with_settings({setting: value}) for value in values]
        best = _best_trial([best, *map(attempt, options)])
    patience, patience_recall, patience_calls = _patience(folds, best, k, budget)
    model: RecallModel | None = None
    targets: tuple[Target, ...] = ()
    notes: list[str] = []
    if not isinstance(best.method, InRounds):
        notes.append(f"target_recall was not calibrated: {best.method} makes one round")
    elif queries < CALIBRATED:
        notes.append(f"target_recall was not calibrated: {queries} train queries, {CALIBRATED} are needed")
    else:
        if progress is not None:
            progress("calibrating target_recall", len(trials), len(trials) + 1)
        model, targets = _targets(make_folds(CALIBRATION_FOLDS), best.method, k, budget)
    chosen = (tuple(trials), best, patience, patience_recall, patience_calls, targets, model, tuple(notes))
    return Tuning(k, budget, queries, calls, *chosen)


def to_try(parts: Parts, candidates: Sequence[str | Method] | None, k: int, budget: int) -> list[Method]:
    """What is tried: every method that can work on these parts, or these, which must; before anything is paid."""
    whole("k", k, 1)
    whole("budget", budget, 1)
    if candidates is None:
        known = [Crosscut(), *(kind() for name, kind in methods().items() if kind.tried and name != Crosscut.name)]
        tried = [one for one in known if one.missing(parts) is None and one.unaided(parts)]
    else:
        tried = [parse(one) for one in candidates]
        for one in tried:
            one.made(parts)
    if not tried:
        raise InputError("there is nothing to choose from: no method that can work here")
    return tried


def _best_trial(trials: Sequence[Trial]) -> Trial:
    top = max(trials, key=lambda trial: trial.recall)
    return next(trial for trial in trials if trial.recall >= top.recall - top.error)


def _patience(folds: Sequence[Fold], best: Trial, k: int, budget: int) -> tuple[int | None, float | None, float | None]:
    """The least patience that loses at most `LOSS` of the recall, if it saves a tenth of the calls."""
    for rounds in (1, 2, 3):
        shares: list[float] = []
        calls: list[int] = []
        for fold in folds:
            found = fold.search(best.method, k, budget, Patience(rounds))
            shares += fold.recalls(found, k)
            calls += [hits.calls for hits in found]
        if np.mean(shares) >= best.recall - LOSS and np.mean(calls) <= 0.9 * budget:
            return rounds, float(np.mean(shares)), float(np.mean(calls))
    return None, None, None


def _targets(folds: Sequence[Fold], method: Method, k: int, budget: int) -> tuple[RecallModel, tuple[Target, ...]]:
    step = max(5, k // 5)
    method = method.with_settings({"rounds": max(2, budget // step)})
    paths: list[Path] = []
    for fold in folds:
        for row, hits in enumerate(fold.search(method, k, budget)):
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
