"""Every method on every world at equal calls: recall of the exact top 10 and top 100, rivals by name.

    python benchmarks/rivals.py --data wordnet-time.npz --name wordnet-time --json results/rivals-wordnet-time.json

Rivals are tuned first, one setting after another along their grids, on 40 train queries at 100 calls and k = 10, and
then run on test queries. Ours are run as they come: `crosscut` without anything learned, and after the world's train
queries as past searches (100 calls each, only pairs that they scored). Methods with anchors count the calls of the
anchor queries beside: `index_calls`. Differences are paired over test queries, ours after learning less the rival.
Results are written as they come; what is there already is not computed again.
"""

from __future__ import annotations

import argparse
import json
import platform
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from crosscut.evaluation.replay import Seeds, per_query_recall
from crosscut.evaluation.world import World, make_world
from crosscut.measures import paired_interval
from crosscut.methods import Method, parse
from crosscut.methods.learning import learn
from crosscut.search.prior import Past
from crosscut.spaces.base import Space, Vectors
from crosscut.storage import write_json
from crosscut.types import Floats
from learning import log_of

KS = (10, 100)
BUDGETS = (50, 100, 200, 500)
TUNING = 40  # train queries
RIVALS = ("rnr", "axn", "tour", "gar", "rgs", "gp", "qdrant-feedback")
ANCHORED = ("anncur", "adacur", "crosscut")
ANCHORS = 40


def tuned(world: World, method: Method) -> Method:
    """The best of its grid on these queries, one setting after another."""
    best, most = method, _mean(world, method)
    for name, values in method.grid(world.parts).items():
        for value in values:
            other = method.with_settings({**best.settings, name: value})
            if (found := _mean(world, other)) > most:
                best, most = other, found
    return best


def _mean(world: World, method: Method) -> float:
    return float(per_query_recall(world, Seeds(world, method, 1).run(10, 100), 10).mean())


def study(data: dict[str, Any], log: list[Past] | None) -> Iterator[tuple[str, World, Method, int]]:
    """Every method with its world, its settings and the calls that its index took."""
    space: Space = Vectors(data["vectors"].astype(np.float32))
    vectors, test = data["query_vectors"], data["test"]
    world = make_world(test, vectors=space, query_vectors=vectors)
    train, asked = data.get("train"), data.get("anchor_query_vectors")
    if log is None:
        log = log_of(world.parts, train, asked)
    got = learn(log, space, n=space.n)
    yield "crosscut, learned", replace(world, prior=got.prior), parse("crosscut"), 0
    yield "crosscut", world, parse("crosscut"), 0
    tuning = None
    if train is not None and asked is not None:
        tuning = make_world(train[:TUNING], vectors=space, query_vectors=asked[:TUNING])
    for name in RIVALS:
        method = parse(name)
        yield name, world, method if tuning is None else tuned(tuning, method), 0
    if train is not None:
        anchored = make_world(test, train[:ANCHORS], space, vectors)
        for name in ANCHORED:
            count = min(ANCHORS, len(train))
            yield f"{name}, {count} anchor queries", anchored, parse(name), count * space.n


def run(world: World, method: Method) -> dict[tuple[int, int], Floats]:
    """Recall of each test query, by k and budget."""
    searchers = Seeds(world, method, 1)
    table = {}
    for budget in BUDGETS:
        found = searchers.run(max(KS), min(budget, world.test.shape[1]))
        for k in KS:
            if k <= budget:
                table[k, budget] = per_query_recall(world, found, k)
    return table


def cells(table: dict[tuple[int, int], Floats], ours: dict[tuple[int, int], Floats]) -> list[dict[str, Any]]:
    made = []
    for (k, budget), values in table.items():
        lead, low, high = paired_interval(ours[k, budget], values)
        mean = float(values.mean())
        made.append({"k": k, "budget": budget, "recall": mean, "lead": lead, "low": low, "high": high})
    return made


def read_log(path: Path) -> list[Past]:
    """What `scripts/past_searches.py` wrote."""
    with np.load(path, allow_pickle=False) as archive:
        parts = [archive[f"past_{name}"] for name in ("vectors", "items", "scores")]
    return [
        Past(vector.astype(np.float64), items.astype(np.int64), scores.astype(np.float64))
        for vector, items, scores in zip(*parts, strict=True)
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--log", type=Path, default=None, help="past searches, where there are no train queries")
    parser.add_argument("--name", required=True)
    parser.add_argument("--json", type=Path, required=True)
    options = parser.parse_args()
    with np.load(options.data, allow_pickle=False) as archive:
        data = {name: archive[name] for name in archive.files if archive[name].dtype.kind == "f"}
    known = json.loads(options.json.read_text())["methods"] if options.json.exists() else {}
    facts = {
        "command": f"python benchmarks/rivals.py --data {options.data.name} --name {options.name}",
        "world": options.name,
        "python": platform.python_version(),
        "items": data["test"].shape[1],
        "test_queries": len(data["test"]),
    }
    ours: dict[tuple[int, int], Floats] | None = None
    for name, world, method, calls in study(data, None if options.log is None else read_log(options.log)):
        if name in known and ours is not None:
            continue
        table = run(world, method)
        ours = ours or table
        known[name] = {"settings": str(method), "index_calls": calls, "cells": cells(table, ours)}
        write_json(options.json, {**facts, "methods": known})
        told = ", ".join(f"k={c['k']} B={c['budget']} {c['recall']:.3f}" for c in known[name]["cells"])
        print(f"{options.name} {name} ({method}): {told}", flush=True)


if __name__ == "__main__":
    main()
