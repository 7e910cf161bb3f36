"""Does it pay? Recall and relevance of an index on judged queries, and advice in sentences.

More calls can find what the scorer likes and people do not. So k-NN recall against the scorer's own ranking and
relevance against qrels are both measured, beside rankings that take no call (`no_call_baselines`). Relevance is that of
ir-measures: queries that a run misses count as zero.

The advice compares a method at every budget, query by query, with the best ranking without a call. A budget is enough
when it is within `LOSS` of the peak. A difference is called better or worse only if its paired 95 % bootstrap interval
leaves 0 out.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np

from crosscut.errors import InputError, needing
from crosscut.index import Index
from crosscut.index.corpus import LocalCorpus
from crosscut.index.passages import document_at
from crosscut.index.tuning import check_named
from crosscut.linalg.top import ranked
from crosscut.measures import interval, paired_interval, recall
from crosscut.methods import Exact, Method, parse
from crosscut.score_store.engines import EngineChoice
from crosscut.scorers.meter import QueryLedger
from crosscut.scorers.validation import validate_base_scores
from crosscut.search.hits import Hits
from crosscut.search.loop import Query
from crosscut.types import Floats, Positions, Progress

MEASURES = ("nDCG@10", "RR@10", "R@100", "Success@1")
KNOWN = "base scores"  # of the scorer, which take no call
DEPTH = 100
PARTS = 1000  # of a relevance that is no whole number


MEASURE = "nDCG@10"
LOSS = 0.01
NEXT = 100
LEAST = 10
"""Measurement queries below which nothing is called better or worse."""
SAID = {"bm25": "BM25", "dense": "the dual encoder", "bm25 + dense": "BM25 + dual encoder", KNOWN: "its base scores"}
"""Rankings without a call, as a sentence names them."""


@dataclass(frozen=True)
class Measurement:
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
class Outcome:
    """One method at one budget, query by query."""

    method: str
    budget: int | None
    calls: float  # mean per query
    each: dict[str, Floats]  # measure → values of the queries

    def records(self) -> list[Measurement]:
        """Return means with their 95 % intervals."""
        made = []
        for measure, values in self.each.items():
            summary = (float(values.mean()), *interval(values))
            made.append(Measurement(self.method, self.budget, measure, *summary, self.calls, len(values)))
        return made


Exhaustive: TypeAlias = Floats | list[dict[Any, float]]
"""Scores of queries with every item (q × n); over a store, the scores that deep searches found, id → score."""
Qrels: TypeAlias = dict[str, dict[str, float]]
"""Query id → item id → relevance."""


def exhaustive_scores(
    index: Index, queries: Sequence[str], progress: Progress | None = None, *, engine: EngineChoice = "local"
) -> tuple[Exhaustive, int]:
    """Return scores of queries with every item (q × n; −inf: removed), and the calls made.

    Over a store: scores of the items that two deep searches of each query reach (`Index.truth`).
    """
    found, calls = index.truth(queries, engine=engine, progress=progress)
    return (found if isinstance(found, list) else found.astype(np.float64)), calls


def evaluate(
    index: Index,
    queries: dict[str, str],
    qrels: Qrels,
    *,
    methods: Sequence[str | Method],
    budgets: Sequence[int],
    k: Sequence[int] = (10,),
    exhaustive: Exhaustive | None = None,
    progress: Progress | None = None,
) -> list[Outcome]:
    """Run every method at every budget; return outcomes query by query.

    Parameters
    ----------
    queries
        Id → text.
    qrels
        Query id → item id → relevance; may be empty.
    exhaustive
        (q × n) from `exhaustive_scores`, in the order of the queries; None leaves k-NN recall out.
    """
    if not queries:
        raise InputError("there are no queries to evaluate on")
    check_named(index.corpus, (qrels[id] for id in queries if id in qrels))
    made: list[Outcome] = []
    view = index.remembering()
    texts = list(queries.values())
    for method in map(parse, methods):
        for budget in (None,) if isinstance(method, Exact) else budgets:
            stop = None if view.stop is not None else "never"  # a tuned rule stays: it is part of the index
            found = view.search_many(texts, max(DEPTH, *k), budget, method=method, stop=stop)
            calls = float(np.mean([hits.calls for hits in found]))
            values: dict[str, Floats] = {}
            if exhaustive is not None:
                for size in k:
                    shares = [_recall(row, hits, size, index) for row, hits in zip(exhaustive, found, strict=True)]
                    values[f"recall of top {size}"] = np.array(shares)
            runs = {id: _run(hits.ids) for id, hits in zip(queries, found, strict=True)}  # in the order of the hits
            made.append(Outcome(str(method), budget, calls, values | _relevance(queries, qrels, runs)))
            if progress is not None:
                progress("searching", len(made), len(methods) * len(budgets))
    return made


def no_call_baselines(
    index: Index,
    queries: dict[str, str],
    qrels: Qrels,
    *,
    k: Sequence[int] = (10,),
    exhaustive: Exhaustive | None = None,
) -> list[Outcome]:
    """Return the rankings without a call: BM25, vectors, their sum, and the base scores of the scorer."""
    made = []
    for name, rankings in _rankings(index, list(queries.values())).items():
        values: dict[str, Floats] = {}
        if isinstance(exhaustive, np.ndarray):
            for size in k:
                tops = zip(exhaustive, rankings.places, strict=True)
                shares = [recall(row, best[:size], min(size, len(index))) for row, best in tops]
                values[f"recall of top {size}"] = np.array(shares)
        runs = {id: _run(ids) for id, ids in zip(queries, rankings.ids, strict=True)}
        made.append(Outcome(name, 0, 0.0, values | _relevance(queries, qrels, runs)))
    return made


@dataclass(frozen=True)
class _Rankings:
    places: list[Positions]
    ids: list[list[Any]]


def _rankings(index: Index, texts: Sequence[str]) -> dict[str, _Rankings]:
    """Return the best items of every query, by ranking."""
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
    """Return the ids of items; of passages, those of their documents, each once."""
    found: dict[Any, None] = {}
    for place in best.tolist():
        found[document_at(corpus.items, place)] = None
        if len(found) == DEPTH:
            break
    return list(found)


def _scores(corpus: LocalCorpus, text: str, vector: Any) -> dict[str, Floats]:
    """Return scores of every item (n) that take no call, by ranking."""
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
    """Return a run of ir-measures: item → minus its place."""
    return {str(id): -float(place) for place, id in enumerate(ids)}


def _relevance(queries: Iterable[str], qrels: Qrels, run: dict[str, dict[str, float]]) -> dict[str, Floats]:
    """Return the values (judged queries) of each measure."""
    judged = {id: qrels.get(id, {}) for id in queries}
    whole = all(float(value).is_integer() for right in judged.values() for value in right.values())
    unit = 1 if whole else PARTS  # ir-measures takes whole numbers, and no measure depends on their unit
    grades = {
        id: {item: math.ceil(value * unit) for item, value in right.items()} for id, right in judged.items() if right
    }
    if not grades:
        return {}
    with needing("relevance is measured by ir-measures", "eval"):
        import ir_measures
    values: dict[str, dict[str, float]] = {measure: dict.fromkeys(grades, 0.0) for measure in MEASURES}
    wanted = [ir_measures.parse_measure(measure) for measure in MEASURES]
    for metric in ir_measures.iter_calc(wanted, grades, run):
        values[str(metric.measure)][metric.query_id] = float(metric.value)
    return {measure: np.array(list(each.values())) for measure, each in values.items() if each}


@dataclass(frozen=True)
class Difference:
    """A mean difference over the same queries, with its 95 % interval."""

    mean: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.mean:+.3f} ({self.low:+.3f} … {self.high:+.3f})"


@dataclass(frozen=True)
class Advice:
    """A recommendation with its reasons; without relevance, the sentence alone."""

    sentences: tuple[str, ...]
    verdict: str  # "pays", "worse", "unclear" or "unknown"
    measure: str = MEASURE
    method: str | None = None
    peak: int | None = None  # calls at which relevance is highest
    stop_at: int | None = None  # calls that are enough
    without: str | None = None  # the best there is without a call
    gain: Difference | None = None  # of `stop_at` calls over that
    next_calls: Difference | None = None  # what 100 calls after the last budget would bring
    next_from: int | None = None
    measured: bool = False  # whether they were made, or the line goes on
    notes: tuple[str, ...] = field(default=())

    def json(self) -> dict[str, Any]:
        fields = dict(vars(self))
        for name in ("gain", "next_calls"):
            fields[name] = None if fields[name] is None else vars(fields[name])
        return fields


def advise(searched: Sequence[Outcome], free: Sequence[Outcome], method: str, rival: str = "rerank") -> Advice:
    """Return the advice for one method, beside a rival and rankings without a call."""
    curve = sorted((p for p in searched if p.method == method and p.budget), key=lambda p: p.calls)
    if not curve or MEASURE not in curve[0].each:
        return Advice(
            (
                "It is unknown whether the scorer is right: nothing is judged here. Recall says how much of the "
                "scorer's own answer a search finds, not whether people want it. Give qrels, clicks or --titles.",
            ),
            "unknown",
        )
    means = [float(point.each[MEASURE].mean()) for point in curve]
    peak = curve[int(np.argmax(means))]
    enough = next(p for p in curve if (peak.each[MEASURE] - p.each[MEASURE]).mean() <= LOSS)
    base = max(free, key=lambda p: float(p.each[MEASURE].mean()), default=None)
    gain = None if base is None else _difference(enough, base)
    rise = _rise(curve) if enough is curve[-1] else None
    sentences = [*_verdict(enough, base, gain, rise is not None), *_peak(peak, curve[-1], rise)]
    after, start, measured = _next(curve)
    if after is not None:
        how = "bring" if measured else "would bring, if the curve goes on as it does,"
        sentences.append(f"{NEXT} calls more than {start} {how} {after}.")
    sentences += _rival(searched, enough, rival)
    verdict = "pays" if gain is None or gain.low > 0 else "worse" if gain.high < 0 else "unclear"
    if len(peak.each[MEASURE]) < LEAST:
        verdict, sentences = "unclear", [_too_few(enough, base)]
    return Advice(
        tuple(sentences),
        verdict,
        method=method,
        peak=round(peak.calls),
        stop_at=round(enough.calls),
        without=None if base is None else base.method,
        gain=gain,
        next_calls=after,
        next_from=start,
        measured=measured,
    )


def _rise(curve: Sequence[Outcome]) -> Difference | None:
    """By how much the last budget is better than the one before, if it surely is."""
    step = _difference(curve[-1], curve[-2]) if len(curve) > 1 else None
    return step if step is not None and step.low > 0 else None


def _difference(ours: Outcome, theirs: Outcome) -> Difference:
    return Difference(*paired_interval(ours.each[MEASURE], theirs.each[MEASURE]))


def _verdict(enough: Outcome, base: Outcome | None, gain: Difference | None, rising: bool) -> list[str]:
    value = f"{MEASURE} {enough.each[MEASURE].mean():.3f}"
    calls = f"{enough.calls:.0f} calls"
    stop = f"Make {calls}, or more" if rising else f"Stop at {calls}"
    if base is None or gain is None:
        return [f"{stop}: {value}."]
    way = SAID.get(base.method, base.method)
    other = f"{base.each[MEASURE].mean():.3f} by {way} without a call"
    if gain.high < 0:
        return [
            f"This scorer is worse than {way} here: {value} after {calls}, {other}, {gain}. Do without it, or "
            "let it be one voice among others: order='fused'."
        ]
    if gain.low > 0:
        return [f"{stop}: {value}, against {other}, {gain}."]
    return [
        f"It is not sure that calls pay: {value} after {calls}, {other}, {gain}. Judge more queries, or save the calls."
    ]


def _too_few(enough: Outcome, base: Outcome | None) -> str:
    values = enough.each[MEASURE]
    number = "1 judged query is" if len(values) == 1 else f"{len(values)} judged queries are"
    other = (
        ""
        if base is None
        else f", {base.each[MEASURE].mean():.3f} by {SAID.get(base.method, base.method)} without a call"
    )
    return (
        f"{number} too few to be sure of anything: {LEAST} at least, and 50 do well. "
        f"{MEASURE} {values.mean():.3f} after {enough.calls:.0f} calls{other}."
    )


def _peak(peak: Outcome, last: Outcome, rise: Difference | None) -> list[str]:
    if rise is not None:
        return [
            f"Relevance still rises at {last.calls:.0f} calls, {rise} since the budget before: try larger --budgets."
        ]
    if peak is last:
        return [f"Relevance is highest at {last.calls:.0f} calls, the most that were made."]
    fall = _difference(last, peak)
    if fall.high >= 0:
        return [f"Relevance peaks at {peak.calls:.0f} calls; {last.calls:.0f} change it by {fall}."]
    return [f"More calls make the answer worse: from {peak.calls:.0f} to {last.calls:.0f} calls {fall}."]


def _next(curve: Sequence[Outcome]) -> tuple[Difference | None, int | None, bool]:
    """Return the gain of the next calls: measured where two budgets are that far apart, else extrapolated."""
    for later in reversed(curve):
        for sooner in curve:
            if round(later.calls - sooner.calls) == NEXT:
                return _difference(later, sooner), round(sooner.calls), True
    if len(curve) < 2 or not curve[-1].calls > curve[-2].calls:
        return None, None, False
    step = _difference(curve[-1], curve[-2])
    last = curve[-1].calls
    share = np.log((last + NEXT) / last) / np.log(last / curve[-2].calls)
    return Difference(*(float(share * value) for value in vars(step).values())), round(last), False


def _rival(searched: Sequence[Outcome], enough: Outcome, rival: str) -> list[str]:
    same = [p for p in searched if p.method == rival and p.budget == enough.budget]
    if not same or rival == enough.method:
        return []
    lead = _difference(enough, same[0])
    better = f" {rival} is the better method here." if lead.high < 0 else ""
    return [f"Against {rival} at {enough.budget} calls: {lead}.{better}"]


def records_of(found: Sequence[Outcome]) -> list[Measurement]:
    """Return means with intervals."""
    return [record for point in found for record in point.records()]
