"""What a search with the scorer in the box costs and finds: python benchmarks/relevance.py DATA [names …]

DATA holds BEIR folders. Of each, up to `--queries` test queries with judgements are drawn by a seed. Per collection:
nDCG@10 and the share of the exact top 10 of f that was found, for the known part alone (no call), for `crosscut` at
fixed budgets, for the default, which stops by itself under a cap of 100 calls, and for `rnr` with 100 calls.

The exact top 10 is that of f over the `--truth` items of highest g (200): f over everything would be dear, and what g
puts further down f can hardly lift (a correction counts .3). Collections of up to `--exact` items are scored whole, and
the share of their top 10 that lies among the 200 is told. `--train` takes train queries instead, to choose by.
"""

from __future__ import annotations

import argparse
import json
import random
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from crosscut.datasets.beir import is_test, read_beir
from crosscut.datasets.files import find, records
from crosscut.datasets.records import Collection, Query
from crosscut.index import Index
from crosscut.linalg.top import ranked
from crosscut.measures import interval, paired_interval
from crosscut.scorers.base import BoundScorer, Request, ScoreResult
from crosscut.searcher import Searcher
from crosscut.types import Floats, Handles

BUDGETS = (5, 20, 30, 100, 200)
K, CAP = 10, 100
RESULTS = Path(__file__).parent / "results" / "relevance-search.json"


class CachingScorer(BoundScorer):
    """A scorer that is asked once for a pair; searches pay each time."""

    def __init__(self, scorer: BoundScorer) -> None:
        self.scorer, self.n_items, self.knows = scorer, scorer.n_items, scorer.knows
        self.kept: dict[Any, dict[int, float]] = {}
        self.base: dict[Any, Floats] = {}

    def known(self, query: Any, handles: Handles | None = None) -> Floats:
        if query not in self.base:
            self.base[query] = self.scorer.known(query)
        return self.base[query].copy() if handles is None else self.base[query][handles]

    def score_many(self, requests: Sequence[Request]) -> list[ScoreResult]:
        for query, handles in requests:
            kept = self.kept.setdefault(query, {})
            new = np.asarray([handle for handle in handles.tolist() if handle not in kept], np.int64)
            if len(new):
                kept.update(zip(new.tolist(), self.scorer.score(query, new).tolist(), strict=True))
        return [
            ScoreResult.of(np.asarray([self.kept[query][h] for h in handles.tolist()])) for query, handles in requests
        ]


def ndcg(found: Sequence[int], gains: dict[int, float]) -> float:
    """nDCG@10 of items, best first."""
    reached = sum(gains.get(item, 0.0) / np.log2(place + 2) for place, item in enumerate(found[:K]))
    best = sum(gain / np.log2(place + 2) for place, gain in enumerate(sorted(gains.values(), reverse=True)[:K]))
    return float(reached / best) if best else 0.0


def drawn(folder: Path, collection: Collection, count: int, seed: int, train: bool) -> list[Query]:
    """Queries of the test part (or of the rest) with judgements, drawn by a seed; of evaluation-only sets, of all."""
    whole = folder.name in ("classic", "reuters", "rfc")
    parts: dict[str, str] = {}
    for _, record in records(find(folder, "queries.jsonl")):
        parts[record["_id"]] = record.get("split", "test" if whole or is_test(record["_id"]) else "train")
    held = "test" if "test" in parts.values() else "validation"  # SciFact calls its test part so here
    wanted = "train" if train else held
    judged = [q for q in collection.queries if collection.gold(q.id) and parts[q.id] == wanted]
    random.Random(seed).shuffle(judged)
    return judged[:count]


def measured(name: str, index: Index, queries: Sequence[Query], gains: Sequence[dict[int, float]], how: Any) -> Any:
    """The record of one collection."""
    state = index.corpus
    assert state.scorer is not None
    scorer = CachingScorer(state.scorer)
    texts = [query.text for query in queries]
    vectors = index._vectors(texts)
    n, whole = len(index), len(index) <= how.exact
    truth, among = [], []
    for text in texts:
        near = ranked(scorer.known(text).copy(), min(n, how.truth))
        every = np.arange(n) if whole else near
        scores = scorer.score(text, every)
        best = set(every[np.lexsort((every, -scores))[:K]].tolist())
        truth.append(best)
        among.append(len(best & set(near.tolist())) / len(best))
    runs: dict[str, dict[str, list[float]]] = {}

    def record(what: str, hits: Sequence[Any]) -> None:
        runs[what] = {
            "ndcg": [ndcg([hit.position for hit in one], gain) for one, gain in zip(hits, gains, strict=True)],
            "recall": [len(best & set(one.scored.tolist())) / len(best) for one, best in zip(hits, truth, strict=True)],
            "calls": [float(one.calls) for one in hits],
        }

    orders = [ranked(scorer.known(text).copy(), K).tolist() for text in texts]
    runs["known"] = {
        "ndcg": [ndcg(order, gain) for order, gain in zip(orders, gains, strict=True)],
        "recall": [len(best & set(order)) / len(best) for order, best in zip(orders, truth, strict=True)],
        "calls": [0.0] * len(texts),
    }
    searcher = Searcher(scorer, method=index.method, parts=state.parts)
    for budget in BUDGETS:
        record(str(budget), searcher.search_many(texts, K, budget, query_vectors=vectors))
    record("default", searcher.search_many(texts, K, CAP, query_vectors=vectors, stop=how.stop or index.default_stop()))
    rnr = Searcher(scorer, method="rnr", parts=state.parts)
    record("rnr", rnr.search_many(texts, K, CAP, query_vectors=vectors))

    def pair(one: str, other: str) -> list[float]:
        return [round(v, 4) for v in paired_interval(*(np.asarray(runs[r]["ndcg"]) for r in (one, other)))]

    return {
        "collection": name,
        "items": n,
        "queries": len(texts),
        "exact": whole,
        "top 10 of f among the truth": round(float(np.mean(among)), 4),
        "runs": {
            what: {
                measure: [round(float(np.mean(values)), 4), *(round(v, 4) for v in interval(np.asarray(values)))]
                for measure, values in run.items()
            }
            for what, run in runs.items()
        },
        "ndcg differences": {
            "200 - 20": pair("200", "20"),
            "100 - rnr": pair("100", "rnr"),
            "default - rnr": pair("default", "rnr"),
            "default - known": pair("default", "known"),
            "default - 200": pair("default", "200"),
        },
    }


def means(found: Sequence[dict[str, Any]]) -> dict[str, dict[str, float]]:
    """Of every run over all collections."""
    return {
        run: {
            measure: round(float(np.mean([one["runs"][run][measure][0] for one in found])), 4)
            for measure in ("ndcg", "recall", "calls")
        }
        for run in found[0]["runs"]
    }


def built(collection: Collection, work: Path | None, name: str) -> Index:
    """An index of the collection, kept in `work` if there is such a folder."""
    if work is not None and (work / f"{name}.index").is_dir():
        return Index.load(work / f"{name}.index")
    index = Index.build(collection)
    if work is not None:
        index.save(work / f"{name}.index")
    return index


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--queries", type=int, default=60)
    parser.add_argument("--truth", type=int, default=200, help="items of highest g that are scored for the truth")
    parser.add_argument("--exact", type=int, default=1100, help="collections up to this size are scored whole")
    parser.add_argument("--stop", default=None, help="instead of the default stopping rule")
    parser.add_argument("--train", action="store_true", help="train queries, to choose by")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--work", type=Path, default=None, help="a folder for the indexes")
    parser.add_argument("--output", type=Path, default=RESULTS)
    how = parser.parse_args()
    names = how.names or sorted(path.name for path in how.data.iterdir() if path.is_dir())
    found = json.loads(how.output.read_text("utf-8"))["collections"] if how.output.is_file() else []
    for name in names:
        begun = time.monotonic()
        collection = read_beir(how.data / name)
        queries = drawn(how.data / name, collection, how.queries, how.seed, how.train)
        if not queries:
            raise SystemExit(f"{name} has no judged queries in the part that is asked for")
        places = collection.positions
        gains = [
            {places[i]: g for i, g in collection.judgements[q.id].items() if g > 0 and i in places} for q in queries
        ]
        record = measured(name, built(collection, how.work, name), queries, gains, how)
        found = [one for one in found if one["collection"] != name] + [record]
        about = {
            "command": "python benchmarks/relevance.py DATA",
            "k": K,
            "cap": CAP,
            "truth": how.truth,
            "seed": how.seed,
            "means": means(found),
            "collections": found,
        }
        how.output.write_text(json.dumps(about, indent=1) + "\n", "utf-8")
        runs = {what: {m: v[0] for m, v in run.items()} for what, run in record["runs"].items()}
        print(f"{name}: {json.dumps(runs)} in {time.monotonic() - begun:.0f} s", flush=True)


if __name__ == "__main__":
    main()
