"""Round one by vectors, by words, by both in turn, and by late interaction over the first thousand of both.

    python benchmarks/first_stage.py DATA/squad_sentences --data squad-13k.npz --name squad-13k --json first_stage.json

The texts of a world's items and test queries come from its collection, in BEIR layout; words are BM25, token vectors
those of the dual encoder in the box. `round one` is the recall of its best B items alone, `search` that of `crosscut`
with so many calls in all, whose later rounds go by vectors alone (`words=0`). Milliseconds a query are CPU time of one
thread, query tokens included. Differences are paired over test queries, against both in turn.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Any

import numpy as np
from crosscut.evaluation.world import make_world

from crosscut.datasets.beir import read_beir
from crosscut.encoders.dual import OnnxDualEncoder
from crosscut.measures import paired_interval, recall
from crosscut.retrieval.bm25 import BM25
from crosscut.retrievers.late import DEPTH, Late
from crosscut.spaces.base import Vectors
from crosscut.storage import write_json

STAGES = ("dense", "lexical", "union", "late")
CELLS = ((10, 50), (10, 100), (100, 200))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("collection", type=Path)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--name", required=True)
    parser.add_argument("--json", type=Path, required=True)
    options = parser.parse_args()
    with np.load(options.data, allow_pickle=False) as archive:
        data: dict[str, Any] = {name: archive[name] for name in archive.files}
    collection = read_beir(options.collection)
    texts = {item.id: item for item in collection.items}
    asked = {query.id: query.text for query in collection.queries}
    items = [texts[str(id)] for id in data["item_ids"]]
    queries = [asked[str(id)] for id in data["test_ids"]]
    words = BM25(items)
    encoder = OnnxDualEncoder.load("default", threads=1)
    late = Late.of(items, encoder)
    late.idf = encoder.folder.known.token_idf
    lexical = np.stack([words.scores(query) for query in queries])
    matrix = np.full(data["test"].shape, -np.inf, np.float32)
    spent = []
    dense = data["query_vectors"].astype(np.float32) @ data["vectors"].astype(np.float32).T
    for j, query in enumerate(queries):
        pool = np.union1d(np.argsort(-dense[j])[:DEPTH], np.argsort(-lexical[j], kind="stable")[:DEPTH])
        started = time.process_time()
        late.at(query, pool[:DEPTH])
        spent.append(1000 * (time.process_time() - started))
        matrix[j, pool] = late.at(query, pool)
    test = data["test"].astype(np.float32)
    space = Vectors(data["vectors"].astype(np.float32))
    world = make_world(test, None, space, data["query_vectors"], words=lexical, late=matrix)
    table: dict[tuple[str, str, int, int], np.ndarray] = {}
    for stage in STAGES:
        for what, rounds in (("round one", 1), ("search", 10)):
            searcher = world.searcher(f"crosscut@first={stage},rounds={rounds},words=0")
            for k, budget in CELLS:
                found = world.search(searcher, k, budget)
                each = [recall(row, hits.scored, k) for row, hits in zip(test, found, strict=True)]
                table[stage, what, k, budget] = np.array(each)
    cells = []
    for (stage, what, k, budget), mine in table.items():
        gain, low, high = paired_interval(mine, table["union", what, k, budget])
        cell = {"first": stage, "what": what, "k": k, "budget": budget, "recall": float(mine.mean())}
        cells.append({**cell, "gain": gain, "low": low, "high": high})
        print(stage, what, k, budget, f"{mine.mean():.3f} {gain:+.3f} [{low:+.3f}, {high:+.3f}]", flush=True)
    facts = {"command": f"python benchmarks/first_stage.py {options.collection.name} --data {options.data.name}"}
    counts = {"items": len(items), "test_queries": len(queries), "milliseconds": float(np.median(spent))}
    write_json(options.json, {**facts, "world": options.name, **counts, "cells": cells})


if __name__ == "__main__":
    main()
