"""What past searches teach the next: recall before and after, against the number of past searches.

    python benchmarks/learning.py --data squad-sentences.npz --name squad --json results/learning-squad.json

A world is a known score matrix (arrays test, train, vectors, query_vectors, anchor_query_vectors). The train queries
are the past: each is searched by the default method without anchors, 100 calls, and only the pairs that it scored are
learned from. Then the test queries are searched, before and after. Differences are paired over test queries. `misses`
is the share of the misses before that is gone after. A seed chooses which of the train queries came first. Where train
queries were never scored with every item, `--log` brings what searches of them scored (`scripts/past_searches.py`).
With `--asked` the vectors stay where only their top is asked for, as in a store: what is learned of single items then
orders wider answers. Results are written as they come; what is there already is not computed again.
"""

from __future__ import annotations

import argparse
import json
import platform
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from crosscut.ann.flat import Flat
from crosscut.ann.topk import Indexed
from crosscut.measures import paired_interval, recall
from crosscut.methods import Parts
from crosscut.methods.learning import Learned, learn
from crosscut.scorers.adapters import MatrixScorer
from crosscut.search.hits import Hits
from crosscut.search.prior import Past
from crosscut.searcher import Searcher
from crosscut.spaces.base import Vectors
from crosscut.storage import write_json

KS = (1, 10, 100)
BUDGETS = (50, 100, 200)
CALLS = 100  # of a past search


def searched(
    parts: Parts, scores: npt.NDArray[Any], vectors: npt.NDArray[Any], budget: int, method: str = "crosscut"
) -> list[Hits]:
    """Every query of a matrix."""
    searcher = Searcher(MatrixScorer(scores), method=method, parts=parts)
    return searcher.search_many(range(len(scores)), max(KS), budget, query_vectors=vectors)


def log_of(parts: Parts, scores: npt.NDArray[Any], vectors: npt.NDArray[Any], method: str = "crosscut") -> list[Past]:
    """What past searches of the train queries scored."""
    hits = searched(parts, scores, vectors, min(CALLS, scores.shape[1]), method)
    return [
        Past(vectors[j].astype(np.float64), found.scored, scores[j, found.scored].astype(np.float64))
        for j, found in enumerate(hits)
    ]


def recalls(parts: Parts, data: dict[str, npt.NDArray[Any]]) -> dict[tuple[int, int], npt.NDArray[np.float64]]:
    """Recall of each test query, by k and budget."""
    table = {}
    for budget in BUDGETS:
        hits = searched(parts, data["test"], data["query_vectors"], min(budget, data["test"].shape[1]))
        for k in KS:
            if k <= budget:
                values = [recall(data["test"][j], found.scored, k) for j, found in enumerate(hits)]
                table[k, budget] = np.array(values)
    return table


def record(
    got: Learned,
    before: dict[tuple[int, int], npt.NDArray[np.float64]],
    after: dict[tuple[int, int], npt.NDArray[np.float64]],
) -> dict[str, Any]:
    """One number of past searches, one seed."""
    cells = []
    for (k, budget), ours in after.items():
        theirs = before[k, budget]
        gain, low, high = paired_interval(ours, theirs)
        missed = 1 - float(theirs.mean())
        cells.append(
            {
                "k": k,
                "budget": budget,
                "before": float(theirs.mean()),
                "after": float(ours.mean()),
                "gain": gain,
                "low": low,
                "high": high,
                "misses": gain / missed if missed > 0 else 0.0,
            }
        )
    judged = {"plain": got.plain, "learned": got.learned, "error": got.error, "why": got.why}
    return {"used": got.prior is not None, "held_out": judged, "cells": cells}


def read_log(path: Path) -> list[Past]:
    """What `scripts/past_searches.py` wrote."""
    with np.load(path, allow_pickle=False) as archive:
        parts = [archive[f"past_{name}"] for name in ("vectors", "items", "scores")]
    return [
        Past(vector.astype(np.float64), items.astype(np.int64), scores.astype(np.float64))
        for vector, items, scores in zip(*parts, strict=True)
    ]


def study(
    data: dict[str, npt.NDArray[Any]],
    sizes: Sequence[int],
    seeds: int,
    known: dict[str, Any],
    log: list[Past] | None,
    asked: bool,
) -> Any:
    """Records by number of past searches and seed, one after another; those that are known are left out."""
    space = Vectors(data["vectors"].astype(np.float32))
    parts = Parts(encoder=Indexed(Flat(space)) if asked else space, n=space.n)
    if log is None:
        log = log_of(parts, data["train"], data["anchor_query_vectors"])
    before = recalls(parts, data)
    for size in sizes:
        for seed in range(1 if size >= len(log) else seeds):
            if f"{size}/{seed}" in known:
                continue
            some = np.random.default_rng(seed).permutation(len(log))[:size]
            started = time.process_time()
            got = learn([log[j] for j in some], space, n=space.n, seed=seed)
            spent = time.process_time() - started
            after = before if got.prior is None else recalls(replace(parts, prior=got.prior), data)
            yield f"{size}/{seed}", {**record(got, before, after), "cpu_seconds_learning": spent}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--log", type=Path, default=None, help="past searches, in place of train queries")
    parser.add_argument("--name", required=True)
    parser.add_argument("--searches", default="160,40,80,20,10,1")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--asked", action="store_true", help="vectors that are only asked for their top")
    parser.add_argument("--json", type=Path, required=True)
    options = parser.parse_args()
    with np.load(options.data, allow_pickle=False) as archive:
        data = {name: archive[name] for name in archive.files if archive[name].dtype.kind == "f"}
    log = None if options.log is None else read_log(options.log)
    most = len(data["train"] if log is None else log)
    sizes = list(dict.fromkeys(min(int(size), most) for size in options.searches.split(",")))
    known = json.loads(options.json.read_text())["runs"] if options.json.exists() else {}
    logged = ("" if options.log is None else f" --log {options.log.name}") + " --asked" * options.asked
    facts = {
        "command": f"python benchmarks/learning.py --data {options.data.name} --name {options.name}{logged}",
        "world": options.name,
        "python": platform.python_version(),
        "items": data["test"].shape[1],
        "test_queries": len(data["test"]),
        "calls_of_a_past_search": CALLS,
    }
    for name, run in study(data, sizes, options.seeds, known, log, options.asked):
        known[name] = run
        write_json(options.json, {**facts, "runs": known})
        told = ", ".join(
            f"k={c['k']} B={c['budget']} {c['before']:.3f} → {c['after']:.3f} ({c['misses']:+.0%})"
            for c in run["cells"]
        )
        print(f"{options.name} {name}: {run['held_out']['why']}; {told}", flush=True)


if __name__ == "__main__":
    main()
