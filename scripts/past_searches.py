"""A log of past searches over a collection whose score matrix is too dear for the train queries: only the pairs scored.

    python scripts/past_searches.py beir:DATA/squad_sentences past.npz --alone --searches 640
    python scripts/past_searches.py beir:DATA/wordnet_wsd past.npz --alone --searches 1000 --world wordnet-30k.npz \\
        --train DATA/wordnet_wsd/queries_semcor.jsonl.gz

Train queries that `score_world.py` did not take as anchors are searched by the default method, without anchors, with a
hundred calls of the real scorer each. With `--world` only the items of a matrix are searched. The arrays: past_ids (s),
past_vectors (s × D), past_items (s × B; positions in the collection, or the matrix), past_scores (s × B), float16, and
fingerprint. Written as they come; the same command goes on where it was stopped.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

import numpy as np
from score_world import choose, read

from crosscut.encoders.dual import OnnxDualEncoder
from crosscut.encoders.tokens import marked_text
from crosscut.methods import Parts
from crosscut.scorers.onnx import OnnxCrossEncoder
from crosscut.searcher import Searcher
from crosscut.spaces.base import Vectors

TOGETHER = 20  # searches between two writes


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("collection")
    parser.add_argument("output", type=Path)
    parser.add_argument("--searches", type=int, default=640)
    parser.add_argument("--budget", type=int, default=100)
    parser.add_argument("--anchors", type=int, default=40, help="train queries that come first and are left out")
    parser.add_argument("--world", type=Path, default=None, help="a matrix, whose items are those that are searched")
    parser.add_argument("--train", type=Path, default=None, help="a file of train queries")
    parser.add_argument("--model", default="default")
    parser.add_argument("--alone", action="store_true", help="the cross-encoder without its known part")
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    collection = read(arguments.collection)
    count = arguments.anchors + arguments.searches
    queries, _ = choose(arguments.collection, collection, count, 0, arguments.seed, arguments.train)
    queries = queries[arguments.anchors :]
    items = collection.items
    if arguments.world is not None:
        with np.load(arguments.world, allow_pickle=False) as archive:
            where = collection.positions
            items = [items[where[id]] for id in archive["item_ids"].tolist()]
    texts = [marked_text(item) for item in items]
    encoder = OnnxDualEncoder.load(arguments.model, threads=1)
    scorer = OnnxCrossEncoder.load(arguments.model, threads=1, alone=arguments.alone)
    arrays: dict[str, list[np.ndarray]] = {"past_vectors": [], "past_items": [], "past_scores": []}
    if arguments.output.exists():
        with np.load(arguments.output, allow_pickle=False) as archive:
            if str(archive["fingerprint"]) != scorer.fingerprint:
                raise SystemExit(f"{arguments.output} holds scores of another model: name another file")
            arrays = {name: [archive[name]] for name in arrays}
    vectors = encoder.encode_items(texts).astype(np.float16).astype(np.float32)
    space = Vectors(vectors)
    searcher = Searcher(scorer.bind(texts), method="crosscut", parts=Parts(encoder=space, n=space.n))
    done = sum(len(part) for part in arrays["past_items"])
    for start in range(done, len(queries), TOGETHER):
        some = [query.text for query in queries[start : start + TOGETHER]]
        asked = encoder.encode_queries(some).astype(np.float16)
        hits = searcher.search_many(some, 10, arguments.budget, query_vectors=asked.astype(np.float64))
        arrays["past_vectors"].append(asked)
        arrays["past_items"].append(np.stack([found.scored for found in hits]).astype(np.int32))
        scores = [np.concatenate([round.scores for round in found.trace]) for found in hits]
        arrays["past_scores"].append(np.stack(scores).astype(np.float16))
        whole = {name: np.concatenate(parts) for name, parts in arrays.items()}
        names = np.asarray([query.id for query in queries[: start + len(some)]])
        part = arguments.output.with_name(f".{arguments.output.name}")
        np.savez_compressed(part, past_ids=names, fingerprint=np.asarray(scorer.fingerprint), **whole)
        os.replace(part, arguments.output)
        print(f"{len(names)} of {len(queries)} searches", file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
