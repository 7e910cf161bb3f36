"""Score matrices of the model in the box, exhaustively, float16: one command for worlds and collections.

    python scripts/score_world.py wordnet:noun.group out.npz --anchors 0 --test 60
    python scripts/score_world.py bundled src/crosscut/data/worlds/wordnet-cognition/scores.npz --anchors 160
    python scripts/score_world.py beir:/data/scifact out.npz --anchors 100 --test 100

Queries are drawn with a fixed seed; anchors and test queries are disjoint. Arrays: anchor_ids,
anchor_scores (a × n), test_ids, test_scores (t × n; left out with --no-test-scores), vectors (n × D),
item_ids, fingerprint.
"""

from __future__ import annotations

import argparse
import multiprocessing
import random
import sys
import time
from pathlib import Path

import numpy as np

from crosscut.datasets.beir import read_beir
from crosscut.datasets.bundled import load_world
from crosscut.datasets.records import Collection
from crosscut.datasets.wordnet import WordNet
from crosscut.encoders.dual import OnnxDualEncoder
from crosscut.scorers.onnx import BoundOnnxCrossEncoder, OnnxCrossEncoder

_bound: BoundOnnxCrossEncoder


def read(name: str) -> Collection:
    kind, _, rest = name.partition(":")
    if kind == "bundled":
        return load_world()
    if kind == "wordnet":
        return WordNet().world(rest)
    if kind == "beir":
        return read_beir(rest)
    raise SystemExit(f"{name!r} is none of bundled, wordnet:<world>, beir:<folder>")


def start(items: list[str], model: str) -> None:
    global _bound
    _bound = OnnxCrossEncoder.load(model, threads=1).bind(items)


def row(query: str) -> np.ndarray:
    return _bound.score(query, np.arange(len(_bound))).astype(np.float16)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("collection")
    parser.add_argument("output", type=Path)
    parser.add_argument("--anchors", type=int, default=0)
    parser.add_argument("--test", type=int, default=60)
    parser.add_argument("--no-test-scores", action="store_true")
    parser.add_argument("--model", default="default")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--processes", type=int, default=None)
    parser.add_argument("--no-vectors", action="store_true", help="embed_world.py adds them")
    arguments = parser.parse_args()
    collection = read(arguments.collection)
    judged = [query for query in collection.queries if collection.gold(query.id)]
    random.Random(arguments.seed).shuffle(judged)
    anchors = judged[: arguments.anchors]
    tests = judged[arguments.anchors : arguments.anchors + arguments.test]
    items = [item.full_text for item in collection.items]
    arrays: dict[str, np.ndarray] = {
        "anchor_ids": np.asarray([query.id for query in anchors]),
        "test_ids": np.asarray([query.id for query in tests]),
        "item_ids": np.asarray([item.id for item in collection.items]),
        "fingerprint": np.asarray(OnnxCrossEncoder.load(arguments.model).fingerprint),
    }
    if not arguments.no_vectors:
        arrays["vectors"] = OnnxDualEncoder.load(arguments.model).encode_items(items).astype(np.float16)
    begun = time.monotonic()
    # one thread in each of several processes: small matrix products do not share well
    context = multiprocessing.get_context("spawn")
    with context.Pool(arguments.processes, initializer=start, initargs=(items, arguments.model)) as pool:
        if anchors:
            arrays["anchor_scores"] = np.stack(pool.map(row, [query.text for query in anchors], chunksize=1))
        if tests and not arguments.no_test_scores:
            arrays["test_scores"] = np.stack(pool.map(row, [query.text for query in tests], chunksize=1))
    pairs = sum(arrays[name].size for name in ("anchor_scores", "test_scores") if name in arrays)
    seconds = time.monotonic() - begun
    arguments.output.parent.mkdir(parents=True, exist_ok=True)
    np.savez_compressed(arguments.output, **arrays)
    print(
        f"{arguments.output}: {pairs} pairs in {seconds:.0f} s, {pairs / seconds:.0f} pairs/s",
        file=sys.stderr,
    )


if __name__ == "__main__":
    main()
