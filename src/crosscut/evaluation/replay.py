"""The papers' experiment: methods against each other on a known score matrix.

Every pair's score is known, so that a search can be judged by Top-k-Recall@B: the share of a query's exact top k among
the B items it scored. What a method tunes, it tunes on anchor queries; only `split="oracle"` looks at test queries, as
the papers did, and says so.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from crosscut.errors import InputError
from crosscut.evaluation.world import World, make_world
from crosscut.measures import interval, recall
from crosscut.search.hits import Hits
from crosscut.search.methods import recipes
from crosscut.search.searcher import Searcher
from crosscut.spaces.base import Array, Space
from crosscut.types import Floats

SPLITS = tuple(round(0.1 * i, 1) for i in range(1, 10))
MIXES = (0.0, 0.2, 0.4, 0.6, 0.8)

Progress = Callable[[str, int, int], None]


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
    """What a replay found."""

    records: list[Record]

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
    test: npt.ArrayLike,
    anchors: npt.ArrayLike | None = None,
    vectors: npt.ArrayLike | Space | None = None,
    query_vectors: npt.ArrayLike | None = None,
    *,
    methods: Sequence[str] = ("rnr", "anncur", "adacur", "axn", "crosscut"),
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
    settings: dict[str, dict[str, Any]] | None = None,
    progress: Progress | None = None,
) -> Report:
    """Replay methods on a known score matrix.

    Parameters
    ----------
    test, anchors
        (q × n) and (k_q × n) scores of test and anchor queries.
    vectors, query_vectors, anchor_query_vectors
        (n × d), (q × d), (k_q × d) from a dual encoder.
    methods
        Names, or `name@setting=value,…` (`adacur@select=softmax`); `name` in the report is what stands here.
    rounds
        R of the adaptive methods; None: their own (5, crosscut: 10).
    first
        Round one of the adaptive methods: `dense` (by query vector), `random`, or `auto`, the method's own.
    seeds
        How many seeds; methods without a random draw run once.
    split
        ANNCUR's share for anchor items: a number; `tuned` on held-out anchor queries; `oracle`: the best on the test
        queries for each k and budget, as the papers report it.
    tune_axn
        Choose λ of AXN eq. 7 on the anchor queries and estimate α, β there (needs anchor_query_vectors).
    item_scores, item_anchors
        (k_ind × n) and (k_ind) for the item–item methods.
    settings
        More settings by method name.
    """
    world = make_world(test, anchors, vectors, query_vectors, anchor_query_vectors, item_scores, item_anchors)
    ks, sizes = list(dict.fromkeys(k)), list(dict.fromkeys(budgets))
    if not ks or not sizes or not methods:
        raise InputError("a replay needs at least one method, one budget and one k")
    if max(ks) > world.test.shape[1]:
        raise InputError(f"k = {max(ks)} is more than the {world.test.shape[1]} items of the matrix")
    for label in methods:  # before anything is spent
        if (name := parse_method(label)[0]) not in (known := recipes()):
            raise InputError(f"unknown method {name!r}: choose one of {', '.join(known)}")
    records: list[Record] = []
    for step, label in enumerate(methods):
        name, own = parse_method(label)
        own = {**_common(name, rounds, first), **(settings or {}).get(label, {}), **own}
        if progress is not None:
            progress(label, step, len(methods))
        if name in ("anncur", "item-cur", "fixed-item") and "split" not in own:
            records += _with_split(world, label, name, own, ks, sizes, seeds, split)
            continue
        if name == "axn" and tune_axn:
            chosen = {size: {**tuned_axn(world, own, size, sizes), **own} for size in ks}
        else:
            chosen = dict.fromkeys(ks, own)
        searchers: dict[str, Seeds] = {}
        for budget in sizes:
            found: dict[str, list[list[Hits]]] = {}
            for size, with_these in chosen.items():
                key = repr(with_these)
                searchers.setdefault(key, Seeds(world, name, with_these, seeds))
                if key not in found:
                    found[key] = searchers[key].run(max(ks), budget)
                records.append(_record(world, label, size, budget, found[key], with_these))
    return Report(records)


def parse_method(label: str) -> tuple[str, dict[str, Any]]:
    """`axn@rounds=10,mix=0.8` → ("axn", {"rounds": 10, "mix": 0.8})."""
    name, _, rest = label.partition("@")
    settings: dict[str, Any] = {}
    for part in filter(None, rest.split(",")):
        key, equals, value = part.partition("=")
        if not equals:
            raise InputError(f"{label!r}: settings are written name=value, and {part!r} has no '='")
        settings[key] = _value(value)
    return name, settings


def _value(text: str) -> Any:
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def _common(name: str, rounds: int | None, first: str) -> dict[str, Any]:
    settings: dict[str, Any] = {}
    if name in ("adacur", "axn", "tour", "crosscut") and rounds is not None:
        settings["rounds"] = rounds
    if name in ("adacur", "axn", "crosscut") and first != "auto":
        settings["first"] = first
    return settings


class Seeds:
    """One searcher per seed, made when first needed and kept for every budget."""

    def __init__(self, world: World, name: str, settings: dict[str, Any], seeds: int) -> None:
        if seeds < 1:
            raise InputError(f"a replay needs at least 1 seed; got {seeds}")
        self.world, self.name, self.settings, self.seeds = world, name, settings, seeds
        self._searchers: list[Searcher] = []

    def run(self, k: int, budget: int) -> list[list[Hits]]:
        """The hits of every seed; of one, where the second changes nothing because nothing is drawn."""
        runs: list[list[Hits]] = []
        for seed in range(self.seeds):
            if seed == len(self._searchers):
                self._searchers.append(self.world.searcher(self.name, seed, **self.settings))
            runs.append(self.world.search(self._searchers[seed], k, budget))
            if seed == 1 and all(np.array_equal(a.scored, b.scored) for a, b in zip(*runs, strict=True)):
                return runs[:1]
        return runs


def per_query_recall(world: World, runs: Sequence[Sequence[Hits]], k: int) -> Floats:
    """Mean over seeds of each query's recall (q)."""
    table = [[recall(world.test[row], hits.scored, k) for row, hits in enumerate(run)] for run in runs]
    return np.asarray(np.mean(table, axis=0), dtype=np.float64)


def _record(
    world: World, label: str, k: int, budget: int, runs: Sequence[Sequence[Hits]], settings: dict[str, Any]
) -> Record:
    values = per_query_recall(world, runs, k)
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
        settings=dict(settings),
        seeds=len(runs),
        queries=len(values),
        per_query=values,
    )


def _with_split(
    world: World,
    label: str,
    name: str,
    settings: dict[str, Any],
    ks: Sequence[int],
    budgets: Sequence[int],
    seeds: int,
    split: float | str,
) -> list[Record]:
    """ANNCUR's records, with its split given, tuned on held-out anchor queries, or chosen by the oracle."""
    if split not in ("tuned", "oracle") and not isinstance(split, float):
        raise InputError(f"split must be a number between 0 and 1, 'tuned' or 'oracle'; got {split!r}")
    records = []
    candidates: Iterable[float] = SPLITS if isinstance(split, str) else [split]
    judges = [world]
    if split == "tuned":
        if name == "anncur":
            judges = world.held_out()
        else:
            candidates = [0.5]  # item–item scores have no queries to hold out
    for budget in budgets:
        trials = {
            s: [Seeds(judge, name, {**settings, "split": s}, seeds).run(max(ks), budget) for judge in judges]
            for s in candidates
        }
        final = {s: runs[0] for s, runs in trials.items()} if judges[0] is world else {}
        for k in ks:

            def quality(s: float, k: int = k, trials: dict[float, list[list[list[Hits]]]] = trials) -> float:
                pairs = zip(judges, trials[s], strict=True)
                return float(np.mean([per_query_recall(judge, runs, k).mean() for judge, runs in pairs]))

            best = max(trials, key=quality)
            if best not in final:
                final[best] = Seeds(world, name, {**settings, "split": best}, seeds).run(max(ks), budget)
            chosen = {**settings, "split": best, "split_chosen_by": split if isinstance(split, str) else "user"}
            records.append(_record(world, label, k, budget, final[best], chosen))
    return records


def tuned_axn(world: World, settings: dict[str, Any], k: int, budgets: Sequence[int]) -> dict[str, Any]:
    """α, β that bring the scorer's scores to the encoder's range, and λ for this k, all from anchor queries."""
    if world.anchors is None or world.anchor_query_vectors is None or world.vectors is None:
        raise InputError("tuning axn needs anchors, anchor_query_vectors and vectors")
    alpha, beta = normalisation(world.anchors, world.vectors, world.anchor_query_vectors)
    # the encoder's space learns nothing from anchors: all of them are test queries here
    tuning = replace(world, test=world.anchors, query_vectors=world.anchor_query_vectors, anchors=None)
    budget = sorted(budgets)[len(budgets) // 2]

    def value(mix: float) -> float:
        trial = {**settings, "alpha": alpha, "beta": beta, "mix": mix}
        return float(per_query_recall(tuning, Seeds(tuning, "axn", trial, 1).run(k, budget), k).mean())

    return {"alpha": alpha, "beta": beta, "mix": max(MIXES, key=value)}


def normalisation(scores: Array, vectors: Space, query_vectors: Array, most: int = 100) -> tuple[float, float]:
    """α and β of AXN app. A: β(s − α) has the mean and the deviation of the encoder's scores, on train queries."""
    exact = np.asarray(scores[:most], dtype=np.float64)
    encoder = vectors.predict(np.asarray(query_vectors[:most], dtype=np.float64)).astype(np.float64)
    spread = float(exact.std())
    if not spread:
        raise InputError("the anchor scores are all the same: there is no range to bring to the encoder's")
    beta = float(encoder.std()) / spread
    return float(exact.mean() - encoder.mean() / beta), beta
