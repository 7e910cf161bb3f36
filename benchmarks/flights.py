"""What it costs in recall, and saves in waiting, that no round is smaller than what a scorer answers side by side.

    python benchmarks/flights.py --json results/flights.json

Every world of benchmarks/matrices that has vectors, as it is, without anchor scores: the default method with a scorer
that answers 1, 4, 8, 16 or 32 pairs in the time of one. `waits` counts how often a search has to wait for such a time;
`loss` is what recall has lost against 1, paired over test queries, with a 95 % interval.
"""

from __future__ import annotations

import argparse
import itertools
import math
import platform
from pathlib import Path
from typing import Any

import numpy as np
from crosscut.evaluation.world import make_world

from crosscut.evaluation.replay import per_query_recall
from crosscut.measures import paired_interval
from crosscut.methods import Crosscut
from crosscut.storage import write_json

HERE = Path(__file__).parent
WORLDS = ("wordnet-verb-emotion", "wordnet-feeling", "wordnet-time", "squad-sentences", "squad-13k")
IN_FLIGHT = (1, 4, 8, 16, 32)
BUDGETS = (20, 50, 100)
K = 10


def study(name: str) -> list[dict[str, Any]]:
    """One record for every budget and number of pairs side by side."""
    with np.load(HERE / "matrices" / f"{name}.npz", allow_pickle=False) as data:
        vectors = data["vectors"].astype(np.float32)
        world = make_world(data["test"], vectors=vectors, query_vectors=data["query_vectors"])
    records = []
    for budget in BUDGETS:
        alone = None
        for in_flight in IN_FLIGHT:
            searcher = world.searcher(Crosscut(), 0)
            searcher.scorer.concurrency = in_flight
            recall = per_query_recall(world, [world.search(searcher, K, budget)], K)
            alone = recall if alone is None else alone
            lost, low, high = paired_interval(alone, recall)
            sizes = Crosscut().schedule().sizes(budget, in_flight)
            ten = Crosscut().schedule().sizes(budget)
            records.append(
                {
                    "world": name,
                    "k": K,
                    "budget": budget,
                    "in_flight": in_flight,
                    "rounds": len(sizes),
                    "waits": sum(math.ceil(size / in_flight) for size in sizes),
                    "waits_of_ten_rounds": sum(math.ceil(size / in_flight) for size in ten),
                    "recall": float(recall.mean()),
                    "loss": lost,
                    "low": low,
                    "high": high,
                }
            )
    return records


def means(records: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Over all worlds: recall, recall in ten rounds, and in how many it is significantly less."""
    made = []
    for budget, in_flight in itertools.product(BUDGETS, IN_FLIGHT[1:]):
        cells = [one for one in records if (one["budget"], one["in_flight"]) == (budget, in_flight)]
        same = {name: cells[0][name] for name in ("budget", "in_flight", "rounds", "waits", "waits_of_ten_rounds")}
        recall = float(np.mean([one["recall"] for one in cells]))
        alone = [one["recall"] for one in records if (one["budget"], one["in_flight"]) == (budget, 1)]
        before = float(np.mean(alone))
        worse = sum(one["low"] > 0 for one in cells)
        made.append({**same, "recall": recall, "recall_in_ten_rounds": before, "worse": worse, "worlds": len(cells)})
    return made


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, required=True)
    options = parser.parse_args()
    facts = {
        "command": "python benchmarks/flights.py --json results/flights.json",
        "python": platform.python_version(),
        "method": repr(Crosscut()),
    }
    records = [record for name in WORLDS for record in study(name)]
    write_json(options.json, {**facts, "means": means(records), "records": records})


if __name__ == "__main__":
    main()
