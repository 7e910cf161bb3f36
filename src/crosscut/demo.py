"""`crosscut demo`: how much of a scorer's own top k the methods find at equal numbers of calls.

The scores are recorded: a cross-encoder's, of 160 queries with each of 2,964 meanings of WordNet. Some of those queries
are searched, the others are anchor queries. All methods see a black box. Then a query is searched live, by base scores.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

import numpy as np

from crosscut.bundled.base_scores import BaseScorer
from crosscut.datasets.bundled import load_scores, load_world
from crosscut.datasets.records import Collection
from crosscut.errors import InputError
from crosscut.measures import recall
from crosscut.methods import ANNCUR
from crosscut.retrieval.bm25 import BM25
from crosscut.scorers.adapters import MatrixScorer
from crosscut.searcher import Searcher
from crosscut.spaces.cur import CUR
from crosscut.types import Floats, Progress

METHODS = ("rerank", "anncur", "adacur", "axn", "crosscut")
BUDGETS = (50, 100, 200)
QUERY = "she could not follow his [START] reasoning [END]"


@dataclass(frozen=True)
class DemoResult:
    """What the demo measured."""

    world: Collection
    queries: int
    anchors: int
    k: int
    recalls: dict[str, dict[int, float]]  # method → budget → mean recall
    query: str
    found: list[tuple[int, float]]  # positions and base scores of the live search
    seconds: float


def run(query: str = QUERY, *, k: int = 10, queries: int = 20, progress: Progress | None = None) -> DemoResult:
    """Compare the methods on the last of the recorded queries, and search one query live."""
    started = time.monotonic()
    world, scores = load_world(), load_scores()
    if not (1 <= queries <= len(scores.anchor_ids) - 10 and k >= 1):
        most = len(scores.anchor_ids) - 10
        raise InputError(
            f"{queries} queries and k = {k}: searched are 1 to {most} of the recorded queries, k is 1 or more"
        )
    if not query.strip():
        raise InputError("the query is empty; give a sentence")
    matrix = scores.anchor_scores.astype(np.float32)
    truth = matrix[-queries:].astype(np.float64)
    scorer = BaseScorer.load()
    texts = {one.id: one.text for one in world.queries}
    vectors = scorer.encoder.encode_queries([texts[id] for id in scores.anchor_ids[-queries:]])
    recalls: dict[str, dict[int, float]] = {}
    for method in METHODS:
        searcher = Searcher(
            MatrixScorer(truth),
            vectors=scores.vectors.astype(np.float32),
            space=CUR(matrix[:-queries]),
            # a cut-off: ANNCUR's anchor items may number as many as the anchor queries
            method=ANNCUR(rcond=1e-2) if method == "anncur" else method,
        )
        recalls[method] = {}
        for budget in BUDGETS:
            found = searcher.search_many(range(queries), k, budget, query_vectors=vectors)
            recalls[method][budget] = float(
                np.mean([recall(row, hits.scored, k) for row, hits in zip(truth, found, strict=True)])
            )
            if progress is not None:
                progress("comparing methods", sum(map(len, recalls.values())), len(METHODS) * len(BUDGETS))
    live = _base_scores(scorer, world, scores.vectors, query)
    best = np.argsort(-live, kind="stable")[:k]
    return DemoResult(
        world,
        queries,
        len(matrix) - queries,
        k,
        recalls,
        query,
        [(position, float(live[position])) for position in best.tolist()],
        time.monotonic() - started,
    )


def _base_scores(scorer: BaseScorer, world: Collection, vectors: np.ndarray, query: str) -> Floats:
    words = BM25(world.items)
    return scorer.fitted(words).bind(world.items, vectors, words).base_scores(query)
