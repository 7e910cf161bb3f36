"""`crosscut demo`: a real cross-encoder, searched on this machine, against its own exhaustive answer.

The world in the box (one file of WordNet: 2,964 meanings) comes with the scores of anchor queries. The demo encodes
the items, scores a handful of test queries with every item as truth, searches one of them live, and lets the papers'
methods and crosscut find the same top k at equal budgets. crosscut starts from what the scorer knows without a call;
the papers' methods see a black box.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from crosscut import demo_states
from crosscut.datasets.bundled import WorldScores, load_scores, load_world
from crosscut.datasets.records import Collection
from crosscut.encoders.dual import OnnxDualEncoder
from crosscut.errors import InputError
from crosscut.measures import recall
from crosscut.methods import ANNCUR
from crosscut.scorers.adapters import MatrixScorer
from crosscut.scorers.base import BoundScorer
from crosscut.scorers.onnx import BoundOnnxCrossEncoder, OnnxCrossEncoder
from crosscut.search.hits import Hits
from crosscut.searcher import Searcher
from crosscut.spaces.cur import CUR
from crosscut.types import Floats, Handles, Progress

METHODS = ("rerank", "anncur", "adacur", "axn", "crosscut")
BUDGETS = (50, 100, 200)


class Truth(MatrixScorer):
    """Every score of some queries, and what the scorer knows of them without a call."""

    knows = True

    def __init__(self, scores: npt.NDArray[np.float64], scorer: BoundScorer, asked: list[str]) -> None:
        super().__init__(scores)
        self._known = np.stack([scorer.known(text) for text in asked])  # (asked × n)

    def known(self, query: Any, handles: Handles | None = None) -> Floats:
        row: Floats = self._known[int(query)]
        return row.copy() if handles is None else row[handles]


@dataclass(frozen=True)
class LiveSearch:
    """One query searched live: what crosscut and retrieve-and-rerank found with the same number of calls."""

    query: str
    gold: str | None
    crosscut: Hits
    rerank: Hits
    truth: npt.NDArray[np.float64]  # (n,)
    k: int

    def recall(self, hits: Hits) -> float:
        return recall(self.truth, hits.scored, self.k)


@dataclass
class DemoResult:
    """What the demo measured; `recalls` is method → budget → one recall per query."""

    world: Collection
    anchors: int
    k: int
    budget: int
    recalls: dict[str, dict[int, list[float]]]
    found: list[LiveSearch]
    seconds: dict[str, float] = field(default_factory=dict)
    pairs_per_second: float = 0.0
    report: Path | None = None

    @property
    def items(self) -> int:
        return len(self.world.items)


@dataclass(frozen=True)
class DemoParts:
    """Everything that is loaded once."""

    world: Collection
    scores: WorldScores
    scorer: BoundOnnxCrossEncoder
    encoder: OnnxDualEncoder
    texts: list[str]
    known: dict[str, npt.NDArray[np.float64]]  # scores of queries with every item, from the last time

    def searcher(self, scorer: BoundScorer, method: str) -> Searcher:
        return Searcher(
            scorer,
            vectors=self.scores.vectors.astype(np.float32),
            space=CUR(self.scores.anchor_scores.astype(np.float32)),
            # a cut-off: ANNCUR's anchor items may number as many as the anchor queries
            method=ANNCUR(rcond=1e-2) if method == "anncur" else method,
            texts=self.texts,
        )


def _untold(what: str, done: int, total: int) -> None:
    """Progress that nobody is told of."""


def run(
    query: str | None = None,
    *,
    k: int = 10,
    budget: int = 100,
    queries: int = 4,
    report: str | Path | None = "crosscut-demo.html",
    progress: Progress = _untold,
) -> DemoResult:
    """Run the demo; `query` is searched too, marked `[START] … [END]` around the word that is meant, or not.

    Parameters
    ----------
    queries : test queries that are scored exhaustively (2,964 calls each) to have the truth.
    report : where to write the HTML report; None writes none.
    progress : is told how far it is.
    """
    if queries < 1 or k < 1:
        raise InputError(f"{queries} queries and k = {k}: both must be at least 1")
    if query is not None and not query.strip():
        raise InputError("the query is empty; give a sentence")
    begun = time.monotonic()
    seconds: dict[str, float] = {}
    stage = _load(progress)
    if not 1 <= budget <= len(stage.texts):
        raise InputError(f"a budget of {budget} calls does not fit {len(stage.texts)} items; use 50 to 500")
    seconds["encode items"] = time.monotonic() - begun
    names = {q.id: q.text for q in stage.world.queries}
    chosen = stage.scores.test_ids[:queries]
    asked = [names[id] for id in chosen] + ([query] if query is not None else [])
    scored = sum(text not in stage.known for text in dict.fromkeys(asked)) * len(stage.texts)
    since = time.monotonic()
    truth = _exhaustive(stage, asked, progress)  # (asked × n)
    seconds["exhaustive truth"] = time.monotonic() - since
    vectors = stage.encoder.encode_queries(asked)  # (asked × D)
    recalls = _compare(stage, Truth(truth, stage.scorer, asked), vectors, k, progress)
    live = list(range(len(asked)))[-1:] if query is not None else list(range(min(2, len(asked))))
    found = []
    since = time.monotonic()
    for row in live:
        gold = stage.world.gold(chosen[row])[0] if row < len(chosen) else None
        found.append(_live(stage, asked[row], vectors[row], truth[row], gold, k, budget))
    seconds["live searches"] = time.monotonic() - since
    seconds["all"] = time.monotonic() - begun
    result = DemoResult(
        world=stage.world,
        anchors=len(stage.scores.anchor_ids),
        k=k,
        budget=budget,
        recalls=recalls,
        found=found,
        seconds=seconds,
        pairs_per_second=scored / seconds["exhaustive truth"] if scored else _pace(found),
    )
    if report is not None:
        from crosscut.demo_report import write

        result.report = write(result, Path(report))
    return result


def _load(progress: Progress) -> DemoParts:
    """Models, world, and the items' states: the part of the cross-encoder that does not depend on a query."""
    world, scores = load_world(), load_scores()
    model = OnnxCrossEncoder.load()
    if model.fingerprint != scores.fingerprint:
        raise InputError(
            f"the bundled scores come from model {scores.fingerprint}, the model in the box is {model.fingerprint}; "
            "rebuild them with scripts/score_world.py"
        )
    scorer = model.bind(world.items)
    texts = [item.text for item in world.items]
    known = demo_states.load(demo_states.kept_at(model.fingerprint), scorer)
    for start in range(0, len(texts), 256):
        scorer.preload(np.arange(start, min(start + 256, len(texts))))
        progress("encoding the items, once", min(start + 256, len(texts)), len(texts))
    scorer.preknow()
    return DemoParts(world, scores, scorer, OnnxDualEncoder.load(), texts, known)


def _exhaustive(stage: DemoParts, asked: list[str], progress: Progress) -> npt.NDArray[np.float64]:
    """Every item scored for every query: what a search would cost without crosscut. What is known is kept."""
    scorer, n = stage.scorer, len(stage.texts)
    new = [text for text in dict.fromkeys(asked) if text not in stage.known]
    for number, text in enumerate(new):
        scores = np.empty(n)
        for start in range(0, n, 512):
            part = np.arange(start, min(start + 512, n))
            scores[part] = scorer.score(text, part)
            progress("scoring every item, as truth", number * n + len(part) + start, len(new) * n)
        stage.known[text] = scores
    if new:
        demo_states.save(demo_states.kept_at(scorer.model.fingerprint), scorer, stage.known)
    return np.array([stage.known[text] for text in asked])


def _pace(found: list[LiveSearch]) -> float:
    """Pairs a second of the live searches, where every other score was known."""
    return sum(one.crosscut.calls for one in found) / max(sum(one.crosscut.seconds.scorer for one in found), 1e-9)


def _compare(
    stage: DemoParts, truth: Truth, vectors: npt.NDArray[np.float32], k: int, progress: Progress
) -> dict[str, dict[int, list[float]]]:
    """Every method at every budget on the known scores (no further calls)."""
    recalls: dict[str, dict[int, list[float]]] = {}
    for method in METHODS:
        searcher = stage.searcher(truth, method)
        recalls[method] = {}
        for budget in BUDGETS:
            many = searcher.search_many(range(len(truth.matrix)), k, budget, query_vectors=vectors)
            recalls[method][budget] = [recall(truth.matrix[row], hits.scored, k) for row, hits in enumerate(many)]
            progress("comparing methods at equal budgets", sum(map(len, recalls.values())), len(METHODS) * len(BUDGETS))
    return recalls


def _live(
    stage: DemoParts,
    text: str,
    vector: npt.NDArray[np.float32],
    truth: npt.NDArray[np.float64],
    gold: str | None,
    k: int,
    budget: int,
) -> LiveSearch:
    hits = {
        method: stage.searcher(stage.scorer, method).search(text, k, budget, query_vector=vector)
        for method in ("crosscut", "rerank")
    }
    return LiveSearch(text, gold, hits["crosscut"], hits["rerank"], truth, k)
