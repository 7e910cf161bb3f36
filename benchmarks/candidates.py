"""What what a scorer knows of candidates brings over a store: python benchmarks/candidates.py DATA [names …]

DATA holds BEIR folders. Their items lie in a LanceDB table; the scorer is the one in the box. `--queries` test queries
are drawn by a seed. Compared are searches that take what the scorer knows of candidates for their base and stop by
themselves, and searches to which the same scorer is a black box: calls, the share of the exact top 10 of f that was
scored, nDCG@10, CPU seconds of a search, in turns. Exact is f over the 200 items of highest g.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import lancedb
import numpy as np
import pyarrow as pa
from crosscut.evaluation.report import machine

import crosscut
from crosscut.datasets.beir import read_beir
from crosscut.datasets.records import Item
from crosscut.linalg.top import ranked
from crosscut.measures import interval, paired_interval
from crosscut.scorers.base import BoundScorer, Scorer
from crosscut.scorers.onnx import OnnxCrossEncoder
from relevance import K, drawn, ndcg

RESULTS = Path(__file__).parent / "results" / "candidates.json"
BUDGETS = (20, 30, 100)
CAP = 100
TRUTH = 200


class BlackBox(Scorer):
    """The same scores, of which nothing is known without a call."""

    def __init__(self, model: OnnxCrossEncoder) -> None:
        self.model = model

    @property
    def fingerprint(self) -> str:
        return self.model.fingerprint

    def bind(self, items: Any) -> BoundScorer:
        bound = self.model.bind(items)
        bound.keep(None)
        return bound


def table(folder: str, items: Sequence[Item], vectors: Any) -> crosscut.stores.LanceDB:
    rows = pa.FixedSizeListArray.from_arrays(pa.array(vectors.astype(np.float32).ravel()), vectors.shape[1])
    columns = {"id": [i.id for i in items], "text": [i.text for i in items], "title": [i.title for i in items]}
    lancedb.connect(folder).create_table("items", pa.table({**columns, "vector": rows}))
    return crosscut.stores.LanceDB(folder, "items", title="title")


def measured(name: str, folder: Path, count: int, seed: int) -> dict[str, Any]:
    """The record of one collection."""
    collection = read_beir(folder)
    queries = drawn(folder, collection, count, seed, train=False)
    places = collection.positions
    model = OnnxCrossEncoder.load()
    bound = model.bind(collection.items)
    truth = []
    for query in queries:
        near = ranked(bound.known(query.text).copy(), min(len(collection.items), TRUTH))
        scores = bound.score(query.text, near)
        truth.append(set(near[np.lexsort((near, -scores))][:K].tolist()))
    gains = [{places[i]: g for i, g in collection.judgements[q.id].items() if g > 0 and i in places} for q in queries]
    runs: dict[str, dict[str, list[float]]] = {}
    with tempfile.TemporaryDirectory() as home:
        store = table(home, collection.items, bound._read_all().vectors)
        indexes = {
            "known": crosscut.Index.over(store, scorer=model),
            "black box": crosscut.Index.over(store, scorer=BlackBox(model)),
        }
        for query, best, gain in zip(queries, truth, gains, strict=True):
            for budget in BUDGETS:
                for kind, index in indexes.items():
                    begun = time.process_time()
                    hits = index.search(query.text, k=K, budget=budget)
                    spent = time.process_time() - begun
                    run = runs.setdefault(f"{kind}, {budget}", {"calls": [], "recall": [], "ndcg": [], "seconds": []})
                    run["calls"].append(float(hits.calls))
                    found = [places[hit.id] for hit in hits]
                    run["recall"].append(len(best & set(found)) / len(best))
                    run["ndcg"].append(ndcg(found, gain))
                    run["seconds"].append(spent)
    pairs = {f"known, {CAP} - black box, {b}": (f"known, {CAP}", f"black box, {b}") for b in BUDGETS}
    return {
        "collection": name,
        "items": len(collection.items),
        "queries": len(queries),
        "runs": {
            what: {
                measure: [round(float(v), 4) for v in (np.mean(x), *interval(np.asarray(x)))]
                for measure, x in run.items()
            }
            for what, run in runs.items()
        },
        "recall differences": {
            told: [round(v, 4) for v in paired_interval(*(np.asarray(runs[one]["recall"]) for one in pair))]
            for told, pair in pairs.items()
        },
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("names", nargs="*", default=["wikiqa", "doid", "reuters"])
    parser.add_argument("--queries", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", type=Path, default=RESULTS)
    how = parser.parse_args()
    told: dict[str, Any] = {"command": "python benchmarks/candidates.py DATA", "machine": machine(), "collections": []}
    for name in how.names:
        told["collections"].append(measured(name, how.data / name, how.queries, how.seed))
        how.json.write_text(json.dumps(told, indent=1) + "\n", "utf-8")
        runs = {
            what: {measure: v[0] for measure, v in run.items()} for what, run in told["collections"][-1]["runs"].items()
        }
        print(f"{name}: {json.dumps(runs)}", flush=True)


if __name__ == "__main__":
    main()
