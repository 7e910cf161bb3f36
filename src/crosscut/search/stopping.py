"""When to stop, and how the budget is spread over rounds."""

from __future__ import annotations

from dataclasses import dataclass

from crosscut.ann.patience import Patience, Watch
from crosscut.errors import InputError

__all__ = ["Patience", "Schedule", "Watch"]


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
