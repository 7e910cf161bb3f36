"""An index measured on judged queries: k-NN recall against the scorer's own truth, relevance against judgements.

More calls can find what the scorer likes and people do not, so both are measured, and beside them what is known without
a single call (`unscored`). Relevance is computed by ir-measures: queries that a run misses count as zero.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from crosscut.errors import InputError, needing
from crosscut.index import Index
from crosscut.index.corpus import LocalCorpus
from crosscut.index.passages import document_at
from crosscut.index.tuning import check_named
from crosscut.linalg.top import ranked
from crosscut.measures import interval, recall
from crosscut.methods import Exact, Method, parse
from crosscut.score_store.engines import EngineChoice
from crosscut.scorers.meter import QueryLedger
from crosscut.scorers.validation import validate_base_scores
from crosscut.search.hits import Hits
from crosscut.search.loop import Query
from crosscut.types import Floats, Positions, Progress

MEASURES = ("nDCG@10", "RR@10", "R@100", "Success@1")
KNOWN = "known part"  # of the scorer's score, which takes no call
DEPTH = 100
PARTS = 1000  # of a relevance that is no whole number


@dataclass(frozen=True)
class Judged:
    """One measure of one method at one budget."""

    method: str
    budget: int | None
    measure: str
    value: float
    low: float
    high: float
    calls: float  # mean per query
    queries: int

    def json(self) -> dict[str, Any]:
        return dict(vars(self))


@dataclass(frozen=True)
class Point:
    """One method at one budget, query by query."""

    method: str
    budget: int | None
    calls: float  # mean per query
    each: dict[str, Floats]  # measure → values of the queries

    def records(self) -> list[Judged]:
        """Means with their intervals."""
        made = []
        for measure, values in self.each.items():
            told = (float(values.mean()), *interval(values))
            made.append(Judged(self.method, self.budget, measure, *told, self.calls, len(values)))
        return made


Truth: TypeAlias = Floats | list[dict[Any, float]]
"""Scores of queries with every item (q × n); over a store, those that deep searches found, id → score."""
Judgements: TypeAlias = dict[str, dict[str, float]]
"""Query id → item id → relevance."""


def truth_of(
    index: Index, queries: Sequence[str], progress: Progress | None = None, *, engine: EngineChoice = "local"
) -> tuple[Truth, int]:
    """Scores of queries with every item of the index (q × n; −inf: removed), and the calls they took.

    Over a store: with what two deep searches of each query reach (`Index.truth`).
    """
    found, calls = index.truth(queries, engine=engine, progress=progress)
    return (found if isinstance(found, list) else found.astype(np.float64)), calls


def points(
    index: Index,
    queries: dict[str, str],
    judgements: Judgements,
    *,
    methods: Sequence[str | Method],
    budgets: Sequence[int],
    k: Sequence[int] = (10,),
    truth: Truth | None = None,
    progress: Progress | None = None,
) -> list[Point]:
    """Every method at every budget, query by query.

    Parameters
    ----------
    queries
        Id → text.
    judgements
        Query id → item id → relevance; may be empty.
    truth
        (q × n) from `truth_of`, in the order of the queries; None leaves k-NN recall out.
    """
    if not queries:
        raise InputError("there are no queries to evaluate on")
    check_named(index.corpus, (judgements[id] for id in queries if id in judgements))
    made: list[Point] = []
    view = index.remembering()
    texts = list(queries.values())
    for method in map(parse, methods):
        for budget in (None,) if isinstance(method, Exact) else budgets:
            stop = None if view.stop is not None else "never"  # unless it is tuned: what a budget is worth is asked
            found = view.search_many(texts, max(DEPTH, *k), budget, method=method, stop=stop)
            calls = float(np.mean([hits.calls for hits in found]))
            values: dict[str, Floats] = {}
            if truth is not None:
                for size in k:
                    shares = [_recall(row, hits, size, index) for row, hits in zip(truth, found, strict=True)]
                    values[f"recall of top {size}"] = np.array(shares)
            runs = {id: _run(hits.ids) for id, hits in zip(queries, found, strict=True)}  # whatever they are ranked by
            made.append(Point(str(method), budget, calls, values | _relevance(queries, judgements, runs)))
            if progress is not None:
                progress("searching", len(made), len(methods) * len(budgets))
    return made


def unscored(
    index: Index,
    queries: dict[str, str],
    judgements: Judgements,
    *,
    k: Sequence[int] = (10,),
    truth: Truth | None = None,
) -> list[Point]:
    """What there is without a call: by words, by vectors, by both, and by the known part of the scorer."""
    made = []
    for name, rankings in _rankings(index, list(queries.values())).items():
        values: dict[str, Floats] = {}
        if isinstance(truth, np.ndarray):
            for size in k:
                tops = zip(truth, rankings.places, strict=True)
                shares = [recall(row, best[:size], min(size, len(index))) for row, best in tops]
                values[f"recall of top {size}"] = np.array(shares)
        runs = {id: _run(ids) for id, ids in zip(queries, rankings.ids, strict=True)}
        made.append(Point(name, 0, 0.0, values | _relevance(queries, judgements, runs)))
    return made


@dataclass(frozen=True)
class _Rankings:
    places: list[Positions]
    ids: list[list[Any]]


def _rankings(index: Index, texts: Sequence[str]) -> dict[str, _Rankings]:
    """The best items of every query, by each way there is."""
    vectors = index.query_vectors(texts)
    if index.store is not None:
        return {} if vectors is None else {"dense": _of_store(index, texts, vectors)}
    corpus = index.local_corpus("rankings")
    depth = DEPTH if index.passages is None else len(corpus.items)
    ways: dict[str, _Rankings] = {}
    for number, text in enumerate(texts):
        for way, scores in _scores(corpus, text, None if vectors is None else vectors[number]).items():
            best = ranked(np.where(corpus.alive, scores, -np.inf), depth)
            rankings = ways.setdefault(way, _Rankings([], []))
            rankings.places.append(best[:DEPTH])
            rankings.ids.append(_documents(corpus, best))
    return ways


def _documents(corpus: LocalCorpus, best: Positions) -> list[Any]:
    """The items at these places; of passages, their documents, each once."""
    found: dict[Any, None] = {}
    for place in best.tolist():
        found[document_at(corpus.items, place)] = None
        if len(found) == DEPTH:
            break
    return list(found)


def _scores(corpus: LocalCorpus, text: str, vector: Any) -> dict[str, Floats]:
    """What is known of every item (n) without a call, by each way."""
    made: dict[str, Floats] = {}
    if corpus.bm25 is not None:
        made["bm25"] = np.asarray(corpus.bm25.scores(text), np.float64)
    if vector is not None and corpus.vectors is not None:
        made["dense"] = np.asarray(corpus.vectors @ np.asarray(vector, corpus.vectors.dtype), np.float64)
    if len(made) == 2:
        made["bm25 + dense"] = sum((_standard(scores, corpus.alive) for scores in made.values()), np.zeros(()))
    if corpus.scorer is not None and corpus.scorer.has_base_scores:
        made[KNOWN] = validate_base_scores(corpus.scorer, [text], len(corpus.items))[0]
    return made


def _of_store(index: Index, texts: Sequence[str], vectors: Any) -> _Rankings:
    view = index.corpus.view(parse("rerank"))
    asked = [
        Query(QueryLedger(text, DEPTH), vector=np.asarray(vector, np.float64))
        for text, vector in zip(texts, vectors, strict=True)
    ]
    picked = view.searcher.parts.stage("dense").pick(asked, [DEPTH] * len(asked))
    found = [one.handles for one in picked]
    return _Rankings(found, [view.ids(best) for best in found])


def _standard(scores: Floats, alive: Any) -> Floats:
    return np.asarray((scores - scores[alive].mean()) / (scores[alive].std() + 1e-9))


def _recall(truth: Floats | dict[Any, float], hits: Hits, k: int, index: Index) -> float:
    if not isinstance(truth, dict):
        return recall(truth, hits.scored, min(k, len(index)))
    best = sorted(truth.values(), reverse=True)[:k]  # of what deep searches have reached
    return sum(score >= best[-1] for score in hits.scores[:k]) / len(best) if best else 0.0


def _run(ids: Iterable[Any]) -> dict[str, float]:
    """Item → a number that is the higher, the earlier the item stands."""
    return {str(id): -float(place) for place, id in enumerate(ids)}


def _relevance(queries: Iterable[str], judgements: Judgements, run: dict[str, dict[str, float]]) -> dict[str, Floats]:
    """Values (judged queries) of each measure."""
    judged = {id: judgements.get(id, {}) for id in queries}
    whole = all(float(value).is_integer() for right in judged.values() for value in right.values())
    unit = 1 if whole else PARTS  # whole numbers are asked for, and none of the measures depends on their unit
    qrels = {
        id: {item: math.ceil(value * unit) for item, value in right.items()} for id, right in judged.items() if right
    }
    if not qrels:
        return {}
    with needing("relevance is measured by ir-measures", "eval"):
        import ir_measures
    values: dict[str, dict[str, float]] = {measure: dict.fromkeys(qrels, 0.0) for measure in MEASURES}
    wanted = [ir_measures.parse_measure(measure) for measure in MEASURES]
    for metric in ir_measures.iter_calc(wanted, qrels, run):
        values[str(metric.measure)][metric.query_id] = float(metric.value)
    return {measure: np.array(list(each.values())) for measure, each in values.items() if each}
