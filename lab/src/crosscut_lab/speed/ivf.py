"""Clustered search against FAISS IVFFlat at equal recall, one thread, on synthetic clusters and on real sentences.

    python -m crosscut_lab.speed.ivf --data FOLDER --old OTHER/src --json lab/results/speed_ivf.json

`FOLDER` holds collections in BEIR layout; their sentences are embedded by LSA (TF-IDF, 256 singular vectors). N is
the fewest lists with R*@1 ≥ .95 on train queries; patience and chance are tuned to lose .02 at most, and FAISS gets the
fewest lists that reach the recall they then have on the test queries. All share centroids. crosscut runs in a process
of its own, and a second one with another version of it if `--old` names its sources; all run in turns, and medians of
processor time count.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

K = 10
BATCH = 500  # queries at a time


def noisy_clusters(n: int, d: int, seed: int = 0) -> Any:
    """Return unit vectors in clusters (n × d), so noisy that a query needs many lists."""
    centres = np.random.default_rng(99).standard_normal((max(8, n // 100), d), dtype=np.float32)
    rng = np.random.default_rng(seed)
    rows = centres[rng.integers(len(centres), size=n)] + 2 * rng.standard_normal((n, d), dtype=np.float32)
    return (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)


def sentences(folder: Path, n: int, d: int = 256) -> tuple[Any, Any]:
    """Vectors of n sentences, and of queries, by LSA."""
    from sklearn.decomposition import TruncatedSVD
    from sklearn.feature_extraction.text import TfidfVectorizer

    from crosscut.datasets.beir import read_items, read_queries

    texts: list[str] = []
    queries: list[str] = []
    for name in ("squad_sentences", "scifact", "hotpotqa_sub", "mdn_el", "wordnet_wsd"):
        if (folder / name).is_dir():
            for item in read_items(folder / name / "corpus.jsonl.gz"):
                texts += [part for part in re.split(r"(?<=[.!?])\s+", item.text) if len(part) > 30]
            queries += [query.text for query in read_queries(folder / name / "queries.jsonl.gz")][:2000]
    rng = np.random.default_rng(0)
    texts = [texts[j] for j in rng.permutation(len(texts))[:n]]
    weigh = TfidfVectorizer(sublinear_tf=True, min_df=3, dtype=np.float32)
    rows = weigh.fit_transform(texts)
    reduce = TruncatedSVD(d, n_iter=2, random_state=0).fit(rows[:30_000])
    found = [reduce.transform(part).astype(np.float32) for part in (rows, weigh.transform(queries))]
    items, asked = (part / np.maximum(np.linalg.norm(part, axis=1, keepdims=True), 1e-9) for part in found)
    return items, asked[rng.permutation(len(asked))]


def work(path: Path) -> None:
    """Answer lines on standard input: a kind of storage and a rule to search by; the answer is the seconds it took."""
    from crosscut.ann.ivf import IVF
    from crosscut.ann.ivf.rules import from_json

    data = np.load(path)
    indexes: dict[str, IVF] = {}
    for line in sys.stdin:
        kind, rule, one = json.loads(line)
        if kind not in indexes:
            indexes[kind] = IVF.build(data["items"], centroids=data["centroids"], dtype=np.dtype(kind))
        parsed, queries = from_json(rule), data["test"][:BATCH]
        started = time.process_time()
        if one:
            for query in queries[: BATCH // 5]:
                indexes[kind].search(query, K, rule=parsed)
        else:
            indexes[kind].search_many(queries, K, rule=parsed, threads=1)
        print(time.process_time() - started, flush=True)


def race(name: str, items: Any, train: Any, test: Any, repeats: int, old: Path | None) -> Iterator[dict[str, Any]]:
    """One data set."""
    import faiss

    from crosscut.ann.ivf import IVF
    from crosscut.ann.ivf.tuning import tune

    faiss.omp_set_num_threads(1)
    index = IVF.build(items, dtype=np.float16)
    tuned = tune(index, train, target=0.95, k=K, loss=0.02, rules=["patience", "chance"])
    coarse = faiss.IndexFlatIP(index.d)
    coarse.add(index.centroids)
    rival = faiss.IndexIVFFlat(coarse, index.d, index.most, faiss.METRIC_INNER_PRODUCT)
    rival.add(items)
    nearest = np.concatenate([np.argmax(part @ items.T, axis=1) for part in np.array_split(test, 20)])
    reached = []
    for lists in range(1, tuned.lists + 1):
        rival.nprobe = lists
        reached.append(float((rival.search(test, 1)[1][:, 0] == nearest).mean()))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "data.npz"
        np.savez(path, items=items, centroids=index.centroids, test=test)
        sources = {"new": None, **({} if old is None else {"old": old})}
        workers = {version: Worker(path, source) for version, source in sources.items()}
        for choice in tuned.choices:
            found = index.search_many(test, K, rule=choice.rule, threads=1)
            recall = float((found.ids[:, 0] == nearest).mean())
            rival.nprobe = next((h for h, r in enumerate(reached, 1) if r >= recall), tuned.lists)
            for one in (False, True):
                times: dict[str, list[float]] = {}
                for _ in range(repeats + 1):
                    for kind in ("float16", "float32"):
                        for version, worker in workers.items():
                            times.setdefault(f"{version} {kind}", []).append(
                                worker.seconds(kind, choice.rule.json(), one)
                            )
                    times.setdefault("faiss", []).append(rival_seconds(rival, test, one))
                medians = {which: float(np.median(values[1:])) for which, values in times.items()}
                yield {
                    "set": name,
                    "items": len(items),
                    "d": index.d,
                    "clusters": index.most,
                    "rule": choice.name,
                    "queries": "one at a time" if one else "batch",
                    "recall": recall,
                    "mean_clusters": float(found.lists.mean()),
                    "faiss_nprobe": rival.nprobe,
                    "faiss_recall": reached[rival.nprobe - 1],
                    "ms": {w: 1000 * s / (BATCH // 5 if one else BATCH) for w, s in medians.items()},
                    "times_faiss": {w: medians["faiss"] / s for w, s in medians.items()},
                    **({} if old is None else {"new_over_old": medians["new float16"] / medians["old float16"]}),
                }


class Worker:
    """A process that searches."""

    def __init__(self, path: Path, source: Path | None) -> None:
        places = {} if source is None else {"PYTHONPATH": str(source)}
        self._process = subprocess.Popen(
            [sys.executable, __file__, "--worker", str(path)],
            env={**os.environ, **places},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def seconds(self, kind: str, rule: dict[str, Any], one: bool) -> float:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        print(json.dumps([kind, rule, one]), file=self._process.stdin, flush=True)
        return float(self._process.stdout.readline())


def rival_seconds(rival: Any, test: Any, one: bool) -> float:
    queries = test[:BATCH]
    started = time.process_time()
    if one:
        for j in range(BATCH // 5):
            rival.search(queries[j : j + 1], K)
    else:
        rival.search(queries, K)
    return time.process_time() - started


def ivf(n: int = 50_000, repeats: int = 3, data: Path | None = None, old: Path | None = None) -> list[dict[str, Any]]:
    """Time clustered search against FAISS."""
    sets = {"clusters": (noisy_clusters(n, 96), noisy_clusters(3000, 96, 1))}
    if data is not None:
        sets["sentences"] = sentences(data, n)
    return [
        record
        for name, (items, queries) in sets.items()
        for record in race(name, items, queries[1000:3000], queries[:1000], repeats, old)
    ]


def main(
    data: Annotated[Path | None, typer.Option(help="Collections in BEIR layout; none: clusters alone.")] = None,
    old: Annotated[Path | None, typer.Option(help="Sources of another version of crosscut.")] = None,
    n: Annotated[int, typer.Option("-n", help="Items.")] = 100_000,
    repeats: Annotated[int, typer.Option(help="Runs of each.")] = 5,
    output: Annotated[Path | None, typer.Option("--json", help="Write the result here.")] = None,
) -> None:
    """Time clustered search against FAISS."""
    from crosscut_lab.report import machine, write

    records = ivf(n, repeats, data, old)
    if output is not None:
        facts = {**machine(), "threads": 1, "load_average": os.getloadavg()[0]}
        write(output, {"program": "ivf", "repeats": repeats, "machine": facts, "records": records})


if __name__ == "__main__":
    if sys.argv[1:2] == ["--worker"]:
        work(Path(sys.argv[2]))
    else:
        typer.run(main)
