"""Anchor scores on a part of the items: are the others found, and what does the whole gain?

    python benchmarks/anchors_share.py --data wordnet-time.npz --name time --json results/anchors_share-time.json

A share of the items, drawn by seed, has no anchor scores: their columns are estimated, as those of items added to an
index. `crosscut` is compared with itself without any anchors and with all of them. `unmeasured` is the recall of those
items of the exact top k that have none; `line` is the straight line between none and all. A query's values are first
averaged over the seeds, then differences are paired over test queries: the same query drawn again is no new evidence.
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from crosscut.evaluation.world import World, make_world

from crosscut.measures import paired_interval
from crosscut.methods import parse
from crosscut.spaces.base import Vectors
from crosscut.spaces.cur import CUR
from crosscut.spaces.extension import extended_scores, extension_error
from crosscut.storage import write_json
from crosscut.types import Floats

ANCHORS = 40
SHARES = (0.1, 0.3, 0.5)
BUDGETS = (50, 100, 200)
KS = (10, 100)
Found = dict[tuple[int, int], np.ndarray]  # by k and budget: (q × k) whether each of the exact top k was scored


def found(world: World, cur: CUR | None) -> Found:
    """Which of the exact top k a search has scored."""
    searcher = world.searcher("crosscut")
    if cur is not None:
        searcher.parts = replace(searcher.parts, anchors=cur)
        searcher.plan = parse("crosscut").made(searcher.parts)
    table: Found = {}
    for budget in BUDGETS:
        for k in KS:
            if k <= budget:
                hits = world.search(searcher, k, budget)
                tops = [np.argsort(-row, kind="stable")[:k] for row in world.test]
                table[k, budget] = np.array([np.isin(top, one.scored) for top, one in zip(tops, hits, strict=True)])
    return table


def partly(scores: np.ndarray, vectors: np.ndarray, hidden: np.ndarray) -> CUR:
    """Anchor scores with some columns hidden and estimated."""
    known = np.where(hidden, np.float32(0), scores.astype(np.float32))
    count = int(hidden.sum())
    known[:, hidden] = extended_scores(known, vectors, vectors[hidden], ~hidden, count)
    return CUR(known, errors=np.where(hidden, extension_error(known, vectors, ~hidden), 0.0))


def averaged(values: list[Floats]) -> Floats:
    """Over the seeds, of every query; NaN where none of them has a value."""
    table = np.stack(values)  # (seeds × q)
    told = np.isfinite(table)
    sums, counts = np.where(told, table, 0.0).sum(axis=0), told.sum(axis=0)
    return np.asarray(np.divide(sums, counts, out=np.full(len(sums), np.nan), where=counts > 0))


def compared(ours: list[Floats], theirs: list[Floats]) -> dict[str, float]:
    mine, other = averaged(ours), averaged(theirs)
    told = np.isfinite(mine)
    gain, low, high = paired_interval(mine[told], other[told])
    return {"gain": gain, "low": low, "high": high}


def study(data: dict[str, Any], seeds: int) -> list[dict[str, Any]]:
    vectors = data["vectors"].astype(np.float32)
    world = make_world(data["test"], vectors=Vectors(vectors), query_vectors=data["query_vectors"])
    scores = data["train"][:ANCHORS].astype(np.float32)
    none, whole = found(world, None), found(world, CUR(scores))
    n = len(vectors)
    records = []
    for share in SHARES:
        cells: dict[tuple[int, int], dict[str, list[Floats]]] = {
            key: {name: [] for name in ("all", "line", "own", "before")} for key in none
        }
        for seed in range(seeds):
            hidden = np.zeros(n, dtype=bool)
            hidden[np.random.default_rng(seed).choice(n, round(share * n), replace=False)] = True
            mixed = found(world, partly(scores, vectors, hidden))
            for (k, budget), cell in cells.items():
                mine, before = mixed[k, budget], none[k, budget]
                tops = np.stack([np.argsort(-row, kind="stable")[:k] for row in world.test])
                own = hidden[tops]  # (q × k)
                count = np.where(own.any(axis=1), own.sum(axis=1), np.nan)
                cell["all"].append(mine.mean(axis=1))
                cell["line"].append(share * before.mean(axis=1) + (1 - share) * whole[k, budget].mean(axis=1))
                cell["own"].append((mine & own).sum(axis=1) / count)
                cell["before"].append((before & own).sum(axis=1) / count)
        for (k, budget), cell in cells.items():
            means = {name: float(np.nanmean(averaged(values))) for name, values in cell.items()}
            records.append(
                {
                    "share": share,
                    "k": k,
                    "budget": budget,
                    "none": float(none[k, budget].mean()),
                    "whole": float(whole[k, budget].mean()),
                    "overall": means["all"],
                    "line": means["line"],
                    "against_line": compared(cell["all"], cell["line"]),
                    "unmeasured": means["own"],
                    "unmeasured_without_anchors": means["before"],
                    "against_none": compared(cell["own"], cell["before"]),
                }
            )
    return records


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--name", required=True)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--json", type=Path, required=True)
    options = parser.parse_args()
    with np.load(options.data, allow_pickle=False) as archive:
        data = {name: archive[name] for name in archive.files if archive[name].dtype.kind == "f"}
    records = study(data, options.seeds)
    facts = {
        "command": f"python benchmarks/anchors_share.py --data {options.data.name} --name {options.name}",
        "world": options.name,
        "items": data["test"].shape[1],
        "test_queries": len(data["test"]),
        "anchor_queries": min(ANCHORS, len(data["train"])),
        "seeds": options.seeds,
    }
    write_json(options.json, {**facts, "cells": records})
    for record in records:
        print({name: round(v, 3) if isinstance(v, float) else v for name, v in record.items()})


if __name__ == "__main__":
    main()
