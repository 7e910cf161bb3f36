"""Clustered search with early exit, on real embeddings: quality, speed against FAISS, growth, and rounds of the loop.

    python benchmarks/vectors.py --data ../shared/data --out vectors
    python benchmarks/ivf.py quality --vectors vectors --sets wordnet-static sentences-static
    python benchmarks/ivf.py speed   --vectors vectors --sets wordnet-static
    python benchmarks/ivf.py rounds  --vectors vectors --sets sentences-static
    python benchmarks/ivf.py growth  --vectors vectors --sets sentences-static --sizes 100000 1000000 5000000

`quality` is Table 2 and the frontier of every rule; `speed` times a fixed number of lists, ours against FAISS IVFFlat,
interleaved, in the same process; `rounds` is the recall of the loop over an index of real vectors, with and without a
trail; `growth` times single queries and rounds of the loop on jittered copies of real vectors, which say nothing about
quality. Every part adds its cases to benchmarks/results/ivf.json.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
from collections.abc import Callable
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import faiss
import numpy as np
from crosscut.evaluation.clustered import as_records, as_table, parameters, table_2
from crosscut.evaluation.report import machine
from rich.console import Console
from threadpoolctl import threadpool_limits

import crosscut
from crosscut.ann import clusters
from crosscut.ann.flat import Flat
from crosscut.ann.ivf import IVF
from crosscut.ann.ivf.learning import exact, observe
from crosscut.ann.ivf.rules import USUAL, Fixed, Patience, Rule
from crosscut.ann.ivf.tuning import tune
from crosscut.ann.topk import Indexed
from crosscut.cli.common import table
from crosscut.methods import Crosscut
from crosscut.storage import write_json
from crosscut.types import Array, Floats
from turns import in_turns

RESULTS = Path(__file__).parent / "results" / "ivf.json"
TRAIN, TEST = 2400, 1500
console = Console(width=150)


def load(folder: Path, name: str) -> tuple[Array, Array, Array, list[list[int]]]:
    """Items, train queries, test queries and the test queries' judgements.

    Train and test queries are disjoint parts of the collection's train queries: its test queries come from another
    source, and a number of lists chosen on the ones says little about the others.
    """
    items = np.load(folder / f"{name}-items.npy")
    queries = np.load(folder / f"{name}-train.npy").astype(np.float32)
    with gzip.open(folder / f"{name.split('-')[0]}-gold.json.gz", "rt") as file:
        gold = json.load(file)["train"]
    kept = [[j for j in wanted if j < len(items)] for wanted in gold[TRAIN : TRAIN + TEST]]
    return items, queries[:TRAIN], queries[TRAIN : TRAIN + TEST], kept


def given(options: argparse.Namespace) -> Array | None:
    return None if options.centroids is None else np.load(options.centroids)


def rules_of(options: argparse.Namespace) -> dict[str, Any]:
    return {} if options.rules is None else {"rules": tuple(options.rules)}


def keep(part: str, record: dict[str, Any], same: tuple[str, ...]) -> None:
    """Add a case to the results, with the load of the machine; a case that is run again replaces the old one."""
    record = {**record, "load_average": round(os.getloadavg()[0], 1)}
    results = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    results["machine"] = {**machine(), "faiss": faiss.__version__, "cores": 2}
    cases = [old for old in results.get(part, []) if any(old[key] != record[key] for key in same)]
    results[part] = [*cases, record]
    write_json(RESULTS, results)


def quality(options: argparse.Namespace) -> None:
    for name in options.sets:
        items, train, test, gold = load(options.vectors, name)
        for lists in options.lists or [clusters.usual_lists(len(items))]:
            index = IVF.build(items, lists=lists, centroids=given(options))
            tuned = tune(index, train, target=0.95, loss=options.loss, k=100, **rules_of(options))
            rows, limit = table_2(index, tuned, test, k=100, gold=gold, repeats=options.repeats)
            title = f"{name}: {index.n:,} items, {lists} lists, N = {tuned.lists}"
            table(title, *as_table(rows, limit, 100))
            record = {
                "set": name,
                "items": index.n,
                "lists": lists,
                "loss": options.loss,
                "N": tuned.lists,
                "train_queries": len(train),
                "test_queries": len(test),
                "rows": as_records(rows),
                "limits": limit,
                "untuned": untuned(index, test),
            }
            keep("quality", record, ("set", "lists", "loss"))


def untuned(index: IVF, test: Array) -> dict[str, float]:
    """What the default does for those who tune nothing."""
    found = index.search_many(test, 10, rule=USUAL)
    truth = exact(index, test, 1)[:, 0]
    hit = found.ids[:, 0] == index.ids[truth]
    ranks = observe(index, test, 1, 1).ranks[:, 0]
    rival = int(np.sort(ranks)[max(0, int(np.ceil(hit.mean() * len(hit))) - 1)])
    return {"recall_1": float(hit.mean()), "lists": float(found.lists.mean()), "rival": rival}


def median(work: dict[str, Callable[[], Any]], repeats: int) -> dict[str, float]:
    """Median seconds of each, interleaved, after one run to warm up."""
    times = in_turns(work, repeats)
    return {name: float(np.median(values)) for name, values in times.items()}


def rival_of(index: IVF, items: Array) -> Any:
    """FAISS IVFFlat with the same centroids."""
    coarse = faiss.IndexFlatIP(index.d)
    coarse.add(index.centroids)
    rival = faiss.IndexIVFFlat(coarse, index.d, len(index.centroids), faiss.METRIC_INNER_PRODUCT)
    for _, block in clusters.blocks(items, 1 << 16):
        rival.add(block)
    return rival


def speed(options: argparse.Namespace) -> None:
    for name in options.sets:
        items, train, test, _ = load(options.vectors, name)
        for lists in options.lists or [clusters.usual_lists(len(items))]:
            race(options, name, lists, items, train[:1500], test)


def race(options: argparse.Namespace, name: str, lists: int, items: Array, train: Array, test: Array) -> None:
    """Ours against FAISS: the same centroids, N, threads and queries."""
    single = IVF.build(items.astype(np.float32), lists=lists, centroids=given(options))
    half = IVF(single.centroids, single.vectors.astype(np.float16), single.starts, single.ids)
    rival = rival_of(single, items)
    tuned = tune(half, train, target=0.95, loss=options.loss, k=100, rules=("patience", "chance"))
    n = rival.nprobe = tuned.lists
    rules = {choice.name: choice.rule for choice in tuned.choices if choice.name != "fixed"}
    batch, few = test[:1000], test[:100]
    for threads in (1, 2):
        faiss.omp_set_num_threads(threads)
        with threadpool_limits(threads, user_api="blas"):
            many = partial(batch_of, queries=batch, threads=threads)
            work: dict[str, Callable[[], Any]] = {"faiss": lambda: rival.search(batch, 100)}
            work |= {"ours": many(single, Fixed(n)), "ours float16": many(half, Fixed(n))}
            for title, rule in rules.items():
                work |= {title: many(single, rule), f"{title} float16": many(half, rule)}
            tell(name, lists, n, threads, len(batch), median(work, options.repeats))
        if threads == 1:
            alone: dict[str, Callable[[], Any]] = {
                "faiss": lambda: [rival.search(few[j : j + 1], 100) for j in range(len(few))],
                "ours": one_by_one(single, Fixed(n), few),
                "ours float16": one_by_one(half, Fixed(n), few),
                **{f"{title} float16": one_by_one(half, rule, few) for title, rule in rules.items()},
            }
            tell(name, lists, n, threads, 1, median(alone, options.repeats), len(few))


def batch_of(index: IVF, rule: Rule, queries: Array, threads: int) -> Callable[[], Any]:
    return lambda: index.search_many(queries, 100, rule=rule, threads=threads)


def one_by_one(index: IVF, rule: Rule | None, queries: Array) -> Callable[[], Any]:
    return lambda: [index.search(query, 100, rule=rule) for query in queries]


def tell(
    name: str, lists: int, n: int, threads: int, batch: int, seconds: dict[str, float], queries: int | None = None
) -> None:
    ms = {what: 1000 * value / (queries or batch) for what, value in seconds.items()}
    record = {"set": name, "lists": lists, "N": n, "threads": threads, "batch": batch, "ms": ms}
    record["times_faiss"] = {what: ms["faiss"] / value for what, value in ms.items()}
    shown = "  ".join(f"{what} {value:.3f} ({ms['faiss'] / value:.2f}×)" for what, value in ms.items())
    console.print(f"{name} {lists} lists N={n} threads={threads} batch={batch}: ms {shown}")
    keep("speed", record, ("set", "lists", "threads", "batch"))


class Afresh(IVF):
    """An index whose rounds forget where they have been."""

    def search_many(self, *given: Any, trails: Any = None, **how: Any) -> Any:
        return super().search_many(*given, **how)


def rounds(options: argparse.Namespace) -> None:
    """Recall of the exact top 10 by `crosscut` over vectors alone, B = 500, R = 10, over an index and flat."""
    for name in options.sets:
        items, train, test, _ = load(options.vectors, name)
        lists = (options.lists or [None])[0]
        index = IVF.build(items, lists=lists, centroids=given(options))
        queries = test[: options.queries]
        scorer, best = known(index, queries)
        patient = [
            Patience(rounds, share, index.most) for rounds, share in ((10, 0.05), (20, 0.05), (7, 0.0), (28, 0.0))
        ]
        chance = tune(index, train, target=0.95, loss=options.loss, k=100, rules=("chance",))["chance"].rule
        rules: list[Rule] = [*patient, Fixed(32), Fixed(64), Fixed(128), chance]
        flat = searched(crosscut.Searcher(scorer, vectors=AsGiven(index)), queries, best)
        cases = [{"rounds": "flat", **flat}]
        for rule in rules:
            for kind in (Afresh, IVF):
                clustered = kind(index.centroids, index.vectors, index.starts, index.ids, rule=rule)
                found = searched(crosscut.Searcher(scorer, vectors=clustered), queries, best)
                told = parameters(rule.json())
                cases.append({"rounds": "afresh" if kind is Afresh else "trail", "rule": told, **found})
                console.print({**cases[-1], "set": name})
        record = {"set": name, "items": index.n, "lists": len(index.centroids), "queries": len(queries), "cases": cases}
        keep("rounds", record, ("set", "lists"))


def known(index: IVF, queries: Array) -> tuple[Free, list[set[int]]]:
    """A scorer whose hidden vectors lie near the queries, and its exact top 10."""
    rng = np.random.default_rng(0)
    wanted = (queries + 0.03 * rng.standard_normal(queries.shape)).astype(np.float64)
    scorer = Free(index, wanted)
    every = np.arange(index.n)
    noise = [scorer.noise(j, every) for j in range(len(queries))]
    scores = index.predict(wanted) + np.stack(noise)
    return scorer, [{*np.argpartition(-row, 10)[:10].tolist()} for row in scores]


def searched(searcher: crosscut.Searcher, queries: Array, best: list[set[int]]) -> dict[str, Any]:
    found = [searcher.search(j, 10, 500, query_vector=query) for j, query in enumerate(queries)]
    recalls = np.array([len({hit.position for hit in hits} & top) / 10 for hits, top in zip(found, best, strict=True)])
    means = recalls[np.random.default_rng(0).integers(0, len(recalls), (2000, len(recalls)))].mean(axis=1)
    outside = [hits.seconds.fit + hits.seconds.select for hits in found]
    return {
        "recall_10": float(recalls.mean()),
        "interval": [float(value) for value in np.quantile(means, [0.025, 0.975])],
        "ms_outside_scorer": 1000 * float(np.median(outside)),
    }


def copies(index: IVF, size: int) -> IVF:
    """The same lists, filled with jittered copies of their vectors up to `size` or a little more: for timing only.

    The lowest two bits of every float16 are drawn at random, about 0.2 % of its value.
    """
    times = -(-size // index.n)
    rng = np.random.default_rng(0)
    noise = rng.integers(0, 4, (1 << 12, index.d), dtype=np.uint16)
    bits = index.vectors.view(np.uint16)
    stored = np.empty((times * index.n, index.d), dtype=np.uint16)
    at = 0
    for low, high in pairwise(index.starts.tolist()):
        for copy in range(times):
            here = stored[at : at + high - low]
            here[:] = bits[low:high]
            if copy:
                for start in range(0, len(here), len(noise)):
                    part = here[start : start + len(noise)]
                    part ^= noise[: len(part)]
            at += high - low
    return IVF(index.centroids, stored.view(np.float16), times * index.starts, np.arange(len(stored)))


def growth(options: argparse.Namespace) -> None:
    name = options.sets[0]
    items, _, test, _ = load(options.vectors, name)
    real = IVF.build(items, lists=(options.lists or [None])[0], centroids=given(options))
    for size in options.sizes:
        small = size < real.n
        index = IVF.build(items[:size], centroids=real.centroids) if small else copies(real, size)
        record = {
            "set": name,
            "size": index.n,
            "lists": len(index.centroids),
            "probes": options.probes,
            "vectors_GB": index.vectors.nbytes / 1e9,
            "index_GB": index.vectors.nbytes / 1e9,
            "ms_single_query": grown(index, test[: options.queries], options),
        }
        console.print(record)
        keep("growth", record, ("set", "size"))
        record = in_the_loop(index, test[: max(1, options.queries // 2)], options.repeats)
        console.print(record)
        keep("loop", {"set": name, **record}, ("set", "items"))


def grown(index: IVF, queries: Array, options: argparse.Namespace) -> dict[str, float]:
    """Milliseconds of a single query: every vector, some lists, FAISS."""
    flat = crosscut.Vectors(index.vectors)

    def every() -> None:
        for query in queries.astype(np.float64):
            np.argpartition(-flat.predict(query[None])[0], 100)

    work: dict[str, Callable[[], Any]] = {
        "flat": every,
        "fixed": one_by_one(index, Fixed(options.probes), queries),
        "default rule": one_by_one(index, None, queries),
    }
    if index.n <= 2_000_000:  # in float32, 5M would not fit beside it
        rival = rival_of(index, index.vectors)
        rival.nprobe = options.probes
        faiss.omp_set_num_threads(1)
        work["faiss float32"] = lambda: [rival.search(queries[j : j + 1], 100) for j in range(len(queries))]
    return {what: 1000 * value / len(queries) for what, value in median(work, options.repeats).items()}


class Free:
    """A scorer that costs nothing: an inner product with a hidden vector, and noise that depends on the item."""

    def __init__(self, index: IVF, wanted: Array) -> None:
        self.index, self.wanted, self.n_items = index, wanted, index.n

    def score(self, query: Any, positions: Array) -> Array:
        return np.asarray(self.index.rows(positions) @ self.wanted[query] + self.noise(query, positions))

    def noise(self, query: int, positions: Array) -> Array:
        return np.sin(12.9898 * positions + 78.233 * query) * 0.05

    def score_many(self, requests: Any) -> list[Array]:
        return [self.score(query, positions) for query, positions in requests]


def in_the_loop(index: IVF, queries: Array, repeats: int, budget: int = 500, rounds: int = 10) -> dict[str, Any]:
    """Seconds outside the scorer and overlap of the top 10, of rounds over the index and of flat rounds."""
    rng = np.random.default_rng(0)
    wanted = (queries + 0.03 * rng.standard_normal(queries.shape)).astype(np.float64)
    scorer = Free(index, wanted)
    searchers = {
        "index": crosscut.Searcher(scorer, vectors=index, method=Crosscut(rounds=rounds)),
        "flat": crosscut.Searcher(scorer, vectors=AsGiven(index), method=Crosscut(rounds=rounds)),
    }
    hits: dict[str, list[Any]] = {name: [] for name in searchers}
    outside: dict[str, list[float]] = {name: [] for name in searchers}
    for repeat in range(repeats + 1):
        for name, searcher in searchers.items():
            if name == "flat" and repeat > 1:
                continue
            for j in range(len(queries)):
                found = searcher.search(j, 10, budget, query_vector=queries[j])
                if repeat or name == "flat":
                    outside[name].append(found.seconds.fit + found.seconds.select)
                if repeat == 1:
                    hits[name].append(found)
    best = {name: [{hit.position for hit in found} for found in hits[name]] for name in hits}
    same = [len(a & b) / 10 for a, b in zip(best["index"], best["flat"], strict=True)]
    seconds = {name: float(np.median(values)) for name, values in outside.items()}
    mean = {name: float(np.mean([hit.score for found in hits[name] for hit in found])) for name in hits}
    return {
        "items": index.n,
        "budget": budget,
        "rounds": rounds,
        "seconds_outside_scorer": seconds,
        "share_of_2_ms_a_call": {name: value / (0.002 * budget) for name, value in seconds.items()},
        "top_10_shared_with_flat_rounds": float(np.mean(same)),
        "mean_score_of_top_10": mean,
    }


class AsGiven(Indexed):
    """The space of an index, without its index: rounds are flat."""

    def __init__(self, index: IVF) -> None:
        super().__init__(Flat(index))
        self.index = index

    @property
    def readable(self) -> bool:
        return True

    def predict(self, queries: Floats) -> Array:
        return self.index.predict(queries)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", choices=["quality", "speed", "rounds", "growth"])
    parser.add_argument("--vectors", type=Path, required=True, help="the folder that benchmarks/vectors.py wrote")
    parser.add_argument("--sets", nargs="+", default=["wordnet-static"])
    parser.add_argument("--lists", type=int, nargs="+", help="numbers of lists; about 4 √n when not given")
    parser.add_argument("--sizes", type=int, nargs="+", default=[100_000, 1_000_000, 5_000_000])
    parser.add_argument("--centroids", type=Path, help="known centroids, .npy, instead of k-means")
    parser.add_argument("--queries", type=int, default=20, help="queries of `rounds` and `growth`")
    parser.add_argument("--probes", type=int, default=32)
    parser.add_argument("--rules", nargs="+", help="rules that `quality` compares; all when not given")
    parser.add_argument("--loss", type=float, default=0.02)
    parser.add_argument("--repeats", type=int, default=5)
    options = parser.parse_args()
    parts = {"quality": quality, "speed": speed, "rounds": rounds, "growth": growth}
    parts[options.part](options)


if __name__ == "__main__":
    main()
