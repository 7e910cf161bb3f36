"""Calibration: the probability that an item is relevant, from a scorer's raw score (Platt scaling).

    p = σ(a s + b)

A scorer's numbers mean nothing by themselves: logits, cosines, a service's own scale. Judged queries show how often a
score of that height is relevant; a and b are a logistic regression on the judged pairs, the ten best of each query.
A probability belongs to a pair and a scorer, whatever else is listed with it: a filter, a budget or the other texts of
a request change nothing. That costs precision, since a score says more beside the others of its query: on twelve
collections with 50 judged queries (benchmarks/matrices/evidence.npz) the calibration error of the bundled scorer is
.016 … .033 where about one item a query is relevant (.005 … .017 with the other scores as features), and .084 on
`classic`, which has many (.053).

The base rate belongs to the collection: how many of the best items are relevant cannot be known without judgements
(constants of other collections are off by .5 and more where a query has many relevant items). So without judged queries
there are no probabilities. What reranking endpoints call relevance, 0 … 1, only needs an order and a middle: see
`relevance`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import expit, logit

from crosscut.errors import InputError
from crosscut.types import Floats

DEPTH = 10
"""Hits of a judged query that a calibration is learned from."""
FOLDS = 5
LEAST = 10
"""Judged queries below which nothing is learned."""


@dataclass(frozen=True)
class JudgedScores:
    """The scores of one query's best hits, and which of them are relevant."""

    scores: Floats  # (m ≤ DEPTH)
    relevant: Floats  # (m) 0 or 1


@dataclass(frozen=True)
class Calibration:
    """A map from the scores of one scorer on one collection to probabilities of relevance.

    It was learned from the ten best hits of `queries` judged queries, `pairs` in all, of which `relevant` are relevant.
    `error` and `skill` are the expected calibration error (ten bins of equal size) and the Brier skill on queries that
    were held out.
    """

    fingerprint: str  # of the scorer
    slope: float
    intercept: float
    queries: int
    pairs: int
    relevant: int
    calls: int = 0
    error: float | None = None
    skill: float | None = None

    def probabilities(self, scores: Floats) -> Floats:
        """Return the probabilities (m) that items with these scores are relevant to their query."""
        return np.asarray(expit(self.slope * np.asarray(scores, np.float64) + self.intercept))

    def check(self, fingerprint: str) -> None:
        """Refuse another scorer."""
        if fingerprint != self.fingerprint:
            raise InputError(
                f"these probabilities were calibrated for scorer {self.fingerprint}, and this one is {fingerprint}: "
                "calibrate again (index.calibrate, crosscut calibrate)"
            )

    def json(self) -> dict[str, Any]:
        return dict(vars(self))

    @classmethod
    def from_json(cls, saved: dict[str, Any]) -> Calibration:
        made = cls(**saved)
        if not (np.isfinite([made.slope, made.intercept]).all() and 0 < made.relevant < made.pairs):
            raise ValueError("a calibration has a finite slope and intercept, and relevant and other items")
        return made


def calibrate(judged: Sequence[JudgedScores], fingerprint: str, calls: int = 0) -> Calibration:
    """Return a calibration learned from judged queries; refused where nothing can be learned from them."""
    judged = [query for query in judged if len(query.scores)]
    sizes = [len(query.scores) for query in judged]
    relevant = int(sum(query.relevant.sum() for query in judged))
    others = sum(sizes) - relevant
    if len(judged) < LEAST or not relevant or not others:
        raise InputError(
            f"{len(judged)} judged queries with {relevant} relevant and {others} other items among their best {DEPTH} "
            f"are too few to calibrate on: {LEAST} queries are needed, and items of both kinds"
        )
    from sklearn.model_selection import GroupKFold

    scores = np.concatenate([query.scores for query in judged])
    truth = np.concatenate([query.relevant for query in judged])
    groups = np.repeat(np.arange(len(judged)), sizes)  # pairs of one query are no independent evidence
    held_out = np.empty(len(scores))
    for train, test in GroupKFold(FOLDS).split(scores, groups=groups):
        slope, intercept = _fit(scores[train], truth[train])
        held_out[test] = expit(slope * scores[test] + intercept)
    slope, intercept = _fit(scores, truth)
    return Calibration(
        fingerprint,
        slope,
        intercept,
        queries=len(judged),
        pairs=len(scores),
        relevant=relevant,
        calls=calls,
        error=calibration_error(held_out, truth),
        skill=brier_skill(held_out, truth),
    )


def _fit(scores: Floats, truth: Floats) -> tuple[float, float]:
    """Return slope and intercept; a slope below 0 would turn the order around and counts as none."""
    from sklearn.linear_model import LogisticRegression

    if truth.min() == truth.max():  # a fold without relevant items
        return 0.0, float(logit(np.clip(truth.mean(), 0.5 / len(truth), 1 - 0.5 / len(truth))))
    mean, spread = float(scores.mean()), float(scores.std()) or 1.0
    fit = LogisticRegression().fit(((scores - mean) / spread)[:, None], truth)
    if fit.coef_[0, 0] <= 0:
        return 0.0, float(logit(truth.mean()))
    slope = float(fit.coef_[0, 0]) / spread
    return slope, float(fit.intercept_[0]) - slope * mean


def calibration_error(chance: Floats, truth: Floats, bins: int = 10) -> float:
    """Return the expected calibration error over bins of equal size."""
    order = np.argsort(chance, kind="stable")
    parts = [part for part in np.array_split(order, bins) if len(part)]
    return float(sum(len(part) * abs(chance[part].mean() - truth[part].mean()) for part in parts) / len(chance))


def brier_skill(chance: Floats, truth: Floats) -> float:
    """Return 1 − Brier score / that of the base rate; above 0, probabilities say more than the base rate."""
    rate = truth.mean()
    return float(1 - np.mean((chance - truth) ** 2) / (rate * (1 - rate))) if 0 < rate < 1 else 0.0


def relevance(scorer: Any, scores: Floats, calibration: Calibration | None = None) -> Floats:
    """Return scores as relevance, 0 … 1, in their own order: what clients with thresholds are shown.

    With a calibration it is its probability. Without one, a scorer may have a method `relevance(scores)` (services that
    answer with 0 … 1, judges that rate 0 … 9); all others are taken for logits, whose sigmoid it is.
    """
    if calibration is not None:
        return calibration.probabilities(scores)
    method = getattr(scorer, "relevance", None)
    return np.clip(method(scores), 0.0, 1.0) if callable(method) else np.asarray(expit(scores))
