"""Recall against the number of items, on one matrix: its items thinned out at random, the same test queries.

    python benchmarks/growth.py --data squad-13k.npz --name squad-13k --json growth-squad-13k.json

`rnr`, `crosscut` without anything learned, and `crosscut` with the world's anchor queries. What past searches teach is
not thinned out: they were made over all items. Seeds draw the items; recall is the mean over them, the interval that of
test queries.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np
from crosscut.evaluation.world import make_world

from crosscut.measures import interval, recall
from crosscut.spaces.base import Vectors
from crosscut.storage import write_json

SIZES = (1_000, 2_500, 5_000, 10_000, 30_000)
CELLS = ((10, 50), (10, 100), (100, 200))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--name", required=True)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--json", type=Path, required=True)
    options = parser.parse_args()
    with np.load(options.data, allow_pickle=False) as archive:
        data = {name: archive[name].astype(np.float32) for name in archive.files if archive[name].dtype.kind == "f"}
    n = data["test"].shape[1]
    points: list[dict[str, Any]] = []
    for size in (*(size for size in SIZES if size < n), n):
        values: dict[tuple[str, int, int], list[np.ndarray]] = {}
        for seed in range(options.seeds if size < n else 1):
            items = np.sort(np.random.default_rng(seed).permutation(n)[:size])
            test = np.ascontiguousarray(data["test"][:, items])
            for name in ("rnr", "crosscut", "crosscut, anchors"):
                anchors = data["train"][:, items] if "," in name else None
                world = make_world(test, anchors, Vectors(data["vectors"][items]), data["query_vectors"])
                searcher = world.searcher(name.split(",")[0])
                for k, budget in CELLS:
                    found = world.search(searcher, k, budget)
                    mine = [recall(row, hits.scored, k) for row, hits in zip(test, found, strict=True)]
                    values.setdefault((name, k, budget), []).append(np.array(mine))
        for (name, k, budget), draws in values.items():
            low, high = interval(np.mean(draws, axis=0))
            cell = {"method": name, "items": size, "k": k, "budget": budget}
            points.append({**cell, "recall": float(np.mean(draws)), "low": low, "high": high})
        facts = {"command": f"python benchmarks/growth.py --data {options.data.name} --name {options.name}"}
        counts = {"test_queries": len(data["test"]), "anchor_queries": len(data["train"]), "seeds": options.seeds}
        write_json(options.json, {**facts, "world": options.name, **counts, "points": points})
        print(size, {cell: round(float(np.mean(draws)), 3) for cell, draws in values.items()}, flush=True)


if __name__ == "__main__":
    main()
