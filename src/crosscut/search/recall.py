"""`target_recall`: stop when the expected recall is high enough.

Before each round, a query's expected recall of its top k is estimated from what the search has seen,

    r̂ = σ(w · φ),    φ: how likely the next picks are to enter the top k, how much the last rounds changed it,
                        how well predictions have come true, how much was scored

with w from a logistic regression on train queries whose truth is known, and the search stops at r̂ ≥ τ. The threshold τ
of a target is the one at which the train queries, each predicted by a regression that did not see it, reach that recall
on average: it is calibrated on the mean, not trusted as a probability.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from scipy.special import expit, ndtr

from crosscut.errors import InputError
from crosscut.search.hits import Hits, Round
from crosscut.search.stopping import SoFar
from crosscut.types import Floats, Positions

TARGETS = (0.5, 0.6, 0.7, 0.75, 0.8, 0.85, 0.9, 0.925, 0.95, 0.97, 0.98, 0.99)
FEATURES = 12
RIDGE = 1.0
FOLDS = 5


def features(rounds: Sequence[Round], estimates: Floats, k: int) -> Floats:
    """φ (FEATURES) before a round whose picks are predicted to score `estimates`; at least k items are scored."""
    positions = np.concatenate([round.positions for round in rounds])
    scores = np.concatenate([round.scores for round in rounds])
    born = np.repeat(np.arange(len(rounds)), [len(round.positions) for round in rounds])
    top = np.lexsort((positions, -scores))[:k]
    kth = scores[top[-1]]
    errors = np.concatenate([round.scores - round.estimates for round in rounds[-3:]])
    errors = errors[np.isfinite(errors)]
    spread = float(scores.std()) or 1.0
    noise = max(float(np.sqrt(np.mean(errors**2))) if len(errors) else spread, 1e-6 * spread)
    known = estimates[np.isfinite(estimates)]
    known = known if len(known) else np.array([kth])
    entering = np.log(float(ndtr((known - kth) / noise).sum()) + 1e-3)
    entered = _entered(positions, scores, born, len(rounds), k)
    scored = np.log(len(positions))
    quiet = next((back for back, count in enumerate(reversed(entered)) if count), len(entered))
    return np.array(
        [
            1.0,
            entering,
            (kth - known.max()) / noise,
            (kth - known.mean()) / noise,
            entered[-1] / k,
            (entered[-2] if len(entered) > 1 else k) / k,
            min(quiet, 10),
            scored,
            noise / spread,
            np.log1p(sum(entered[-5:])),
            entering**2,
            entering * scored,
        ]
    )


def _entered(positions: Positions, scores: Floats, born: Positions, rounds: int, k: int) -> list[int]:
    """Return how many items each round added to the top k so far."""
    entered = []
    best = np.empty(0, np.int64)
    for number in range(rounds):
        pool = np.concatenate([best, np.flatnonzero(born == number)])
        best = pool[np.lexsort((positions[pool], -scores[pool]))[:k]]
        entered.append(int(np.sum(born[best] == number)))
    return entered


@dataclass(frozen=True)
class Path:
    """One train query, before every round and after the last: φ, the recall so far, the calls so far."""

    features: Floats  # (rounds × FEATURES)
    recall: Floats  # (rounds)
    calls: Floats  # (rounds)

    def stopped(self, chance: Floats, threshold: float) -> tuple[float, float]:
        """Recall and calls of a search that stops at this threshold; the last entry is the end of the budget."""
        enough = np.flatnonzero(chance[:-1] >= threshold)
        at = int(enough[0]) if len(enough) else len(chance) - 1
        return float(self.recall[at]), float(self.calls[at])


def path_of(hits: Hits, truth: Floats, k: int) -> Path:
    """The path of a search without a stop, whose query has these exact scores (n; −inf: not there)."""
    best = set(np.lexsort((np.arange(len(truth)), -truth))[:k].tolist())
    rows: list[Floats] = []
    recalls: list[float] = []
    calls: list[float] = []
    for number in range(1, len(hits.trace) + 1):
        done = hits.trace[:number]
        scored = np.concatenate([round.positions for round in done])
        if len(scored) < k and number < len(hits.trace):
            continue
        last = number == len(hits.trace)
        rows.append(rows[-1] if last and rows else features(done, hits.trace[number % len(hits.trace)].estimates, k))
        recalls.append(len(best & set(scored.tolist())) / min(k, len(truth)))
        calls.append(float(len(scored)))
    return Path(np.array(rows), np.array(recalls), np.array(calls))


@dataclass(frozen=True)
class RecallModel:
    """w, the scale of φ, and the thresholds; `k` and `step` (calls a round) are those it was made with."""

    k: int
    step: int
    weights: tuple[float, ...]
    mean: tuple[float, ...]
    scale: tuple[float, ...]
    targets: tuple[float, ...]
    thresholds: tuple[float, ...]  # one per target

    def chance(self, rows: Floats) -> Floats:
        """r̂ of rows of features."""
        return np.asarray(expit((rows - self.mean) / self.scale @ np.array(self.weights)))

    def threshold(self, target: float) -> float:
        """τ of a target recall, between those that were calibrated."""
        return float(np.interp(target, self.targets, self.thresholds))

    def json(self) -> dict[str, Any]:
        return {name: list(v) if isinstance(v, tuple) else v for name, v in vars(self).items()}

    @classmethod
    def from_json(cls, saved: dict[str, Any]) -> RecallModel:
        parts: dict[str, Any] = {name: tuple(v) if isinstance(v, list) else v for name, v in saved.items()}
        return cls(**parts)


def calibrate(paths: Sequence[Path], k: int, step: int, seed: int = 0) -> RecallModel:
    """The model of train queries whose truth is known."""
    if len(paths) < 2 * FOLDS:
        raise InputError(f"target_recall is calibrated on at least {2 * FOLDS} train queries; got {len(paths)}")
    fold = np.random.default_rng(seed).permutation(len(paths)) % FOLDS
    chances: list[Floats] = [np.empty(0)] * len(paths)
    for number in range(FOLDS):
        weights, mean, scale = _regression([path for path, f in zip(paths, fold, strict=True) if f != number])
        for j in np.flatnonzero(fold == number).tolist():
            chances[j] = expit((paths[j].features - mean) / scale @ weights)
    grid = np.concatenate([np.linspace(0.2, 0.9, 141), np.linspace(0.901, 0.9995, 200)])
    reached = np.array([np.mean([p.stopped(c, tau)[0] for p, c in zip(paths, chances, strict=True)]) for tau in grid])
    thresholds = []
    for target in TARGETS:
        enough = np.flatnonzero(reached >= target)
        thresholds.append(float(grid[enough[0]]) if len(enough) else 2.0)  # never: even the whole budget falls short
    weights, mean, scale = _regression(paths)
    return RecallModel(k, step, tuple(weights), tuple(mean), tuple(scale), TARGETS, tuple(thresholds))


def _regression(paths: Sequence[Path]) -> tuple[Floats, Floats, Floats]:
    """Logistic regression of a share, on standardised features."""
    rows = np.concatenate([path.features for path in paths])  # (m × FEATURES)
    share = np.concatenate([path.recall for path in paths])
    mean, scale = rows.mean(axis=0), rows.std(axis=0) + 1e-9
    mean[0], scale[0] = 0.0, 1.0
    return logistic((rows - mean) / scale, share, RIDGE), mean, scale


def logistic(x: Floats, share: Floats, ridge: Floats | float) -> Floats:
    """Fit weights w (d) such that σ(x w) predicts the share, 0 … 1, of every row.

    Parameters
    ----------
    x
        (m × d) rows; a column of ones is the constant.
    ridge
        For all weights, or one for each (d).
    """
    penalty = np.broadcast_to(np.asarray(ridge, np.float64), x.shape[1:])
    weights = np.zeros(x.shape[1])
    for _ in range(50):
        guess = expit(x @ weights)
        hessian = (x * (guess * (1 - guess) + 1e-6)[:, None]).T @ x + np.diag(penalty)
        step = np.linalg.solve(hessian, x.T @ (share - guess) - penalty * weights)
        weights += step
        if np.abs(step).max() < 1e-8:
            break
    return weights


@dataclass(frozen=True)
class TargetRecall:
    """A stopping rule: enough, once the expected recall of the top k reaches the target."""

    reason: ClassVar[str] = "target recall"

    model: RecallModel
    target: float

    def __post_init__(self) -> None:
        if not 0 < self.target < 1:
            raise InputError(f"a target recall lies between 0 and 1; got {self.target}")

    def watch(self, k: int) -> RecallWatch:
        if k != self.model.k:
            raise InputError(
                f"target_recall was calibrated for k = {self.model.k}, and k = {k} was asked for: tune for it first"
            )
        return RecallWatch(self.model, self.model.threshold(self.target))


@dataclass(frozen=True)
class RecallWatch:
    """The rule for one query."""

    model: RecallModel
    threshold: float

    def enough(self, so_far: SoFar) -> bool:
        """Whether what was scored will do, or the picks that come next are needed too."""
        if len(so_far.handles) < self.model.k:
            return False
        row = features(so_far.rounds, so_far.estimates, self.model.k)
        return bool(self.model.chance(row[None])[0] >= self.threshold)
