"""What there is to score, cut into tasks: one task is one batch of calls and one commit."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TypeAlias

import numpy as np

from crosscut.errors import ScorerError
from crosscut.types import Array, Floats, Positions

SHORTEST_RUN = 32
"""Missing items in shorter runs than this are stored as scattered pairs."""

Known: TypeAlias = Callable[[int, Positions], Array]
"""The known scores of a query, by its row, with items; NaN where there is none."""


@dataclass(frozen=True)
class Task:
    """Queries `rows`, each with the items `columns`: one range for all of them, or one array for each."""

    rows: tuple[int, ...]
    columns: range | tuple[Positions, ...]

    @property
    def pairs(self) -> int:
        if isinstance(self.columns, range):
            return len(self.rows) * len(self.columns)
        return sum(map(len, self.columns))

    def positions(self, place: int) -> Positions:
        """The items of the query at a place of `rows`."""
        if isinstance(self.columns, range):
            return np.arange(self.columns.start, self.columns.stop)
        return self.columns[place]

    def head(self, pairs: int) -> Task:
        """At most the first `pairs` pairs."""
        if pairs >= self.pairs:
            return self
        if isinstance(self.columns, range):
            whole = pairs // len(self.columns)
            if whole:
                return Task(self.rows[:whole], self.columns)
            return Task(self.rows[:1], self.columns[:pairs])
        first: list[Positions] = []
        for columns in self.columns:
            if pairs <= 0:
                break
            first.append(columns[:pairs])
            pairs -= len(first[-1])
        return Task(self.rows[: len(first)], tuple(first))


@dataclass(frozen=True)
class Scored:
    """What a task brought: one array of positions and one of scores for each of its queries.

    Both are empty when the worker that did it has written them down itself.
    """

    task: Task
    positions: list[Positions]
    scores: list[Floats]
    pairs: int
    seconds: float
    again: int = 0  # calls beyond one a pair: what was sent again
    error: ScorerError | None = None


@dataclass(frozen=True)
class Gap:
    """What one query lacks: long runs of items, and the rest."""

    row: int
    runs: tuple[range, ...]
    loose: Positions

    @property
    def pairs(self) -> int:
        return sum(map(len, self.runs)) + len(self.loose)

    def first(self, count: int) -> Positions:
        """The first few of the missing items."""
        return np.asarray(self.runs[0][:count], np.int64) if self.runs else self.loose[:count]


def gap(row: int, missing: Positions) -> Gap:
    """The missing positions (ascending) of a query as runs."""
    edges = np.concatenate([[0], np.flatnonzero(np.diff(missing) != 1) + 1, [len(missing)]])
    long = np.flatnonzero(np.diff(edges) >= SHORTEST_RUN)
    inside = np.zeros(len(missing), np.bool_)
    runs = []
    for start, stop in zip(edges[long].tolist(), edges[long + 1].tolist(), strict=True):
        runs.append(range(int(missing[start]), int(missing[stop - 1]) + 1))
        inside[start:stop] = True
    return Gap(row, tuple(runs), missing[~inside])


def gaps_of(wanted: Sequence[tuple[int, Positions]], known: Known) -> list[Gap]:
    """What is not known yet of the pairs that are wanted: rows, each with ascending positions."""
    gaps = []
    for row, positions in wanted:
        missing = positions[np.isnan(known(row, positions))]
        if len(missing):
            gaps.append(gap(row, missing))
    return gaps


def cut(gaps: Sequence[Gap], block_pairs: int) -> list[Task]:
    """Gaps as tasks of at most `block_pairs` pairs; short rows that lack the same items share a task."""
    tasks: list[Task] = []
    group: list[int] = []
    shared: range | None = None

    def close() -> None:
        if group and shared is not None:
            tasks.append(Task(tuple(group), shared))
        group.clear()

    for one in gaps:
        for run in one.runs:
            if len(run) > block_pairs:
                parts = -(-len(run) // block_pairs)
                edges = np.linspace(run.start, run.stop, parts + 1).astype(int).tolist()
                pieces = [range(a, b) for a, b in pairwise(edges)]
                tasks += [Task((one.row,), piece) for piece in pieces]
            else:
                if run != shared or (len(group) + 1) * len(run) > block_pairs or one.row in group:
                    close()
                    shared = run
                group.append(one.row)
    close()
    return tasks + list(_loose(gaps, block_pairs))


def _loose(gaps: Sequence[Gap], block_pairs: int) -> Iterator[Task]:
    rows: list[int] = []
    columns: list[Positions] = []
    room = block_pairs
    for one in gaps:
        for start in range(0, len(one.loose), block_pairs):
            part = one.loose[start : start + block_pairs]
            if len(part) > room:
                yield Task(tuple(rows), tuple(columns))
                rows, columns, room = [], [], block_pairs
            rows.append(one.row)
            columns.append(part)
            room -= len(part)
    if rows:
        yield Task(tuple(rows), tuple(columns))


def remaining(known: Known, task: Task) -> list[Task]:
    """A task without what has been scored since it was planned, by this run's probe or by another writer."""
    gaps = gaps_of([(row, task.positions(place)) for place, row in enumerate(task.rows)], known)
    left = sum(one.pairs for one in gaps)
    return [task] if left == task.pairs else cut(gaps, max(left, 1))
