"""Words as one more coordinate of the default method: recall at equal calls, with and without, learned and not.

    python benchmarks/words.py DATA [--worlds squad-13k,wordnet-time]

Worlds are the matrices of `benchmarks/matrices`, whose texts are in DATA/squad_sentences and in WordNet. Test queries;
round one takes vectors and words in turn in every row, so that only the later rounds differ (`crosscut@words=0` against
`crosscut`). `learned` is after the past searches of `benchmarks/learning.py`. Differences are paired over queries.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

sys.path.insert(0, str(Path(__file__).parent.parent / "scripts"))

from crosscut.evaluation.report import machine
from wordnet import WordNet

from crosscut.datasets.beir import read_beir
from crosscut.datasets.records import Collection
from crosscut.measures import paired_interval, recall
from crosscut.methods import Parts
from crosscut.methods.learning import learn
from crosscut.retrieval.bm25 import BM25
from crosscut.scorers.adapters import MatrixScorer
from crosscut.search.stages import Retriever
from crosscut.searcher import Searcher
from crosscut.spaces.base import Vectors
from crosscut.spaces.cur import CUR
from crosscut.storage import write_json
from learning import log_of, read_log

HERE = Path(__file__).parent
WORLDS = {
    "squad-13k": "squad_sentences",
    "squad-sentences": "squad_sentences",
    "wordnet-time": "noun.time",
    "wordnet-feeling": "noun.feeling",
    "wordnet-verb-emotion": "verb.emotion",
    "wordnet-30k": "wordnet_wsd",
}
CELLS = {20: (10,), 50: (10,), 100: (10,), 200: (10, 100)}  # budget → k
Recalls = dict[tuple[int, int], npt.NDArray[np.float64]]


class Counted(Retriever):
    """BM25 of every test query, which is called by its number."""

    def __init__(self, scores: npt.NDArray[np.float32]) -> None:
        self._scores = scores

    def scores(self, query: str) -> npt.NDArray[np.float32]:
        return np.asarray(self._scores[int(query)])


def texts(source: str, data: Path) -> Collection:
    """Where the texts of a world are."""
    return WordNet().world(source) if "." in source else read_beir(data / source)


def recalls(parts: Parts, scores: Any, vectors: Any, method: str) -> Recalls:
    """Recall of every test query, by k and budget."""
    searcher = Searcher(MatrixScorer(scores), method=method, parts=parts)
    found: Recalls = {}
    for budget, ks in CELLS.items():
        hits = searcher.search_many(range(len(scores)), max(ks), budget, query_vectors=vectors)
        for k in ks:
            found[k, budget] = np.array([recall(scores[j], one.scored, k) for j, one in enumerate(hits)])
    return found


def variants(parts: Parts, data: dict[str, Any], log: Path) -> Iterator[tuple[str, Parts]]:
    """What an index may have beside vectors and words."""
    yield "plain", parts
    assert parts.encoder is not None
    bare = replace(parts, words=None)
    past = read_log(log) if log.exists() else log_of(bare, data["train"], data["anchor_query_vectors"])
    got = learn(past, parts.encoder, n=parts.n)
    if got.prior is not None:
        yield f"after {got.searches} past searches", replace(parts, prior=got.prior)
    anchors = min(20, len(data["train"]))
    yield f"{anchors} anchor queries", replace(parts, anchors=CUR(data["train"][:anchors].astype(np.float64)))


def study(name: str, data: Path) -> dict[str, Any]:
    """One world."""
    with np.load(HERE / "matrices" / f"{name}.npz", allow_pickle=False) as archive:
        arrays = {key: archive[key] for key in archive.files}
    collection = texts(WORLDS[name], data)
    items = {item.id: item for item in collection.items}
    queries = {query.id: query.text for query in collection.queries}
    words = BM25([items[id] for id in arrays["item_ids"].tolist()])
    scores = arrays["test"].astype(np.float64)
    space = Vectors(arrays["vectors"].astype(np.float32))
    asked = Counted(np.stack([words.scores(queries[id]) for id in arrays["test_ids"].tolist()]))
    rows = []
    for label, parts in variants(
        Parts(encoder=space, words=asked, n=space.n), arrays, HERE / "matrices" / f"{name}-past.npz"
    ):
        vectors = arrays["query_vectors"].astype(np.float64)
        without, ours = (recalls(parts, scores, vectors, method) for method in ("crosscut@words=0", "crosscut"))
        for (k, budget), after in ours.items():
            gain, low, high = paired_interval(after, without[k, budget])
            before = float(without[k, budget].mean())
            rows.append(
                {"index": label, "k": k, "budget": budget, "without": before, "with": float(after.mean())}
                | {"gain": gain, "low": low, "high": high}
            )
        print(name, label, *(f"k={r['k']} B={r['budget']} {r['without']:.3f} → {r['with']:.3f}" for r in rows[-5:]))
    return {"world": name, "items": space.n, "queries": len(scores), "rows": rows}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("--worlds", default=",".join(WORLDS))
    parser.add_argument("--json", type=Path, default=HERE / "results" / "words.json")
    options = parser.parse_args()
    worlds = [study(name, options.data) for name in options.worlds.split(",")]
    write_json(options.json, {"command": "python benchmarks/words.py DATA", "machine": machine(), "worlds": worlds})


if __name__ == "__main__":
    main()
