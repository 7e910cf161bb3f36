"""When to stop, and how the budget is spread over rounds.

A rule is a value, such as `Patience(2)`; it makes one `Watch` for every query. Before each round but the first, the
watch sees what the search has found and what it would score next, and may say that this is enough:

    @register
    @dataclass(frozen=True, repr=False)
    class Above(Named):                              # a rule of one's own: "above@level=3" by name
        name: ClassVar[str] = "above"
        reason: ClassVar[str] = "score"
        level: float = 0.0

        def watch(self, k): return self
        def enough(self, so_far): return len(so_far.scores) == so_far.k and so_far.scores[-1] >= self.level
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, runtime_checkable

import numpy as np
from scipy.special import ndtr

from crosscut.ann.ivf.rules import Patience
from crosscut.errors import InputError
from crosscut.names import Named, Registry
from crosscut.types import WILD, Floats, Handles

if TYPE_CHECKING:
    from crosscut.search.hits import Round

__all__ = ["Confident", "Never", "Patience", "Schedule", "SoFar", "Stop", "Watch", "parse_stop", "register", "stops"]


@dataclass(frozen=True, slots=True)
class SoFar:
    """One query before a round: the best k so far, every round until now, and the predictions of what comes next."""

    k: int
    handles: Handles  # (≤ k) best first
    scores: Floats  # (≤ k)
    rounds: Sequence[Round]
    estimates: Floats  # of the items that would be scored next


class Watch(Protocol):
    """A stopping rule at work on one query."""

    def enough(self, so_far: SoFar) -> bool:
        """Whether the search of this query ends before its next round. Called once before each."""


@runtime_checkable
class Stop(Protocol):
    """A stopping rule."""

    @property
    def reason(self) -> str:
        """The value of `hits.stop_reason` when it stops a search."""

    def watch(self, k: int) -> Watch:
        """A fresh watch for one query whose best k are asked for."""


_STOPS: Registry[Any] = Registry("stop", "patience@rounds=2")
register, stops = _STOPS.register, _STOPS.known
register(Patience)


@register
@dataclass(frozen=True, repr=False)
class Confident(Named):
    """Enough, once the next items are not expected to change the top k.

    The error of past predictions, σ, determines how likely each of the next items is to exceed the k-th score s_k:
    Σ Φ((ŝ − s_k) / σ) is the number of them that would. The search ends when that is at most a share `misses` of k.
    """

    name: ClassVar[str] = "confident"
    reason: ClassVar[str] = "confident"

    misses: float = 0.02

    def watch(self, k: int) -> Confident:
        return self  # it remembers nothing from round to round

    def enough(self, so_far: SoFar) -> bool:
        if len(so_far.handles) < so_far.k or not np.isfinite(so_far.estimates).all():
            return False
        late = so_far.rounds[1:] or so_far.rounds
        if not np.isfinite(so_far.scores[-1]):
            return False
        errors = np.concatenate([r.scores - r.estimates for r in late])
        errors = errors[np.isfinite(errors)]
        if len(errors) < 2:
            return False
        errors = np.clip(errors, -WILD, WILD)
        spread = float(errors.std() if len(so_far.rounds) == 1 else np.sqrt(np.mean(errors**2)))  # round one: no level
        entering = ndtr((so_far.estimates - so_far.scores[-1]) / max(spread, 1e-12)).sum()
        return bool(entering <= self.misses * so_far.k)


@register
@dataclass(frozen=True, repr=False)
class Never(Named):
    """The whole budget, where a search would stop by itself."""

    name: ClassVar[str] = "never"
    reason: ClassVar[str] = "never"

    def watch(self, k: int) -> Never:
        return self

    def enough(self, so_far: SoFar) -> bool:
        return False


def parse_stop(stop: str | Stop) -> Stop:
    """A stopping rule by name, `"patience@rounds=2"`; a rule is itself."""
    if not isinstance(stop, str) and isinstance(stop, Stop):
        return stop
    rule: Stop = _STOPS.parse(stop)
    return rule


@dataclass(frozen=True)
class Schedule:
    """The number of calls that each round may make.

    Equal shares, the remainder to the last round (with `even`, the earlier rounds are larger by one); or a first round
    of its own size: a share of the budget (`first` below 1) or a number of calls. A budget under the number of rounds
    makes as many rounds of one call.

    With `fill`, a round is one or more *flights*: pairs that a scorer answers side by side, in the time of one. A judge
    that takes eight requests at once needs as long for two calls as for eight: 20 calls are 3 rounds of 6 or 7 then,
    not ten of 2, and 100 calls wait 13 times, not twenty. However many it answers, 3 to 7 rounds are made, of about 8
    calls: with fewer, searches find significantly less.
    """

    rounds: int = 5
    first: float | None = None
    fill: bool = False
    even: bool = False

    free: ClassVar[bool] = False  # a round that is short ends the search

    def __post_init__(self) -> None:
        if not isinstance(self.rounds, int) or self.rounds < 1:
            raise InputError(f"a search needs at least 1 round, a whole number; got {self.rounds}")
        if self.first is not None and not self.first > 0:
            raise InputError(f"the first round must be above 0 (a share or a number of calls); got {self.first}")

    def sizes(self, budget: int, in_flight: int = 1) -> list[int]:
        """Calls per round; they add up to the budget. `in_flight` are the pairs that take as long as one."""
        rounds = min(self.rounds, budget)
        flights = math.ceil(budget / in_flight)
        filled = self.fill and in_flight > 1
        if filled:
            rounds = min(rounds, max(flights, min(max(math.ceil(budget / 8), 3), 7)))
        if rounds <= 1:
            return [budget]
        if self.first is None and filled:
            return _flown(budget, max(rounds, flights), rounds)
        if self.first is None and self.even:
            share, more = divmod(budget, rounds)
            return [share + 1] * more + [share] * (rounds - more)
        if self.first is None:
            share = budget // rounds
            return [share] * (rounds - 1) + [budget - share * (rounds - 1)]
        wanted = self.first * budget if self.first < 1 else self.first
        first = min(max(1, round(wanted)), budget - (rounds - 1))
        share = (budget - first) // (rounds - 1)
        return [first] + [share] * (rounds - 2) + [budget - first - share * (rounds - 2)]


def _flown(budget: int, flights: int, rounds: int) -> list[int]:
    """Calls of each round, made of whole flights, the earlier of more: what is tried last should rest on most."""
    more = flights % rounds
    ends = np.cumsum([flights // rounds + 1] * more + [flights // rounds] * (rounds - more))
    calls = (2 * ends * budget + flights) // (2 * flights)  # rounded: never over what so many flights hold
    return [int(size) for size in np.diff(calls, prepend=0)]
