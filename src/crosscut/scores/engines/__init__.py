"""Filling a score store: plan, probe, hand out blocks, commit, say how far it is.

    outcome = score_dense(store, "default", queries, items, engine=LocalEngine(), progress=print)
    scores = store.matrix(queries, items)            # (queries × items), a memory map

Everything already in the store is skipped, so a run that was killed is continued by running it again. Two runs on the
same store share the work: each begins somewhere else and leaves out what the other has committed meanwhile.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from crosscut.datasets.records import Item, ItemList
from crosscut.errors import InputError, StoreError
from crosscut.scorers.base import Scorer
from crosscut.scorers.named import load_scorer
from crosscut.scores.engines.local import Done, LocalEngine
from crosscut.scores.engines.ray import RayEngine
from crosscut.scores.engines.tasks import Gap, Task, cut, dense_gaps, pair_gaps, remaining
from crosscut.scores.engines.work import Job, Loader, commit, load_named, score_task
from crosscut.scores.keys import Keys
from crosscut.scores.records import Damage
from crosscut.scores.store import ScoreStore

__all__ = ["LocalEngine", "Outcome", "Plan", "Progress", "RayEngine", "make_engine", "score_dense", "score_pairs"]

BLOCK_SECONDS = 5.0
BLOCK_PAIRS = (512, 4096, 262_144)  # the smallest, the one without a probe, the largest
WARMED, PROBED = 8, 32


class Engine(Protocol):
    """Does tasks somewhere; `LocalEngine` and `RayEngine` are two."""

    @property
    def workers(self) -> int: ...

    @property
    def threads(self) -> int: ...

    def speedup(self, job: Job) -> int: ...

    def run(self, job: Job, tasks: Iterator[Task], done: Done) -> None: ...


@dataclass(frozen=True)
class Plan:
    """What a run will do, before it does it. Time and cost are rough, from a probe of a few pairs."""

    pairs: int
    known: int
    calls: int
    pairs_per_second: float | None = None
    seconds: float | None = None
    cost: float | None = None
    damaged: list[Damage] = field(default_factory=list)


@dataclass(frozen=True)
class Progress:
    """How far a run is."""

    done: int
    total: int
    seconds: float

    @property
    def pairs_per_second(self) -> float:
        return self.done / self.seconds if self.seconds > 0 else 0.0

    @property
    def seconds_left(self) -> float | None:
        return (self.total - self.done) / self.pairs_per_second if self.pairs_per_second else None


@dataclass(frozen=True)
class Outcome:
    """What a run has done: `calls` pairs scored, `known` found in the store, `missing` left by a limit."""

    calls: int
    known: int
    missing: int
    seconds: float
    damaged: list[Damage] = field(default_factory=list)


def make_engine(name: str = "local", *, workers: int | None = None, address: str | None = None) -> Engine:
    """An engine by name."""
    if name == "local":
        if address is not None:
            raise InputError(f"the local engine has no address, and {address!r} was given; use the engine 'ray'")
        return LocalEngine(workers or 1)
    if name == "ray":
        return RayEngine(workers or 2, address)
    raise InputError(f"there is no engine {name!r}; there are 'local' and 'ray'")


def score_dense(
    store: ScoreStore | str | Path,
    scorer: Scorer | str,
    queries: Sequence[str],
    items: Sequence[Item | str],
    *,
    engine: Engine | None = None,
    load: Loader | None = None,
    consolidate: bool = True,
    **options: Any,
) -> Outcome:
    """Score every query with every item, and keep all of it.

    Parameters
    ----------
    store
        The store, or the folder of one.
    scorer
        The scorer, or its name for `crosscut.scorers.named.load_scorer`; by name it can be loaded by other processes.
    load
        Makes the scorer in another process, where a name cannot.
    consolidate
        Merge the blocks into one memory-mapped matrix once it is complete.
    options
        `limit`: at most so many calls now. `block_pairs`: pairs a commit; by default about five seconds' worth.
        `probe`: time a few pairs first. `price_per_thousand`: for the plan. `plan`: called with the `Plan` before
        anything else is scored. `progress`: called with `Progress` after every commit.
    """
    engine = engine or LocalEngine()
    job = _job(store, scorer, queries, items, load, engine.threads)
    gaps = dense_gaps(job.store, job.query_keys, job.item_keys)
    outcome = _run(job, gaps, len(job.queries) * len(job.items), engine, **options)
    if consolidate and not outcome.missing and queries and items:
        job.store.refresh()
        job.store.consolidate(queries, items)
    return outcome


def score_pairs(
    store: ScoreStore | str | Path,
    scorer: Scorer | str,
    queries: Sequence[str],
    items: Sequence[Item | str],
    rows: npt.ArrayLike,
    columns: npt.ArrayLike,
    *,
    engine: Engine | None = None,
    load: Loader | None = None,
    **options: Any,
) -> Outcome:
    """Score the pairs (queries[rows[j]], items[columns[j]]): the sparse matrix G. Options as for `score_dense`.

    `store.pairs(queries, items)` has them afterwards.
    """
    engine = engine or LocalEngine()
    job = _job(store, scorer, queries, items, load, engine.threads)
    places = [np.asarray(one, np.int64).ravel() for one in (rows, columns)]
    if len(places[0]) != len(places[1]):
        raise InputError(f"{len(places[0])} rows and {len(places[1])} columns do not make pairs")
    for kind, chosen, size in (("query", places[0], len(queries)), ("item", places[1], len(items))):
        if len(chosen) and not (chosen.min() >= 0 and chosen.max() < size):
            raise InputError(f"{kind} numbers {chosen.min()} … {chosen.max()} do not fit a list of {size}")
    query_places = job.query_keys.find(Keys.of(queries).hashes)  # numbers among the texts without repetitions
    item_places = job.item_keys.find(Keys.of(items).hashes)
    rows, columns = query_places[places[0]], item_places[places[1]]
    total = len(np.unique(rows * max(len(job.items), 1) + columns))
    gaps = pair_gaps(job.store, job.query_keys, job.item_keys, rows, columns)
    return _run(job, gaps, total, engine, **options)


def _job(
    store: ScoreStore | str | Path,
    scorer: Scorer | str,
    queries: Sequence[str],
    items: Sequence[Item | str],
    load: Loader | None,
    threads: int,
) -> Job:
    named = isinstance(scorer, str | Path)
    loaded = load_scorer(scorer)
    if not isinstance(store, ScoreStore):
        store = ScoreStore.create(store, loaded.fingerprint)
    if store.scorer_fingerprint != loaded.fingerprint:
        raise StoreError(
            f"the store is for the scorer {store.scorer_fingerprint!r} and the scorer given is "
            f"{loaded.fingerprint!r}; scores of different models are never mixed: open the store for this one"
        )
    asked = list(dict.fromkeys(queries))
    once = [items[place] for place in Keys.of(items).places.values()]
    return Job(
        store=store,
        scorer=loaded,
        load=load or (partial(load_named, str(scorer), threads) if named else None),
        remote=named and "://" in str(scorer),
        queries=asked,
        items=once,
        query_keys=Keys.of(asked),
        item_keys=Keys.of(once),
    )


def _run(
    job: Job,
    gaps: list[Gap],
    pairs: int,
    engine: Engine,
    *,
    limit: int | None = None,
    block_pairs: int | None = None,
    probe: bool = True,
    price_per_thousand: float | None = None,
    plan: Callable[[Plan], None] | None = None,
    progress: Callable[[Progress], None] | None = None,
) -> Outcome:
    for name, value in (("limit", limit), ("block_pairs", block_pairs)):
        if value is not None and value < 1:
            raise InputError(f"{name} is {value}; it must be 1 or more")
    job.store.set_aside_damaged()
    lacking = sum(gap.pairs for gap in gaps)
    known = pairs - lacking
    total = lacking if limit is None else min(lacking, limit)
    price = None if price_per_thousand is None else total * price_per_thousand / 1000
    if not total:
        if plan is not None:
            plan(Plan(pairs, known, 0, cost=price, damaged=list(job.store.damaged)))
        return Outcome(0, known, lacking, 0.0, list(job.store.damaged))
    started = time.perf_counter()
    done = 0
    pace = None
    if probe:
        done, pace = _probe(job, gaps, min(total, WARMED + 2 * PROBED))
    if plan is not None:
        at_once = engine.speedup(job)
        rate = pace.rate(at_once) if pace else None
        seconds = pace.seconds(total, at_once) if pace else None
        plan(Plan(pairs, known, total, rate, seconds, price, list(job.store.damaged)))
    if block_pairs is None:
        smallest, usual, largest = BLOCK_PAIRS
        block_pairs = usual
        if pace is not None:
            block_pairs = int(np.clip(2 ** round(np.log2(pace.rate(1) * BLOCK_SECONDS)), smallest, largest))
    tasks = cut(gaps, min(block_pairs, max(1, -(-total // engine.workers))))
    shift = random.randrange(len(tasks))  # another run on this store begins elsewhere

    def finished(count: int) -> None:
        nonlocal done
        done += count
        if progress is not None:
            progress(Progress(done, total, time.perf_counter() - started))

    engine.run(job, _fresh(job, tasks[shift:] + tasks[:shift], total - done), finished)
    if progress is not None and done < total and limit is None:  # the rest was committed by another run meanwhile
        progress(Progress(total, total, time.perf_counter() - started))
    left = lacking - done if limit is not None else 0
    return Outcome(done, known, left, time.perf_counter() - started, list(job.store.damaged))


def _fresh(job: Job, tasks: Sequence[Task], room: int) -> Iterator[Task]:
    """Tasks when they are asked for, without what is known by then, up to `room` pairs."""
    looked = -np.inf
    for planned in tasks:
        if time.monotonic() - looked > 1.0:
            job.store.refresh()
            looked = time.monotonic()
        for task in remaining(job.store, job.query_keys, job.item_keys, planned):
            if room <= 0:
                return
            task = task.head(room)
            room -= task.pairs
            yield task


@dataclass(frozen=True)
class Pace:
    """Seconds for an item when it is first met, and for a pair."""

    item: float
    pair: float
    items: int

    def rate(self, workers: int) -> float:
        return workers / max(self.pair, 1e-9)

    def seconds(self, pairs: int, workers: int) -> float:
        return (pairs * self.pair + min(pairs, self.items) * self.item) / workers


def _probe(job: Job, gaps: Sequence[Gap], room: int) -> tuple[int, Pace]:
    """Time a few of the missing pairs, and keep them.

    A few to warm up, then one query with items that are new to the scorer, then another with the same items: models
    that encode an item once are slower the first time.
    """
    missing = [np.asarray(gap.runs[0][: WARMED + PROBED]) if gap.runs else gap.loose for gap in gaps[:2]]
    parts = [(gaps[0].row, missing[0][:WARMED])]
    parts += [(gap.row, chosen[WARMED : WARMED + PROBED]) for gap, chosen in zip(gaps[:2], missing, strict=True)]
    sample = np.unique(np.concatenate([positions for _, positions in parts]))
    bound = job.scorer.bind(ItemList(job.items[position] for position in sample.tolist()))
    times: list[float] = []
    done = 0
    for row, positions in parts:
        positions = positions[: room - done]
        if not len(positions):
            continue
        scored = score_task(bound, job.queries, Task((row,), (np.searchsorted(sample, positions),)))
        found = [sample[places] for places in scored.positions]
        kept = replace(scored, task=Task((row,), (positions,)), positions=found)
        commit(job.store, job.query_keys, job.item_keys, kept)
        if scored.error is not None:
            raise scored.error
        times.append(scored.seconds / scored.pairs)
        done += scored.pairs
    item = max(times[1] - times[2], 0.0) if len(times) > 2 else 0.0
    return done, Pace(item, times[-1], len(job.items))
