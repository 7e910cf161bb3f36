"""Learning exit rules from queries: what each list did, what each query needed, and forests that tell it ahead.

Busolin et al. 2024, §2 and Table 1:

    C(q)   lists until the true nearest neighbour was found, N if it was not
    REG       predicts C(q) from query, centroids and the result after τ lists; REG+int also from its stability
    Classifier   Exit when C(q) ≤ τ, else Continue; classes balanced by SMOTE, errors on Continue weigh w

SMOTE makes synthetic queries out of real ones, so it is applied to what a forest is trained on and to nothing else:
never before queries were set apart. The paper's text weighs the Exit class, which would buy *more* false exits;
here w weighs Continue.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from crosscut.ann import clusters
from crosscut.ann.early_exit import TAU, Chance, Classifier, Regression, Trees
from crosscut.ann.ivf import IVF
from crosscut.errors import InputError, MissingDependency

Single = npt.NDArray[np.float32]
Whole = npt.NDArray[np.int64]

TREES = 100


@dataclass(frozen=True, eq=False)
class Lessons:
    """What an index did for some queries, list by list, and what would have been right."""

    index: IVF
    queries: Single  # (q × d)
    k: int
    traces: Single  # (q × N × 4): see `probing`
    near: Single  # (q × lists) similarities to centroids, best first
    moments: npt.NDArray[np.float64]  # (q × 2) their mean and standard deviation
    ranks: Whole  # (q × k) in which list, counted in the query's order from 1, each of its true k nearest lies

    @property
    def most(self) -> int:
        """How many lists were visited."""
        return int(self.traces.shape[1])

    def needed(self, lists: int) -> Whole:
        """C(q), for N = lists."""
        return np.minimum(self.ranks[:, 0], lists)

    def recall(self, stops: npt.ArrayLike, k: int = 1) -> npt.NDArray[np.float64]:
        """R*@k of every query, when it stops after so many lists."""
        after = np.broadcast_to(np.asarray(stops), len(self.ranks))
        return np.asarray((self.ranks[:, :k] <= after[:, None]).mean(axis=1))

    def some(self, rows: npt.ArrayLike) -> Lessons:
        """The lessons of some queries."""
        picked = np.asarray(rows)
        return Lessons(
            self.index,
            self.queries[picked],
            self.k,
            self.traces[picked],
            self.near[picked],
            self.moments[picked],
            self.ranks[picked],
        )

    @cached_property
    def clues(self) -> npt.NDArray[np.float64]:
        """What `Chance` sees after every list (q × N × clues)."""
        from crosscut.ann import probing

        return probing.look_all(self.traces, self.near, self.moments)

    def features(self, tau: int = TAU) -> npt.NDArray[np.float64]:
        """The features of Table 1 after τ lists (q × f): query, centroids, results, stability."""
        from crosscut.ann import probing

        out = np.empty((len(self.queries), self.queries.shape[1] + 3 * tau + probing.RATIOS + 2))
        known = min(max(self.most, 100), self.near.shape[1])
        for row in range(len(out)):
            probing.describe(self.queries[row], self.near[row], known, self.traces[row], self.k, tau, out[row])
        return out


def study(index: IVF, queries: npt.ArrayLike, k: int = 100, lists: int | None = None) -> Lessons:
    """Visit `lists` lists (all but the last, when not given) for every query, and find its true neighbours."""
    from crosscut.ann import probing

    points = np.ascontiguousarray(queries, dtype=np.float32)
    most = min(lists or len(index.centroids), len(index.centroids))
    _, traces = index.traces(points, k, most)
    near = np.concatenate([index.similarities(points[row : row + 1]) for row in range(len(points))])
    order = np.argsort(-near, axis=1, kind="stable")
    place = np.empty_like(order)  # a list's rank in the query's order
    np.put_along_axis(place, order, np.arange(1, near.shape[1] + 1)[None, :], axis=1)
    home = np.searchsorted(index.starts, exact(index, points, min(k, index.n)), side="right") - 1
    moments = np.array([probing.moments(row) for row in near])
    ranks = np.take_along_axis(place, home, axis=1)
    return Lessons(index, points, k, traces, np.take_along_axis(near, order, axis=1), moments, ranks)


def exact(index: IVF, queries: Single, k: int) -> Whole:
    """(q × k) places of the true nearest vectors, best first: every query against every vector."""
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


def learn_regression(
    lessons: Lessons, lists: int, *, stability: bool, tau: int = TAU, check: Lessons | None = None, seed: int = 0
) -> Regression:
    """REG, or REG+int with stability features, for N = lists; `check` holds queries for early stopping."""
    width = lessons.features(tau).shape[1] - (0 if stability else 2 * (tau - 1))

    def parts(some: Lessons) -> tuple[Any, Any]:
        return some.features(tau)[:, :width], some.needed(lists)

    trees = _grow("regression", parts(lessons), None if check is None else parts(check), seed)
    return Regression(trees, stability, 1.0, tau, lists)


def learn_classifier(
    lessons: Lessons, lists: int, *, weight: float = 1.0, tau: int = TAU, check: Lessons | None = None, seed: int = 0
) -> Classifier:
    """Exit or Continue after τ lists, for N = lists. Synthetic queries are made of `lessons`, never of `check`."""
    features = lessons.features(tau)
    goes_on = (lessons.needed(lists) > tau).astype(np.int64)
    features, goes_on = balanced(features, goes_on, seed)
    weights = np.where(goes_on == 1, weight, 1.0)
    held = None if check is None else (check.features(tau), (check.needed(lists) > tau).astype(np.int64))
    trees = _grow("binary", (features, goes_on), held, seed, weights)
    return Classifier(trees, weight, tau, lists)


def balanced(features: npt.NDArray[Any], labels: Whole, seed: int) -> tuple[npt.NDArray[Any], Whole]:
    """As many of either class, by SMOTE; as they are, where a class is too small to interpolate in."""
    try:
        from imblearn.over_sampling import SMOTE
    except ImportError:
        raise MissingDependency("learned exit rules need imbalanced-learn: pip install 'crosscut[learned]'") from None
    counts = np.bincount(labels, minlength=2)
    if counts.min() < 2:
        return features, labels
    more = SMOTE(random_state=seed, k_neighbors=min(5, int(counts.min()) - 1))
    made, marks = more.fit_resample(features, labels)
    return np.asarray(made), np.asarray(marks)


def _grow(
    objective: str, data: tuple[Any, Any], check: tuple[Any, Any] | None, seed: int, weights: Any = None
) -> Trees:
    try:
        import lightgbm
    except ImportError:
        raise MissingDependency("learned exit rules need LightGBM: pip install 'crosscut[learned]'") from None
    settings = {"objective": objective, "num_leaves": 15, "learning_rate": 0.1, "verbosity": -1, "seed": seed}
    settings |= {"deterministic": True, "force_row_wise": True, "num_threads": 1, "min_data_in_leaf": 20}
    train = lightgbm.Dataset(data[0], data[1], weight=weights)
    stop: list[Any] = [] if check is None else [lightgbm.early_stopping(10, verbose=False)]
    held = [] if check is None else [lightgbm.Dataset(check[0], check[1], reference=train)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        forest = lightgbm.train(settings, train, TREES, valid_sets=held, callbacks=stop)
    return trees_of(forest.dump_model(num_iteration=forest.best_iteration or None))


def trees_of(model: dict[str, Any]) -> Trees:
    """LightGBM's own account of a forest, as arrays."""
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


def learn_chance(lessons: Lessons, lists: int, rate: float = 0.002) -> Chance:
    """A logistic model of whether the nearest neighbour lies in the next lists, given what is seen after each.

    Every query is looked at after each of its first 16 lists, and then at growing intervals.
    """
    from sklearn.linear_model import LogisticRegression

    from crosscut.ann.probing import window

    clues, most = lessons.clues, lessons.most
    after = np.unique(np.concatenate([np.arange(1, 17), np.geomspace(16, max(most - 1, 16), 24).astype(np.int64)]))
    after = after[after < most]
    seen = squared(clues[:, after - 1].reshape(-1, clues.shape[2]))
    ahead = after + np.array([window(int(h)) for h in after])
    found = lessons.ranks[:, :1]
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
    """Clues (… × c) and all their products of two, in the order of `probing.odds`."""
    count = clues.shape[-1]
    pairs = [clues[..., i] * clues[..., j] for i in range(count) for j in range(i, count)]
    return np.concatenate([clues, np.stack(pairs, axis=-1)], axis=-1)
