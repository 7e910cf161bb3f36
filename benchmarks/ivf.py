"""Clustered search with early exit, on real embeddings: quality, speed against FAISS, growth, and rounds of the loop.

    python benchmarks/vectors.py --data ../shared/data --out vectors
    python benchmarks/ivf.py quality --vectors vectors --sets wordnet-static sentences-static
    python benchmarks/ivf.py speed   --vectors vectors --sets wordnet-static
    python benchmarks/ivf.py growth  --vectors vectors --sets sentences-static --sizes 100000 1000000 5000000
    python benchmarks/ivf.py loop    --vectors vectors --sets sentences-static --sizes 1000000 5000000

`quality` is Table 2 and the frontier of every rule; `speed` times a fixed number of lists, ours against FAISS IVFFlat,
interleaved, in the same process; `growth` and `loop` time large sizes on jittered copies of real vectors, which say
nothing about quality. Every part adds its cases to benchmarks/results/ivf.json.
"""

from __future__ import annotations

import argparse
import gzip
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import faiss
import numpy as np
import numpy.typing as npt
from rich.console import Console
from threadpoolctl import threadpool_limits

import crosscut
from crosscut.evaluation.clustered import as_records, as_table, frontier, table_2
from crosscut.evaluation.report import machine, write_json
from crosscut.vectors import clusters
from crosscut.vectors.early_exit import Fixed
from crosscut.vectors.ivf import IVF
from crosscut.vectors.learned import exact, study
from crosscut.vectors.tuning import tune

RESULTS = Path(__file__).parent / "results" / "ivf.json"
TRAIN, TEST = 3000, 2000
Array = npt.NDArray[Any]
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


def keep(part: str, record: dict[str, Any], same: tuple[str, ...]) -> None:
    """Add a case to the results; a case that is run again replaces the old one."""
    results = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    results["machine"] = {**machine(), "faiss": faiss.__version__, "cores": 2}
    cases = [old for old in results.get(part, []) if any(old[key] != record[key] for key in same)]
    results[part] = [*cases, record]
    write_json(RESULTS, results)


def quality(options: argparse.Namespace) -> None:
    for name in options.sets:
        items, train, test, gold = load(options.vectors, name)
        for lists in options.lists or [clusters.usual_lists(len(items))]:
            index = IVF.build(items, lists=lists)
            tuned = tune(index, train, target=0.95, loss=options.loss, k=100)
            rows, limit = table_2(index, tuned, test, k=100, gold=gold, repeats=options.repeats)
            title = f"{name}: {index.n:,} items, {lists} lists, N = {tuned.lists}"
            console.print(as_table(rows, limit, 100, title))
            seen = study(index, train, 100, tuned.lists)
            third = np.arange(len(train)) % 3 == 0
            line = frontier(
                seen.some(np.flatnonzero(~third)),
                seen.some(np.flatnonzero(third)),
                study(index, test, 100, tuned.lists),
                tuned.lists,
            )
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
                "frontier": line,
                "untuned": untuned(index, test),
            }
            keep("quality", record, ("set", "lists", "loss"))


def untuned(index: IVF, test: Array) -> dict[str, float]:
    """What the default does for those who tune nothing."""
    found = index.search_many(test, 10, rule=crosscut.vectors.early_exit.USUAL)
    truth = exact(index, test, 1)[:, 0]
    hit = found.ids[:, 0] == index.ids[truth]
    ranks = study(index, test, 1, 1).ranks[:, 0]
    rival = int(np.sort(ranks)[max(0, int(np.ceil(hit.mean() * len(hit))) - 1)])
    return {"recall_1": float(hit.mean()), "lists": float(found.lists.mean()), "rival": rival}


def median(work: dict[str, Callable[[], Any]], repeats: int) -> dict[str, float]:
    """Median seconds of each, interleaved, after one run to warm up."""
    times: dict[str, list[float]] = {name: [] for name in work}
    for repeat in range(repeats + 1):
        for name, run in work.items():
            started = time.perf_counter()
            run()
            if repeat:
                times[name].append(time.perf_counter() - started)
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
            single = IVF.build(items.astype(np.float32), lists=lists)
            half = IVF(single.centroids, single.vectors.astype(np.float16), single.starts, single.ids)
            rival = rival_of(single, items)
            tuned = tune(half, train[:1500], target=0.95, loss=options.loss, k=100)
            n = rival.nprobe = tuned.lists
            rules = {choice.name: choice.rule for choice in tuned.choices if choice.name in ("patience", "chance")}
            for threads in (1, 2):
                faiss.omp_set_num_threads(threads)
                with threadpool_limits(threads, user_api="blas"):
                    batch = test[:1000]
                    work: dict[str, Callable[[], Any]] = {
                        "faiss": lambda q=batch: rival.search(q, 100),
                        "ours": lambda q=batch, t=threads: single.search_many(q, 100, rule=n, threads=t),
                        "ours float16": lambda q=batch, t=threads: half.search_many(q, 100, rule=n, threads=t),
                    }
                    for title, rule in rules.items():
                        work[title] = lambda q=batch, t=threads, r=rule: single.search_many(q, 100, rule=r, threads=t)
                        work[f"{title} float16"] = lambda q=batch, t=threads, r=rule: half.search_many(
                            q, 100, rule=r, threads=t
                        )
                    tell(name, lists, n, threads, len(batch), median(work, options.repeats))
                    few = test[:100]
                    alone: dict[str, Callable[[], Any]] = {
                        "faiss": lambda q=few: [rival.search(q[j : j + 1], 100) for j in range(len(q))],
                        "ours": lambda q=few: [single.search(one, 100, rule=n) for one in q],
                        "ours float16": lambda q=few: [half.search(one, 100, rule=n) for one in q],
                    }
                    for title, rule in rules.items():
                        alone[f"{title} float16"] = lambda q=few, r=rule: [half.search(one, 100, rule=r) for one in q]
                    tell(name, lists, n, threads, 1, median(alone, options.repeats), len(few))


def tell(
    name: str, lists: int, n: int, threads: int, batch: int, seconds: dict[str, float], queries: int | None = None
) -> None:
    ms = {what: 1000 * value / (queries or batch) for what, value in seconds.items()}
    record = {"set": name, "lists": lists, "N": n, "threads": threads, "batch": batch, "ms": ms}
    record["times_faiss"] = {what: ms["faiss"] / value for what, value in ms.items()}
    shown = "  ".join(f"{what} {value:.3f} ({ms['faiss'] / value:.2f}×)" for what, value in ms.items())
    console.print(f"{name} {lists} lists N={n} threads={threads} batch={batch}: ms {shown}")
    keep("speed", record, ("set", "lists", "threads", "batch"))


def copies(items: Array, size: int) -> Array:
    """Jittered copies of real vectors, float16: for timing only."""
    rng = np.random.default_rng(0)
    out = np.empty((size, items.shape[1]), dtype=np.float16)
    for start in range(0, size, len(items)):
        rows = out[start : start + len(items)]
        rows[:] = items[: len(rows)]
        if start:
            for at in range(0, len(rows), 1 << 15):
                part = rows[at : at + (1 << 15)]
                noise = rng.standard_normal(part.shape, dtype=np.float32)
                part += (0.02 * noise).astype(np.float16)
    return out


def growth(options: argparse.Namespace) -> None:
    name = options.sets[0]
    items, _, test, _ = load(options.vectors, name)
    for size in options.sizes:
        large = copies(items, size)
        lists = min(clusters.usual_lists(size), 8192)
        started = time.perf_counter()
        index = IVF.build(large, lists=lists)
        built = time.perf_counter() - started
        few = test[:20]
        flat = crosscut.Vectors(large)
        rule = Fixed(options.probes)
        work: dict[str, Callable[[], Any]] = {
            "flat": lambda: [np.argpartition(-flat.predict(q[None])[0], 100) for q in few.astype(np.float64)],
            "ours": lambda: [index.search(q, 100, rule=rule) for q in few],
            "default rule": lambda: [index.search(q, 100) for q in few],
        }
        rival = None
        if size <= 1_000_000:
            rival = rival_of(index, large)
            rival.nprobe = options.probes
            faiss.omp_set_num_threads(1)
            work["faiss float32"] = lambda: [rival.search(few[j : j + 1], 100) for j in range(len(few))]
        ms = {what: 1000 * value / len(few) for what, value in median(work, options.repeats).items()}
        record = {
            "set": name,
            "size": size,
            "lists": lists,
            "probes": options.probes,
            "build_seconds": built,
            "vectors_GB": index.vectors.nbytes / 1e9,
            "index_GB": index.nbytes / 1e9,
            "ms_single_query": ms,
        }
        console.print(record)
        keep("growth", record, ("set", "size"))
        del index, rival


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", choices=["quality", "speed", "growth", "loop"])
    parser.add_argument("--vectors", type=Path, required=True, help="the folder that benchmarks/vectors.py wrote")
    parser.add_argument("--sets", nargs="+", default=["wordnet-static"])
    parser.add_argument("--lists", type=int, nargs="+", help="numbers of lists; about 4 √n when not given")
    parser.add_argument("--sizes", type=int, nargs="+", default=[100_000, 1_000_000, 5_000_000])
    parser.add_argument("--probes", type=int, default=32)
    parser.add_argument("--loss", type=float, default=0.02)
    parser.add_argument("--repeats", type=int, default=5)
    options = parser.parse_args()
    parts = {"quality": quality, "speed": speed, "growth": growth}
    parts[options.part](options)


if __name__ == "__main__":
    main()
