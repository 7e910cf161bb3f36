"""Relevance of the models in the box as they ship: python scripts/evaluate_shipped.py DATA [NAME …]

Where no fold judges: the evaluation-only collections, SciFact's test claims and the held-out worlds of WordNet are
unseen by the weights that ship. Here these are judged by the model folder itself, in its own arithmetic, with the
queries, candidates and rivals of `evaluate_relevance.py`: BM25, dual encoder and their equal-weight fusion rank the
whole collection; f ranks the union of their best 100, and the cross-encoder is called for the `--depth` best of it by
g. The records take the place of those in models_relevance.json, models_wordnet.json and models_scifact.json
(`--results`); those of the collections that a fold judges stay. `--work` keeps indexes.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np
from evaluate_relevance import RIVALS, interval, together
from relevance_sets import EVALUATED, RECIPE, ndcg, read_collection, read_world, standard
from wordnet import WordNet

from crosscut.datasets.records import Item
from crosscut.encoders.known import Known
from crosscut.index import Index
from crosscut.scorers.onnx import BoundOnnxCrossEncoder

UNION = 100
SHIPPED, FOLDS = "as it ships", "vectors float32, cross-encoder bfloat16"
LIMITS = {"wordnet": 400, "scifact": 300, "wikiqa": 369}


def judged(scorer: BoundOnnxCrossEncoder, known: Known, text: str, depth: int) -> dict[str, Any]:
    """The order of every rival and of f, best first, and how many candidates f had."""
    asked = known.ask(text)
    bm25 = known.words.match(asked.words).bm25
    cosine = known.vectors.astype(np.float32) @ asked.vector
    scores = {"bm25": bm25, "dual": cosine, "fusion": standard(bm25) + standard(cosine)}
    orders = {name: np.argsort(-values, kind="stable")[:UNION] for name, values in scores.items()}
    union = np.unique(np.concatenate(list(orders.values())))
    order = union[np.argsort(-known.at(text, union), kind="stable")]
    best = order[:depth]
    return {
        **orders,
        "known": order,
        "scorer": best[np.argsort(-scorer.score(text, best), kind="stable")],
        "candidates": len(union),
    }


def evaluated(name: str, content: dict[str, Any], limit: int, depth: int, work: Path | None) -> dict[str, Any]:
    """The record of one collection."""
    path = work / f"{name}.index" if work else None
    if path is not None and path.is_dir():
        index = Index.load(path)
    else:
        halves = [text.partition(" [ENT] ") for text in content["items"]]
        items = [Item(str(n), a if b else "", c if b else a) for n, (a, b, c) in enumerate(halves)]
        index = Index.build(items)
        if path is not None:
            index.save(path)
    scorer = index._state.scorer
    assert isinstance(scorer, BoundOnnxCrossEncoder)
    assert len(index) == len(content["items"])
    known = scorer._read_all()
    queries = content["test"][:limit]
    gains = [{int(place): float(gain) for place, gain in content["gold"][id]} for id, _ in queries]
    orders = [judged(scorer, known, text, depth) for _, text in queries]

    def measured(which: str) -> np.ndarray:
        return np.asarray([ndcg(order[which], own) for order, own in zip(orders, gains, strict=True)])

    def first(which: str) -> np.ndarray:
        return np.asarray(
            [float(own.get(int(order[which][0]), 0) > 0) for order, own in zip(orders, gains, strict=True)]
        )

    values = {which: measured(which) for which in (*RIVALS, "known", "scorer")}
    best = max(RIVALS, key=lambda rival: values[rival].mean())
    record: dict[str, Any] = {
        "collection": name,
        "items": len(index),
        "queries": len(queries),
        "left out": [],
        "candidates": round(float(np.mean([order["candidates"] for order in orders])), 1),
        **{which: interval(own) for which, own in values.items()},
        "best of three": best,
        "scorer - best of three": interval(values["scorer"] - values[best]),
        "known - best of three": interval(values["known"] - values[best]),
        "scorer - known": interval(values["scorer"] - values["known"]),
    }
    if name.startswith("wn_"):
        right = {which: first(which) for which in ("scorer", "bm25", "dual", "known")}
        record["accuracy@1"] = {
            **{which: interval(own) for which, own in right.items()},
            **{f"scorer - {which}": interval(right["scorer"] - right[which]) for which in ("bm25", "dual", "known")},
        }
        record["first is right"] = right["scorer"].astype(int).tolist()
    record["scorer of every query"] = [round(float(v), 4) for v in values["scorer"]]
    return record


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("names", nargs="*", help="of collections; all by default")
    parser.add_argument("--results", type=Path, default=Path(__file__).parents[1] / "benchmarks" / "results")
    parser.add_argument("--depth", type=int, default=30)
    parser.add_argument("--work", type=Path, default=None, help="a folder for the indexes")
    how = parser.parse_args()
    worlds = [f"wn_{world}" for world in RECIPE["worlds"]["held_out"]]
    wordnet = WordNet()
    for part, names in {"wordnet": worlds, "scifact": ["scifact"], "relevance": EVALUATED}.items():
        path = how.results / f"models_{part}.json"
        told = json.loads(path.read_text("utf-8"))
        for name in (name for name in names if name in (how.names or names)):
            world = name.startswith("wn_")
            content = read_world(wordnet, name.removeprefix("wn_")) if world else read_collection(how.data, name)
            limit = LIMITS.get(name, LIMITS.get(part, 300))
            record = evaluated(name, content, limit, how.depth, how.work)
            told["collections"] = [record if one["collection"] == name else one for one in told["collections"]]
            print(name, {key: record[key] for key in ("known", "scorer", "scorer - best of three")}, flush=True)
        told["all"] = together(part, told["collections"])
        told["weight"] |= {"most_words": RECIPE["relevance"]["cross_encoder"]["most_words"]}
        told["arithmetic"] = SHIPPED if part != "relevance" else f"{FOLDS} where a fold judges, else {SHIPPED}"
        path.write_text(json.dumps(told, indent=1) + "\n", "utf-8")


if __name__ == "__main__":
    main()
