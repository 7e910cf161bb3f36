"""Choosing N and an exit rule on queries of one's own; and the paper's Table 2 for one's own vectors.

Busolin et al. 2024, §3. Of the queries two thirds teach the learned rules and a third is held out to choose by. N is
the fewest lists with R*@1 ≥ target; every rule is capped by N and gets its cheapest parameters (fewest lists in the
mean) that lose at most `loss` of N's R*@1. *N′* is the rival of every rule: the smallest fixed number of lists with
the same R*@1. A rule that needs as many lists as N′ has earned nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from crosscut.ann.early_exit import (
    TAU,
    Cascade,
    Chance,
    Classifier,
    Fixed,
    Regression,
    Rule,
    Trees,
    first_true,
    patience_stops,
)
from crosscut.ann.ivf import IVF
from crosscut.ann.learned import Lessons, learn_chance, learn_classifier, learn_regression, squared, study
from crosscut.ann.patience import Patience
from crosscut.ann.probing import KEPT
from crosscut.errors import InputError, MissingDependency

Whole = npt.NDArray[np.int64]

ROUNDS = (1, 2, 3, 4, 5, 7, 10, 12, 14, 18, 24, 32)  # Δ
TOLERANCES = (0.1, 0.05, 0.0)  # 1 − Φ
FACTORS = (1.0, 1.5, 2.0, 3.0, 4.0, 6.0, 8.0, 12.0, 16.0)  # of REG's prediction
WEIGHTS = (1.0, 3.0, 5.0, 7.0)  # w
RATES = tuple(float(rate) for rate in np.geomspace(1e-5, 0.2, 60))


@dataclass(frozen=True)
class Choice:
    """A rule with its cheapest parameters, and what it did on the queries held out."""

    name: str
    rule: Rule
    recall: float  # R*@1
    lists: float  # mean number probed
    rival: int  # N′

    @property
    def against_rival(self) -> float:
        """Lists probed over N′: below 1, the rule earns its place."""
        return self.lists / self.rival


@dataclass(frozen=True)
class Tuned:
    """What `tune` found. `rule` is the cheapest of the choices at the stated quality."""

    lists: int  # N
    target: float
    loss: float
    quality: float  # R*@1 that was asked of the rules
    choices: tuple[Choice, ...]

    @property
    def rule(self) -> Rule:
        good = [choice for choice in self.choices if choice.recall >= self.quality]
        return min(good, key=lambda choice: choice.lists).rule

    def __getitem__(self, name: str) -> Choice:
        for choice in self.choices:
            if choice.name == name:
                return choice
        raise InputError(f"no rule {name!r} was tuned: there are {', '.join(choice.name for choice in self.choices)}")


def tune(
    index: IVF,
    queries: npt.ArrayLike,
    *,
    target: float = 0.95,
    k: int = 100,
    loss: float = 0.02,
    rules: Sequence[str] | None = None,
    seed: int = 0,
    progress: Callable[[str], None] | None = None,
) -> Tuned:
    """N and every rule, on train queries only. Learned rules are left out when their packages are not installed.

    Parameters
    ----------
    target
        R*@1 that N must reach.
    k
        The size of the result whose changes patience and stability features watch.
    loss
        How much R*@1 a rule may lose against N.
    rules
        Which kinds to try: patience, chance, reg, reg+int, classifier, …; all when not given.
    """
    points = np.ascontiguousarray(queries, dtype=np.float32)
    if len(points) < 30:
        raise InputError(f"tuning needs 30 queries at least, better a thousand; got {len(points)}")
    if not 0 < target < 1 or not 0 <= loss < target:
        raise InputError(f"target lies between 0 and 1, loss below it; got target={target}, loss={loss}")
    tell = progress or (lambda _: None)
    tell("searching every list")
    rows = np.random.default_rng(seed).permutation(len(points))
    lessons = study(index, points, k, deepest(index, points[rows[:500]], target, k))
    train, held = lessons.some(np.sort(rows[len(rows) // 3 :])), lessons.some(np.sort(rows[: len(rows) // 3]))
    lists = fewest(lessons, target)
    quality = float(held.recall(lists).mean()) - loss
    choices = [Choice("fixed", Fixed(lists), float(held.recall(lists).mean()), float(lists), lists)]
    left = None if rules is None else set(rules)
    for name, tried in candidates(train, held, lists, tell) if left != set() else ():
        if left is None or name in left:
            tell(name)
            choices.append(cheapest(name, tried, held, quality))
        if left is not None:
            left.discard(name)
            if not left:
                break
    if left:
        raise InputError(f"no rule {sorted(left)[0]!r} could be tuned: the package it needs, or the name, is missing")
    return Tuned(lists, target, loss, quality, tuple(choices))


def deepest(index: IVF, queries: npt.NDArray[np.float32], target: float, k: int) -> int:
    """How many lists must be looked at: enough for a recall well above the target, on a sample."""
    needed = study(index, queries, 1, 1).ranks[:, 0]
    return int(min(max(np.quantile(needed, 1 - (1 - target) / 2), 2 * TAU, 32), len(index.centroids)))


def fewest(lessons: Lessons, target: float) -> int:
    """The fewest lists with R*@1 ≥ target."""
    ranks = np.sort(lessons.ranks[:, 0])
    return int(ranks[max(0, int(np.ceil(target * len(ranks) - 1e-9)) - 1)])


def candidates(
    train: Lessons, held: Lessons, lists: int, tell: Callable[[str], None] = lambda _: None
) -> Iterator[tuple[str, list[Rule]]]:
    """Every kind of rule, with the parameters that are tried."""
    patient: list[Rule] = [Patience(rounds, share, lists) for share in TOLERANCES for rounds in ROUNDS]
    yield "patience", patient
    if lists > 1:
        chance = learn_chance(train, lists)
        yield "chance", [replace(chance, rate=rate) for rate in RATES]
    tau = min(TAU, lists)
    try:
        tell("growing forests")
        plain = learn_regression(train, lists, stability=False, tau=tau, check=held)
        stable = learn_regression(train, lists, stability=True, tau=tau, check=held)
        yield "reg", [replace(plain, factor=factor) for factor in FACTORS]
        yield "reg+int", [replace(stable, factor=factor) for factor in FACTORS]
        if lists <= tau:
            return
        classifiers = [learn_classifier(train, lists, weight=w, tau=tau, check=held) for w in WEIGHTS]
    except MissingDependency:
        return
    yield "classifier", list(classifiers)
    yield "classifier+reg+int", [Cascade(c, replace(stable, factor=factor)) for c in classifiers for factor in FACTORS]
    yield "classifier+patience", [Cascade(c, cast(Patience, p)) for c in classifiers for p in patient]


def relatives(rule: Rule) -> list[Rule]:
    """The rules that differ from this one in the parameter that is tuned."""
    if isinstance(rule, Patience):
        return [replace(rule, rounds=rounds) for rounds in ROUNDS]
    if isinstance(rule, Chance):
        return [replace(rule, rate=rate) for rate in RATES]
    if isinstance(rule, Regression):
        return [replace(rule, factor=factor) for factor in FACTORS]
    if isinstance(rule, Cascade):
        return [replace(rule, then=cast("Patience | Regression", then)) for then in relatives(rule.then)]
    if isinstance(rule, Fixed):
        most = rule.lists
        return [Fixed(h) for h in sorted({*range(1, min(33, most)), *range(32, most, 8), most})]
    return [rule]


def cheapest(name: str, rules: list[Rule], held: Lessons, quality: float) -> Choice:
    """The rule that probes fewest lists with R*@1 ≥ quality; if none reaches it, the one that comes closest."""
    best: Choice | None = None
    for rule in rules:
        after = stops(rule, held)
        recall, mean = float(held.recall(after).mean()), float(after.mean())
        # first by quality, up to what is asked for; then by cost
        if best is None or (min(recall, quality), -mean) > (min(best.recall, quality), -best.lists):
            best = Choice(name, rule, recall, mean, fewest(held, recall))
    assert best is not None
    return best


def stops(rule: Rule, lessons: Lessons) -> Whole:
    """After how many lists a rule stops each query, from what was recorded: what the compiled search would do."""
    most = min(rule.lists or lessons.most, lessons.most)
    count = len(lessons.queries)
    if isinstance(rule, Patience):
        return patience_stops(lessons.traces[:, :most, KEPT], rule.rounds, rule.needed(lessons.k))
    if isinstance(rule, Chance):
        return _chance_stops(rule, lessons, most)
    if isinstance(rule, Regression):
        wanted = np.ceil(rule.factor * _grown(rule.trees, lessons, rule.tau)).astype(np.int64)
        return np.clip(wanted, min(rule.tau, most), most)
    if isinstance(rule, Classifier):
        return np.where(_grown(rule.trees, lessons, rule.tau) < 0, min(rule.tau, most), most)
    if isinstance(rule, Cascade):
        leaves = _grown(rule.first.trees, lessons, rule.first.tau) < 0
        later = np.maximum(stops(rule.then, lessons), rule.first.tau)
        if isinstance(rule.then, Patience):
            later = _patience_from(rule.then, lessons, most, rule.first.tau)
        return np.where(leaves, min(rule.first.tau, most), np.minimum(later, most))
    return np.full(count, most, dtype=np.int64)


def _chance_stops(rule: Chance, lessons: Lessons, most: int) -> Whole:
    from crosscut.ann.probing import window

    values = np.array(rule.coefficients)
    key = ("odds", rule.coefficients)
    cache = lessons.__dict__.setdefault("_kept", {})
    if key not in cache:
        cache[key] = values[0] + squared(lessons.clues) @ values[1:]  # (q × N)
    limit = rule.rate * np.array([window(h) for h in range(1, most + 1)])
    return first_true(1 / (1 + np.exp(-cache[key][:, :most])) < limit)


def _grown(trees: Trees, lessons: Lessons, tau: int) -> npt.NDArray[np.float64]:
    from crosscut.ann.probing import grow

    cache = lessons.__dict__.setdefault("_kept", {})
    if ("features", tau) not in cache:
        cache[("features", tau)] = lessons.features(tau)
    if ("grown", trees) not in cache:
        forest = trees.forest()
        cache[("grown", trees)] = np.array([grow(forest, row) for row in cache[("features", tau)]])
    return cast("npt.NDArray[np.float64]", cache[("grown", trees)])


def _patience_from(rule: Patience, lessons: Lessons, most: int, tau: int) -> Whole:
    kept: Any = lessons.traces[:, :most, KEPT] >= rule.needed(lessons.k)
    kept[:, 0] = False
    h = np.arange(1, most + 1)
    since = h - np.maximum.accumulate(np.where(kept, 0, h), axis=1)
    return first_true((since >= rule.rounds) & (h >= tau))
