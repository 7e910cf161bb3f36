"""What every worker does with a task: score it through the meter, and commit what came back."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import TypeAlias

import numpy as np

from crosscut.datasets.records import Item, ItemList
from crosscut.errors import ScorerError
from crosscut.scorers.base import BoundScorer, Scorer
from crosscut.scorers.callable import as_bound
from crosscut.scorers.meter import Account, Meter
from crosscut.scorers.named import load_scorer
from crosscut.scores.engines.tasks import Task
from crosscut.scores.keys import Keys
from crosscut.scores.store import ScoreStore
from crosscut.types import Floats, Positions

Loader: TypeAlias = Callable[[], Scorer]
"""Makes the scorer where it is needed: in another process, on another machine."""

Answer: TypeAlias = tuple[int, ScorerError | None]
"""Pairs committed, and what went wrong after them."""


@dataclass(frozen=True)
class Job:
    """A scorer and the texts it is to score, each text once.

    `scorer` is the one in this process, `load` makes another in a worker (None if it cannot be made again).
    """

    store: ScoreStore
    scorer: Scorer
    load: Loader | None
    remote: bool
    queries: list[str]
    items: list[Item | str]
    query_keys: Keys
    item_keys: Keys


@dataclass(frozen=True)
class Scored:
    """What a task brought: one array of positions and one of scores for each of its queries."""

    task: Task
    positions: list[Positions]
    scores: list[Floats]
    seconds: float
    error: ScorerError | None = None

    @property
    def pairs(self) -> int:
        return sum(map(len, self.scores))


def load_named(name: str, threads: int | None = None) -> Scorer:
    """The scorer of that name; a model in the box or in a folder runs on so many cores."""
    if name == "default" or (Path(name) / "cross.onnx").is_file():
        from crosscut.scorers.onnx import OnnxCrossEncoder

        return OnnxCrossEncoder.load(name, threads=threads)
    return load_scorer(name)


def score_task(bound: BoundScorer, queries: Sequence[str], task: Task) -> Scored:
    """Score a task; of a scorer that fails in the middle, what was paid for is kept beside the error."""
    picks = [task.positions(place) for place in range(len(task.rows))]
    accounts = [Account(queries[row], len(pick)) for row, pick in zip(task.rows, picks, strict=True)]
    meter = Meter(bound)
    failed: ScorerError | None = None
    try:
        meter.buy(accounts, picks)
    except ScorerError as error:
        failed = error
    positions = [account.positions for account in accounts]
    return Scored(task, positions, [account.scores for account in accounts], meter.seconds, failed)


def commit(store: ScoreStore, queries: Keys, items: Keys, scored: Scored) -> None:
    """One atomic write of what a task brought."""
    task = scored.task
    if isinstance(task.columns, range) and scored.error is None:
        asked = Keys("", len(task.rows), hashes=queries.hashes[list(task.rows)])
        store.put_block(asked, items, np.stack(scored.scores), start=task.columns.start, seconds=scored.seconds)
        return
    rows = np.repeat(np.asarray(task.rows, np.int64), [len(positions) for positions in scored.positions])
    columns, scores = np.concatenate(scored.positions), np.concatenate(scored.scores)
    store.put_pairs(queries, items, rows, columns, scores, seconds=scored.seconds)


class Worker:
    """A scorer bound to the corpus, in another process or on another machine.

    The model is loaded once, with the first task: there an error can be reported.
    """

    def __init__(self, load: Loader, fingerprint: str, queries: Sequence[str], items: Sequence[Item | str]) -> None:
        self.load, self.fingerprint, self.queries, self.items = load, fingerprint, queries, items

    @cached_property
    def bound(self) -> BoundScorer:
        scorer = self.load()
        if scorer.fingerprint != self.fingerprint:
            raise ScorerError(
                f"a worker loaded a scorer with fingerprint {scorer.fingerprint!r}, and the run is for "
                f"{self.fingerprint!r}; every worker must load the same model"
            )
        return as_bound(scorer.bind(ItemList(self.items)))

    @cached_property
    def keys(self) -> tuple[Keys, Keys]:
        return Keys.of(self.queries), Keys.of(self.items)

    def score(self, task: Task) -> Scored:
        """The scores, for the caller to commit."""
        return score_task(self.bound, self.queries, task)

    def score_into(self, path: str, task: Task) -> Answer:
        """Score and commit here; only the number of pairs goes back."""
        scored = self.score(task)
        if scored.pairs:
            commit(_store(path, self.fingerprint), *self.keys, scored)
        return scored.pairs, scored.error


@cache
def _store(path: str, fingerprint: str) -> ScoreStore:
    return ScoreStore(path, scorer_fingerprint=fingerprint)
