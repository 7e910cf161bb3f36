"""The one offline way to buy scores: every query with every item, or some pairs.

    bought = buy_matrix("default", queries, items, store="scores/", engine="ray", progress=show)
    bought.scores, bought.calls                      # (queries × items), and what was paid for

What is known already, in the store or the cache, is free: a purchase that was killed is continued by making it again.
Two purchases into the same store share the work: each begins somewhere else and leaves out what the other has
committed meanwhile. Every pair passes the meter, in whatever process or machine it is scored.
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
from crosscut.scorers.adapters import AnyBound, as_bound
from crosscut.scorers.base import BoundScorer, Scorer
from crosscut.scorers.caching import ScoreCache
from crosscut.scorers.loading import load_scorer
from crosscut.scores.engines import Engine, EngineChoice, make_engine
from crosscut.scores.engines.ledger import Ledger, MemoryLedger, StoreLedger
from crosscut.scores.engines.pace import BLOCK_PAIRS, PROBED, WARMED, Estimate, estimated, probe
from crosscut.scores.engines.tasks import Task, cut, gaps_of, remaining
from crosscut.scores.engines.worker import Loader, Order, load_named
from crosscut.scores.keys import Keys
from crosscut.scores.records import Damage
from crosscut.scores.store import ScoreStore
from crosscut.types import Array, Positions, Progress

AnyScorer = Scorer | AnyBound | str | Path


class Terms(TypedDict, total=False):
    """How scores are bought; all of it may be left out.

    Parameters
    ----------
    store
        A score store, or the folder of one: what it has is free, what is bought is committed to it block by block.
    cache
        Known scores, and a place for new ones, where there is no store.
    engine
        Where the scorer runs: `"local"`, `"ray"`, `LocalEngine(workers=8)`, `RayEngine(workers=4, gpus=1)`.
    load
        How a worker in another process gets the scorer: its name, or a function that makes it. Scorers that were
        given by name need none.
    bound
        The scorer bound to these items, if it is already; for scoring in this process.
    limit
        At most so many calls now; no new block is begun past it, but one under way may send pairs again.
    block_pairs
        Pairs a commit; by default about five seconds' worth.
    probe
        Whether to time a few pairs first (they are kept); by default yes.
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
class Purchase:
    """What was bought: `calls` pairs handed to the scorer, `known` that were free, `missing` left by a limit.

    `lost` of the calls brought no score and were made again: an endpoint failed, or a worker died (which may or may not
    have made them).
    """

    calls: int
    known: int
    missing: int
    lost: int
    seconds: float
    damaged: list[Damage]
    _read: Callable[[], Array] = field(repr=False)

    @cached_property
    def scores(self) -> Array:
        """Of a matrix (queries × items) float32, a memory map in a store; of pairs (m,). NaN where one is missing."""
        return self._read()


def buy_matrix(
    scorer: AnyScorer,
    queries: Sequence[Any],
    items: Sequence[Item | str] | None = None,
    *,
    positions: Positions | None = None,
    consolidate: bool = True,
    **terms: Unpack[Terms],
) -> Purchase:
    """Score every query with every item.

    Parameters
    ----------
    scorer
        A scorer of texts, or its name for `crosscut.scorers.loading.load_scorer`; without items, one bound to them.
    positions
        Only the items at these positions, ascending.
    consolidate
        Merge the blocks of a store into one memory-mapped matrix once it is complete.
    terms
        See `Terms`.
    """
    deal = _Deal(scorer, queries, items, terms)
    chosen = deal.all_items() if positions is None else positions
    once = np.unique(deal.first_of(chosen))
    wanted = [(row, once) for row in np.unique(deal.first_query).tolist()]
    order = deal.order(wanted, np.float32)
    whole = order.ledger if positions is None and isinstance(order.ledger, StoreLedger) else None

    def read() -> Array:
        if whole is not None:
            return whole.store.matrix(whole.queries, whole.items, partial=True)
        rows = [order.ledger.known(row, chosen) for row in deal.first_query.tolist()]
        return np.stack(rows) if rows else np.empty((0, len(chosen)), np.float32)

    bought = _buy(order, wanted, deal.engine, read, terms)
    if whole is not None and consolidate and not bought.missing and wanted and len(chosen):
        whole.refresh()
        whole.store.consolidate(whole.queries, whole.items)
    return bought


def buy_pairs(
    scorer: AnyScorer,
    queries: Sequence[Any],
    items: Sequence[Item | str] | None,
    rows: npt.ArrayLike,
    columns: npt.ArrayLike,
    **terms: Unpack[Terms],
) -> Purchase:
    """Score the pairs (queries[rows[j]], items[columns[j]]), each once: the sparse matrix G. See `buy_matrix`."""
    asked, with_item = (np.asarray(one, np.int64).ravel() for one in (rows, columns))
    if len(asked) != len(with_item):
        raise InputError(f"{len(asked)} rows and {len(with_item)} columns do not make pairs")
    deal = _Deal(scorer, queries, items, terms)
    for kind, places, size in (("query", asked, len(queries)), ("item", with_item, deal.n_items)):
        if len(places) and not (places.min() >= 0 and (size is None or places.max() < size)):
            raise InputError(f"{kind} numbers {places.min()} … {places.max()} do not fit a list of {size}")
    asked = deal.first_query[asked]
    with_item = deal.first_of(with_item)
    wanted = _by_row(asked, with_item)
    order = deal.order(wanted, np.float64)

    def read() -> Array:
        scores = np.empty(len(asked))
        by_row = np.argsort(asked, kind="stable")
        bounds = np.searchsorted(asked[by_row], [row for row, _ in wanted] + [len(queries)])
        for (row, _), start, stop in zip(wanted, bounds[:-1], bounds[1:], strict=True):
            here = by_row[start:stop]
            scores[here] = order.ledger.known(row, with_item[here])
        return scores

    return _buy(order, wanted, deal.engine, read, terms)


Wanted = list[tuple[int, Positions]]
"""Rows of queries, each with the positions of its items, ascending and each once."""


def _by_row(rows: Positions, columns: Positions) -> Wanted:
    width = int(columns.max(initial=0)) + 1
    pairs = np.unique(rows * width + columns)
    distinct, starts = np.unique(pairs // width, return_index=True)
    return list(zip(distinct.tolist(), np.split(pairs % width, starts[1:]), strict=False))  # of nothing, nothing


class _Deal:
    """A scorer, its queries and items, and the store, before it is decided which pairs are wanted.

    `first_query` (q) and `first_item` (n; None: all differ) say where the same text stands first: it is scored once.
    """

    def __init__(
        self, scorer: AnyScorer, queries: Sequence[Any], items: Sequence[Item | str] | None, terms: Terms
    ) -> None:
        self.engine = make_engine(terms.get("engine", "local"))
        self.queries, self.items, self.cache = queries, items, terms.get("cache")
        if items is None and isinstance(scorer, str | Path):
            raise InputError(f"the scorer {str(scorer)!r} reads texts: pass the texts of the items")
        self.scorer = None if items is None else load_scorer(scorer)
        self.bound = terms.get("bound") or (None if self.scorer is not None else as_bound(scorer))  # type: ignore[arg-type]
        self.load, self.waits = self._loader(terms.get("load"), scorer)
        self.store = self._store(terms.get("store"))
        self.keys = None if self.store is None else (Keys.of(queries), Keys.of(items or ()))
        self.first_item = None if self.keys is None else self.keys[1].first
        self.first_query = _first(queries)

    @property
    def n_items(self) -> int | None:
        return len(self.items) if self.items is not None else None if self.bound is None else self.bound.n_items

    def all_items(self) -> Positions:
        if self.n_items is None:
            raise InputError("the scorer does not say how many items it knows: pass positions")
        return np.arange(self.n_items)

    def first_of(self, positions: Positions) -> Positions:
        return positions if self.first_item is None else self.first_item[positions]

    def _loader(self, load: Loader | str | None, scorer: AnyScorer) -> tuple[Loader | None, bool]:
        """What makes the scorer elsewhere, and whether it waits for an answer rather than computes one."""
        name = load or scorer
        if isinstance(name, str | Path):
            return partial(load_named, str(name), self.engine.threads), "://" in str(name)
        if callable(load):
            return load, False
        return None if self.scorer is None else partial(_itself, self.scorer), True

    def _store(self, given: ScoreStore | str | Path | None) -> ScoreStore | None:
        if given is None:
            return None
        if self.scorer is None:
            raise InputError("a score store keeps scores of texts under the scorer's fingerprint: pass both, unbound")
        if not isinstance(given, ScoreStore):
            return ScoreStore.create(given, self.scorer.fingerprint)
        if given.scorer_fingerprint != self.scorer.fingerprint:
            raise StoreError(
                f"the store is for the scorer {given.scorer_fingerprint!r} and the scorer given is "
                f"{self.scorer.fingerprint!r}; scores of different models are never mixed: open the store for this one"
            )
        return given

    def order(self, wanted: Wanted, dtype: npt.DTypeLike) -> Order:
        if self.store is not None and self.keys is not None:
            ledger: Ledger = StoreLedger(self.store, *self.keys)
        else:
            ledger = MemoryLedger(self.queries, wanted, dtype, self.cache)
        fingerprint = None if self.scorer is None else self.scorer.fingerprint
        return Order(ledger, self.queries, self.items, fingerprint, self.bind, self.load, self.waits)

    def bind(self) -> BoundScorer:
        if self.bound is None:
            self.bound = as_bound(load_scorer(self.scorer).bind(items_of(self.items or ())))
        return self.bound


def _itself(scorer: Scorer) -> Scorer:
    """A scorer that goes to a worker as it is, if it can be pickled."""
    return scorer


def _first(queries: Sequence[Any]) -> Positions:
    """For every query, where the same stands first; queries that cannot be compared are all different."""
    places: dict[Any, int] = {}
    try:
        return np.fromiter((places.setdefault(query, j) for j, query in enumerate(queries)), np.int64, len(queries))
    except TypeError:
        return np.arange(len(queries))


class _Tally:
    """How far a purchase is, and whom to tell."""

    def __init__(self, total: int, terms: Terms) -> None:
        self.total, self.done, self.lost = total, 0, 0
        self.progress, self.what = terms.get("progress"), terms.get("what", "scoring")

    def count(self, came: int, gone: int) -> None:
        self.done, self.lost = self.done + came, self.lost + gone

    def report(self, came: int, gone: int) -> None:
        self.count(came, gone)
        if came and self.progress is not None:
            self.progress(self.what, self.done, self.total)

    def others_did_the_rest(self) -> None:
        """What another run committed meanwhile is no call of ours, and yet it is done."""
        if self.done < self.total and self.progress is not None:
            self.progress(self.what, self.total, self.total)


def _buy(order: Order, wanted: Wanted, engine: Engine, read: Callable[[], Array], terms: Terms) -> Purchase:
    """Probe, estimate, hand out blocks, say how far it is."""
    limit, block_pairs, tell = terms.get("limit"), terms.get("block_pairs"), terms.get("estimate")
    for name, value in (("limit", limit), ("block_pairs", block_pairs)):
        if value is not None and value < 1:
            raise InputError(f"{name} is {value}; it must be 1 or more")
    gaps = gaps_of(wanted, order.ledger.known)
    order.ledger.set_aside_damaged()
    lacking = sum(gap.pairs for gap in gaps)
    known = sum(len(positions) for _, positions in wanted) - lacking
    total = min(lacking, limit or lacking)
    started = time.perf_counter()
    tally = _Tally(total, terms)
    probed = min(total, WARMED + 2 * PROBED) * terms.get("probe", True)
    pace = probe(order, gaps, probed, tally.count) if probed else None
    if tell is not None:
        tell(estimated(pace, engine.speedup(order), total, known, lacking, order, terms.get("price_per_thousand")))
    if total:
        block = block_pairs or (BLOCK_PAIRS[1] if pace is None else pace.block_pairs)
        tasks = cut(gaps, min(block, max(1, -(-total // engine.workers))))
        shift = random.randrange(len(tasks)) if order.ledger.folder else 0  # another run on this store begins elsewhere
        room = total - tally.done
        fresh = _fresh(order.ledger, tasks[shift:] + tasks[:shift], lambda: room - tally.lost * (limit is not None))
        engine.run(order, fresh, tally.report)
        if limit is None:
            tally.others_did_the_rest()
    missing = 0 if limit is None else lacking - tally.done
    seconds = time.perf_counter() - started
    return Purchase(tally.done + tally.lost, known, missing, tally.lost, seconds, order.ledger.damaged, read)


def _fresh(ledger: Ledger, tasks: Sequence[Task], room: Callable[[], int]) -> Iterator[Task]:
    """Tasks when they are asked for, without what is known by then, up to `room()` pairs."""
    looked = -np.inf
    handed = 0
    for planned in tasks:
        if time.monotonic() - looked > 1.0:
            ledger.refresh()
            looked = time.monotonic()
        for task in remaining(ledger.known, planned):
            if room() <= handed:
                return
            task = task.head(room() - handed)
            handed += task.pairs
            yield task
