"""The loop: every method of the papers, and ours.

    scored = first stage(query)                      # round one
    repeat: u = fit(V[scored], scores)               # a query vector that explains what was scored
            next = select(V @ u, not yet scored)     # where it predicts high scores
            scores += scorer(query, next)            # the only expensive line
    return the best k of what was scored, by exact score

A method is a `Plan`: a choice of parts. All queries of a batch advance together, and the calls of a round go to the
scorer as one batch.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from crosscut.ann.flat import predictions, rerank, slack_for
from crosscut.errors import InputError
from crosscut.linalg.blas import one_thread
from crosscut.linalg.products import LARGE, share
from crosscut.scorers.meter import Meter
from crosscut.search.candidates import Candidates, candidates
from crosscut.search.estimators import Estimator
from crosscut.search.first import Drawn, FirstStage
from crosscut.search.hits import Round, Seconds
from crosscut.search.selection import Selection, Top
from crosscut.search.stopping import Schedule
from crosscut.search.walk import Walk
from crosscut.spaces.base import Space
from crosscut.types import Floats, Positions


@dataclass(frozen=True)
class Offset:
    """What a score is regressed against: β (s − b_i).

    `base` is one background level for all items or one per item (n); `scale` is β. With both at rest, raw scores.
    """

    base: Floats | float = 0.0
    scale: float = 1.0

    def targets(self, positions: Positions, scores: Floats) -> Floats:
        base = self.base[positions] if isinstance(self.base, np.ndarray) else self.base
        return self.scale * (scores - base)


@dataclass(frozen=True)
class Plan:
    """The parts of a method.

    Without an `estimator` and its `space`, there is one round. `index` finds the top of a round without predicting
    every item; when not given, the one that the space brings along, if it does.
    """

    n: int
    first: FirstStage
    schedule: Schedule
    space: Space | None = None
    estimator: Estimator | None = None
    selection: Selection = field(default_factory=Top)
    offset: Offset = field(default_factory=Offset)
    shortlist: int | None = None  # S: every round stays within the first stage's top S
    index: Candidates | None = None

    def __post_init__(self) -> None:
        if self.index is None and self.space is not None:
            object.__setattr__(self, "index", candidates(self.space, self.offset.base))
        if self.shortlist is not None and self.shortlist < 1:
            raise InputError(f"a shortlist holds at least 1 item; got {self.shortlist}")
        if self.schedule.rounds > 1 and (self.space is None or self.estimator is None):
            raise InputError(f"{self.schedule.rounds} rounds need a space and an estimator; without them there is 1")


def run(plan: Plan, walks: Sequence[Walk], meter: Meter, k: int, *, keep: bool = False) -> None:
    """Take every walk through its rounds, to a stop. With `keep`, each round keeps its predictions of all items."""
    for walk in walks:
        if plan.space is not None and plan.estimator is not None:
            walk.fit = plan.estimator.start(plan.space, walk.vector)
        if not walk.open(plan.n):
            walk.stop = "exhausted"
    if plan.shortlist is not None:
        _shorten(plan, plan.shortlist, [walk for walk in walks if walk.stop is None])
    sizes = plan.schedule.sizes(max((walk.account.budget for walk in walks), default=0))
    for number, size in enumerate(sizes):
        active = [walk for walk in walks if walk.stop is None]
        if not active:
            return
        last = number == len(sizes) - 1
        counts = [walk.account.left if last else min(size, walk.account.left) for walk in active]
        choices = _later_round(plan, active, counts, keep) if number else _first_round(plan, active, counts, last)
        wanted = [j for j, walk in enumerate(active) if not _enough(walk, choices[j])]
        active, choices = [active[j] for j in wanted], [choices[j] for j in wanted]
        if not active:
            return
        _score(meter, active, choices)
        for walk in active:
            walk.stop = _why_stop(plan, walk, meter, k, last)


def _shorten(plan: Plan, size: int, walks: Sequence[Walk]) -> None:
    """Let every query score no more than the caller's items and the first stage's, `size` in all, best first."""
    lists = [walk.given[:size] for walk in walks]
    if isinstance(plan.first, Drawn) and any(not len(ranking) for ranking in lists):
        raise InputError(
            f"a shortlist of {size} is the top of a first stage, and this one draws at random: "
            "pass first='dense', another first stage, or first_ids"
        )
    more = plan.first.pick(walks, [size - len(ranking) for ranking in lists], lists, plan.n)
    for walk, ranking, rest in zip(walks, lists, more, strict=True):
        walk.given = np.concatenate([ranking, rest])  # round one need not rank again
        walk.allowed = np.sort(walk.given)


@dataclass
class _Choice:
    """What one query wants scored in this round."""

    positions: Positions
    estimates: Floats
    seconds: Seconds
    predictions: npt.NDArray[np.float32] | None = None


def _first_round(plan: Plan, walks: Sequence[Walk], counts: Sequence[int], last: bool) -> list[_Choice]:
    started = time.perf_counter()
    picks = [walk.given[:count] for walk, count in zip(walks, counts, strict=True)]
    # a stage may run out (fixed anchors that a filter excludes): if no round follows, chance fills up
    for stage in (plan.first, Drawn()) if last else (plan.first,):
        rest = [count - len(pick) for count, pick in zip(counts, picks, strict=True)]
        if any(rest):
            more = stage.pick(walks, rest, picks, plan.n)
            picks = [np.concatenate(pair) for pair in zip(picks, more, strict=True)]
    seconds = Seconds(select=(time.perf_counter() - started) / len(walks))
    return [_Choice(pick, np.full(len(pick), np.nan), seconds) for pick in picks]


def _later_round(plan: Plan, walks: Sequence[Walk], counts: Sequence[int], keep: bool) -> list[_Choice]:
    started = time.perf_counter()
    assert plan.space is not None
    size = len(walks[0].account.positions)
    large = (size - walks[0].fitted) * size * plan.space.d > LARGE // 8  # below, threads get in each other's way
    with one_thread():
        vectors = list((share if large else map)(lambda walk: _fit(plan, walk) / plan.offset.scale, walks))
    fitted = time.perf_counter()
    if plan.index is not None and isinstance(plan.selection, Top) and plan.shortlist is None and not keep:
        choices = _from_index(plan, plan.index, walks, counts, vectors)
    else:
        choices = _from_all(plan, walks, counts, vectors, keep)
    spent = Seconds(fit=(fitted - started) / len(walks), select=(time.perf_counter() - fitted) / len(walks))
    for choice in choices:
        choice.seconds = spent
    return choices


def _from_index(
    plan: Plan, index: Candidates, walks: Sequence[Walk], counts: Sequence[int], vectors: Sequence[Floats]
) -> list[_Choice]:
    """The top of the predictions that a clustered index finds."""
    assert plan.space is not None
    gone = [walk.account.positions for walk in walks]
    wanted = [count + slack_for(count) for count in counts]
    trails = [walk.trail for walk in walks]
    found = index.top(vectors, wanted, gone, walks[0].allowed, trails)  # queries of a batch share what is allowed
    choices = []
    for walk, u, places, count in zip(walks, vectors, found, counts, strict=True):
        positions, estimates = rerank(plan.space, u, places, plan.offset.base, count)
        walk.trail.ids = np.setdiff1d(places, positions)
        choices.append(_Choice(positions, estimates, Seconds()))
    return choices


def _from_all(
    plan: Plan, walks: Sequence[Walk], counts: Sequence[int], vectors: Sequence[Floats], keep: bool
) -> list[_Choice]:
    """What the selection rule picks from the predictions of all items."""
    space, base = plan.space, plan.offset.base
    assert space is not None

    def pick(asked: tuple[Walk, int, Floats, npt.NDArray[Any]]) -> _Choice:
        walk, count, u, row = asked
        if isinstance(base, np.ndarray) or base:
            row += base  # (n), in place
        kept = row.astype(np.float32) if keep else None
        values = walk.mask(row)

        def exact(places: Positions, number: int) -> tuple[Positions, Floats]:
            return rerank(space, u, places, base, number)

        return _Choice(*plan.selection.pick(values, count, walk.rng, exact), Seconds(), kept)

    choices: list[_Choice] = []
    chunks = predictions(space, vectors) if plan.shortlist is None else _short_predictions(space, vectors, walks)
    for rows in chunks:  # of bounded size
        part = slice(len(choices), len(choices) + len(rows))
        asked = list(zip(walks[part], counts[part], vectors[part], rows, strict=True))
        choices += share(pick, asked) if rows.size > LARGE else map(pick, asked)
    return choices


def _short_predictions(
    space: Space, vectors: Sequence[Floats], walks: Sequence[Walk]
) -> Iterator[npt.NDArray[np.float32]]:
    """V u over a query's shortlist alone, −inf elsewhere: (1 × n) for one query after another."""
    for u, walk in zip(vectors, walks, strict=True):
        row = np.full(space.n, -np.inf, dtype=np.float32)
        if walk.allowed is not None:
            row[walk.allowed] = space.rows(walk.allowed) @ u
        yield row[None]


def _enough(walk: Walk, choice: _Choice) -> bool:
    """Whether a query is expected to have found enough, so that this round is not made."""
    if walk.expecting is None or not walk.rounds or not walk.expecting.enough(walk.rounds, choice.estimates):
        return False
    walk.stop = "target recall"
    return True


def _fit(plan: Plan, walk: Walk) -> Floats:
    """u of one query, after taking in what was scored since the last round."""
    assert walk.fit is not None
    account = walk.account
    positions, scores = account.positions[walk.fitted :], account.scores[walk.fitted :]
    if len(positions):
        walk.fit.add(positions, plan.offset.targets(positions, scores))
        walk.fitted = len(account.positions)
    return walk.fit.solve()


def _score(meter: Meter, walks: Sequence[Walk], choices: Sequence[_Choice]) -> None:
    """Buy the scores of a round and write it to the trace, as far as it came."""
    before = [(len(walk.account.positions), walk.account.calls, walk.account.cached) for walk in walks]
    spent = meter.seconds
    try:
        meter.buy([walk.account for walk in walks], [choice.positions for choice in choices])
    finally:
        seconds = Seconds(scorer=(meter.seconds - spent) / len(walks))
        for walk, choice, (size, calls, cached) in zip(walks, choices, before, strict=True):
            account = walk.account
            bought = account.positions[size:]
            order = np.argsort(choice.positions)
            place = order[np.searchsorted(choice.positions, bought, sorter=order)]
            walk.rounds.append(
                Round(
                    positions=bought,
                    scores=account.scores[size:],
                    estimates=choice.estimates[place],
                    calls=account.calls - calls,
                    cached=account.cached - cached,
                    seconds=choice.seconds + seconds,
                    predictions=choice.predictions,
                )
            )


def _why_stop(plan: Plan, walk: Walk, meter: Meter, k: int, last: bool) -> str | None:
    if not walk.open(plan.n):
        return "exhausted"
    if walk.account.left <= 0:
        return "budget"
    if (reason := walk.account.halted) is not None:
        return reason
    if meter.late:
        return "deadline"
    if walk.watch is not None and len(walk.account.positions) >= k:
        members = walk.account.positions[walk.top(k)]
        if walk.watch.settled_after(members.tolist()):
            return "patience"
    return "rounds" if last else None
