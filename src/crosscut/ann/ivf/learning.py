"""Learning exit rules from queries: what each list did, what each query needed, and forests that predict it.

Busolin et al. 2024, §2 and Table 1:

    C(q)   lists until the true nearest neighbour was found, N if it was not
    REG       predicts C(q) from query, centroids and the result after τ lists; REG+int also from its stability
    Classifier   Exit when C(q) ≤ τ, else Continue; classes balanced by SMOTE, errors on Continue weigh w

SMOTE makes synthetic queries out of real ones, so it is applied to what a forest is trained on and to nothing else:
never before queries were set apart. The paper's text weighs the Exit class, which would buy *more* false exits;
here w weighs Continue, a departure from that text.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from crosscut.ann import clusters
from crosscut.ann.ivf.index import DESCRIBED, IVF, Single
from crosscut.ann.ivf.rules import TAU, Chance, Classifier, Conditions, PredictedLists, Rule, Trees
from crosscut.ann.results import as_queries
from crosscut.errors import InputError, MissingDependency

Whole = npt.NDArray[np.int64]

TREES = 100
ASKED = 1 << 13  # queries that are compared with every vector at a time


@dataclass(frozen=True, eq=False)
class Observations:
    """Observations of an index on some queries, list by list, with the right answers."""

    k: int
    queries: Single  # (q × d)
    traces: Single  # (q × N × 4): see `kernels`
    near: Single  # (q × N + 1, at least 100) similarities to the closest centroids, best first
    spreads: npt.NDArray[np.float64]  # (q × 2) their mean and standard deviation
    ranks: Whole  # (q × k) in which list, counted in the query's order from 1, each of its true k nearest lies

    @property
    def most(self) -> int:
        """The number of lists that were visited."""
        return int(self.traces.shape[1])

    def needed(self, lists: int) -> Whole:
        """Return C(q), for N = lists."""
        return np.minimum(self.ranks[:, 0], lists)

    def recall(self, stops: npt.ArrayLike, k: int = 1) -> npt.NDArray[np.float64]:
        """Return R*@k of every query, when it stops after so many lists."""
        after = np.broadcast_to(np.asarray(stops), len(self.ranks))
        return np.asarray((self.ranks[:, :k] <= after[:, None]).mean(axis=1))

    def some(self, rows: npt.ArrayLike) -> Observations:
        """Return those of some queries."""
        picked = np.asarray(rows)
        return replace(self, **{part.name: getattr(self, part.name)[picked] for part in fields(self)[1:]})

    def stops(self, rule: Rule) -> Whole:
        """Return after how many lists a rule stops each query, without searching again."""
        from crosscut.ann.ivf.kernels import replay

        stop = rule.conditions(self.k, self.most)
        return replay(stop, self.queries, self.near, self.spreads, self.traces, self.k)

    @cached_property
    def clues(self) -> npt.NDArray[np.float64]:
        """Features of `Chance` after every list (q × N × clues)."""
        from crosscut.ann.ivf.kernels import every_clue

        return every_clue(self.queries, self.near, self.spreads, self.traces)

    def features(self, tau: int = TAU) -> npt.NDArray[np.float64]:
        """Return the features of Table 1 after τ lists (q × f): query, centroids, results, stability."""
        from crosscut.ann.ivf.kernels import Outlook, describe, features_of

        out = np.empty((len(self.queries), features_of(self.queries.shape[1], tau)))
        for row, found in enumerate(out):
            outlook = Outlook(self.queries[row], self.near[row], *self.spreads[row])
            describe(outlook, self.traces[row], self.k, tau, found)
        return out


def observe(index: IVF, queries: npt.ArrayLike, k: int = 100, lists: int | None = None) -> Observations:
    """Visit `lists` lists (all of them, when not given) for every query, and find its true neighbours."""
    from crosscut.ann.ivf.kernels import moments

    points = as_queries(queries, index.d, k)
    if not index.n or not len(points):
        raise InputError(f"{len(points)} queries to an index of {index.n} vectors: there is nothing to observe")
    most = index.most
    stop = Conditions(min(lists or most, most))
    traces = index.probe(points, k, stop, traced=True)[1]
    list_of = np.searchsorted(index.starts, exact(index, points, min(k, index.n)), side="right") - 1
    width = min(max(stop.lists + 1, DESCRIBED), most)
    near, ranks = np.empty((len(points), width), np.float32), np.empty(list_of.shape, np.int64)
    spreads = np.empty((len(points), 2))
    for row, point in enumerate(points):  # one query at a time: many queries times many lists are no matrix to hold
        (values,) = index.similarities(point[None, :])
        order = np.argsort(-values, kind="stable")
        place = np.empty(most, np.int64)  # a list's rank in the query's order
        place[order] = np.arange(1, most + 1)
        near[row], ranks[row], spreads[row] = values[order[:width]], place[list_of[row]], moments(values)
    return Observations(k, points, traces, near, spreads, ranks)


def exact(index: IVF, queries: Single, k: int) -> Whole:
    """Return the places (q × k) of the true nearest vectors, best first: every query against every vector."""
    if len(queries) > ASKED:
        return np.concatenate([exact(index, queries[j : j + ASKED], k) for j in range(0, len(queries), ASKED)])
    best = np.full((len(queries), 0), 0, dtype=np.int64)
    scores = np.full((len(queries), 0), 0, dtype=np.float32)
    step = max(1, (1 << 25) // max(len(queries), 1))
    for rows, block in clusters.blocks(index.vectors, max(step, 2048)):
        near = queries @ block.T
        if index.metric == "l2":
            near = 2 * near - (block * block).sum(axis=1)
        top = np.argpartition(-near, min(k, near.shape[1]) - 1, axis=1)[:, :k]
        scores = np.concatenate([scores, np.take_along_axis(near, top, axis=1)], axis=1)
        best = np.concatenate([best, top + rows.start], axis=1)
        keep = np.argsort(-scores, axis=1, kind="stable")[:, :k]
        scores, best = np.take_along_axis(scores, keep, axis=1), np.take_along_axis(best, keep, axis=1)
    return best


def learn_prediction(
    observed: Observations,
    lists: int,
    *,
    stability: bool,
    tau: int = TAU,
    check: Observations | None = None,
    trials: int = 1,
    seed: int = 0,
) -> PredictedLists:
    """Learn REG, or REG+int with stability features, for N = lists; `check` has queries for early stopping.

    With `trials` above 1 so many forests are grown, each with other hyper-parameters, and the one with the smallest
    error on `check` is returned.
    """
    width = observed.features(tau).shape[1] - (0 if stability else 2 * (tau - 1))

    def parts(some: Observations) -> tuple[Any, Any]:
        return some.features(tau)[:, :width], some.needed(lists)

    trees = _forest("regression", parts(observed), None if check is None else parts(check), seed, trials=trials)
    return PredictedLists(trees, stability, 1.0, tau, lists)


def learn_classifier(
    observed: Observations,
    lists: int,
    *,
    weight: float = 1.0,
    tau: int = TAU,
    check: Observations | None = None,
    trials: int = 1,
    seed: int = 0,
) -> Classifier:
    """Learn Exit or Continue after τ lists, for N = lists. Synthetic queries come from `observed`, never `check`."""
    features = observed.features(tau)
    goes_on = (observed.needed(lists) > tau).astype(np.int64)
    features, goes_on = balanced(features, goes_on, seed)
    weights = np.where(goes_on == 1, weight, 1.0)
    held = None if check is None else (check.features(tau), (check.needed(lists) > tau).astype(np.int64))
    trees = _forest("binary", (features, goes_on), held, seed, weights, trials=trials)
    return Classifier(trees, weight, tau, lists)


def balanced(features: npt.NDArray[Any], labels: Whole, seed: int) -> tuple[npt.NDArray[Any], Whole]:
    """Return as many of either class, by SMOTE; all as they are, where a class is too small to interpolate in."""
    try:
        from imblearn.over_sampling import SMOTE
    except ImportError:
        raise MissingDependency("learned exit rules need imbalanced-learn", "learned") from None
    counts = np.bincount(labels, minlength=2)
    if counts.min() < 2:
        return features, labels
    more = SMOTE(random_state=seed, k_neighbors=min(5, int(counts.min()) - 1))
    rows, classes = more.fit_resample(features, labels)
    return np.asarray(rows), np.asarray(classes)


def _forest(
    objective: str,
    data: tuple[Any, Any],
    check: tuple[Any, Any] | None,
    seed: int,
    weights: Any = None,
    *,
    trials: int = 1,
) -> Trees:
    """A forest of 100 trees at most, stopped after ten that do not help on `check`; the best of some trials."""
    try:
        import lightgbm
    except ImportError:
        raise MissingDependency("learned exit rules need LightGBM", "learned") from None
    if trials < 1 or (trials > 1 and check is None):
        raise InputError(f"{trials} trials need queries to be judged by: give check, or one trial")
    fixed = {"objective": objective, "verbosity": -1, "seed": seed}
    fixed |= {"deterministic": True, "force_row_wise": True, "num_threads": 1, "feature_pre_filter": False}
    best, least = None, np.inf
    for settings in trees_to_try(trials, seed):
        train = lightgbm.Dataset(data[0], data[1], weight=weights, free_raw_data=False)
        stop: list[Any] = [] if check is None else [lightgbm.early_stopping(10, verbose=False)]
        held = [] if check is None else [lightgbm.Dataset(check[0], check[1], reference=train)]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model = lightgbm.train({**fixed, **settings}, train, TREES, valid_sets=held, callbacks=stop)
        error = min(model.best_score["valid_0"].values()) if check is not None else 0.0
        if error < least or best is None:
            best, least = model, error
    assert best is not None
    return trees_of(best.dump_model(num_iteration=best.best_iteration or None))


def trees_to_try(trials: int, seed: int) -> list[dict[str, float]]:
    """Return hyper-parameters of forests: the usual ones, then draws around them (the paper uses HyperOPT)."""
    rng = np.random.default_rng(seed)
    tried: list[dict[str, float]] = [{"num_leaves": 15, "learning_rate": 0.1, "min_data_in_leaf": 20}]
    for _ in range(trials - 1):
        leaves, rate = int(rng.integers(4, 64)), float(np.exp(rng.uniform(np.log(0.02), np.log(0.3))))
        least, ridge = int(rng.integers(5, 100)), float(np.exp(rng.uniform(np.log(1e-3), np.log(10))))
        one = {"num_leaves": leaves, "learning_rate": rate, "min_data_in_leaf": least, "lambda_l2": ridge}
        tried.append(one | {"feature_fraction": float(rng.uniform(0.3, 1.0))})
    return tried


def trees_of(model: dict[str, Any]) -> Trees:
    """Return a forest from LightGBM's dump of it."""
    roots: list[int] = []
    nodes: list[tuple[int, float, int, int, float]] = []

    def plant(node: dict[str, Any]) -> int:
        at = len(nodes)
        nodes.append((-1, 0.0, -1, -1, float(node.get("leaf_value", 0.0))))
        if "split_feature" in node:
            if node["decision_type"] != "<=":
                raise InputError(f"forests split numbers by <=; got {node['decision_type']!r}")
            left, right = plant(node["left_child"]), plant(node["right_child"])
            nodes[at] = (int(node["split_feature"]), float(node["threshold"]), left, right, 0.0)
        return at

    for tree in model["tree_info"]:
        roots.append(plant(tree["tree_structure"]))
    feature, threshold, left, right, value = zip(*nodes, strict=True) if nodes else ((),) * 5
    return Trees(tuple(roots), feature, threshold, left, right, value)


def learn_chance(observed: Observations, lists: int, rate: float = 0.002) -> Chance:
    """Learn a logistic model of whether the nearest neighbour lies in the next lists, given what is seen after each.

    Every query is looked at after each of its first 16 lists, and then at growing intervals.
    """
    from sklearn.linear_model import LogisticRegression

    from crosscut.ann.ivf.kernels import window

    clues, most = observed.clues, observed.most
    after = np.unique(np.concatenate([np.arange(1, 17), np.geomspace(16, max(most - 1, 16), 24).astype(np.int64)]))
    after = after[after < most]
    seen = squared(clues[:, after - 1].reshape(-1, clues.shape[2]))
    ahead = after + np.array([window(int(h)) for h in after])
    found = observed.ranks[:, :1]
    improves = ((found > after) & (found <= ahead)).reshape(-1)
    if not improves.any() or improves.all():
        raise InputError(
            "there is nothing to learn: every one of the queries finds its nearest neighbour in the first list; "
            "use Fixed(1), or bring queries that are not items"
        )
    middle, scale = seen.mean(axis=0), seen.std(axis=0) + 1e-9
    model = LogisticRegression(C=1.0, max_iter=2000).fit((seen - middle) / scale, improves)
    slopes = model.coef_[0] / scale
    constant = float(model.intercept_[0] - slopes @ middle)
    return Chance((constant, *(float(slope) for slope in slopes)), rate, lists)


def squared(clues: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return clues (… × c) and all their products of two, in the order of `kernels.log_odds`."""
    count = clues.shape[-1]
    pairs = [clues[..., i] * clues[..., j] for i in range(count) for j in range(i, count)]
    return np.concatenate([clues, np.stack(pairs, axis=-1)], axis=-1)
