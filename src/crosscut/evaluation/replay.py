"""The papers' experiment: methods against each other on a known score matrix.

Every pair's score is known, so that a search can be judged by Top-k-Recall@B: the share of a query's exact top k among
the B items it scored. What a method tunes, it tunes on anchor queries; only `split="oracle"` looks at test queries, as
the papers did, and says so.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from crosscut.ann.topk import TopK, as_vectors
from crosscut.errors import InputError
from crosscut.measures import interval, recall, undecided
from crosscut.methods import AXN, Method, Parts, parse
from crosscut.methods.anncur import HALF, WithSplit
from crosscut.methods.base import InRounds
from crosscut.scorers.adapters import MatrixScorer
from crosscut.search.hits import Hits
from crosscut.search.prior import Prior
from crosscut.search.stages import Retriever
from crosscut.search.stopping import Stop
from crosscut.searcher import Searcher
from crosscut.spaces.base import Space
from crosscut.spaces.cur import CUR
from crosscut.types import Array, Floats, Positions, Progress

SPLITS = tuple(round(0.1 * i, 1) for i in range(1, 10))
MIXES = (0.0, 0.2, 0.4, 0.6, 0.8)


WAYS = {
    "encoder": "give vectors, the item vectors of a dual encoder (n × d)",
    "anchors": "give anchors, the scores of anchor queries with every item (k_q × n)",
    "factors": "a replay has none, use crosscut.Searcher(…, space=factors)",
    "words": "give words, the scores of BM25 or TF-IDF (q × n)",
    "n": "the items must be countable",
}
"""Advice on missing parts of a method, in a replay."""


@dataclass(frozen=True)
class KnownWords(Retriever):
    """A lexical retriever with precomputed scores; its query is a row number, like that of `MatrixScorer`."""

    scored: Array  # (q × n)

    def scores(self, query: str) -> npt.NDArray[np.float32]:
        return np.array(self.scored[int(query)], dtype=np.float32)


@dataclass(frozen=True)
class ScoreData:
    """Score matrices and vectors of one data set."""

    test: Array  # (q × n)
    anchors: Array | None = None  # (k_q × n)
    vectors: Space | None = None  # (n × d)
    query_vectors: Array | None = None  # (q × d)
    anchor_query_vectors: Array | None = None  # (k_q × d)
    item_scores: Array | None = None  # (k_ind × n)
    item_anchors: Array | None = None  # (k_ind)
    words: Array | None = None  # (q × n) scores of a retriever of texts
    prior: Prior | None = None  # of query vectors, learned from past searches
    stop: str | Stop | None = None  # of searches that name no other

    @cached_property
    def parts(self) -> Parts:
        """The parts that methods are built from."""
        own: dict[str, object] = {}
        if self.item_scores is not None and self.item_anchors is not None:
            own["item_scores"] = (self.item_scores, self.item_anchors)
        anchors = None if self.anchors is None else CUR(self.anchors, query_vectors=self.anchor_query_vectors)
        words = None if self.words is None else KnownWords(self.words)
        n = self.test.shape[1]
        parts = Parts(self.vectors, anchors, own=own, words=words, n=n, ways=WAYS)
        return replace(parts, prior=self.prior)

    def searcher(self, method: str | Method, seed: int = 0) -> Searcher:
        """Return a searcher for the test queries."""
        return Searcher(MatrixScorer(self.test), method=method, parts=replace(self.parts, seed=seed))

    def search(
        self,
        searcher: Searcher,
        k: int,
        budget: int | None,
        *,
        candidates: Sequence[Positions] | None = None,
        stop: str | Stop | None = None,
    ) -> list[Hits]:
        """Search every test query."""
        queries = range(len(self.test))
        vectors = self.query_vectors if self.vectors is not None else None
        return searcher.search_many(
            queries, k, budget, query_vectors=vectors, candidates=candidates, stop=stop or self.stop
        )

    def held_out(self, folds: int = 4, share: float = 0.1, seed: int = 0) -> list[ScoreData]:
        """Return data sets whose test queries are anchor queries, held out of the anchors: for tuning."""
        count = 0 if self.anchors is None else len(self.anchors)
        if self.anchors is None or count < 2 * folds:
            raise InputError(f"tuning holds anchor queries out and needs at least {2 * folds} of them; got {count}")
        order = np.random.default_rng(seed).permutation(count)
        size = max(1, round(share * count))
        vectors = self.anchor_query_vectors
        parts = []
        for fold in range(folds):
            held = np.sort(order[fold * size : (fold + 1) * size])
            rest = np.setdiff1d(order, held)
            parts.append(
                replace(
                    self,
                    test=self.anchors[held],
                    anchors=self.anchors[rest],
                    words=None,
                    query_vectors=None if vectors is None else vectors[held],
                    anchor_query_vectors=None if vectors is None else vectors[rest],
                )
            )
        return parts


def score_data(
    test: npt.ArrayLike | ScoreData,
    anchors: npt.ArrayLike | None = None,
    vectors: npt.ArrayLike | Space | TopK | None = None,
    query_vectors: npt.ArrayLike | None = None,
    anchor_query_vectors: npt.ArrayLike | None = None,
    item_scores: npt.ArrayLike | None = None,
    item_anchors: npt.ArrayLike | None = None,
    words: npt.ArrayLike | None = None,
    stop: str | Stop | None = None,
) -> ScoreData:
    """Return the arrays as one data set, checked against each other; a data set is returned unchanged."""
    if isinstance(test, ScoreData):
        return test

    def array(values: npt.ArrayLike | None) -> Array | None:
        return None if values is None else np.asanyarray(values)

    matrix = np.asanyarray(test)
    if matrix.ndim != 2 or 0 in matrix.shape:
        raise InputError(f"the test matrix must be (queries × items) and not empty; got shape {matrix.shape}")
    data = ScoreData(
        matrix,
        array(anchors),
        None if vectors is None else as_vectors(vectors),
        array(query_vectors),
        array(anchor_query_vectors),
        array(item_scores),
        array(item_anchors),
        array(words),
        stop=stop,
    )
    queries, items = matrix.shape
    for name, part, axis, size in (
        ("anchors", data.anchors, 1, items),
        ("query vectors", data.query_vectors, 0, queries),
        ("item scores", data.item_scores, 1, items),
        ("scores of words", data.words, 1, items),
    ):
        if part is not None and (part.ndim != 2 or part.shape[axis] != size):
            what = "items" if axis else "queries"
            raise InputError(f"the {name} have shape {part.shape}, and the test matrix has {size} {what}")
    if data.vectors is not None and data.vectors.n != items:
        raise InputError(f"{data.vectors.n} item vectors for {items} items of the test matrix")
    count = 0 if data.anchors is None else len(data.anchors)
    if data.anchor_query_vectors is not None and len(data.anchor_query_vectors) != count:
        raise InputError(f"{len(data.anchor_query_vectors)} anchor query vectors for {count} anchor queries")
    return data


@dataclass(frozen=True)
class Record:
    """One method at one budget and k."""

    method: str
    k: int
    budget: int
    recall: float
    low: float
    high: float
    calls: float
    seconds: dict[str, float]
    settings: dict[str, Any]
    seeds: int
    queries: int
    per_query: Floats = field(repr=False)  # mean over seeds

    def json(self) -> dict[str, Any]:
        """Everything but the values per query."""
        return {name: value for name, value in self.__dict__.items() if name != "per_query"}


@dataclass(frozen=True)
class Report:
    """Results of a replay."""

    records: list[Record]
    notes: tuple[str, ...] = ()  # what a reader of the figures must know

    def __iter__(self) -> Any:
        return iter(self.records)

    def get(self, method: str, k: int, budget: int) -> Record:
        for record in self.records:
            if (record.method, record.k, record.budget) == (method, k, budget):
                return record
        raise InputError(f"no record of {method} at k={k} and budget {budget}")

    def json(self) -> list[dict[str, Any]]:
        return [record.json() for record in self.records]


def replay(
    test: npt.ArrayLike | ScoreData,
    anchors: npt.ArrayLike | None = None,
    vectors: npt.ArrayLike | Space | TopK | None = None,
    query_vectors: npt.ArrayLike | None = None,
    *,
    methods: Sequence[str | Method] = ("rerank", "anncur", "adacur", "axn", "crosscut"),
    budgets: Sequence[int] = (50, 100, 200, 500),
    k: Sequence[int] = (1, 10, 100),
    rounds: int | None = None,
    first: str = "auto",
    seeds: int = 3,
    split: float | str = "tuned",
    tune_axn: bool = False,
    anchor_query_vectors: npt.ArrayLike | None = None,
    item_scores: npt.ArrayLike | None = None,
    item_anchors: npt.ArrayLike | None = None,
    words: npt.ArrayLike | None = None,
    stop: str | Stop | None = None,
    progress: Progress | None = None,
) -> Report:
    """Replay methods on a known score matrix.

    Parameters
    ----------
    test, anchors
        (q × n) and (k_q × n) scores of test and anchor queries; a `ScoreData` holds these and all other arrays.
    vectors, query_vectors, anchor_query_vectors
        (n × d), (q × d), (k_q × d) from a dual encoder; those of the items may be an index or a back end of your own.
    methods
        Names with settings (`adacur@select=softmax`) or values; a report calls them so.
    rounds
        R of the adaptive methods; None: their own (5, crosscut: 10).
    first
        Round one of methods with rounds: `dense` (by query vector), `lexical`, `union`, `random`, or `auto`,
        their own.
    seeds
        How many seeds; methods without a random draw run once.
    split
        ANNCUR's share for anchor items: a number; `tuned` on held-out anchor queries; `oracle`: the best on the test
        queries for each k and budget, as the papers report it.
    tune_axn
        Choose λ of AXN eq. 7 on the anchor queries and estimate α, β there (needs anchor_query_vectors).
    item_scores, item_anchors
        (k_ind × n) and (k_ind) for the item–item methods.
    words
        (q × n) scores of BM25 or TF-IDF with the test queries, for `first=lexical` and `first=union`.
    stop
        A stopping rule, `"patience@rounds=2"`: it watches the largest k, and records have the calls that were made.
    """
    data = score_data(
        test, anchors, vectors, query_vectors, anchor_query_vectors, item_scores, item_anchors, words, stop
    )
    ks, sizes = list(dict.fromkeys(k)), list(dict.fromkeys(budgets))
    if not ks or not sizes or not methods:
        raise InputError("a replay needs at least one method, one budget and one k")
    if max(ks) > data.test.shape[1]:
        raise InputError(f"k = {max(ks)} is more than the {data.test.shape[1]} items of the matrix")
    chosen = [parse(method) for method in methods]  # before anything is spent
    notes = ties(data.test, ks)
    for note in notes:
        warnings.warn(note, stacklevel=2)
    records: list[Record] = []
    given = {"rounds": rounds, "first": None if first == "auto" else first}
    for step, method in enumerate(chosen):
        if progress is not None:
            progress(str(method), step, len(chosen))
        label = str(method)
        if isinstance(method, InRounds):
            method = method.with_settings(_defaults_of(method, given))
        if isinstance(method, WithSplit) and method.split is None:
            records += _with_split(data, label, method, ks, sizes, seeds, split)
        else:
            tuning = isinstance(method, AXN) and tune_axn
            tuned = {size: tuned_axn(data, method, size, sizes) if tuning else method for size in ks}
            records += _for_each_k(data, label, tuned, sizes, seeds)
    return Report(records, notes)


def ties(test: Array, ks: Sequence[int]) -> tuple[str, ...]:
    """Return notes on queries whose scores tie too many items."""
    notes = []
    for k in ks:
        count = int(undecided(test, k).sum())
        if count:
            notes.append(
                f"for {count} of {len(test)} test queries at least half of the {test.shape[1]} items tie at place {k}: "
                f"any search finds their top {k}, and recall says nothing of them; is this the scorer's own matrix?"
            )
    return tuple(notes)


def _for_each_k(
    data: ScoreData, label: str, methods: dict[int, Method], budgets: Sequence[int], seeds: int
) -> list[Record]:
    """The records of a method whose settings may differ with k."""
    runs = {method: Seeds(data, method, seeds) for method in dict.fromkeys(methods.values())}
    records = []
    for budget in budgets:
        found = {method: searchers.run(max(methods), budget) for method, searchers in runs.items()}
        records += [_record(data, label, k, budget, found[method], method) for k, method in methods.items()]
    return records


def _defaults_of(method: Method, common: Mapping[str, Any]) -> dict[str, Any]:
    """Settings for all methods alike, where a method has none of its own."""
    return {name: value for name, value in common.items() if value is not None and name not in method.settings}


class Seeds:
    """One searcher per seed, made when first needed and kept for every budget."""

    def __init__(self, data: ScoreData, method: Method, seeds: int) -> None:
        if seeds < 1:
            raise InputError(f"a replay needs at least 1 seed; got {seeds}")
        self.data, self.method, self.seeds = data, method, seeds
        self._searchers: list[Searcher] = []

    def run(self, k: int, budget: int) -> list[list[Hits]]:
        """The hits of every seed; of one, where the second changes nothing because nothing is drawn."""
        runs: list[list[Hits]] = []
        for seed in range(self.seeds):
            if seed == len(self._searchers):
                self._searchers.append(self.data.searcher(self.method, seed))
            runs.append(self.data.search(self._searchers[seed], k, budget))
            if seed == 1 and all(np.array_equal(a.scored, b.scored) for a, b in zip(*runs, strict=True)):
                return runs[:1]
        return runs


def per_query_recall(data: ScoreData, runs: Sequence[Sequence[Hits]], k: int) -> Floats:
    """Mean over seeds of each query's recall (q)."""
    table = [[recall(data.test[row], hits.scored, k) for row, hits in enumerate(run)] for run in runs]
    return np.asarray(np.mean(table, axis=0), dtype=np.float64)


def _record(
    data: ScoreData,
    label: str,
    k: int,
    budget: int,
    runs: Sequence[Sequence[Hits]],
    method: Method,
    chosen_by: str | None = None,
) -> Record:
    values = per_query_recall(data, runs, k)
    low, high = interval(values)
    every = [hits for run in runs for hits in run]
    return Record(
        method=label,
        k=k,
        budget=budget,
        recall=float(values.mean()),
        low=low,
        high=high,
        calls=float(np.mean([hits.calls for hits in every])),
        seconds={
            part: float(np.mean([getattr(hits.seconds, part) for hits in every]))
            for part in ("scorer", "fit", "select")
        },
        settings={**method.settings, **({} if chosen_by is None else {"split_chosen_by": chosen_by})},
        seeds=len(runs),
        queries=len(values),
        per_query=values,
    )


def _with_split(
    data: ScoreData,
    label: str,
    method: WithSplit,
    ks: Sequence[int],
    budgets: Sequence[int],
    seeds: int,
    split: float | str,
) -> list[Record]:
    """ANNCUR's records, with its split given, tuned on held-out anchor queries, or chosen by the oracle."""
    if split not in ("tuned", "oracle") and not isinstance(split, float):
        raise InputError(f"split must be a number between 0 and 1, 'tuned' or 'oracle'; got {split!r}")
    candidates: Iterable[float] = SPLITS if isinstance(split, str) else [split]
    judges = [data]
    if split == "tuned" and method.needs == ("anchors",):
        judges = _held_out(data, label, method)
    elif split == "tuned":
        candidates = [HALF]  # item–item scores have no queries to hold out
    options = {share: method.with_settings({"split": share}) for share in candidates}
    records = []
    for budget in budgets:
        trials = {s: [Seeds(j, each, seeds).run(max(ks), budget) for j in judges] for s, each in options.items()}
        final = {s: runs[0] for s, runs in trials.items()} if judges[0] is data else {}
        for k in ks:
            best = max(trials, key=lambda s: _mean_recall(judges, trials[s], k))
            if best not in final:
                final[best] = Seeds(data, options[best], seeds).run(max(ks), budget)
            chosen_by = split if isinstance(split, str) else "user"
            records.append(_record(data, label, k, budget, final[best], options[best], chosen_by))
    return records


def _held_out(data: ScoreData, label: str, method: WithSplit) -> list[ScoreData]:
    """ScoreDatas of anchor queries to tune a split on."""
    if method.settings.get("first") in ("lexical", "union"):
        raise InputError(
            f"the split of {label} cannot be tuned: words are known of test queries, not of anchor queries. "
            "Give split='oracle' (--split oracle), or a number"
        )
    return data.held_out()


def _mean_recall(parts: Sequence[ScoreData], runs: Sequence[Sequence[Sequence[Hits]]], k: int) -> float:
    """Over all queries of all parts, each with its own runs."""
    means = [per_query_recall(data, found, k).mean() for data, found in zip(parts, runs, strict=True)]
    return float(np.mean(means))


def tuned_axn(data: ScoreData, method: Method, k: int, budgets: Sequence[int]) -> Method:
    """α, β that bring the scorer's scores to the encoder's range, and λ for this k, all from anchor queries."""
    if data.anchors is None or data.anchor_query_vectors is None or data.vectors is None:
        raise InputError("tuning axn needs anchors, anchor_query_vectors and vectors")
    alpha, beta = normalisation(data.anchors, data.vectors, data.anchor_query_vectors)
    # the encoder's space learns nothing from anchors: all of them are test queries here
    tuning = replace(data, test=data.anchors, query_vectors=data.anchor_query_vectors, anchors=None)
    budget = sorted(budgets)[len(budgets) // 2]
    free = {"alpha": alpha, "beta": beta, "mix": 0.0}
    options = [method.with_settings(_defaults_of(method, {**free, "mix": mix})) for mix in MIXES]
    values = [per_query_recall(tuning, Seeds(tuning, each, 1).run(k, budget), k).mean() for each in options]
    return options[int(np.argmax(values))]


def normalisation(scores: Array, vectors: Space, query_vectors: Array, most: int = 100) -> tuple[float, float]:
    """α and β of AXN app. A.4: β(s − α) has the mean and the deviation of the encoder's scores, on train queries."""
    exact = np.asarray(scores[:most], dtype=np.float64)
    encoder = vectors.predict(np.asarray(query_vectors[:most], dtype=np.float64)).astype(np.float64)
    spread = float(exact.std())
    if not spread:
        raise InputError("the anchor scores are all the same: there is no range to bring to the encoder's")
    beta = float(encoder.std()) / spread
    return float(exact.mean() - encoder.mean() / beta), beta
