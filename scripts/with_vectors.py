"""A score matrix that was kept without the vectors of its items, with them again.

    python scripts/with_vectors.py beir:DATA/wordnet_wsd benchmarks/matrices/wordnet-117k.npz wordnet-117k.npz

Benchmarks that read a world (`--data`) want its vectors, which for a hundred thousand items take ten times the room of
the scores. The encoder in the box makes them, one text like another. That it is the encoder that made the matrix is
seen by the vectors of the test queries, which the matrix does hold.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
from score_world import read

from crosscut.bundled.encoder import BundledEncoder
from crosscut.datasets.beir import read_queries
from crosscut.datasets.records import marked_text

SAME = 0.999  # cosine: between processors the last digit may differ


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("collection", help="as for score_world.py")
    parser.add_argument("matrix", type=Path)
    parser.add_argument("output", type=Path)
    parser.add_argument("--train", type=Path, default=None, help="a file of train queries")
    parser.add_argument("--model", default="default")
    arguments = parser.parse_args()
    collection = read(arguments.collection)
    with np.load(arguments.matrix, allow_pickle=False) as archive:
        arrays = {name: archive[name] for name in archive.files}
    encoder = BundledEncoder.load(arguments.model)
    texts = {query.id: query.text for query in collection.queries}
    if arguments.train is not None:
        texts |= {query.id: query.text for query in read_queries(arguments.train)}
    again = encoder.encode_queries([texts[id] for id in arrays["test_ids"].tolist()])
    worst = float(np.einsum("qd,qd->q", again, arrays["query_vectors"].astype(np.float32)).min())
    if worst < SAME:
        raise SystemExit(
            f"the encoder is not the one that made {arguments.matrix}: a test query's vectors have a cosine of "
            f"{worst:.3f}, and {SAME} is the least; use the models of the version that the matrix came with"
        )
    where = collection.positions
    items = [collection.items[where[id]] for id in arrays["item_ids"].tolist()]
    arrays["vectors"] = encoder.encode_items([marked_text(item) for item in items]).astype(np.float16)
    np.savez(arguments.output, **arrays)
    print(f"{arguments.output}: {len(items)} items, {arrays['vectors'].shape[1]} dimensions")


if __name__ == "__main__":
    main()
