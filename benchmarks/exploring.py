"""Whether a log of searches that only scored what they liked teaches less than one that also explored.

    python benchmarks/exploring.py --data wordnet-time.npz --name wordnet-time --json exploring-wordnet-time.json

The train queries are the past: searches of 100 calls, of which a share goes to items drawn at random
(`crosscut@explore`). What they scored is learned from as it is, or with drawn items counting for those that were not
scored, up to so many (`correction`). Test queries are searched without exploring. Seeds draw other items; a query's
values are averaged over them, and differences to the plain log are paired over test queries.
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from crosscut.measures import paired_interval
from crosscut.methods import Parts
from crosscut.methods.learning import learn
from crosscut.search.prior import Past
from crosscut.spaces.base import Vectors
from crosscut.storage import write_json
from learning import CALLS, recalls, searched

CELLS = ((10, 50), (10, 100), (100, 200))
RUNS = ((0.0, 1.0), (0.1, 1.0), (0.1, 10.0), (0.3, 1.0), (0.3, 10.0))  # share, correction


def log_of(parts: Parts, data: dict[str, npt.NDArray[Any]], explore: float, correction: float) -> list[Past]:
    """What past searches of the train queries scored, each pair with its weight."""
    scores, vectors = data["train"], data["anchor_query_vectors"]
    hits = searched(parts, scores, vectors, CALLS, f"crosscut@explore={explore}")
    log = []
    for row, vector, found in zip(scores, vectors, hits, strict=True):
        chances = [np.ones(len(one.scores)) if one.chances is None else one.chances for one in found.trace]
        weights = np.minimum(1 / np.concatenate(chances), correction)
        log.append(Past(vector.astype(np.float64), found.scored, row[found.scored].astype(np.float64), weights))
    return log


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--name", required=True)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--json", type=Path, required=True)
    options = parser.parse_args()
    with np.load(options.data, allow_pickle=False) as archive:
        data = {name: archive[name].astype(np.float32) for name in archive.files if archive[name].dtype.kind == "f"}
    space = Vectors(data["vectors"])
    plain = Parts(encoder=space, n=space.n)
    runs: list[dict[str, Any]] = []
    first: dict[tuple[int, int], npt.NDArray[np.float64]] = {}
    for explore, correction in RUNS:
        tables = []
        for seed in range(options.seeds if explore else 1):
            parts = replace(plain, seed=seed)
            got = learn(log_of(parts, data, explore, correction), space, n=space.n)
            tables.append(recalls(replace(plain, prior=got.prior), data))
        mine = {cell: np.mean([table[cell] for table in tables], axis=0) for cell in CELLS}
        first = first or mine
        cells = []
        for k, budget in CELLS:
            gain, low, high = paired_interval(mine[k, budget], first[k, budget])
            recall = float(mine[k, budget].mean())
            cells.append({"k": k, "budget": budget, "recall": recall, "gain": gain, "low": low, "high": high})
        runs.append({"explore": explore, "correction": correction, "cells": cells})
        facts = {"command": f"python benchmarks/exploring.py --data {options.data.name} --name {options.name}"}
        sizes = {"items": space.n, "past_searches": len(data["train"]), "test_queries": len(data["test"])}
        write_json(options.json, {**facts, "world": options.name, **sizes, "seeds": options.seeds, "runs": runs})
        print(options.name, explore, correction, " ".join(f"{cell['recall']:.3f}" for cell in cells), flush=True)


if __name__ == "__main__":
    main()
