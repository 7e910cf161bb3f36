"""What calls for train queries buy while an index is built: searches, anchor scores, or both, at equal calls.

    python benchmarks/spending.py --data wordnet-time.npz --name wordnet-time --json results/spending-wordnet-time.json

Ways to spend C calls on a world's train queries, each then searched by `crosscut` on test queries:

    searches   C / 100 queries are searched, 100 calls each, and what they scored is learned from
    anchors    C / n queries are scored with every item
    part       40 queries are scored with C / 40 items, drawn at random; the other columns are estimated
    both       what `Index.build(queries, calls=C)` does

Seeds draw which train queries there are (`both`: in which order; anchor queries are the middles of clusters). Values of
a query are averaged over the seeds; differences to no calls at all are paired over test queries.
Results are written as they come; what is there already is not computed again.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from anchors_share import partly
from crosscut.index.spending import middles, share_out, taught_by
from crosscut.measures import paired_interval
from crosscut.methods import Parts
from crosscut.methods.learning import learn
from crosscut.search.prior import Past
from crosscut.spaces.base import Vectors
from crosscut.spaces.cur import CUR
from crosscut.storage import write_json
from crosscut.types import Floats
from learning import recalls, searched

CELLS = ((10, 50), (10, 100), (100, 200))
CALLS = (4_000, 8_000, 16_000, 32_000)
EACH = 100
PART = 40  # anchor queries, of which only some items are scored
Data = dict[str, Any]
Way = Callable[[Parts, Data, int, np.random.Generator], Parts | None]


def logged(parts: Parts, data: Data, queries: np.ndarray, each: int) -> list[Past]:
    """What searches of some train queries have scored."""
    scores, vectors = data["train"][queries], data["anchor_query_vectors"][queries]
    hits = searched(parts, scores, vectors, min(each, scores.shape[1]))
    return [
        Past(vector.astype(np.float64), found.scored, row[found.scored].astype(np.float64))
        for vector, row, found in zip(vectors, scores, hits, strict=True)
    ]


def searches(parts: Parts, data: Data, calls: int, rng: np.random.Generator) -> Parts | None:
    if calls // EACH > len(data["train"]):
        return None
    log = logged(parts, data, rng.permutation(len(data["train"]))[: calls // EACH], EACH)
    assert parts.encoder is not None
    return replace(parts, prior=learn(log, parts.encoder, n=parts.n).prior)


def anchors(parts: Parts, data: Data, calls: int, rng: np.random.Generator) -> Parts | None:
    count = calls // parts.size
    if not 1 <= count <= len(data["train"]):
        return None
    return replace(parts, anchors=CUR(data["train"][rng.permutation(len(data["train"]))[:count]]))


def part(parts: Parts, data: Data, calls: int, rng: np.random.Generator) -> Parts | None:
    if not 16 <= calls // PART < parts.size:
        return None
    hidden = np.ones(parts.size, dtype=bool)
    hidden[rng.choice(parts.size, calls // PART, replace=False)] = False
    chosen = rng.permutation(len(data["train"]))[:PART]
    return replace(parts, anchors=partly(data["train"][chosen], data["vectors"], hidden))


def both(parts: Parts, data: Data, calls: int, rng: np.random.Generator) -> Parts | None:
    order = rng.permutation(len(data["train"]))
    plan = share_out(calls, len(order), parts.size, 200)
    chosen = order[middles(data["anchor_query_vectors"][order], plan.anchors)]
    anchored = replace(parts, anchors=CUR(data["train"][chosen])) if len(chosen) else parts
    others = order[~np.isin(order, chosen)][: plan.searches]
    assert parts.encoder is not None
    log = logged(anchored, data, others, plan.each) if plan.searches else []
    kept, taught = taught_by(log, parts.encoder, anchored.anchors, parts.n)
    return replace(anchored if kept else parts, prior=taught.prior)


WAYS: dict[str, Way] = {"searches": searches, "anchors": anchors, "part": part, "both": both}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--name", required=True)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--calls", default=",".join(map(str, CALLS)))
    parser.add_argument("--json", type=Path, required=True)
    options = parser.parse_args()
    with np.load(options.data, allow_pickle=False) as archive:
        data = {name: archive[name].astype(np.float32) for name in archive.files if archive[name].dtype.kind == "f"}
    space = Vectors(data["vectors"])
    parts = Parts(encoder=space, n=space.n)
    none = recalls(parts, data)
    known = json.loads(options.json.read_text())["runs"] if options.json.exists() else {}
    facts = {
        "command": f"python benchmarks/spending.py --data {options.data.name} --name {options.name}",
        "world": options.name,
        "items": space.n,
        "train_queries": len(data["train"]),
        "test_queries": len(data["test"]),
        "seeds": options.seeds,
        "none": [{"k": k, "budget": budget, "recall": float(none[k, budget].mean())} for k, budget in CELLS],
    }
    for calls in map(int, options.calls.split(",")):
        for name, way in WAYS.items():
            if f"{name}/{calls}" in known:
                continue
            found: dict[tuple[int, int], list[Floats]] = {cell: [] for cell in CELLS}
            for seed in range(options.seeds):
                made = way(parts, data, calls, np.random.default_rng(seed))
                for cell, values in (recalls(made, data) if made is not None else {}).items():
                    if cell in found:
                        found[cell].append(values)
            cells = []
            for (k, budget), values in found.items():
                if values:
                    mine = np.mean(values, axis=0)
                    gain, low, high = paired_interval(mine, none[k, budget])
                    cell = {"k": k, "budget": budget, "recall": float(mine.mean())}
                    cells.append({**cell, "gain": gain, "low": low, "high": high})
            known[f"{name}/{calls}"] = cells
            write_json(options.json, {**facts, "runs": known})
            print(options.name, calls, name, " ".join(f"{c['recall']:.3f}" for c in cells), flush=True)


if __name__ == "__main__":
    main()
