"""Whether a query stops here: the `Conditions` of an exit rule, compiled, asked after every list.

`limit_after` is the one place that decides. The compiled search asks it while it probes; `replay` asks it over what
was recorded, so that tuning can try a rule on queries without searching again. A trace (h × 4) says what each list did:

    best[h], kth[h]   the best and the k-th best score after h lists, −inf where there is none
    stayed[h]         |RS_h ∩ RS_{h−1}|
    of_first[h]       |RS_h ∩ RS_1|
"""

from __future__ import annotations

from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from crosscut.ann.ivf.rules import CLUES, Conditions, TreeArrays
from crosscut.linalg.kernels import compiled

Single: TypeAlias = npt.NDArray[np.float32]
Double: TypeAlias = npt.NDArray[np.float64]
Whole: TypeAlias = npt.NDArray[np.int64]

RATIOS = 10  # similarities of the 10th, 20th, … 100th centroid over the first
BEST, KTH, STAYED, OF_FIRST = range(4)
"""Columns of a trace."""
LEAST = np.finfo(np.float32).min  # in place of a score that is not there: forests learn from finite numbers
SETTLED, SINCE = range(2)
"""Counts: lists in a row after which enough members stayed, lists since the best changed."""


class Outlook(NamedTuple):
    """What is known of a query before its first list."""

    query: Single  # (d)
    near: Single  # similarities to the closest centroids, best first
    mean: float  # of the similarities to all centroids
    spread: float  # their standard deviation


class Notes(NamedTuple):
    """Room for what is kept in mind between lists."""

    counts: Whole  # (2)
    clues: Double  # (7)
    features: Double  # of Table 1, where a forest asks for them


@compiled()
def notes_for(dimensions: int, tau: int, learned: bool) -> Notes:
    """Room for the notes of one query after another."""
    room = features_of(dimensions, tau) if learned else 0
    return Notes(np.zeros(2, dtype=np.int64), np.zeros(CLUES), np.zeros(room))


@compiled()
def features_of(dimensions: int, tau: int) -> int:
    """How many features Table 1 has after τ lists."""
    return dimensions + 3 * tau + RATIOS + 2


@compiled(inline="always")
def limit_after(
    h: int, most: int, start: float, stop: Conditions, outlook: Outlook, trace: Single, k: int, notes: Notes
) -> int:
    """How many lists a query probes in all, now that h of `most` are; h itself means that it stops here.

    `start` is the best score that the search began with, −inf if it began with nothing.
    """
    before = trace[h - 2, BEST] if h > 1 else start
    stays = trace[h - 1, STAYED] >= stop.needed and (h > 1 or start > -np.inf)
    notes.counts[SETTLED] = notes.counts[SETTLED] + 1 if stays else 0
    notes.counts[SINCE] = 0 if trace[h - 1, BEST] > before else notes.counts[SINCE] + 1
    if h < stop.tau:
        return most
    if h == stop.tau and (len(stop.classifier.roots) or len(stop.regression.roots)):
        most = forest_limit(most, stop, outlook, trace, k, notes.features)
    if h >= most or (stop.rounds and notes.counts[SETTLED] >= stop.rounds):
        return h
    if len(stop.chance) and trace[h - 1, BEST] > -np.inf:
        look(outlook, trace[h - 1, BEST], outlook.near[h], h, notes.counts[SINCE], notes.clues)
        if 1 / (1 + np.exp(-log_odds(notes.clues, stop.chance))) < stop.rate * window(h):
            return h
    return most


@compiled()
def forest_limit(most: int, stop: Conditions, outlook: Outlook, trace: Single, k: int, features: Double) -> int:
    """How many lists the forests grant after τ: no more (Exit), or as many as the regression predicts."""
    describe(outlook, trace, k, stop.tau, features)
    if len(stop.classifier.roots) and sum_of_trees(stop.classifier, features) < 0:
        return stop.tau
    if len(stop.regression.roots):
        return min(most, max(stop.tau, int(np.ceil(sum_of_trees(stop.regression, features)))))
    return most


@compiled()
def sum_of_trees(trees: TreeArrays, features: Double) -> float:
    """What a forest says."""
    total = 0.0
    for node in trees.roots:
        while trees.feature[node] >= 0:
            goes_left = features[trees.feature[node]] <= trees.threshold[node]
            node = trees.left[node] if goes_left else trees.right[node]
        total += trees.value[node]
    return total


@compiled()
def ratio(above: float, below: float) -> float:
    """above / below, 0 where there is nothing to divide by."""
    return above / below if abs(below) > 1e-12 else 0.0


@compiled()
def describe(outlook: Outlook, trace: Single, k: int, tau: int, features: Double) -> None:
    """The features of Table 1 after τ lists: query, centroids, results, stability."""
    near, known = outlook.near, len(outlook.near)
    at = len(outlook.query)
    features[:at] = outlook.query
    features[at:] = 0.0
    for h in range(min(tau, known)):
        features[at + h] = near[h]
    at += tau
    for step in range(min(RATIOS, known // 10)):
        features[at + step] = ratio(near[10 * step + 9], near[0])
    at += RATIOS
    best, kth = max(trace[tau - 1, BEST], LEAST), max(trace[tau - 1, KTH], LEAST)
    features[at], features[at + 1] = best, kth
    features[at + 2], features[at + 3] = ratio(best, kth), ratio(best, near[0])
    at += 4
    for h in range(1, tau):
        features[at + h - 1] = trace[h, STAYED] / k
        features[at + tau + h - 2] = trace[h, OF_FIRST] / k


@compiled()
def log_odds(clues: Double, coefficients: Double) -> Any:
    """Of a logistic model with all products of two clues; coefficients: constant, linear, quadratic."""
    total = coefficients[0]
    at = 1
    for value in clues:
        total += coefficients[at] * value
        at += 1
    for i in range(len(clues)):
        for j in range(i, len(clues)):
            total += coefficients[at] * clues[i] * clues[j]
            at += 1
    return total


@compiled()
def look(outlook: Outlook, best: float, following: float, h: int, since: int, clues: Double) -> None:
    """What is known after h lists of whether a later one holds something better than the best so far.

    In units of the spread of this query's similarities to all centroids: how far the best lies above the next
    centroid, how far the next centroid lies below the first, how far the first stands out. As logarithms: the lists
    probed and those since the best last changed. And what kind of query it is: that mean and that spread themselves.
    """
    first, mean, spread = outlook.near[0], outlook.mean, outlook.spread
    clues[0] = (best - following) / spread
    clues[1] = (first - following) / spread
    clues[2] = (first - mean) / spread
    clues[3] = np.log(h)
    clues[4] = np.log(1 + since)
    clues[5] = mean
    clues[6] = spread


@compiled()
def window(h: int) -> int:
    """Over how many lists ahead the chance of improvement is estimated."""
    return max(1, h // 4)


@compiled()
def moments(similarities: Single) -> tuple[float, float]:
    """Mean and standard deviation, over the lists that may be visited."""
    total = squares = 0.0
    count = 0
    for value in similarities:
        if value > -np.inf:
            total += value
            squares += value * value
            count += 1
    if count < 2:
        return total, 1.0
    mean = total / count
    return mean, max(np.sqrt(max(squares / count - mean * mean, 0.0)), 1e-9)


@compiled()
def replay(stop: Conditions, queries: Single, near: Single, spreads: Double, traces: Single, k: int) -> Whole:
    """(q) after how many lists these conditions stop each query, from traces (q × N × 4) of a search without any."""
    stops = np.empty(len(queries), dtype=np.int64)
    notes = notes_for(queries.shape[1], stop.tau, len(stop.classifier.roots) + len(stop.regression.roots) > 0)
    for row in range(len(queries)):
        outlook = Outlook(queries[row], near[row], spreads[row, 0], spreads[row, 1])
        notes.counts[:] = 0
        most = min(stop.lists, traces.shape[1])
        h = 0
        while h < most:
            h += 1
            most = limit_after(h, most, -np.inf, stop, outlook, traces[row], k, notes)
        stops[row] = h
    return stops


@compiled()
def every_clue(queries: Single, near: Single, spreads: Double, traces: Single) -> Double:
    """`look` after every list of every trace: (q × N × 7). After the last list of all, the last stands for next."""
    out = np.zeros((traces.shape[0], traces.shape[1], CLUES))
    for row in range(traces.shape[0]):
        outlook = Outlook(queries[row], near[row], spreads[row, 0], spreads[row, 1])
        since = 0
        for h in range(traces.shape[1]):
            best = traces[row, h, BEST]
            since = since + 1 if h and best == traces[row, h - 1, BEST] else 0
            if best > -np.inf:
                look(outlook, best, near[row, min(h + 1, near.shape[1] - 1)], h + 1, since, out[row, h])
    return out
