"""What there is to score, cut into tasks: one task is one batch of calls and one commit."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from crosscut.scores.keys import Keys
from crosscut.scores.store import ScoreStore
from crosscut.types import Positions

SHORTEST_RUN = 32
"""Missing items in shorter runs than this are stored as scattered pairs."""


@dataclass(frozen=True)
class Task:
    """Queries `rows`, each with the items `columns`: one range for all of them, or one array for each."""

    rows: tuple[int, ...]
    columns: range | tuple[Positions, ...]

    @property
    def dense(self) -> bool:
        return isinstance(self.columns, range)

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
        kept: list[Positions] = []
        for columns in self.columns:
            if pairs <= 0:
                break
            kept.append(columns[:pairs])
            pairs -= len(kept[-1])
        return Task(self.rows[: len(kept)], tuple(kept))


@dataclass(frozen=True)
class Gap:
    """What one query lacks: long runs of items, and the rest."""

    row: int
    runs: tuple[range, ...]
    loose: Positions

    @property
    def pairs(self) -> int:
        return sum(map(len, self.runs)) + len(self.loose)


def gap(row: int, missing: Positions) -> Gap:
    """The missing positions (ascending) of a query as runs."""
    breaks = np.flatnonzero(np.diff(missing) != 1) + 1
    runs, loose = [], []
    for part in np.split(missing, breaks):
        if len(part) >= SHORTEST_RUN:
            runs.append(range(int(part[0]), int(part[-1]) + 1))
        else:
            loose.append(part)
    return Gap(row, tuple(runs), np.concatenate(loose) if loose else missing[:0])


def dense_gaps(store: ScoreStore, queries: Keys, items: Keys) -> list[Gap]:
    """What is missing of the whole matrix."""
    gaps = []
    for row, missing in store.missing(queries, items):
        if len(missing) == len(items):
            gaps.append(Gap(row, (range(len(items)),), missing[:0]))
        else:
            gaps.append(gap(row, missing))
    return gaps


def pair_gaps(
    store: ScoreStore, queries: Keys, items: Keys, rows: npt.NDArray[np.int64], columns: npt.NDArray[np.int64]
) -> list[Gap]:
    """What is missing of some pairs; each pair once."""
    order = np.lexsort((columns, rows))
    rows, columns = rows[order], columns[order]
    gaps = []
    for row in np.unique(rows).tolist():
        start, stop = np.searchsorted(rows, [row, row + 1])
        wanted = np.unique(columns[start:stop])
        missing = wanted[np.isnan(store.get(queries.names[row], items, wanted))]
        if len(missing):
            gaps.append(Gap(row, (), missing))
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


def remaining(store: ScoreStore, queries: Keys, items: Keys, task: Task) -> list[Task]:
    """A task without what has been scored since it was planned, by this run's probe or by another writer."""
    lacking = []
    for place, row in enumerate(task.rows):
        positions = task.positions(place)
        lacking.append(positions[np.isnan(store.get(queries.names[row], items, positions))])
    left = sum(map(len, lacking))
    if left == task.pairs:
        return [task]
    gaps = [gap(row, missing) for row, missing in zip(task.rows, lacking, strict=True) if len(missing)]
    return cut(gaps, max(left, 1))
