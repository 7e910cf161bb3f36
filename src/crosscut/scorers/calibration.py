"""Portable scores: the probability that an item is relevant, from what any scorer said.

    p = σ(w · φ)

A scorer's numbers mean nothing by themselves: logits, cosines, a service's own scale. But over judged queries it shows
how often a score of that height is relevant, and much more of it shows in how a score stands *among the others of its
query*: φ are the score's distance from the mean of the query's ten best and its lead over the best of the others,

    shape   both in units of the spread of these ten: the same whatever the scorer's scale
    both    those two, and the same two in the scorer's own units
    level   those four, and the mean and the spread of the ten: some queries have more that is relevant than others
    score   the score alone: all there is for a text that comes without others

A search that was cut short has fewer than ten scores: the others would have been lower, and the mean and the spread
of all ten are guessed from what there is (`CUT`). Where everything was scored, or somebody brought the texts, there are
no others.

w is a logistic regression under a ridge on judged pairs, the ten best of each query. Which φ and which ridge is chosen
by cross-validation over queries: pairs of one query are alike, and not evidence each.

Without judgements w of *shape* is a constant, learned over many collections and scorers (`benchmarks/calibration.py`),
and *score* is measured against the scores of random pairs: their mean is 0 there, their spread 1.

A calibration belongs to one scorer and is refused for another.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from scipy.special import expit

from crosscut.errors import InputError
from crosscut.linalg.logistic import logistic
from crosscut.types import Floats

Kind = Literal["score", "shape", "both", "level"]
DEPTH = 10
"""Items of a query that a score is compared with, and that are judged."""
FOLDS = 5
LEAST = 10
"""Judged queries below which nothing is learned from them."""
CHOICES: tuple[tuple[Kind, float], ...] = (("shape", 3.0), ("shape", 30.0), ("level", 3.0), ("level", 30.0))
"""φ and ridge, of standardised features."""
EMPTY = 1e-9
CUT = {
    2: (1.59, 1.60),
    3: (1.15, 1.22),
    4: (1.06, 0.93),
    5: (1.02, 0.70),
    6: (1.00, 0.51),
    7: (0.99, 0.35),
    8: (0.99, 0.21),
    9: (0.99, 0.10),
}
"""Of the best m of ten scores: how much wider all ten spread, and how far below their mean that of all ten lies, in
spreads of all ten. Much the same for every scorer (`benchmarks/calibration.py --constants`)."""
LISTED = 20
"""Texts that somebody brings, from which on their ten best look like those of a search."""


@dataclass(frozen=True)
class Curve:
    """σ(w · φ) of standardised φ."""

    kind: Kind
    mean: tuple[float, ...]
    scale: tuple[float, ...]
    weights: tuple[float, ...]
    level: float

    def chance(self, scores: Floats, among: Floats | None = None, *, cut: bool = False) -> Floats:
        """The probabilities (m) of some scores of one query, whose best scores `among` holds; see `clues`."""
        rows = clues(self.kind, scores, scores if among is None else among, cut=cut)
        standard = (rows - np.array(self.mean)) / np.array(self.scale)
        # row by row, not as a product: a probability then does not depend on how many are asked for
        return np.asarray(expit((standard * np.array(self.weights)).sum(1) + self.level))


SHAPE = Curve("shape", (0.0, 0.0), (1.0, 1.0), (0.899, 0.567), -2.406)
"""Of any scorer, without judgements."""
SCORE = ((0.431,), -5.149)
"""Weight and level of a score against random pairs, without judgements."""


@dataclass(frozen=True)
class JudgedScores:
    """One query: the best scores that a search found, best first, and which of them are relevant."""

    scores: Floats  # (m ≤ DEPTH)
    relevant: Floats  # (m) 0 or 1
    cut: bool = False  # whether there was more to score


@dataclass(frozen=True)
class Calibration:
    """What the scores of one scorer mean.

    `queries` and `relevant` say what it was made from: judged queries, and relevant items among their ten best; 0 where
    it was made from `random` pairs. `error` and `skill` are its expected calibration error (ten bins of equal size)
    and its Brier skill on queries that it was not made from, where there were any.
    """

    fingerprint: str  # of the scorer
    among: Curve
    alone: Curve
    queries: int = 0
    relevant: int = 0
    random: int = 0
    calls: int = 0
    error: float | None = None
    skill: float | None = None
    order: str = "scorer"  # the order of hits that it is for
    notes: tuple[str, ...] = field(default=())

    def probabilities(self, scores: Floats, among: Floats | None = None, *, cut: bool = False) -> Floats:
        """The probabilities (m) that items with these scores are relevant to their query.

        `among` is everything that was scored for the query; without it (m) or with a single score, each score counts
        by itself. `cut` says that there was more to score, and that these are the best of it.
        """
        scores = np.asarray(scores, np.float64)
        if among is None or len(among) < 2:
            return self.alone.chance(scores)
        return self.among.chance(scores, np.asarray(among, np.float64), cut=cut)

    def check(self, fingerprint: str) -> None:
        """Refuse another scorer."""
        if fingerprint != self.fingerprint:
            raise InputError(
                f"these probabilities were calibrated for scorer {self.fingerprint}, and this one is {fingerprint}: "
                "calibrate again (index.calibrate, crosscut calibrate)"
            )

    def json(self) -> dict[str, Any]:
        return {**vars(self), "among": vars(self.among), "alone": vars(self.alone), "notes": list(self.notes)}

    @classmethod
    def from_json(cls, saved: dict[str, Any]) -> Calibration:
        def curve(told: dict[str, Any]) -> Curve:
            lists = {name: tuple(map(float, told[name])) for name in ("mean", "scale", "weights")}
            made = Curve(kind=told["kind"], level=float(told["level"]), **lists)
            wanted = clues(made.kind, np.zeros(2), np.zeros(2)).shape[1]
            if {len(made.mean), len(made.scale), len(made.weights)} != {wanted}:
                raise ValueError(f"a curve of kind {made.kind!r} has {wanted} means, scales and weights")
            if not (np.isfinite([made.level, *made.mean, *made.scale, *made.weights]).all() and all(made.scale)):
                raise ValueError("a curve of a calibration is made of numbers, and of no scale of 0")
            return made

        parts = {"among": curve(saved["among"]), "alone": curve(saved["alone"]), "notes": tuple(saved["notes"])}
        return cls(**{**saved, **parts})


def clues(kind: Kind, scores: Floats, among: Floats, *, cut: bool = False) -> Floats:
    """φ (m × d) of scores of one query; `cut`: of a search that had more to score."""
    if kind == "score":
        return scores[:, None]
    best = np.sort(among)[::-1][:DEPTH]
    middle, spread = best.mean(), max(float(best.std()), EMPTY)
    if cut and len(best) in CUT:
        wider, below = CUT[len(best)]
        spread *= wider
        middle -= below * spread
    second = best[1] if len(best) > 1 else best[0]
    other = np.where(scores >= best[0], second, best[0])  # the best of the others
    plain = np.stack([scores - middle, scores - other], 1)
    if kind == "shape":
        return plain / spread
    whole = np.tile([middle, spread], (len(scores), 1 if kind == "level" else 0))
    return np.concatenate([plain / spread, plain, whole], 1)


def against_random(scores: Floats, fingerprint: str, calls: int = 0) -> Calibration:
    """A calibration without judgements, from the scores of random pairs."""
    if len(scores) < LEAST or not float(np.std(scores)) > 0:
        raise InputError(f"{len(scores)} random pairs with a spread of {np.std(scores):.3g} say nothing of a scorer")
    alone = Curve("score", (float(np.mean(scores)),), (float(np.std(scores)),), *SCORE)
    return Calibration(
        fingerprint, SHAPE, alone, random=len(scores), calls=calls, notes=("no judgements: an educated guess",)
    )


def calibrate(judged: Sequence[JudgedScores], fingerprint: str, calls: int = 0, order: str = "scorer") -> Calibration:
    """A calibration from judged queries; refused where nothing can be learned from them."""
    judged = [query for query in judged if len(query.scores)]
    right = int(sum(query.relevant.sum() for query in judged))
    wrong = sum(len(query.scores) for query in judged) - right
    if len(judged) < LEAST or not right or not wrong:
        raise InputError(
            f"{len(judged)} judged queries with {right} relevant and {wrong} other items among their best {DEPTH} are "
            f"too few to calibrate on: {LEAST} queries are needed, and items of both kinds"
        )
    fold = np.random.default_rng(0).permutation(len(judged)) % FOLDS
    held = {choice: held_out(judged, fold, *choice) for choice in CHOICES}
    best = min(CHOICES, key=lambda choice: loss(judged, held[choice]))
    chance, truth = np.concatenate(held[best]), np.concatenate([query.relevant for query in judged])
    return Calibration(
        fingerprint,
        learned(judged, *best),
        learned(judged, "score", CHOICES[0][1]),
        queries=len(judged),
        relevant=right,
        calls=calls,
        order=order,
        error=calibration_error(chance, truth),
        skill=brier_skill(chance, truth),
    )


def learned(judged: Sequence[JudgedScores], kind: Kind, ridge: float) -> Curve:
    """The curve of some judged queries."""
    rows = np.concatenate([clues(kind, query.scores, query.scores, cut=query.cut) for query in judged])
    truth = np.concatenate([query.relevant for query in judged])
    mean, scale = rows.mean(0), rows.std(0) + EMPTY
    x = np.concatenate([(rows - mean) / scale, np.ones((len(rows), 1))], 1)
    weights = logistic(x, truth, np.append(np.full(rows.shape[1], ridge), 0.1))
    parts = [tuple(values.tolist()) for values in (mean, scale, weights[:-1])]
    return Curve(kind, parts[0], parts[1], parts[2], float(weights[-1]))


def held_out(judged: Sequence[JudgedScores], fold: Any, kind: Kind, ridge: float) -> list[Floats]:
    """The probabilities of every query's items, by a curve that has not seen the query."""
    chances: list[Floats] = [np.empty(0)] * len(judged)
    for number in range(FOLDS):
        curve = learned([query for query, own in zip(judged, fold, strict=True) if own != number], kind, ridge)
        for place in np.flatnonzero(fold == number).tolist():
            chances[place] = curve.chance(judged[place].scores, cut=judged[place].cut)
    return chances


def loss(judged: Sequence[JudgedScores], chances: Sequence[Floats]) -> float:
    """Mean logarithmic loss of a query."""
    each = []
    for query, chance in zip(judged, chances, strict=True):
        sure = np.clip(np.where(query.relevant > 0, chance, 1 - chance), 1e-6, None)
        each.append(float(-np.log(sure).mean()))
    return float(np.mean(each))


def calibration_error(chance: Floats, truth: Floats, bins: int = 10) -> float:
    """Expected calibration error over bins of equal size: how far a stated probability is from what happens."""
    order = np.argsort(chance, kind="stable")
    parts = [part for part in np.array_split(order, bins) if len(part)]
    return float(sum(len(part) * abs(chance[part].mean() - truth[part].mean()) for part in parts) / len(chance))


def brier_skill(chance: Floats, truth: Floats) -> float:
    """1 − Brier score / that of the base rate: above 0, the probabilities say more than how often items are right."""
    rate = truth.mean()
    return float(1 - np.mean((chance - truth) ** 2) / (rate * (1 - rate))) if 0 < rate < 1 else 0.0


def relevance(scorer: Any, scores: Floats, calibration: Calibration | None = None) -> Floats:
    """Relevance of every score of one query; it keeps their order."""
    if calibration is not None:
        return calibration.probabilities(scores, scores)
    own = getattr(scorer, "relevance", None)
    return np.clip(own(scores), 0.0, 1.0) if callable(own) else np.asarray(expit(scores))
