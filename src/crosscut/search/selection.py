"""Which items to score next, given predictions (ADACUR alg. 2)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, Protocol, TypeAlias, runtime_checkable

import numpy as np

from crosscut.ann.base import Found
from crosscut.errors import InputError
from crosscut.linalg.top import best, ranked, slack_for
from crosscut.types import Array, Positions

Rerank: TypeAlias = Callable[[Positions, int], Found]
"""The best `count` of some places by exact prediction, best first."""


@runtime_checkable
class Selection(Protocol):
    """A rule that picks the next items. `whole`: it looks at every prediction, not only at the highest."""

    whole: ClassVar[bool] = True

    def pick(self, predicted: Array, count: int, rng: np.random.Generator, rerank: Rerank) -> Found:
        """At most `count` places and their predictions. A prediction of −inf marks what must not be picked."""


@dataclass(frozen=True)
class Top(Selection):
    """The highest predictions (TopK)."""

    whole: ClassVar[bool] = False

    def pick(self, predicted: Array, count: int, rng: np.random.Generator, rerank: Rerank) -> Found:
        return rerank(best(predicted, count, slack_for(count)), count)


@dataclass(frozen=True)
class Softmax(Selection):
    """A sample without replacement, with probabilities ∝ exp(prediction / temperature)."""

    temperature: float = 1.0

    def __post_init__(self) -> None:
        if not self.temperature > 0:
            raise InputError(f"the temperature of softmax sampling must be above 0; got {self.temperature}")

    def pick(self, predicted: Array, count: int, rng: np.random.Generator, rerank: Rerank) -> Found:
        # Gumbel noise turns the top of noisy logits into such a sample
        noisy = predicted / self.temperature + rng.gumbel(size=len(predicted))
        return _top_of(noisy, predicted, count)


@dataclass(frozen=True)
class Random(Selection):
    """A uniform sample."""

    def pick(self, predicted: Array, count: int, rng: np.random.Generator, rerank: Rerank) -> Found:
        return _top_of(np.where(predicted > -np.inf, rng.random(len(predicted)), -np.inf), predicted, count)


@dataclass(frozen=True)
class Diverse(Selection):
    """A share ε picked uniformly, the rest by another rule (ADACUR C.2)."""

    rule: Selection
    epsilon: float

    def __post_init__(self) -> None:
        if not 0 <= self.epsilon <= 1:
            raise InputError(f"the random share ε must lie in 0 … 1; got {self.epsilon}")

    def pick(self, predicted: Array, count: int, rng: np.random.Generator, rerank: Rerank) -> Found:
        drawn = round(self.epsilon * count)
        chosen, estimates = self.rule.pick(predicted, count - drawn, rng, rerank)
        rest = predicted.copy()
        rest[chosen] = -np.inf
        more, further = Random().pick(rest, drawn, rng, rerank)
        return Found(np.concatenate([chosen, more]), np.concatenate([estimates, further]))


def _top_of(keys: Array, predicted: Array, count: int) -> Found:
    places = ranked(keys, count)
    return Found(places, predicted[places].astype(np.float64))


SELECTIONS: dict[str, Selection] = {"top": Top(), "softmax": Softmax(), "random": Random()}


def as_selection(rule: str | Selection, epsilon: float = 0.0) -> Selection:
    """A selection rule by name, with a random share."""
    if isinstance(rule, str):
        if rule not in SELECTIONS:
            raise InputError(f"unknown selection {rule!r}: choose one of {', '.join(SELECTIONS)}")
        rule = SELECTIONS[rule]
    return Diverse(rule, epsilon) if epsilon else rule
