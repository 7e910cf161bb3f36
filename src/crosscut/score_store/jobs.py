"""Scoring jobs: every query with every item, or some pairs, while no search waits.

    result = score_matrix("default", queries, items, store="scores/", engine="ray", progress=show)
    result.scores, result.calls                      # (queries × items), and what was paid for

What is known already, in the store or the cache, is free: a job that was killed is continued by running it again. Two
jobs into the same store share the work: each begins somewhere else and leaves out what the other has committed
meanwhile. Every pair passes the meter, in whatever process or machine it is scored. A job that fails says in `calls` of
its error how many it had made.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from pathlib import Path
from typing import Any, TypedDict, Unpack

import numpy as np
import numpy.typing as npt

from crosscut.datasets.records import Item, items_of
from crosscut.errors import InputError, StoreError
from crosscut.score_store.engines import EngineChoice, Loader, Scored, Task, make_engine, score_task
from crosscut.score_store.keys import Keys
from crosscut.score_store.store import Block, ScoreStore, blocks_of
from crosscut.scorers.adapters import AnyBound, as_bound
from crosscut.scorers.base import BoundScorer, Scorer
from crosscut.scorers.caching import ScoreCache
from crosscut.scorers.loading import load_scorer
from crosscut.types import Array, Positions, Progress

AnyScorer = Scorer | AnyBound | str | Path
Wanted = Sequence[tuple[int, Positions]]
"""Rows of queries, each with the positions of its items, ascending and each once."""
BLOCK_SECONDS = 5.0
BLOCK_PAIRS = (512, 4096, 262_144)  # the smallest, the one without a probe, the largest
WARMED, PROBED = 8, 32  # pairs
LARGEST = float(np.finfo(np.float32).max)


class ScoringOptions(TypedDict, total=False):
    """Options of a job; all are optional.

    Parameters
    ----------
    store
        A score store, or the folder of one: what it has is free, new scores are committed to it block by block.
    cache
        Known scores, and a place for new ones, where there is no store.
    engine
        Where the scorer runs: `"local"`, `"ray"`, `LocalEngine(workers=8)`, `RayEngine(workers=4, gpus=1)`.
    load
        How a worker in another process gets the scorer: its name, or a function that creates it. Scorers that were
        given by name need none.
    bound
        The scorer bound to these items, if it is already; for scoring in this process.
    limit
        At most so many calls now; no new block is begun past it, but one under way may send pairs again.
    block_pairs
        Pairs a commit; by default about five seconds' worth.
    probe
        Whether to time a few pairs first (their scores count); by default yes.
    price_per_thousand
        Of calls, for the estimate.
    estimate
        Called with the `Estimate` before anything else is scored.
    progress
        Called as `progress(what, done, total)` after every commit; `what` is "scoring" unless said otherwise.
    """

    store: ScoreStore | str | Path | None
    cache: ScoreCache | None
    engine: EngineChoice
    load: Loader | str | None
    bound: BoundScorer | None
    limit: int | None
    block_pairs: int | None
    probe: bool
    price_per_thousand: float | None
    estimate: Callable[[Estimate], None] | None
    progress: Progress | None
    what: str


@dataclass(frozen=True)
class Estimate:
    """Plan of a job. Time and cost are estimates."""

    pairs: int
    known: int
    calls: int
    pairs_per_second: float | None = None
    seconds: float | None = None
    cost: float | None = None


@dataclass(frozen=True)
class ScoringResult:
    """Result of a job: `calls` pairs passed to the scorer, `known` that were free, `missing` left by a limit.

    `lost` of the calls brought no score and were made again: an endpoint failed, or a worker of Ray died (which may or
    may not have made them).
    """

    calls: int
    known: int
    missing: int
    lost: int
    seconds: float
    _read: Callable[[], Array] = field(repr=False)

    @cached_property
    def scores(self) -> Array:
        """Of a matrix (queries × items) float32, of pairs (m,). NaN where one is missing."""
        return self._read()


def score_matrix(
    scorer: AnyScorer,
    queries: Sequence[Any],
    items: Sequence[Item | str] | None = None,
    *,
    positions: Positions | None = None,
    **options: Unpack[ScoringOptions],
) -> ScoringResult:
    """Score every query with every item.

    Parameters
    ----------
    scorer
        A scorer of texts, or its name for `crosscut.scorers.loading.load_scorer`; without items, one bound to them.
    positions
        Only the items at these positions, ascending.
    options
        See `ScoringOptions`.
    """
    job = ScoringJob(scorer, queries, items, options)
    chosen = job.all_items() if positions is None else positions
    distinct = np.unique(job.first_of(chosen))
    job.prepare([(row, distinct) for row in np.unique(job.first_query).tolist()], np.float32)

    def read() -> Array:
        rows = [job.ledger.known(row, chosen) for row in job.first_query.tolist()]
        return np.stack(rows) if rows else np.empty((0, len(chosen)), np.float32)

    return job.run(read)


def score_pairs(
    scorer: AnyScorer,
    queries: Sequence[Any],
    items: Sequence[Item | str] | None,
    rows: npt.ArrayLike,
    columns: npt.ArrayLike,
    **options: Unpack[ScoringOptions],
) -> ScoringResult:
    """Score the pairs (queries[rows[j]], items[columns[j]]), each once: the sparse matrix G. See `score_matrix`."""
    asked, with_item = (np.asarray(one, np.int64).ravel() for one in (rows, columns))
    if len(asked) != len(with_item):
        raise InputError(f"{len(asked)} rows and {len(with_item)} columns do not make pairs")
    job = ScoringJob(scorer, queries, items, options)
    for kind, places, size in (("query", asked, len(queries)), ("item", with_item, job.n_items)):
        if len(places) and not (places.min() >= 0 and (size is None or places.max() < size)):
            raise InputError(f"{kind} numbers {places.min()} … {places.max()} do not fit a list of {size}")
    asked, with_item = job.first_query[asked], job.first_of(with_item)
    width = int(with_item.max(initial=0)) + 1
    distinct = np.unique(asked * width + with_item)
    numbers, starts = np.unique(distinct // width, return_index=True)
    wanted = list(zip(numbers.tolist(), np.split(distinct % width, starts[1:]), strict=False))
    job.prepare(wanted, np.float64)

    def read() -> Array:
        scores = np.empty(len(asked))
        by_row = np.argsort(asked, kind="stable")
        bounds = np.searchsorted(asked[by_row], [*numbers.tolist(), len(queries)])
        for row, start, stop in zip(numbers.tolist(), bounds[:-1], bounds[1:], strict=True):
            here = by_row[start:stop]
            scores[here] = job.ledger.known(row, with_item[here])
        return scores

    return job.run(read)


class ScoringJob:
    """A scorer, its queries and items, and where their scores go.

    `first_query` (q) and `first_item` (n; None: all differ) are where the same text is found first: it is scored once.
    """

    def __init__(
        self,
        scorer: AnyScorer,
        queries: Sequence[Any],
        items: Sequence[Item | str] | None,
        options: ScoringOptions,
    ) -> None:
        self.options = options
        self.engine = make_engine(options.get("engine", "local"))
        self.queries, self.items = queries, items
        for name in ("limit", "block_pairs"):
            value = options.get(name)
            if isinstance(value, int) and value < 1:
                raise InputError(f"{name} is {value}; it must be 1 or more")
        if items is None and isinstance(scorer, str | Path):
            raise InputError(f"the scorer {str(scorer)!r} reads texts: pass the texts of the items")
        self.scorer = None if items is None else load_scorer(scorer)
        self.fingerprint = None if self.scorer is None else self.scorer.fingerprint
        self._bound = options.get("bound") or (None if self.scorer is not None else as_bound(scorer))  # type: ignore[arg-type]
        self.load, self.waits = self._loader(options.get("load"), scorer)
        self.store = self._store(options.get("store"))
        self.keys = None if self.store is None else (Keys.of(queries), Keys.of(items or ()))
        self.first_item = None if self.keys is None else self.keys[1].first
        self.first_query = _first(queries)
        self.wanted: Wanted = ()
        self.ledger: StoreLedger | MemoryLedger
        self.calls = self.done = self.total = 0

    @property
    def n_items(self) -> int | None:
        return len(self.items) if self.items is not None else None if self._bound is None else self._bound.n_items

    def all_items(self) -> Positions:
        if self.n_items is None:
            raise InputError("the scorer does not say how many items it knows: pass positions")
        return np.arange(self.n_items)

    def first_of(self, positions: Positions) -> Positions:
        return positions if self.first_item is None else self.first_item[positions]

    @property
    def bound(self) -> BoundScorer:
        """The scorer in this process."""
        if self._bound is None:
            self._bound = as_bound(load_scorer(self.scorer).bind(items_of(self.items or ())))
        return self._bound

    def _loader(self, load: Loader | str | None, scorer: AnyScorer) -> tuple[Loader | None, bool]:
        """Return what creates the scorer elsewhere, and whether it waits for an answer rather than computes one."""
        name = load or scorer
        if isinstance(name, str | Path):
            return partial(load_scorer, str(name)), "://" in str(name)
        if callable(load):
            return load, False
        return None if self.scorer is None else partial(_unchanged, self.scorer), True

    def _store(self, given: ScoreStore | str | Path | None) -> ScoreStore | None:
        if given is None:
            return None
        if self.scorer is None:
            raise InputError("a score store keeps scores of texts under the scorer's fingerprint: pass both, unbound")
        if not isinstance(given, ScoreStore):
            given = ScoreStore(given, scorer_fingerprint=self.scorer.fingerprint)
        if given.scorer_fingerprint != self.scorer.fingerprint:
            raise StoreError(
                f"the store is for the scorer {given.scorer_fingerprint!r} and the scorer given is "
                f"{self.scorer.fingerprint!r}; scores of different models are never mixed: open the store for this one"
            )
        return given.create()

    def prepare(self, wanted: Wanted, dtype: npt.DTypeLike) -> None:
        """Say which pairs are wanted."""
        self.wanted = wanted
        if self.store is not None and self.keys is not None:
            self.ledger = StoreLedger(self.store, *self.keys)
        else:
            self.ledger = MemoryLedger(self.queries, wanted, dtype, self.options.get("cache"))

    def run(self, read: Callable[[], Array]) -> ScoringResult:
        """Probe, estimate, and have the engine score what is missing."""
        limit, estimate = self.options.get("limit"), self.options.get("estimate")
        started = time.perf_counter()
        counts = [int(np.isnan(self.ledger.known(row, positions)).sum()) for row, positions in self.wanted]
        lacking = sum(counts)
        known = sum(len(positions) for _, positions in self.wanted) - lacking
        self.total = min(lacking, limit or lacking)
        if self.total:
            self.engine.check(self)
        try:
            rate = self._probe(counts) if self.total and self.options.get("probe", True) else None
            if estimate is not None:
                estimate(self._estimate(rate, lacking, known))
            if self.total:
                smallest, usual, largest = BLOCK_PAIRS
                block = (
                    usual
                    if rate is None
                    else int(np.clip(2 ** round(np.log2(rate * BLOCK_SECONDS)), smallest, largest))
                )
                block = min(self.options.get("block_pairs") or block, max(1, -(-self.total // self.engine.workers)))
                self.engine.run(self, self._tasks(counts, block))
        except BaseException as error:
            error.calls = self.calls  # type: ignore[attr-defined]
            raise
        if limit is None and self.done < self.total:  # another job has scored the rest meanwhile
            self._report(self.total)
        missing = 0 if limit is None else lacking - self.done
        return ScoringResult(self.calls, known, missing, self.calls - self.done, time.perf_counter() - started, read)

    def record(self, scored: Scored) -> None:
        """Count the calls of a task and store what it has brought."""
        self.calls += scored.calls
        if scored.pairs:
            self.ledger.record(scored)
            self.done += scored.pairs

    def settle(self, scored: Scored) -> None:
        """Record a task and say how far the job is, then raise what went wrong in it."""
        self.record(scored)
        if scored.pairs:
            self._report(self.done)
        if scored.error is not None:
            raise scored.error

    def lose(self, calls: int) -> None:
        """Count calls that a worker may have made before it died."""
        self.calls += calls

    def _report(self, done: int) -> None:
        progress = self.options.get("progress")
        if progress is not None:
            progress(self.options.get("what", "scoring"), done, self.total)

    def _missing(self, row: int, positions: Positions) -> Positions:
        return positions[np.isnan(self.ledger.known(row, positions))]

    def _probe(self, counts: Sequence[int]) -> float:
        """Score a few pairs of one query, first some to warm up; returns how many a second."""
        row, positions = self.wanted[int(np.flatnonzero(counts)[0])]
        scored = None
        for size in (WARMED, PROBED):
            part = self._missing(row, positions)[: min(size, self.total - self.done)]
            if len(part):
                scored = score_task(self.bound, self.queries, Task((row,), (part,)))
                self.record(scored)
                if scored.error is not None:
                    raise scored.error
        return 1.0 if scored is None else scored.pairs / max(scored.seconds, 1e-9)

    def _estimate(self, rate: float | None, lacking: int, known: int) -> Estimate:
        price = self.options.get("price_per_thousand")
        at_once = None if rate is None else rate * self.engine.speedup(self)
        seconds = None if at_once is None else self.total / at_once
        cost = None if price is None else self.total * price / 1000
        return Estimate(known + lacking, known, self.total, at_once, seconds, cost)

    def _tasks(self, counts: Sequence[int], block: int) -> Iterator[Task]:
        """Yield what is missing in blocks, as they are asked for, without what is known by then."""
        limited = self.options.get("limit") is not None
        handed = self.done
        for task in cut(self._parts(counts, block), block):
            lost = self.calls - self.done if limited else 0
            task = task.head(self.total - lost - handed)
            if not task.pairs:
                return
            handed += task.pairs
            yield task

    def _parts(self, counts: Sequence[int], block: int) -> Iterator[tuple[int, Positions]]:
        """Yield parts of rows; a job on a store begins anywhere, so that two of them do not do the same."""
        left = [entry for entry, count in zip(self.wanted, counts, strict=True) if count]
        shift = random.randrange(len(left)) if self.store is not None else 0
        for row, positions in left[shift:] + left[:shift]:
            missing = self._missing(row, positions)
            if not len(missing):
                continue
            for number, part in enumerate(np.array_split(missing, -(-len(missing) // block))):
                still = self._missing(row, part) if number and self.ledger.changed() else part
                if len(still):
                    yield row, still


def cut(parts: Iterator[tuple[int, Positions]], block: int) -> Iterator[Task]:
    """Join parts of rows to tasks of at most `block` pairs."""
    rows: list[int] = []
    positions: list[Positions] = []
    room = block
    for row, part in parts:
        if len(part) > room:
            yield Task(tuple(rows), tuple(positions))
            rows, positions, room = [], [], block
        rows.append(row)
        positions.append(part)
        room -= len(part)
    if rows:
        yield Task(tuple(rows), tuple(positions))


class StoreLedger:
    """The scores of a job in a score store, by the row of a query and the positions of items."""

    def __init__(self, store: ScoreStore, queries: Keys, items: Keys) -> None:
        self.store, self.queries, self.items = store, queries, items
        self._epoch = store.epoch
        self._version = store.database.changed_by_others()

    def known(self, row: int, positions: Positions) -> Array:
        """Return the known scores, NaN where there is none."""
        return self.store.get(self.queries.names[row], self.items, positions)

    def record(self, scored: Scored) -> None:
        blocks: list[Block] = []
        for row, positions, scores in scored.rows():
            values = np.clip(scores, -LARGEST, LARGEST).astype(np.float32)
            blocks += blocks_of(self.queries.names[row], self.items, positions, values)
        if not self.store.write(blocks, seconds=scored.seconds, epoch=self._epoch):
            raise StoreError(
                f"items were forgotten in {str(self.store.path)!r} while this job was running, which may still have "
                "them: run it again on the items that are left"
            )

    def changed(self) -> bool:
        """Whether others have stored something since this was last asked."""
        before, self._version = self._version, self.store.database.changed_by_others()
        return before != self._version


class MemoryLedger:
    """The same in memory; known scores are read from a cache, new ones are written to it."""

    def __init__(self, queries: Sequence[Any], wanted: Wanted, dtype: npt.DTypeLike, cache: ScoreCache | None) -> None:
        self._queries, self._cache = queries, cache
        self._rows = {row: (positions, np.full(len(positions), np.nan, dtype)) for row, positions in wanted}
        if cache is not None:
            for row, (positions, scores) in self._rows.items():
                scores[:] = cache.get(queries[row], positions)

    def known(self, row: int, positions: Positions) -> Array:
        wanted, scores = self._rows[row]
        return scores if positions is wanted else scores[np.searchsorted(wanted, positions)]

    def record(self, scored: Scored) -> None:
        for row, positions, values in scored.rows():
            wanted, scores = self._rows[row]
            largest = np.finfo(scores.dtype).max
            scores[np.searchsorted(wanted, positions)] = np.clip(values, -largest, largest)
            if self._cache is not None:
                self._cache.put(self._queries[row], positions, values)

    def changed(self) -> bool:
        return False


def _unchanged(scorer: Scorer) -> Scorer:
    """Return a scorer that is sent to a worker, if it can be pickled."""
    return scorer


def _first(queries: Sequence[Any]) -> Positions:
    """Return for every query the first position of an equal one; queries that cannot be compared are all different."""
    places: dict[Any, int] = {}
    try:
        return np.fromiter((places.setdefault(query, j) for j, query in enumerate(queries)), np.int64, len(queries))
    except TypeError:
        return np.arange(len(queries))
