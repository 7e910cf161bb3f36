"""Does it pay? What calls of a scorer bring, in figures and in a sentence.

The method's relevance at every budget is compared, query by query, with the best that there is without a call. A
budget is enough when it is within `LOSS` of the peak. What is said to be better or worse is so with a paired 95 %
bootstrap interval that leaves 0 out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from crosscut.evaluation.judged import KNOWN, Judged, Point
from crosscut.measures import paired_interval

MEASURE = "nDCG@10"
LOSS = 0.01
NEXT = 100
LEAST = 10
"""Judged queries below which nothing is said to be better or worse: an interval of so few says little."""
SAID = {"bm25": "BM25", "dense": "the dual encoder", "bm25 + dense": "BM25 + dual encoder", KNOWN: "its known part"}
"""What there is without a call, as a sentence says it."""


@dataclass(frozen=True)
class Difference:
    """A mean difference over the same queries, with its 95 % interval."""

    mean: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.mean:+.3f} ({self.low:+.3f} … {self.high:+.3f})"


@dataclass(frozen=True)
class Advice:
    """What to do, and why. Without relevance, nothing but the sentence."""

    sentences: tuple[str, ...]
    verdict: str  # "pays", "worse", "unclear" or "cannot tell"
    measure: str = MEASURE
    method: str | None = None
    peak: int | None = None  # calls at which relevance is highest
    stop_at: int | None = None  # calls that are enough
    without: str | None = None  # the best there is without a call
    gain: Difference | None = None  # of `stop_at` calls over that
    next_calls: Difference | None = None  # what 100 calls after the last budget would bring
    next_from: int | None = None
    measured: bool = False  # whether they were made, or the line goes on
    notes: tuple[str, ...] = field(default=())

    def json(self) -> dict[str, Any]:
        told = dict(vars(self))
        for name in ("gain", "next_calls"):
            told[name] = None if told[name] is None else vars(told[name])
        return told


def advise(searched: Sequence[Point], free: Sequence[Point], method: str, rival: str = "rerank") -> Advice:
    """The advice for one method, beside a rival and what there is without a call."""
    curve = sorted((p for p in searched if p.method == method and p.budget), key=lambda p: p.calls)
    if not curve or MEASURE not in curve[0].each:
        return Advice(
            (
                "Cannot tell whether the scorer is right: nothing is judged here. Recall says how much of the "
                "scorer's own answer a search finds, not whether people want it. Give judgements, clicks or --titles.",
            ),
            "cannot tell",
        )
    means = [float(point.each[MEASURE].mean()) for point in curve]
    peak = curve[int(np.argmax(means))]
    enough = next(p for p in curve if (peak.each[MEASURE] - p.each[MEASURE]).mean() <= LOSS)
    base = max(free, key=lambda p: float(p.each[MEASURE].mean()), default=None)
    gain = None if base is None else _difference(enough, base)
    rise = _rise(curve) if enough is curve[-1] else None
    sentences = [*_verdict(enough, base, gain, rise is not None), *_peak(peak, curve[-1], rise)]
    after, start, measured = _next(curve)
    if after is not None:
        how = "bring" if measured else "would bring, if the curve goes on as it does,"
        sentences.append(f"{NEXT} calls more than {start} {how} {after}.")
    sentences += _rival(searched, enough, rival)
    verdict = "pays" if gain is None or gain.low > 0 else "worse" if gain.high < 0 else "unclear"
    if len(peak.each[MEASURE]) < LEAST:
        verdict, sentences = "unclear", [_too_few(enough, base)]
    return Advice(
        tuple(sentences),
        verdict,
        method=method,
        peak=round(peak.calls),
        stop_at=round(enough.calls),
        without=None if base is None else base.method,
        gain=gain,
        next_calls=after,
        next_from=start,
        measured=measured,
    )


def _rise(curve: Sequence[Point]) -> Difference | None:
    """By how much the last budget is better than the one before, if it surely is."""
    step = _difference(curve[-1], curve[-2]) if len(curve) > 1 else None
    return step if step is not None and step.low > 0 else None


def _difference(ours: Point, theirs: Point) -> Difference:
    return Difference(*paired_interval(ours.each[MEASURE], theirs.each[MEASURE]))


def _verdict(enough: Point, base: Point | None, gain: Difference | None, rising: bool) -> list[str]:
    value = f"{MEASURE} {enough.each[MEASURE].mean():.3f}"
    calls = f"{enough.calls:.0f} calls"
    stop = f"Make {calls}, or more" if rising else f"Stop at {calls}"
    if base is None or gain is None:
        return [f"{stop}: {value}."]
    way = SAID.get(base.method, base.method)
    other = f"{base.each[MEASURE].mean():.3f} by {way} without a call"
    if gain.high < 0:
        return [
            f"This scorer is worse than {way} here: {value} after {calls}, {other}, {gain}. Do without it, or "
            "let it be one voice among others: order='fused'."
        ]
    if gain.low > 0:
        return [f"{stop}: {value}, against {other}, {gain}."]
    return [
        f"It is not sure that calls pay: {value} after {calls}, {other}, {gain}. Judge more queries, or save the calls."
    ]


def _too_few(enough: Point, base: Point | None) -> str:
    values = enough.each[MEASURE]
    number = "1 judged query is" if len(values) == 1 else f"{len(values)} judged queries are"
    other = (
        ""
        if base is None
        else f", {base.each[MEASURE].mean():.3f} by {SAID.get(base.method, base.method)} without a call"
    )
    return (
        f"{number} too few to be sure of anything: {LEAST} at least, and 50 do well. "
        f"{MEASURE} {values.mean():.3f} after {enough.calls:.0f} calls{other}."
    )


def _peak(peak: Point, last: Point, rise: Difference | None) -> list[str]:
    if rise is not None:
        return [
            f"Relevance still rises at {last.calls:.0f} calls, {rise} since the budget before: try larger --budgets."
        ]
    if peak is last:
        return [f"Relevance is highest at {last.calls:.0f} calls, the most that were made."]
    fall = _difference(last, peak)
    if fall.high >= 0:
        return [f"Relevance peaks at {peak.calls:.0f} calls; {last.calls:.0f} change it by {fall}."]
    return [f"More calls make the answer worse: from {peak.calls:.0f} to {last.calls:.0f} calls {fall}."]


def _next(curve: Sequence[Point]) -> tuple[Difference | None, int | None, bool]:
    """What the next calls bring: measured where two budgets are that far apart, else the last step goes on."""
    for later in reversed(curve):
        for sooner in curve:
            if round(later.calls - sooner.calls) == NEXT:
                return _difference(later, sooner), round(sooner.calls), True
    if len(curve) < 2 or not curve[-1].calls > curve[-2].calls:
        return None, None, False
    step = _difference(curve[-1], curve[-2])
    last = curve[-1].calls
    share = np.log((last + NEXT) / last) / np.log(last / curve[-2].calls)
    return Difference(*(float(share * value) for value in vars(step).values())), round(last), False


def _rival(searched: Sequence[Point], enough: Point, rival: str) -> list[str]:
    same = [p for p in searched if p.method == rival and p.budget == enough.budget]
    if not same or rival == enough.method:
        return []
    lead = _difference(enough, same[0])
    better = f" {rival} is the better method here." if lead.high < 0 else ""
    return [f"Against {rival} at {enough.budget} calls: {lead}.{better}"]


def records_of(found: Sequence[Point]) -> list[Judged]:
    """Means with intervals."""
    return [record for point in found for record in point.records()]
