"""When to stop, and how the budget is spread over rounds."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field

from crosscut.errors import InputError


@dataclass(frozen=True)
class Patience:
    """Stop when the result has settled: its members stayed for `rounds` rounds in a row.

    Of the k members, a share `tolerance` may change without starting the count again:
    |RS_h ∩ RS_{h−1}| ≥ (1 − tolerance) · k. The same rule stops rounds of calls and, in a clustered index, the
    probing of lists.
    """

    rounds: int = 2
    tolerance: float = 0.0

    def __post_init__(self) -> None:
        if not isinstance(self.rounds, int) or self.rounds < 1:
            raise InputError(f"patience needs at least 1 round, a whole number; got {self.rounds}")
        if not 0 <= self.tolerance < 1:
            raise InputError(f"the tolerance of patience must lie in 0 … 1 (1 excluded); got {self.tolerance}")

    def watch(self, k: int) -> Watch:
        """A fresh count for one query."""
        return Watch(self, k)


@dataclass
class Watch:
    """The running count of one query."""

    rule: Patience
    k: int
    settled: int = 0
    last: frozenset[int] = field(default_factory=frozenset)

    def settled_after(self, members: Collection[int]) -> bool:
        """Whether the result has settled, now that its members are these."""
        now = frozenset(members)
        kept = len(now) == len(self.last) and len(now & self.last) >= (1 - self.rule.tolerance) * len(now)
        self.settled = self.settled + 1 if kept and now else 0
        self.last = now
        return self.settled >= self.rule.rounds


@dataclass(frozen=True)
class Schedule:
    """How many calls each round may make.

    Equal shares, the remainder to the last round; or a first round of its own size: a share of the budget
    (`first` below 1) or a number of calls. A budget under the number of rounds makes as many rounds of one call.
    """

    rounds: int = 5
    first: float | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.rounds, int) or self.rounds < 1:
            raise InputError(f"a search needs at least 1 round, a whole number; got {self.rounds}")
        if self.first is not None and not self.first > 0:
            raise InputError(f"the first round must be above 0 (a share or a number of calls); got {self.first}")

    def sizes(self, budget: int) -> list[int]:
        """Calls per round; they add up to the budget."""
        rounds = min(self.rounds, budget)
        if rounds <= 1:
            return [budget]
        if self.first is None:
            share = budget // rounds
            return [share] * (rounds - 1) + [budget - share * (rounds - 1)]
        wanted = self.first * budget if self.first < 1 else self.first
        first = min(max(1, round(wanted)), budget - (rounds - 1))
        share = (budget - first) // (rounds - 1)
        return [first] + [share] * (rounds - 2) + [budget - first - share * (rounds - 2)]
