"""What products of whole numbers cost and bring: python benchmarks/precision.py FLOAT DATA [names …] [--json FILE]

FLOAT is a model folder with the weights of the one in the box and products in float32 (the box of commit 928c97e, or
`scripts/export_default.py --precision float16`). Per collection (BEIR folders in DATA), on one thread, in turns: CPU
seconds to read the items (dual encoder, token vectors) and to score the `--depth` items of highest g a query; nDCG@10
of g and of f with both, the share of each top 10 that is kept, and how far a pair's score is from the same pair alone.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

import numpy as np
from crosscut.evaluation.report import machine

from crosscut.datasets.beir import read_beir
from crosscut.linalg.top import ranked
from crosscut.measures import paired_interval
from crosscut.scorers.onnx import OnnxCrossEncoder
from relevance import K, drawn, ndcg

RESULTS = Path(__file__).parent / "results" / "models_precision.json"


def run(model: OnnxCrossEncoder, items: list[Any], queries: list[str], depth: int) -> dict[str, Any]:
    """One model over one collection."""
    bound = model.bind(items)
    started = time.process_time()
    bound.known(queries[0])
    read = time.process_time() - started
    every = np.arange(len(items))
    bound.preload(every[: min(len(every), 512)])  # sessions are warm before anything is timed
    seconds, pairs = 0.0, 0
    known, found, scores = [], [], []
    for query in queries:
        near = ranked(bound.known(query).copy(), min(depth, len(items)))
        bound.items.read(near)
        started = time.process_time()
        some = bound.score(query, near)
        seconds += time.process_time() - started
        pairs += len(near)
        known.append(near[:K].tolist())
        found.append(near[np.lexsort((near, -some))][:K].tolist())
        scores.append(dict(zip(near.tolist(), some.tolist(), strict=True)))
    first = list(scores[0])
    alone = [float(bound.score(queries[0], np.asarray([handle]))[0]) for handle in first]
    apart = float(np.abs(np.asarray(alone) - np.asarray(list(scores[0].values()))).max())
    return {
        "read": read,
        "seconds": seconds,
        "pairs": pairs,
        "known": known,
        "found": found,
        "scores": scores,
        "apart": apart,
        "tokens": int(sum(len(t.ids) for t in model.folder.tokenizer.items(items))),
    }


def kept(one: list[list[int]], other: list[list[int]]) -> float:
    return float(np.mean([len(set(a) & set(b)) / len(a) for a, b in zip(one, other, strict=True)]))


def compared(folder: Path, floats: Path, how: argparse.Namespace) -> dict[str, Any]:
    """The record of one collection."""
    collection = read_beir(folder)
    queries = drawn(folder, collection, how.queries, 0, False)
    places = collection.positions
    gains = [{places[i]: g for i, g in collection.judgements[q.id].items() if g > 0 and i in places} for q in queries]
    texts, items = [query.text for query in queries], list(collection.items)
    runs = {
        name: run(OnnxCrossEncoder.load(path, threads=1), items, texts, how.depth)
        for name, path in (("float32", floats), ("whole numbers", "default"))
    }
    float_, whole = runs["float32"], runs["whole numbers"]
    values = {
        name: {
            part: np.asarray([ndcg(o, g) for o, g in zip(one[part], gains, strict=True)]) for part in ("known", "found")
        }
        for name, one in runs.items()
    }
    both = [(a[i], b[i]) for a, b in zip(float_["scores"], whole["scores"], strict=True) for i in a if i in b]
    apart = np.asarray([a - b for a, b in both])
    return {
        "collection": folder.name,
        "items": len(items),
        "queries": len(queries),
        "tokens": whole["tokens"],
        "tokens per CPU second": {name: round(one["tokens"] / one["read"]) for name, one in runs.items()},
        "pairs per CPU second": {name: round(one["pairs"] / one["seconds"]) for name, one in runs.items()},
        "reading, times as fast": round(float_["read"] / whole["read"], 2),
        "scoring, times as fast": round(float_["seconds"] / whole["seconds"], 2),
        "top 10 of g kept": round(kept(float_["known"], whole["known"]), 4),
        "top 10 of f kept": round(kept(float_["found"], whole["found"]), 4),
        "nDCG@10 of g": {name: round(float(one["known"].mean()), 4) for name, one in values.items()},
        "nDCG@10 of f": {name: round(float(one["found"].mean()), 4) for name, one in values.items()},
        "nDCG@10 of f, whole - float32": [
            round(v, 4) for v in paired_interval(values["whole numbers"]["found"], values["float32"]["found"])
        ],
        "difference of scores, std": round(float(apart.std()), 4),
        "spread of scores, std": round(float(np.std([a for a, _ in both])), 4),
        "alone in a batch, largest difference": whole["apart"],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("floats", type=Path)
    parser.add_argument("data", type=Path)
    parser.add_argument("names", nargs="+")
    parser.add_argument("--queries", type=int, default=300)
    parser.add_argument("--depth", type=int, default=50)
    parser.add_argument("--json", type=Path, default=RESULTS)
    how = parser.parse_args()
    kept_rows: list[dict[str, Any]] = []
    if how.json.is_file():
        kept_rows = json.loads(how.json.read_text("utf-8")).get("collections", [])
    for name in how.names:
        record = compared(how.data / name, how.floats, how)
        print(json.dumps(record), flush=True)
        kept_rows = [one for one in kept_rows if one["collection"] != name] + [record]
        about = {"command": "python benchmarks/precision.py FLOAT DATA", "machine": machine(), "threads": 1}
        how.json.write_text(json.dumps({**about, "collections": kept_rows}, indent=1) + "\n", "utf-8")


if __name__ == "__main__":
    main()
