"""Patience: stop when the result has settled (Busolin et al. 2024, §2). Both loops share it: rounds and lists."""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

from crosscut.errors import InputError
from crosscut.names import Named

if TYPE_CHECKING:
    from crosscut.ann.probing import Program
    from crosscut.search.stopping import SoFar


@dataclass(frozen=True, repr=False)
class Patience(Named):
    """Stop when the result has settled: its members stayed for `rounds` rounds in a row.

    Of the k members, a share `tolerance` may change without starting the count again:
    |RS_h ∩ RS_{h−1}| ≥ (1 − tolerance) · k. The same rule stops rounds of calls and, in a clustered index, the
    probing of lists; there the paper's Δ is `rounds`, and Φ is 1 − tolerance. `lists` is N, the most lists an index
    may probe; None leaves it to the index.
    """

    name: ClassVar[str] = "patience"
    reason: ClassVar[str] = "patience"

    rounds: int = 2
    tolerance: float = 0.0
    lists: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.rounds < 1:
            raise InputError(f"patience needs at least 1 round, a whole number; got {self.rounds}")
        if not 0 <= self.tolerance < 1:
            raise InputError(f"the tolerance of patience must lie in 0 … 1 (1 excluded); got {self.tolerance}")
        if self.lists is not None and self.lists < 1:
            raise InputError(f"an index probes at least 1 list; got {self.lists}")

    def needed(self, k: int) -> int:
        """How many of k members must stay."""
        return math.ceil((1 - self.tolerance) * k - 1e-9)

    def watch(self, k: int) -> Watch:
        """A fresh count for one query."""
        return Watch(self, k)

    def program(self, k: int, cap: int) -> Program:
        """This rule for the compiled search of an index, which probes `cap` lists at most."""
        from crosscut.ann.probing import Program

        return Program.fixed(min(self.lists or cap, cap))._replace(rounds=self.rounds, needed=self.needed(k))

    def json(self) -> dict[str, Any]:
        """The rule as JSON."""
        return {"rule": "patience", "rounds": self.rounds, "tolerance": self.tolerance, "lists": self.lists}


@dataclass
class Watch:
    """The running count of one query."""

    rule: Patience
    k: int
    settled: int = 0
    last: frozenset[int] = field(default_factory=frozenset)

    def enough(self, so_far: SoFar) -> bool:
        """Whether the best k of a search have settled."""
        return len(so_far.handles) >= self.k and self.settled_after(so_far.handles.tolist())

    def settled_after(self, members: Collection[int]) -> bool:
        """Whether the result has settled, now that its members are these."""
        now = frozenset(members)
        self.settled = self.settled + 1 if len(now & self.last) >= self.rule.needed(self.k) else 0
        self.last = now
        return self.settled >= self.rule.rounds
