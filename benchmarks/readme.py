"""README's picture and table: SQuAD's 13,447 sentences under the cross-encoder that ships, at equal calls.

    python benchmarks/readme.py --texts DATA/squad_sentences --json results/readme.json

Reranking of what vectors find, and of what vectors and words find in turn (`hybrid`); AXN as it comes, and with λ, α
and β tuned on train queries as in its paper; crosscut as an index runs it, with vectors and words in round one, after
180 past searches (100 calls each, which were paid anyway), and with scores of 20 train queries. The cross-encoder is
bare: a black box. `--texts` is a BEIR folder of those sentences, for BM25; without it the scores of words are those in
matrices/squad-13k-words.npz.
"""

from __future__ import annotations

import argparse
import json
import platform
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from crosscut.evaluation.world import World, make_world

from crosscut.datasets.beir import read_beir
from crosscut.datasets.records import ItemList
from crosscut.measures import paired_interval
from crosscut.methods import Crosscut, Method, parse
from crosscut.methods.learning import learn
from crosscut.retrieval.bm25 import BM25
from crosscut.spaces.base import Space, Vectors
from crosscut.storage import write_json
from crosscut.types import Floats
from learning import read_log
from rivals import TUNING, run, tuned_as_in_its_paper

HERE = Path(__file__).parent
NAME = "squad-13k"


def words_of(texts: Path | None, data: dict[str, Any]) -> Floats:
    """BM25 scores (q × n) of the test queries: of the texts, or as they were kept."""
    kept = HERE / "matrices" / f"{NAME}-words.npz"
    if texts is not None:
        collection = read_beir(texts)
        items = {item.id: item for item in collection.items}
        queries = {query.id: query.text for query in collection.queries}
        bm25 = BM25(ItemList([items[id] for id in data["item_ids"].tolist()]))
        scores = np.stack([bm25.scores(queries[id]) for id in data["test_ids"].tolist()])
        np.savez_compressed(kept, words=scores.astype(np.float16), fingerprint=data["fingerprint"])
    with np.load(kept, allow_pickle=False) as saved:
        return np.asarray(saved["words"], np.float64)


def study(data: dict[str, Any], words: Floats) -> Iterator[tuple[str, World, Callable[[], Method], int]]:
    """Every method with its world, how it is chosen and the calls that its index took."""
    space: Space = Vectors(data["vectors"].astype(np.float32))
    test, asked = data["test"], data["query_vectors"]
    plain = make_world(test, vectors=space, query_vectors=asked)
    both = make_world(test, vectors=space, query_vectors=asked, words=words)
    train = data["anchor_query_vectors"][:TUNING]
    tuning = make_world(data["train"][:TUNING], vectors=space, query_vectors=train)
    past = learn(read_log(HERE / "matrices" / f"{NAME}-past.npz"), space, n=space.n)
    yield "crosscut", both, Crosscut, 0
    yield "rnr", plain, partial(parse, "rnr"), 0
    yield "hybrid", both, partial(parse, "hybrid"), 0
    yield "axn", plain, partial(parse, "axn"), 0
    yield "axn, tuned", plain, partial(tuned_as_in_its_paper, tuning, data), 0
    yield "crosscut, past searches", replace(both, prior=past.prior), Crosscut, 0
    anchored = make_world(test, data["train"], space, asked, words=words)
    yield "crosscut, train queries", anchored, Crosscut, data["train"].size


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--texts", type=Path, default=None)
    parser.add_argument("--json", type=Path, required=True)
    options = parser.parse_args()
    with np.load(HERE / "matrices" / f"{NAME}.npz", allow_pickle=False) as archive:
        data = {name: archive[name] for name in archive.files}
    records, ours = [], None
    for name, world, choose, calls in study(data, words_of(options.texts, data)):
        method = choose()
        found = run(world, method)
        ours = ours or found
        for (k, budget), values in found.items():
            lead, low, high = paired_interval(ours[k, budget], values)
            cell = {"k": k, "budget": budget, "recall": float(values.mean()), "lead": lead, "low": low, "high": high}
            records.append({"method": name, "settings": str(method), "index_calls": calls, **cell})
    facts = {
        "command": "python benchmarks/readme.py --json results/readme.json",
        "python": platform.python_version(),
        "world": NAME,
        "items": int(data["test"].shape[1]),
        "test_queries": len(data["test"]),
        "scorer": str(data["fingerprint"]),
    }
    write_json(options.json, {**facts, "records": records})
    print(json.dumps({f"{r['method']} k={r['k']} B={r['budget']}": round(r["recall"], 3) for r in records}, indent=0))


if __name__ == "__main__":
    main()
