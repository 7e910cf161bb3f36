"""Every method on every world at equal calls: recall of the exact top 10 and top 100, rivals by name.

    python benchmarks/rivals.py --data wordnet-time.npz --name wordnet-time --json results/rivals-wordnet-time.json

Rivals are tuned first, along their grids, on 40 train queries at 100 calls and k = 10, and then run on test queries.
Ours are run as they come: `crosscut` without anything learned, and after the world's train queries as past searches
(100 calls each, only pairs that they scored). Methods with anchors count the calls of the anchor queries beside:
`index_calls`; ours is run with them before and after learning too. Differences are paired over test queries, ours
without anchors and after learning, less the rival.
Results are written as they come; what is there already is not computed again.
"""

from __future__ import annotations

import argparse
import itertools
import json
import platform
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from crosscut.evaluation.world import World, make_world

from crosscut.evaluation.replay import Seeds, per_query_recall, tuned_axn
from crosscut.measures import paired_interval
from crosscut.methods import AXN, Crosscut, Method, QdrantFeedback, parse
from crosscut.methods.learning import learn
from crosscut.search.prior import Past
from crosscut.spaces.base import Space, Vectors
from crosscut.storage import write_json
from crosscut.types import Floats
from learning import log_of, read_log

KS = (10, 100)
BUDGETS = (50, 100, 200, 500)
TUNING = 40  # train queries
RIVALS = ("rnr", "axn", "tour", "gar", "rgs", "gp", "qdrant-feedback")
ANCHORED = ("anncur", "adacur", "crosscut")
ANCHORS = 40
LEARNED = "crosscut, learned"


def tuned(world: World, method: Method) -> Method:
    """The best of its grid on these queries: one setting after another, or, where they hang together, all at once."""
    grid = method.grid(world.parts)
    if isinstance(method, QdrantFeedback):  # the sum over pairs grows with the feedback, and c has to fall
        names = list(grid)
        tried = itertools.product(*([getattr(method, name), *values] for name, values in grid.items()))
        return max(
            (method.with_settings(dict(zip(names, one, strict=True))) for one in tried), key=partial(_mean, world)
        )
    best, most = method, _mean(world, method)
    for name, values in grid.items():
        for value in values:
            other = method.with_settings({**best.settings, name: value})
            if (found := _mean(world, other)) > most:
                best, most = other, found
    return best


def tuned_as_in_its_paper(world: World, data: dict[str, Any]) -> Method:
    """AXN: scores brought to the encoder's range and λ chosen, on the train queries, for either number of rounds."""
    known = make_world(
        data["test"],
        data["train"][:TUNING],
        world.vectors,
        data["query_vectors"],
        data["anchor_query_vectors"][:TUNING],
    )
    both = [tuned_axn(known, AXN(rounds=rounds), 10, [100]) for rounds in (5, 10)]
    return max(both, key=partial(_mean, world))


def _mean(world: World, method: Method) -> float:
    return float(per_query_recall(world, Seeds(world, method, 1).run(10, 100), 10).mean())


def study(data: dict[str, Any], log: list[Past] | None) -> Iterator[tuple[str, World, Callable[[], Method], int]]:
    """Every method with its world, how it is chosen and the calls that its index took."""
    space: Space = Vectors(data["vectors"].astype(np.float32))
    vectors, test = data["query_vectors"], data["test"]
    world = make_world(test, vectors=space, query_vectors=vectors)
    train, asked = data.get("train"), data.get("anchor_query_vectors")
    if log is None:
        log = log_of(world.parts, train, asked)
    got = learn(log, space, n=space.n)
    yield LEARNED, replace(world, prior=got.prior), Crosscut, 0
    yield "crosscut", world, Crosscut, 0
    tuning = None
    if train is not None and asked is not None:
        tuning = make_world(train[:TUNING], vectors=space, query_vectors=asked[:TUNING])
        yield "crosscut, tuned", world, partial(tuned, tuning, Crosscut()), 0
    for name in RIVALS:
        if tuning is None:
            yield name, world, partial(parse, name), 0
        elif name == "axn":
            yield name, world, partial(tuned_as_in_its_paper, tuning, data), 0
        else:
            yield name, world, partial(tuned, tuning, parse(name)), 0
    if train is not None:
        anchored = make_world(test, train[:ANCHORS], space, vectors)
        count = min(ANCHORS, len(train))
        others = log[count:] if asked is not None and len(log) == len(train) else log  # not the anchor queries
        beside = learn(others, space, anchors=anchored.parts.anchors, n=space.n).prior
        yield f"{LEARNED}, {count} anchor queries", replace(anchored, prior=beside), Crosscut, count * space.n
        for name in ANCHORED:
            yield f"{name}, {count} anchor queries", anchored, partial(parse, name), count * space.n


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
    logged = "" if options.log is None else f" --log {options.log.name}"
    facts = {
        "command": f"python benchmarks/rivals.py --data {options.data.name} --name {options.name}{logged}",
        "world": options.name,
        "python": platform.python_version(),
        "items": data["test"].shape[1],
        "test_queries": len(data["test"]),
    }
    ours: dict[tuple[int, int], Floats] | None = None
    for name, world, choose, calls in study(data, None if options.log is None else read_log(options.log)):
        if name in known and ours is not None:
            continue
        method = choose()
        table = run(world, method)
        ours = ours or table
        known.pop(name, None)  # in the order of the study
        known[name] = {"settings": str(method), "index_calls": calls, "cells": cells(table, ours)}
        write_json(options.json, {**facts, "methods": known})
        told = ", ".join(f"k={c['k']} B={c['budget']} {c['recall']:.3f}" for c in known[name]["cells"])
        print(f"{options.name} {name} ({method}): {told}", flush=True)


if __name__ == "__main__":
    main()
