"""The default method over vector stores, against the flat array: recall, time, memory.

    python benchmarks/stores.py --items 20000 --json benchmarks/results/stores.json
    python benchmarks/stores.py --vectors vectors/wordnet-static --teacher vectors/wordnet-lsa --json …

With `--vectors` and `--teacher`, item and query vectors of two encoders (`benchmarks/vectors.py`): searches run in the
first space, and the scorer is the sum of the inner products in both, so that the true top k of every query is known and
the first space sees a part of it. Without them, a planted world of `--items` items in 32 clusters.

B = 100, R = 10, k = 10. Every store holds the same vectors, in its exact and its approximate mode. Times are medians of
searches; `CLOCKS` says what each of them counts. Peak memory is that of Python objects in
one search, over all items and over an eighth of them. Qdrant's relevance-feedback query (`qdrant-feedback`) stands
beside it: ten items of the encoder's ranking are the feedback, 90 are found with it. PostgreSQL is pgserver's (PyPI),
started and stopped here. With `--json`, records of stores that are not measured now stay.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import tempfile
import time
import tracemalloc
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import numpy as np
import numpy.typing as npt
from tests import real_stores
from tests.real_stores import Corpus, corpus

import crosscut
from crosscut.ann.topk import Indexed
from crosscut.measures import recall
from crosscut.methods import Method, parse
from crosscut.methods.base import Parts
from crosscut.stores import Qdrant
from crosscut.stores.base import Rows, Session, Store, Want

K, BUDGET, ROUNDS = 10, 100, 10
METHOD = parse(f"crosscut@rounds={ROUNDS}")
FEEDBACK = parse("qdrant-feedback@feedback=10")  # Qdrant's relevance-feedback query, as two questions


CLOCKS = {
    "store_ms": "trips: from a question as Store.query takes it to its answer as an array, translation included",
    "client_ms": "of that, inside the store's client library",
    "rest_ms": "outside trips and scorer, where the scorer is from the handles that a round picked to their scores",
    "translation_ms": "crosscut's own part of trips and scorer: all but the client library and the look-up of scores",
}


@dataclass
class World:
    """Vectors to search with, and the scores that decide."""

    name: str
    vectors: npt.NDArray[np.float32]  # (n × d)
    queries: npt.NDArray[np.float32]  # (q × d)
    truth: npt.NDArray[np.float32]  # (q × n)


def planted(n: int, queries: int) -> World:
    rng = np.random.default_rng(0)
    centres = rng.normal(size=(32, 64))
    items = centres[rng.integers(32, size=n)] + rng.normal(size=(n, 64))
    asked = items[rng.choice(n, queries, replace=False)] + 0.7 * rng.normal(size=(queries, 64))
    truth = asked @ items.T + 2 * rng.normal(size=(queries, n))
    seen = items + 0.6 * rng.normal(size=items.shape)  # an encoder that sees the items through noise
    unit = np.linalg.norm(seen, axis=1, keepdims=True)
    return World(
        f"planted, {n} items", (seen / unit).astype(np.float32), asked.astype(np.float32), truth.astype(np.float32)
    )


def encoded(vectors: Path, teacher: Path, n: int, queries: int) -> World:
    def read(stem: Path, kind: str) -> npt.NDArray[np.float32]:
        return np.asarray(np.load(f"{stem}-{kind}.npy"), np.float32)

    items, others = read(vectors, "items"), read(teacher, "items")
    n = min(n, len(items), len(others))
    asked = np.random.default_rng(0).permutation(len(read(vectors, "test")))[:queries]
    truth = read(vectors, "test")[asked] @ items[:n].T + read(teacher, "test")[asked] @ others[:n].T
    return World(
        f"{vectors.name} scored by {vectors.name} + {teacher.name}, {n} items",
        items[:n],
        read(vectors, "test")[asked],
        truth,
    )


class Timed:
    """A store whose trips are timed, and inside of them its client library: what it is given to what it answers."""

    CALLS: ClassVar = {"Qdrant": ("query", "vector_of"), "PgVector": ("_found",), "LanceDB": ("_found",)}

    def __init__(self, store: Store) -> None:
        self.client, self.trips = [0.0], [0.0]
        holder: Any = store._engine if isinstance(store, Qdrant) else store
        for name in self.CALLS[type(store).__name__]:
            setattr(holder, name, self.timed(getattr(holder, name), self.client))
        query = store.query

        def asked(wants: Any, *, exact: bool) -> list[Rows]:
            rows: list[Rows] = query(wants, exact=exact)
            return [Rows(one.keys, self.timed(one.vectors_at, self.trips), one.payload_at) for one in rows]

        store.query = self.timed(asked, self.trips)  # type: ignore[method-assign]  # with what it costs to look

    @staticmethod
    def timed(call: Callable[..., Any], clock: list[float]) -> Callable[..., Any]:
        def asked(*given: Any, **named: Any) -> Any:
            started = time.perf_counter()
            answer = call(*given, **named)
            clock[0] += time.perf_counter() - started
            return answer

        return asked


class Spent(NamedTuple):
    """Of one search."""

    recall: float
    total: float  # seconds
    scorer: float  # from the items that a round picked to their scores
    looking: float  # of that, only the scores' own


def search(world: World, store: Store, place: dict[str, int], row: int, method: Method = METHOD) -> Spent:
    """As `Index.over` searches, with a scorer that takes items, as one of texts does, and looks their scores up."""
    looking = 0.0
    started = time.perf_counter()
    session: Session = store.session()

    def score(query: int, handles: npt.NDArray[np.int64]) -> npt.NDArray[Any]:
        nonlocal looking
        items = session.get(handles)
        began = time.perf_counter()
        found = world.truth[query, [place[item.id] for item in items]].astype(np.float64)
        looking += time.perf_counter() - began
        return found

    searcher = crosscut.Searcher(score, parts=Parts(encoder=Indexed(session)), method=method)
    hits = searcher.search(row, K, BUDGET, query_vector=world.queries[row])
    total = time.perf_counter() - started
    names = [place[item.id] for item in session.get(hits.scored)]
    return Spent(recall(world.truth[row], np.array(names), K), total, hits.seconds.scorer, looking)


def memory(world: World, store: Store, place: dict[str, int]) -> float:
    """The most megabytes of Python objects in one search."""
    tracemalloc.start()
    search(world, store, place, 0)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return peak / 1e6


def measured(world: World, store: Store, contents: Corpus, method: Method = METHOD) -> dict[str, Any]:
    place = {str(store.named(id)): j for j, id in enumerate(contents.ids)}
    store.spread  # noqa: B018  (drawn once for a store, not once a search)
    search(world, store, place, 0)  # connections, plans, pages
    timed = Timed(store)
    told: list[tuple[float, float, float, float, float]] = []
    for row in range(len(world.truth)):
        timed.client[0] = timed.trips[0] = 0.0
        spent = search(world, store, place, row, method)
        outside = spent.total - spent.scorer - timed.trips[0]
        translating = spent.total - spent.looking - timed.client[0] - outside
        told.append((spent.recall, timed.trips[0], timed.client[0], outside, translating))
    shares, trips, client, rest, own = np.array(told).T
    return {
        "recall": float(np.mean(shares)),
        "round_recall_500_excluded": round_recall(world, store, place, contents),
        "store_ms": 1e3 * float(np.median(trips)),
        "client_ms": 1e3 * float(np.median(client)),
        "rest_ms": 1e3 * float(np.median(rest)),
        "rest_ms_best_tenth": 1e3 * float(np.quantile(rest, 0.1)),
        "translation_ms": 1e3 * float(np.median(own)),
        "peak_mb": memory(world, store, place),
    }


def round_recall(world: World, store: Store, place: dict[str, int], contents: Corpus) -> float:
    """Of 26 items after 500 were excluded, the share that an exact search would have given."""
    found = []
    for u in world.queries[:20].astype(np.float64):
        order = np.argsort(-(world.vectors.astype(np.float64) @ u), kind="stable")
        keys = store.fetch([store.named(contents.ids[j]) for j in order[:500]]).keys
        (rows,) = store.query([Want(u / np.linalg.norm(u), 26, keys)], exact=store.exact)
        named = {place[str(store.name(key, payload))] for key, payload in zip(rows.keys, rows.payloads, strict=True)}
        found.append(len(named & {*order[500:526].tolist()}) / 26)
    return float(np.mean(found))


@contextmanager
def postgres(folder: Path) -> Iterator[str]:
    from pgserver.postgres_server import get_server

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        server = get_server(folder, cleanup_mode="stop")
    try:
        yield server.get_uri()
    finally:
        server.cleanup()


def of_an_eighth(world: World, make: Callable[..., Store], where: Any, folder: str) -> float:
    """The memory of a search over an eighth of the items."""
    some = World(world.name, world.vectors[::8], world.queries, world.truth[:, ::8])
    contents = corpus(vectors=some.vectors)
    store = make(contents, where if isinstance(where, str) else Path(folder, "an eighth"), hnsw=False, exact=True)
    place = {str(store.named(id)): j for j, id in enumerate(contents.ids)}
    store.spread  # noqa: B018
    search(some, store, place, 0)
    peak = memory(some, store, place)
    store.close()
    shutil.rmtree(Path(folder, "an eighth"), ignore_errors=True)
    return peak


def flat(world: World) -> dict[str, Any]:
    searcher = crosscut.Searcher(crosscut.MatrixScorer(world.truth), vectors=world.vectors, method=METHOD)
    kept, spent = [], []
    for row in range(len(world.truth)):
        started = time.perf_counter()
        hits = searcher.search(row, K, BUDGET, query_vector=world.queries[row])
        spent.append(time.perf_counter() - started - hits.seconds.scorer)
        kept.append(recall(world.truth[row], hits.scored, K))
    found = {"recall": float(np.mean(kept)), "rest_ms": 1e3 * float(np.median(spent))}
    return {"store": "flat array", "mode": "exact", **found}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--items", type=int, default=100_000)
    parser.add_argument("--queries", type=int, default=100)
    parser.add_argument("--vectors", type=Path)
    parser.add_argument("--teacher", type=Path)
    parser.add_argument("--stores", nargs="+", default=["edge", "postgres", "lance"])
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    if options.vectors is None:
        world = planted(options.items, options.queries)
    else:
        world = encoded(options.vectors, options.teacher, options.items, options.queries)
    contents = corpus(vectors=world.vectors)
    records = json.loads(options.json.read_text())["records"] if options.json and options.json.exists() else []
    if options.json is not None and records and json.loads(options.json.read_text())["world"] != world.name:
        parser.error(f"{options.json} is of another world: give another file")

    def keep(told: dict[str, Any]) -> None:
        """Beside what other stores came to."""
        same = [one for one in records if (one["store"], one["mode"]) == (told["store"], told["mode"])]
        records[:] = [one for one in records if one not in same] + [told]
        print(told, flush=True)
        if options.json is not None:
            about: dict[str, Any] = {
                "world": world.name,
                "queries": options.queries,
                "k": K,
                "budget": BUDGET,
                "rounds": ROUNDS,
            }
            about["clocks"] = CLOCKS
            machine = {"cores": os.cpu_count(), "python": platform.python_version()}
            options.json.write_text(json.dumps({**about, "machine": machine, "records": records}, indent=1) + "\n")

    keep(flat(world))
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        dsn = stack.enter_context(postgres(Path(folder, "pg"))) if "postgres" in options.stores else ""
        for kind in options.stores:
            for hnsw in (False, True):
                where: Any = dsn if kind == "postgres" else Path(folder, f"{kind} {hnsw}")
                make: Callable[..., Store] = getattr(real_stores, kind)
                store = make(contents, where, hnsw=hnsw, exact=not hnsw)
                told = {"store": kind, "mode": "approximate" if hnsw else "exact", **measured(world, store, contents)}
                if kind == "edge" and not hnsw:
                    keep({"store": kind, "mode": "qdrant-feedback", **measured(world, store, contents, FEEDBACK)})
                store.close()
                if not hnsw:
                    told["peak_mb_of_an_eighth"] = of_an_eighth(world, make, where, folder)
                keep(told)


if __name__ == "__main__":
    main()
