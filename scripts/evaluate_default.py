"""Accuracy of the models in the box on data they never saw: python scripts/evaluate_default.py MATRICES
DATA OUT.json

MATRICES holds the files of score_world.py for held-out WordNet worlds (named wordnet-<file>.npz), DATA the
BEIR folder scifact. Reports accuracy@1 per world and nDCG@10 on SciFact test, with paired bootstrap
intervals, and how far the score matrices are from mere item popularity.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path

import bm25s
import numpy as np
import Stemmer
from wordnet import WordNet

from crosscut.datasets.beir import read_beir
from crosscut.datasets.files import find, records
from crosscut.datasets.records import Collection
from crosscut.encoders.dual import OnnxDualEncoder
from crosscut.encoders.tokens import marked_text
from crosscut.scorers.onnx import BoundOnnxCrossEncoder, OnnxCrossEncoder
from crosscut.training.negatives import top


def plain(text: str) -> str:
    for token in ("[START]", "[END]", "[ENT]"):
        text = text.replace(token, " ")
    return text


class Bm25:
    """BM25 with stemming and stop words; `twice` counts a marked mention twice, as one who links entities would."""

    def __init__(self, items: list[str]) -> None:
        self.stemmer = Stemmer.Stemmer("english")
        self.index = bm25s.BM25(method="lucene")
        self.index.index(self._tokens([plain(item) for item in items]), show_progress=False)
        self.size = len(items)

    def _tokens(self, texts: list[str]):  # type: ignore[no-untyped-def]
        return bm25s.tokenize(texts, stopwords="en", stemmer=self.stemmer, show_progress=False)

    def scores(self, query: str, *, twice: bool = False) -> np.ndarray:
        if twice and "[START]" in query:
            query = query + " " + query.split("[START]")[1].split("[END]")[0]
        tokens = bm25s.tokenize(
            [plain(query)], stopwords="en", stemmer=self.stemmer, return_ids=False, show_progress=False
        )[0]
        known = [token for token in tokens if token in self.index.vocab_dict]
        return np.asarray(self.index.get_scores(known)) if known else np.zeros(self.size)


def interval(values: np.ndarray, seed: int = 0) -> list[float]:
    """Mean and 95 % bootstrap interval over queries."""
    rng = np.random.default_rng(seed)
    means = values[rng.integers(0, len(values), (5000, len(values)))].mean(1)
    return [float(values.mean()), *(float(v) for v in np.quantile(means, [0.025, 0.975]))]


def first_is_gold(scores: np.ndarray, gold: int) -> float:
    return float(np.argmax(scores) == gold)


def ndcg(ranked: np.ndarray, gains: dict[int, float], k: int = 10) -> float:
    discounts = 1 / np.log2(np.arange(2, k + 2))
    found = sum(gains.get(int(item), 0.0) * discount for item, discount in zip(ranked[:k], discounts, strict=False))
    ideal = sum(g * d for g, d in zip(sorted(gains.values(), reverse=True)[:k], discounts, strict=False))
    return float(found / ideal) if ideal else 0.0


def directions(matrix: np.ndarray) -> list[int]:
    """How many singular directions hold 90, 95 and 99 % of a matrix's energy."""
    energy = np.cumsum(np.linalg.svd(matrix, compute_uv=False) ** 2)
    return [int(np.searchsorted(energy / energy[-1], share) + 1) for share in (0.9, 0.95, 0.99)]


def world(path: Path, wordnet: WordNet) -> dict[str, object]:
    with np.load(path) as saved:
        name = "noun." + path.stem.split("-")[1] if "verb" not in path.stem else "verb." + path.stem.split("-")[2]
        collection = wordnet.world(name)
        # anchors are queries of a held-out world as much as test queries are
        parts = [part for part in ("train", "test") if part in saved]
        scores = np.concatenate([saved[part] for part in parts]).astype(np.float64)
        vectors = saved["vectors"].astype(np.float32)
        ids = [str(id) for part in parts for id in saved[f"{part}_ids"]]
    positions = collection.positions
    texts = {query.id: query.text for query in collection.queries}
    gold = np.asarray([positions[collection.gold(id)[0]] for id in ids])
    encoder = OnnxDualEncoder.load()
    dual = encoder.encode_queries([texts[id] for id in ids]) @ vectors.T
    bm25 = Bm25([marked_text(item) for item in collection.items])
    lexical = np.stack([bm25.scores(texts[id]) for id in ids])
    doubled = np.stack([bm25.scores(texts[id], twice=True) for id in ids])
    hits = {
        "cross": np.asarray([first_is_gold(s, g) for s, g in zip(scores, gold, strict=True)]),
        "dual": np.asarray([first_is_gold(s, g) for s, g in zip(dual, gold, strict=True)]),
        "bm25": np.asarray([first_is_gold(s, g) for s, g in zip(lexical, gold, strict=True)]),
        "bm25, mention twice": np.asarray([first_is_gold(s, g) for s, g in zip(doubled, gold, strict=True)]),
    }
    centred = scores - scores.mean(0)
    return {
        "world": name,
        "items": len(collection.items),
        "queries": len(ids),
        "hits": {name: values.tolist() for name, values in hits.items()},
        "top1_kept_without_item_means": float(np.mean(np.argmax(centred, 1) == np.argmax(scores, 1))),
        "directions_for_90_95_99": directions(scores - scores.mean()),
        "… item means taken off": directions(centred),
    }


def embed_states(encoder: OnnxDualEncoder, bound: BoundOnnxCrossEncoder) -> np.ndarray:
    """Vectors from the states that the cross-encoder keeps: the two models share their lower layers."""
    n = bound.n_items or 0
    vectors = np.empty((n, encoder.dimension), np.float32)
    for start in range(0, n, 1024):
        read = bound.items.read(np.arange(start, min(start + 1024, n)))
        vectors[list(read)] = encoder._encode([r.tokens for r in read.values()], [r.states for r in read.values()])
    return vectors


def scifact(folder: Path, queries: int, depth: int) -> dict[str, object]:
    split = {record["_id"]: record["split"] for _, record in records(find(folder, "queries.jsonl"))}
    collection: Collection = read_beir(folder)
    tests = [query for query in collection.queries if split[query.id] != "train"][:queries]
    positions = collection.positions
    items = [marked_text(item) for item in collection.items]
    encoder, cross = OnnxDualEncoder.load(), OnnxCrossEncoder.load()
    bound = cross.bind(items)
    vectors = embed_states(encoder, bound)
    dual = encoder.encode_queries([query.text for query in tests]) @ vectors.T
    bm25 = Bm25(items)
    results: dict[str, list[float]] = {"cross": [], "dual": [], "bm25": []}
    begun, pairs = time.monotonic(), 0
    for number, query in enumerate(tests):
        gains = {positions[id]: score for id, score in collection.judgements[query.id].items()}
        lexical = bm25.scores(query.text)
        by_dual, by_bm25 = top(dual[number : number + 1], depth)[0], top(lexical[None], depth)[0]
        union = np.unique(np.concatenate([by_dual, by_bm25]))
        scored = bound.score(query.text, union)
        pairs += len(union)
        results["cross"].append(ndcg(union[np.argsort(-scored, kind="stable")], gains))
        results["dual"].append(ndcg(by_dual, gains))
        results["bm25"].append(ndcg(by_bm25, gains))
        if number % 20 == 19:
            so_far = {name: round(float(np.mean(values)), 3) for name, values in results.items()}
            print(f"{number + 1} of {len(tests)} claims, {pairs} pairs: {so_far}", file=sys.stderr, flush=True)
    return {
        "queries": len(tests),
        "depth": depth,
        "pairs": pairs,
        "seconds": time.monotonic() - begun,
        "ndcg": results,
    }


def compare(values: dict[str, np.ndarray]) -> dict[str, object]:
    return {
        **{name: interval(v) for name, v in values.items()},
        **{f"cross - {name}": interval(values["cross"] - v) for name, v in values.items() if name != "cross"},
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("matrices", type=Path)
    parser.add_argument("data", type=Path)
    parser.add_argument("output", type=Path)
    parser.add_argument("--scifact-queries", type=int, default=300)
    parser.add_argument("--depth", type=int, default=200)
    arguments = parser.parse_args()
    wordnet = WordNet()
    worlds = [world(path, wordnet) for path in sorted(arguments.matrices.glob("wordnet-*.npz"))]
    report: dict[str, object] = {"worlds": []}
    pooled: dict[str, list[float]] = {"cross": [], "dual": [], "bm25": [], "bm25, mention twice": []}
    for one in worlds:
        hits = one.pop("hits")
        assert isinstance(hits, dict)
        for name, values in hits.items():
            pooled[name] += values
        one["accuracy@1"] = compare({name: np.asarray(v) for name, v in hits.items()})
    report["worlds"] = worlds
    if worlds:
        report["all worlds, accuracy@1"] = compare({name: np.asarray(v) for name, v in pooled.items()})
    arguments.output.write_text(json.dumps(report, indent=1) + "\n", "utf-8")
    if arguments.scifact_queries:
        result = scifact(arguments.data / "scifact", arguments.scifact_queries, arguments.depth)
        scores = result.pop("ndcg")
        assert isinstance(scores, dict)
        compared = compare({name: np.asarray(values) for name, values in scores.items()})
        report["scifact test, nDCG@10"] = {**result, **compared}
        rounded = {name: [round(value, 4) for value in values] for name, values in scores.items()}
        report["scifact test, nDCG@10 of every claim"] = rounded
    arguments.output.write_text(json.dumps(report, indent=1) + "\n", "utf-8")
    print(json.dumps({name: part for name, part in report.items() if "every claim" not in name}, indent=1))


if __name__ == "__main__":
    main()
