"""Score matrices of the model in the box, exhaustively, float16: one command for worlds and collections.

    python scripts/score_world.py wordnet:noun.time time.npz --anchors 160 --test 80
    python scripts/score_world.py bundled src/crosscut/data/worlds/wordnet-cognition/scores.npz --anchors 200 --test 0
    python scripts/score_world.py beir:DATA/scifact scifact.npz --anchors 100 --test 60 --items 1000
    python scripts/score_world.py beir:DATA/squad_sentences squad.npz --alone --store scores --anchors 40 --test 100
    python scripts/score_world.py beir:DATA/wordnet_wsd wordnet.npz --alone --store scores --anchors 20 --test 30 \\
        --train DATA/wordnet_wsd/queries_semcor.jsonl.gz --no-vectors

Queries are drawn with a fixed seed; anchors and test queries are disjoint. A BEIR folder gives anchors from its train
queries and test queries from its test part, or, with `--train`, anchors from another file and test queries from all of
its own; `--items` takes the judged items of the chosen queries and random others.
`--alone` scores with the bare cross-encoder, without what the model knows of a pair before a call. With `--store` the
scores are kept as they come, and the same command goes on where it was stopped.
The arrays are those that `crosscut replay --data` reads: test (t × n) and train (a × n; the anchor queries), vectors
(n × D), query_vectors (t × D), anchor_query_vectors (a × D); and test_ids, train_ids, item_ids, fingerprint. Where the
vectors would be most of a large file, `--no-vectors` leaves them out: the encoder in the box makes them again.
"""

from __future__ import annotations

import argparse
import os
import random
import sys
import time
from functools import partial
from pathlib import Path

import numpy as np
from wordnet import WordNet

from crosscut.datasets.beir import is_test, read_beir, read_queries
from crosscut.datasets.bundled import load_world
from crosscut.datasets.files import find, records
from crosscut.datasets.records import Collection, Item, Query
from crosscut.encoders.dual import OnnxDualEncoder
from crosscut.encoders.tokens import marked_text
from crosscut.scorers.onnx import OnnxCrossEncoder
from crosscut.scores.buy import buy_matrix
from crosscut.scores.engines import LocalEngine
from crosscut.threads import cores


def read(name: str) -> Collection:
    kind, _, rest = name.partition(":")
    if kind == "bundled":
        return load_world()
    if kind == "wordnet":
        return WordNet().world(rest)
    if kind == "beir":
        return read_beir(rest)
    raise SystemExit(f"{name!r} is none of bundled, wordnet:<world>, beir:<folder>")


def choose(
    name: str, collection: Collection, anchors: int, tests: int, seed: int, train: Path | None = None
) -> tuple[list[Query], list[Query]]:
    """Anchor and test queries, all with judgements but those of a file of train queries."""
    judged = [query for query in collection.queries if collection.gold(query.id)]
    random.Random(seed).shuffle(judged)
    if train is not None:
        others = list(read_queries(train))
        random.Random(seed).shuffle(others)
        return others[:anchors], judged[:tests]
    if not name.startswith("beir:"):
        return judged[:anchors], judged[anchors : anchors + tests]
    split = {}
    for _, record in records(find(Path(name.removeprefix("beir:")), "queries.jsonl")):
        split[record["_id"]] = record.get("split", "test" if is_test(record["_id"]) else "train")
    held = {id for id, part in split.items() if part == "test"}
    return [q for q in judged if q.id not in held][:anchors], [q for q in judged if q.id in held][:tests]


def some_items(collection: Collection, queries: list[Query], count: int, seed: int) -> list[Item]:
    """The items judged for some queries and random others, `count` together, in the order of the collection."""
    judged = {id for query in queries for id in collection.judgements.get(query.id, {})}
    rest = [item.id for item in collection.items if item.id not in judged]
    kept = judged | set(random.Random(seed).sample(rest, max(0, count - len(judged))))
    return [item for item in collection.items if item.id in kept]


def load(model: str, alone: bool) -> OnnxCrossEncoder:
    return OnnxCrossEncoder.load(model, threads=1, alone=alone)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("collection")
    parser.add_argument("output", type=Path)
    parser.add_argument("--anchors", type=int, default=0)
    parser.add_argument("--test", type=int, default=60)
    parser.add_argument("--items", type=int, default=None, help="a part of a large collection")
    parser.add_argument("--train", type=Path, default=None, help="a file of train queries; all others are test queries")
    parser.add_argument("--no-vectors", action="store_true", help="leave the vectors of the items out")
    parser.add_argument("--no-test-scores", action="store_true", help="only name the test queries")
    parser.add_argument("--model", default="default")
    parser.add_argument("--alone", action="store_true", help="the cross-encoder without its known part")
    parser.add_argument("--store", type=Path, default=None, help="a score store, to go on after a stop")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--processes", type=int, default=None)
    arguments = parser.parse_args()
    collection = read(arguments.collection)
    anchors, tests = choose(
        arguments.collection, collection, arguments.anchors, arguments.test, arguments.seed, arguments.train
    )
    chosen = collection.items
    if arguments.items is not None:
        chosen = some_items(collection, [*anchors, *tests], arguments.items, arguments.seed)
    items = [marked_text(item) for item in chosen]
    encoder = OnnxDualEncoder.load(arguments.model)
    arrays: dict[str, np.ndarray] = {
        "train_ids": np.asarray([query.id for query in anchors]),
        "test_ids": np.asarray([query.id for query in tests]),
        "item_ids": np.asarray([item.id for item in chosen]),
        "fingerprint": np.asarray(load(arguments.model, arguments.alone).fingerprint),
    }
    if not arguments.no_vectors:
        arrays["vectors"] = encoder.encode_items(items).astype(np.float16)
    begun = time.monotonic()
    # one thread in each of several processes: small matrix products do not share well
    engine = LocalEngine(arguments.processes or cores(), "processes")
    for name, queries, vectors in (("train", anchors, "anchor_query_vectors"), ("test", tests, "query_vectors")):
        if queries and not (name == "test" and arguments.no_test_scores):
            texts = [query.text for query in queries]
            bought = buy_matrix(
                load(arguments.model, arguments.alone),
                texts,
                items,
                engine=engine,
                load=partial(load, arguments.model, arguments.alone),
                store=arguments.store,
            )
            arrays[name] = bought.scores.astype(np.float16)
            arrays[vectors] = encoder.encode_queries(texts).astype(np.float16)
    pairs = sum(arrays[name].size for name in ("train", "test") if name in arrays)
    seconds = time.monotonic() - begun
    arguments.output.parent.mkdir(parents=True, exist_ok=True)
    part = arguments.output.with_name(f".{arguments.output.name}")
    np.savez_compressed(part, **arrays)
    os.replace(part, arguments.output)
    rate = f"{pairs} pairs in {seconds:.0f} s, {pairs / seconds:.0f} pairs/s"
    print(f"{arguments.output}: {rate}", file=sys.stderr)


if __name__ == "__main__":
    main()
