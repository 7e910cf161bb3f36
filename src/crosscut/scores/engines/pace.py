"""How long a purchase will take and what it will cost, from a probe of a few pairs that are kept."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from crosscut.scores.engines.tasks import Gap, Task
from crosscut.scores.engines.worker import Order, TaskReport, score_task
from crosscut.scores.records import Damage

BLOCK_SECONDS = 5.0
BLOCK_PAIRS = (512, 4096, 262_144)  # the smallest, the one without a probe, the largest
WARMED, PROBED = 8, 32


@dataclass(frozen=True)
class Estimate:
    """What a purchase will do, before it does it. Time and cost are rough."""

    pairs: int
    known: int
    calls: int
    pairs_per_second: float | None = None
    seconds: float | None = None
    cost: float | None = None
    damaged: list[Damage] = field(default_factory=list)


@dataclass(frozen=True)
class Pace:
    """Seconds for an item when it is first met, and for a pair; how many items there are, about."""

    item: float
    pair: float
    items: int

    def rate(self, workers: int) -> float:
        return workers / max(self.pair, 1e-9)

    def seconds(self, pairs: int, workers: int) -> float:
        return (pairs * self.pair + min(pairs, self.items) * self.item) / workers

    @property
    def block_pairs(self) -> int:
        """Pairs that one worker scores in about five seconds."""
        smallest, _, largest = BLOCK_PAIRS
        return int(np.clip(2 ** round(np.log2(self.rate(1) * BLOCK_SECONDS)), smallest, largest))


def probe(order: Order, gaps: Sequence[Gap], room: int, report: TaskReport) -> Pace:
    """Time at most `room` of the missing pairs, and keep them.

    A few to warm up, then one query with items that are new to the scorer, then another with the same items: models
    that encode an item once are slower the first time.
    """
    missing = [gap.first(WARMED + PROBED) for gap in gaps[:2]]
    parts = [(gaps[0].row, missing[0][:WARMED])]
    parts += [(gap.row, first[WARMED:]) for gap, first in zip(gaps[:2], missing, strict=True)]
    times: list[float] = []
    for row, positions in parts:
        positions = positions[:room]
        if len(positions):
            scored = score_task(order.bound, order.queries, Task((row,), (positions,)))
            order.settle(scored, report)
            times.append(scored.seconds / scored.pairs)
            room -= scored.pairs
    first_met = max(times[1] - times[2], 0.0) if len(times) > 2 else 0.0
    return Pace(first_met, times[-1], max(gap.pairs for gap in gaps))


def estimated(
    pace: Pace | None, at_once: int, calls: int, known: int, lacking: int, order: Order, price: float | None
) -> Estimate:
    """What so many calls will take, and cost at a price per thousand."""
    rate, seconds = (None, None) if pace is None else (pace.rate(at_once), pace.seconds(calls, at_once))
    cost = None if price is None else calls * price / 1000
    return Estimate(known + lacking, known, calls, rate, seconds, cost, order.ledger.damaged)
