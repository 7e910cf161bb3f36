"""Score candidates of SciFact's training claims: python scripts/mine_negatives.py DATA OUT.npz

The candidates of a claim are drawn from the union of BM25's and the dual encoder's top 200, the first ten of each
always among them; kept are what the cross-encoder in the box, BM25 and the dual encoder say of them. The fourth
training stage draws negatives from what the cross-encoder ranks first here and learns from the three together.
A killed run resumes: OUT.npz is written every fifty claims.
"""

from __future__ import annotations

import argparse
import random
import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parent))
from evaluate_default import Bm25, embed_states

from crosscut.datasets.beir import read_beir
from crosscut.datasets.files import find, records
from crosscut.encoders.dual import OnnxDualEncoder
from crosscut.encoders.tokens import marked_text
from crosscut.scorers.onnx import OnnxCrossEncoder
from crosscut.training.negatives import top


def write(path: Path, rows: dict[str, np.ndarray]) -> None:
    temporary = path.with_suffix(".part.npz")
    np.savez(temporary, **rows)  # type: ignore[arg-type]
    temporary.replace(path)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", type=Path)
    parser.add_argument("output", type=Path)
    parser.add_argument("--depth", type=int, default=200)
    parser.add_argument("--candidates", type=int, default=50)
    arguments = parser.parse_args()
    folder = arguments.data / "scifact"
    split = {record["_id"]: record["split"] for _, record in records(find(folder, "queries.jsonl"))}
    collection = read_beir(folder)
    claims = [q for q in collection.queries if split[q.id] == "train" and collection.judgements.get(q.id)]
    texts = [marked_text(item) for item in collection.items]
    bound = OnnxCrossEncoder.load().bind(texts)
    encoder, bm25 = OnnxDualEncoder.load(), Bm25(texts)
    dual = encoder.encode_queries([claim.text for claim in claims]) @ embed_states(encoder, bound).T
    rows: dict[str, np.ndarray] = {}
    if arguments.output.is_file():
        with np.load(arguments.output) as saved:
            rows = {id: saved[id] for id in saved.files}
    where = collection.positions
    for number, claim in enumerate(claims):
        if claim.id in rows:
            continue
        lexical = bm25.scores(claim.text)
        by_dual, by_bm25 = (top(row[None], arguments.depth)[0] for row in (dual[number], lexical))
        first = {*by_dual[:10].tolist(), *by_bm25[:10].tolist()}
        rest = sorted({*by_dual.tolist(), *by_bm25.tolist()} - first)
        drawn = random.Random(claim.id).sample(rest, min(len(rest), max(0, arguments.candidates - len(first))))
        gold = {where[id] for id, score in collection.judgements[claim.id].items() if score > 0}
        chosen = np.asarray(sorted({*first, *drawn, *gold}))
        scores = bound.score(claim.text, chosen)
        rows[claim.id] = np.stack([chosen, scores, lexical[chosen], dual[number][chosen]])  # (4, candidates)
        if number % 50 == 49:
            write(arguments.output, rows)
            print(f"{number + 1} of {len(claims)} claims", file=sys.stderr, flush=True)
    write(arguments.output, rows)


if __name__ == "__main__":
    main()
