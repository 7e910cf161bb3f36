"""What a worker does with a task: score it through the meter, and write down what came back."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, TypeAlias

from crosscut.datasets.records import Item, items_of
from crosscut.errors import ScorerError
from crosscut.scorers.adapters import as_bound
from crosscut.scorers.base import BoundScorer, Scorer
from crosscut.scorers.loading import load_scorer
from crosscut.scorers.meter import Meter, QueryLedger
from crosscut.scores.engines.ledger import Ledger, StoreLedger
from crosscut.scores.engines.tasks import Scored, Task
from crosscut.scores.store import ScoreStore

Loader: TypeAlias = Callable[[], Scorer]
"""Makes the scorer where it is needed: in another process, on another machine."""

TaskReport: TypeAlias = Callable[[int, int], None]
"""Called after every commit: pairs that came, and calls that brought none and were made again."""


@dataclass(frozen=True)
class Order:
    """What is to be bought: the queries and items of a scorer, and the ledger they are written down in.

    `bind` gives the scorer in this process, `load` makes another in a worker; None if it cannot be made again.
    """

    ledger: Ledger
    queries: Sequence[Any]
    items: Sequence[Item | str] | None
    fingerprint: str | None
    bind: Callable[[], BoundScorer]
    load: Loader | None
    waits: bool  # the scorer waits for somebody else's answer, so threads are enough

    @cached_property
    def bound(self) -> BoundScorer:
        return self.bind()

    def settle(self, scored: Scored, report: TaskReport) -> None:
        """Write down what a task brought, if its worker has not; then raise what went wrong in it."""
        if scored.scores and scored.pairs:
            self.ledger.record(scored)
        if scored.pairs or scored.again:
            report(scored.pairs, scored.again)
        if scored.error is not None:
            raise scored.error


def load_named(name: str, threads: int | None = None) -> Scorer:
    """The scorer of that name; a model in the box or in a folder runs on so many cores."""
    from crosscut.bundled.base_scores import BaseScorer
    from crosscut.bundled.model_dir import is_model_dir

    if is_model_dir(name):
        return BaseScorer.load(name, threads=threads)
    return load_scorer(name)


def score_task(bound: BoundScorer, queries: Sequence[Any], task: Task) -> Scored:
    """Score a task; of a scorer that fails in the middle, what was paid for is kept beside the error."""
    picks = [task.positions(place) for place in range(len(task.rows))]
    accounts = [QueryLedger(queries[row], sys.maxsize) for row in task.rows]  # what is asked for, retries and all
    meter = Meter(bound)
    failed: ScorerError | None = None
    try:
        meter.score(accounts, picks)
    except ScorerError as error:
        failed = error
    positions, scores = [one.positions for one in accounts], [one.scores for one in accounts]
    pairs = sum(map(len, scores))
    return Scored(task, positions, scores, pairs, meter.seconds, meter.calls - pairs, failed)


class Worker:
    """A scorer bound to the corpus, in another process or on another machine.

    The model is loaded once, with the first task: there an error can be reported. With the folder of a store the
    worker commits by itself, and only the number of pairs goes back.
    """

    def __init__(
        self,
        load: Loader,
        fingerprint: str | None,
        queries: Sequence[Any],
        items: Sequence[Item | str],
        folder: str | None = None,
    ) -> None:
        self.load, self.fingerprint, self.queries, self.items, self.folder = load, fingerprint, queries, items, folder

    @cached_property
    def bound(self) -> BoundScorer:
        scorer = self.load()
        if self.fingerprint is not None and scorer.fingerprint != self.fingerprint:
            raise ScorerError(
                f"a worker loaded a scorer with fingerprint {scorer.fingerprint!r}, and the run is for "
                f"{self.fingerprint!r}; every worker must load the same model"
            )
        return as_bound(scorer.bind(items_of(self.items)))

    @cached_property
    def ledger(self) -> StoreLedger:
        store = ScoreStore(str(self.folder), scorer_fingerprint=str(self.fingerprint))
        return StoreLedger(store, self.queries, self.items)

    def score(self, task: Task) -> Scored:
        scored = score_task(self.bound, self.queries, task)
        if self.folder is None or not scored.pairs:
            return scored
        self.ledger.record(scored)
        return replace(scored, positions=[], scores=[])
