"""Choosing N and an exit rule on queries of one's own; and the paper's Table 2 for one's own vectors.

Busolin et al. 2024, §3. Of the queries two thirds teach the learned rules and a third is held out to choose by. N is
the fewest lists with R*@1 ≥ target; every rule is capped by N and gets its cheapest parameters (fewest lists in the
mean) that lose at most `loss` of N's R*@1. *N′* is the rival of every rule: the smallest fixed number of lists with
the same R*@1. A rule that needs as many lists as N′ has earned nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from crosscut.ann.ivf.index import IVF, Single
from crosscut.ann.ivf.learning import Observations, learn_chance, learn_classifier, learn_prediction, observe
from crosscut.ann.ivf.rules import TAU, Cascade, Fixed, Patience, Rule
from crosscut.ann.results import as_queries
from crosscut.errors import InputError, MissingDependency, install
from crosscut.types import Progress

TOLERANCES = (0.1, 0.05, 0.0)  # 1 − Φ
WEIGHTS = (1.0, 3.0, 5.0, 7.0)  # w
TAUS = (2, 5, 8, 10, 12, 15)
"""The paper's values of τ."""
MOST = 20_000  # queries
KINDS = ("patience", "chance", "reg", "reg+int", "classifier", "classifier+reg+int", "classifier+patience")


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
    """Result of `tune`. `rule` is the cheapest of the choices at the stated quality."""

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
    taus: Sequence[int] = (TAU,),
    trials: int = 1,
    seed: int = 0,
    progress: Progress | None = None,
) -> Tuned:
    """Choose N and every rule, on train queries only. Learned rules are left out where their packages are missing.

    Of more than 20,000 queries so many are drawn: what lists do for each is in memory.

    Parameters
    ----------
    target
        R*@1 that N must reach.
    k
        The size of the result whose changes patience and stability features watch.
    loss
        How much R*@1 a rule may lose against N.
    rules
        Which of `KINDS` to try; all that can be learned here, when not given.
    taus
        Lists after which learned rules look at the result; each is tried (the paper: `TAUS`).
    trials
        Forests that are grown for every learned rule, with other hyper-parameters; the best on the third is used.
    """
    points = as_queries(queries, index.d, k)
    if len(points) > MOST:
        points = points[np.sort(np.random.default_rng(seed).choice(len(points), MOST, replace=False))]
    if len(points) < 30:
        raise InputError(f"tuning needs 30 queries at least, better a thousand; got {len(points)}")
    if not 0 < target < 1 or not 0 <= loss < target:
        raise InputError(f"target lies between 0 and 1, loss below it; got target={target}, loss={loss}")
    wanted = KINDS if rules is None else tuple(rules)
    if unknown := set(wanted) - set(KINDS):
        raise InputError(f"no rule {sorted(unknown)[0]!r} can be tuned: there are {', '.join(KINDS)}")
    if not taus or min(taus) < 2 or trials < 1:
        raise InputError(f"learned rules look after 2 lists or more, in 1 trial or more; got {tuple(taus)}, {trials}")
    report = progress or (lambda what, done, total: None)
    report("tuning", 0, len(KINDS))
    rows = np.random.default_rng(seed).permutation(len(points))
    observed = observe(index, points, k, deepest(index, points[rows[:500]], target))
    train, held = observed.some(np.sort(rows[len(rows) // 3 :])), observed.some(np.sort(rows[: len(rows) // 3]))
    lists = fewest(observed, target)
    recall = float(held.recall(lists).mean())
    choices = [Choice("fixed", Fixed(lists), recall, float(lists), lists)]
    missing = {*wanted}
    for done, (name, tried) in enumerate(candidates(train, held, lists, taus, trials) if wanted else ()):
        if name in missing:
            choices.append(cheapest(name, tried, held, recall - loss))
            missing.remove(name)
        report("tuning", done + 1, len(KINDS))
        if not missing:
            break
    if missing and rules is not None:
        raise InputError(f"{sorted(missing)[0]!r} could not be tuned: {install('learned')}, or N is too small")
    return Tuned(lists, target, loss, recall - loss, tuple(choices))


def deepest(index: IVF, queries: Single, target: float) -> int:
    """Return how many lists to look at: enough for a recall well above the target, on a sample."""
    needed = observe(index, queries, 1, 1).ranks[:, 0]
    return int(min(max(np.quantile(needed, 1 - (1 - target) / 2), 2 * TAU, 32), index.most))


def fewest(observed: Observations, target: float) -> int:
    """Return the fewest lists with R*@1 ≥ target."""
    ranks = np.sort(observed.ranks[:, 0])
    return int(ranks[max(0, int(np.ceil(target * len(ranks) - 1e-9)) - 1)])


def candidates(
    train: Observations, held: Observations, lists: int, taus: Sequence[int] = (TAU,), trials: int = 1
) -> Iterator[tuple[str, Sequence[Rule]]]:
    """Return every kind of rule with the parameters to try; learned forests where their packages are installed."""
    patient = [rule for share in TOLERANCES for rule in Patience(1, share, lists).variants()]
    yield "patience", patient
    if lists > 1:
        yield "chance", learn_chance(train, lists).variants()
    after = sorted({min(tau, lists) for tau in taus})
    how: dict[str, Any] = {"check": held, "trials": trials}
    try:
        plain, stable = (
            [learn_prediction(train, lists, stability=wanted, tau=tau, **how) for tau in after]
            for wanted in (False, True)
        )
        yield "reg", _variants(plain)
        yield "reg+int", _variants(stable)
        early = [tau for tau in after if tau < lists]
        classifiers = [learn_classifier(train, lists, weight=w, tau=tau, **how) for tau in early for w in WEIGHTS]
    except MissingDependency:
        return
    if classifiers:
        yield "classifier", classifiers
        both = [Cascade(one, then) for then in stable for one in classifiers if one.tau == then.tau]
        yield "classifier+reg+int", _variants(both)
        yield "classifier+patience", [Cascade(one, then) for one in classifiers for then in patient]


def _variants(rules: Sequence[Rule]) -> list[Rule]:
    return [variant for rule in rules for variant in rule.variants()]


def cheapest(name: str, rules: Sequence[Rule], held: Observations, quality: float) -> Choice:
    """Return the rule that probes fewest lists with R*@1 ≥ quality; if none reaches it, the closest."""
    choices = []
    for rule in rules:
        after = held.stops(rule)
        recall = float(held.recall(after).mean())
        choices.append(Choice(name, rule, recall, float(after.mean()), fewest(held, recall)))
    # first by quality, up to what is asked for; then by cost
    return max(choices, key=lambda choice: (min(choice.recall, quality), -choice.lists))
