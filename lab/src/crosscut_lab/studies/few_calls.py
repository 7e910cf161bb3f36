"""Few calls: the default method and its former ridge beside reranking, on score matrices.

    python -m crosscut_lab.studies.few_calls matrix.npz …  --json lab/results/few_calls.json

A matrix has test (queries × items), vectors and query_vectors; train and anchor_query_vectors stand for anchor queries.
Its queries are put together and cut into halves: settings were chosen on the first, this reports the second. With
`--anchors`, forty queries of the first half are anchor queries. `--scale` turns scores into grades 0 … 3.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from crosscut.measures import paired_interval, recall
from crosscut.methods import Crosscut, Parts, Rerank
from crosscut.methods.crosscut import ALONE, STRETCH
from crosscut.scorers.adapters import MatrixScorer
from crosscut.search import fits
from crosscut.search.loop import Plan, Query
from crosscut.search.pickers import Linear
from crosscut.search.stopping import Schedule
from crosscut.searcher import Searcher
from crosscut.spaces.base import Vectors
from crosscut.spaces.cur import CUR
from crosscut.types import Array, Floats

BUDGETS = {10: (10, 15, 20, 30, 50, 100, 200), 1: (2, 3, 5, 10, 15, 20)}  # by k
ANCHORS = 40
ARMS = ("rerank", "before", "now")


def former(parts: Parts) -> Plan:
    """Return the plan of the default method with the ridge and the rounds that it had before."""
    plan = Crosscut().plan(parts)
    then = plan.then
    assert isinstance(then, Linear)

    def fit(query: Query, d: int) -> fits.Fit:
        return fits.stretched(d, ALONE, query.vector, STRETCH)

    if parts.anchors is None:
        then = replace(then, fit=fit)
    return Plan(plan.first, Schedule(Crosscut().rounds), then)


def searcher(arm: str, scores: Array, parts: Parts) -> Searcher:
    """Return the searcher of one arm."""
    made = Searcher(MatrixScorer(scores), method=Rerank() if arm == "rerank" else Crosscut(), parts=parts)
    if arm == "before":
        cur = parts.anchors
        made.plan = former(parts if cur is None else replace(parts, anchors=CUR(cur.anchor_scores)))
    return made


def halves(path: Path) -> tuple[Floats, Floats, Floats, Floats, Array]:
    """Return scores and query vectors of the reported half and of the other, and the item vectors."""
    with np.load(path, allow_pickle=False) as archive:
        data = {name: archive[name] for name in archive.files}
    scores, asked = [data["test"]], [data["query_vectors"]]
    if {"train", "anchor_query_vectors"} <= set(data):
        scores, asked = [*scores, data["train"]], [*asked, data["anchor_query_vectors"]]
    matrix, queries = np.concatenate(scores).astype(np.float64), np.concatenate(asked).astype(np.float64)
    first, second = np.array_split(np.random.default_rng(1).permutation(len(matrix)), 2)
    return matrix[second], queries[second], matrix[first], queries[first], data["vectors"].astype(np.float32)


def measure(path: Path, anchors: bool, grades: bool, queries: int, half: str) -> list[dict[str, Any]]:
    """Return the records of one matrix: recall by arm and budget, with paired differences."""
    scores, asked, rest, others, vectors = halves(path)
    if half == "first":
        scores, asked, rest, others = rest, others, scores, asked
    scores, asked = scores[:queries], asked[:queries]
    searched = np.clip(np.round(3 * (scores - scores.min()) / np.ptp(scores)), 0, 3) if grades else scores
    cur = CUR(rest[:ANCHORS], query_vectors=others[:ANCHORS]) if anchors else None
    parts = Parts(encoder=Vectors(vectors), anchors=cur, n=len(vectors))
    records = []
    for k, budgets in BUDGETS.items():
        for budget in budgets:
            if budget > len(vectors) // 2:
                continue
            found = {}
            for arm in ARMS:
                hits = searcher(arm, searched, parts).search_many(range(len(scores)), k, budget, query_vectors=asked)
                found[arm] = np.array([recall(row, one.scored, k) for row, one in zip(scores, hits, strict=True)])
            record: dict[str, Any] = {"data": path.stem, "k": k, "budget": budget, "queries": len(scores)}
            record |= {arm: round(float(values.mean()), 4) for arm, values in found.items()}
            for other in ("rerank", "before"):
                record[f"to_{other}"] = [round(float(x), 4) for x in paired_interval(found["now"], found[other])]
            records.append(record)
            print(json.dumps(record), flush=True)
    return records


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure matrices and write the records."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("matrices", nargs="+", type=Path)
    parser.add_argument("--anchors", action="store_true")
    parser.add_argument("--grades", action="store_true")
    parser.add_argument("--queries", type=int, default=200, help="at most so many of a half")
    parser.add_argument("--half", choices=("first", "second"), default="second")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args(arguments)
    records: list[dict[str, Any]] = []
    for path in options.matrices:
        records += measure(path, options.anchors, options.grades, options.queries, options.half)
    for k, budgets in BUDGETS.items():
        for budget in budgets:
            cells = [one for one in records if (one["k"], one["budget"]) == (k, budget)]
            if cells:
                means = {arm: round(float(np.mean([one[arm] for one in cells])), 3) for arm in ARMS}
                below = [one["data"] for one in cells if one["to_rerank"][2] < 0]
                print(f"k = {k}, {budget} calls, {len(cells)} data sets: {means}, below reranking: {below}")
    if options.json:
        kind = "anchors" if options.anchors else "grades" if options.grades else "plain"
        kept = json.loads(options.json.read_text()) if options.json.exists() else {}
        options.json.write_text(json.dumps({**kept, kind: records}, indent=1) + "\n")


if __name__ == "__main__":
    main()
