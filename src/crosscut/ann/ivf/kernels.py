"""The compiled search of a clustered index: rank lists, scan them one by one, keep the best k, ask the exit rule.

Busolin et al. 2024, §2. For one query q:

    lists in order of σ(q, c), c a list's centroid
    h = 1, 2, …: scan list h; RS_h are the best k of what was scanned, ties to the lower id
    until the exit rule says so, N lists at most

A list is a contiguous piece of the vectors, so the members of RS_h that list h brought are those whose place lies in
it and that the search did not begin with: |RS_h ∩ RS_{h−1}| = |RS_h| − their number, exactly, as sets.

`limit_after` is the one place that decides. The search asks it after every list; `replay` asks it over what was
recorded, so that tuning can try a rule on queries without searching again. A trace (h × 4) says what each list did:

    best[h], kth[h]   the best and the k-th best score after h lists, −inf where there is none
    stayed[h]         |RS_h ∩ RS_{h−1}|
    of_first[h]       |RS_h ∩ RS_1|

Importing this module loads numba.
"""

from __future__ import annotations

from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from crosscut.ann.ivf.rules import CLUES, Conditions, TreeArrays
from crosscut.linalg.kernels import compiled, distance, dot, wide

Single: TypeAlias = npt.NDArray[np.float32]
Double: TypeAlias = npt.NDArray[np.float64]
Whole: TypeAlias = npt.NDArray[np.int64]

FIRST = 256  # lists that are ranked before one is visited
MANY = 2  # above one allowed vector in so many the whole list is read: reading single ones costs over twice as much
RATIOS = 10  # similarities of the 10th, 20th, … 100th centroid over the first
LEAST = np.finfo(np.float32).min  # in place of a score that is not there: forests learn from finite numbers
BEST, KTH, STAYED, OF_FIRST = range(4)
"""Columns of a trace."""
STABLE, SINCE = range(2)
"""Counts: lists in a row after which enough members stayed, lists since the best changed."""


class Lists(NamedTuple):
    """The index: vectors list by list."""

    vectors: npt.NDArray[Any]  # (n × d) float32, or bits of float16
    starts: Whole  # (lists + 1)
    ids: Whole  # (n)
    euclidean: bool


class Queries(NamedTuple):
    """Some queries, and the sorted places that each must not find, begins with (and must not find), and all may find.

    `excluded` and `known` hold those of one query after another.
    """

    vectors: Single  # (q × d)
    similarities: Single  # (q × lists) to centroids; −inf: not to be visited
    excluded: Whole
    excluded_starts: Whole  # (q + 1)
    known: Whole
    known_starts: Whole  # (q + 1)
    allowed: Whole
    filtered: bool  # whether only `allowed` may be found


class Answers(NamedTuple):
    """Results of queries, (q × …)."""

    scores: Single  # (q × k) best first
    places: Whole  # (q × k)
    costs: Whole  # (q × 2) lists probed, vectors scanned
    traces: Single  # (q × N × 4) or nothing


class Heap(NamedTuple):
    """The best so far: a bounded heap whose root is the worst."""

    scores: Single  # (k)
    places: Whole  # (k)


class Outlook(NamedTuple):
    """State of a query before its first list."""

    query: Single  # (d)
    near: Single  # similarities to the closest centroids, best first
    mean: float  # of the similarities to all centroids
    spread: float  # their standard deviation


class Notes(NamedTuple):
    """Buffers for what is remembered between lists."""

    counts: Whole  # (2)
    clues: Double  # (7)
    features: Double  # of Table 1, where a forest asks for them


# -- the best so far


@compiled()
def precedes(score: Any, place: int, other: Any, other_place: int, ids: Whole) -> Any:
    return score > other or (score == other and ids[place] < ids[other_place])


@compiled()
def offer(top: Heap, size: int, score: np.float32, place: int, ids: Whole) -> tuple[int, bool]:
    """Take one into the best so far, if it belongs there. Returns their number, and whether it was added."""
    if size == len(top.scores):
        if not precedes(score, place, top.scores[0], top.places[0], ids):
            return size, False
        sink(top, size, score, place, ids)
        return size, True
    child = size
    while child > 0:
        parent = (child - 1) >> 1
        if not precedes(top.scores[parent], top.places[parent], score, place, ids):
            break
        top.scores[child], top.places[child] = top.scores[parent], top.places[parent]
        child = parent
    top.scores[child], top.places[child] = score, place
    return size + 1, True


@compiled()
def sink(top: Heap, size: int, score: np.float32, place: int, ids: Whole) -> None:
    """Replace the root of a heap of `size`."""
    scores, places = top.scores, top.places
    parent = 0
    while True:
        child = 2 * parent + 1
        if child >= size:
            break
        if child + 1 < size and precedes(scores[child], places[child], scores[child + 1], places[child + 1], ids):
            child += 1
        if not precedes(score, place, scores[child], places[child], ids):
            break
        scores[parent], places[parent] = scores[child], places[child]
        parent = child
    scores[parent], places[parent] = score, place


@compiled()
def sort(top: Heap, size: int, ids: Whole) -> None:
    """Sort a heap in place, best first."""
    while size > 1:
        size -= 1
        score, place = top.scores[size], top.places[size]
        top.scores[size], top.places[size] = top.scores[0], top.places[0]
        sink(top, size, score, place, ids)


@compiled()
def rank(similarities: Single, closest: Heap, numbers: Whole) -> int:
    """Put the closest lists into `closest`, best first, ties to the lower number, without those of −inf.

    Returns how many; `numbers` are 0, 1, 2 …
    """
    size, count = 0, len(closest.scores)
    for j in range(len(similarities)):
        score = similarities[j]
        if score > -np.inf and (size < count or score > closest.scores[0]):
            size, _ = offer(closest, size, score, j, numbers)
    sort(closest, size, numbers)
    return size


# -- one list


@compiled()
def below(places: Whole, place: int) -> int:
    """Return how many of sorted places are below one."""
    low, high = 0, len(places)
    while low < high:
        middle = (low + high) >> 1
        if places[middle] < place:
            low = middle + 1
        else:
            high = middle
    return low


@compiled(fastmath=True)
def similarity(lists: Lists, place: int, query: Single) -> np.float32:
    """q · v, or −‖q − v‖², of one place."""
    total = np.float32(0)
    if lists.euclidean:
        for j in range(len(query)):
            difference = wide(lists.vectors[place, j]) - query[j]
            total -= difference * difference
    else:
        for j in range(len(query)):
            total += wide(lists.vectors[place, j]) * query[j]
    return total


@compiled(inline="always")
def scan(
    low: int, high: int, lists: Lists, query: Single, excluded: Whole, allowed: Whole, filtered: bool,
    top: Heap, size: int, buffer: Single,
) -> tuple[int, int, Any]:  # fmt: skip
    """Read all of a list. Returns how many results there are, how many were added, and the list's best score."""
    values = buffer[: high - low]
    if lists.euclidean:
        distance(lists.vectors[low:high], query, values)
    else:
        dot(lists.vectors[low:high], query, values)
    if filtered:
        place = 0
        for one in allowed:
            values[place : one - low] = -np.inf
            place = one - low + 1
        values[place:] = -np.inf
    e = below(excluded, low)
    while e < len(excluded) and excluded[e] < high:
        values[excluded[e] - low] = -np.inf
        e += 1
    added, best = 0, np.float32(-np.inf)
    floor = top.scores[0] if size == len(top.scores) else best
    for i in range(high - low):
        score = values[i]
        if score >= floor and score > -np.inf:
            size, fits = offer(top, size, score, low + i, lists.ids)
            added += fits
            best = max(best, score)
            if size == len(top.scores):
                floor = top.scores[0]
    return size, added, best


@compiled()
def scan_some(
    places: Whole, lists: Lists, query: Single, excluded: Whole, top: Heap, size: int
) -> tuple[int, int, Any, int]:
    """Read some sorted places one by one. Returns what `scan` does, and how many were read."""
    e = below(excluded, places[0]) if len(places) else 0
    added, scanned, best = 0, 0, np.float32(-np.inf)
    for place in places:
        while e < len(excluded) and excluded[e] < place:
            e += 1
        if e < len(excluded) and excluded[e] == place:
            continue
        score = similarity(lists, place, query)
        scanned += 1
        size, fits = offer(top, size, score, place, lists.ids)
        added += fits
        best = max(best, score)
    return size, added, best, scanned


@compiled(inline="always")
def members(
    top: Heap, size: int, low: int, high: int, first_low: int, first_high: int, known: Whole
) -> tuple[int, int]:
    """Count results from before the list at low … high, and from the first list."""
    stayed = of_first = 0
    for i in range(size):
        place = top.places[i]
        at = below(known, place)
        stayed += not low <= place < high or (at < len(known) and known[at] == place)
        of_first += first_low <= place < first_high
    return stayed, of_first


# -- queries


@compiled()
def probe(
    row: int, queries: Queries, outlook: Outlook, closest: Heap, ranked: int, numbers: Whole, lists: Lists,
    stop: Conditions, top: Heap, trace: Single, notes: Notes, buffer: Single,
) -> tuple[int, int]:  # fmt: skip
    """Search one query, whose `ranked` closest lists are known. Fills `top`, best first, and `trace`.

    Returns how many lists were probed and vectors scanned.
    """
    query, k, places = outlook.query, len(top.scores), closest.places
    excluded = queries.excluded[queries.excluded_starts[row] : queries.excluded_starts[row + 1]]
    known = queries.known[queries.known_starts[row] : queries.known_starts[row + 1]]
    size, _, start, scanned = scan_some(known, lists, query, known[:0], top, 0)
    best, of_first, first_low, first_high = start, 0, 0, 0
    notes.counts[:] = 0
    most = min(stop.lists, len(places) if ranked == FIRST else ranked)
    h = 0
    while h < most:
        if h == FIRST == ranked:  # few searches come here
            ranked = rank(queries.similarities[row], closest, numbers)
            most = min(most, ranked)
            if h >= most:
                break
        low, high = lists.starts[places[h]], lists.starts[places[h] + 1]
        if h == 0:
            first_low, first_high = low, high
        allowed, filtered = queries.allowed, queries.filtered
        if filtered:
            allowed = allowed[below(allowed, low) : below(allowed, high)]
            filtered = len(allowed) < high - low
        if filtered and MANY * len(allowed) < high - low:
            size, added, here, read = scan_some(allowed, lists, query, excluded, top, size)
        else:
            size, added, here = scan(low, high, lists, query, excluded, allowed, filtered, top, size, buffer)
            read = high - low
        scanned += read
        best = max(best, here)
        stayed = size
        if added or h == 0:
            stayed, of_first = members(top, size, low, high, first_low, first_high, known)
        trace[h, BEST], trace[h, KTH] = best, top.scores[0] if size == k else -np.inf
        trace[h, STAYED], trace[h, OF_FIRST] = stayed, of_first
        h += 1
        most = limit_after(h, most, start, stop, outlook, trace, k, notes)
    sort(top, size, lists.ids)
    return h, scanned


@compiled()
def probe_all(rows: Whole, queries: Queries, lists: Lists, stop: Conditions, width: int, answers: Answers) -> None:
    """Search some of the queries, each ranking its `width` closest lists."""
    closest = Heap(np.empty(width, dtype=np.float32), np.empty(width, dtype=np.int64))
    longest = 0
    for j in range(len(lists.starts) - 1):
        longest = max(longest, lists.starts[j + 1] - lists.starts[j])
    buffer = np.empty(longest, dtype=np.float32)
    learned = len(stop.classifier.roots) + len(stop.regression.roots) > 0
    notes = notes_for(queries.vectors.shape[1], stop.tau, learned)
    own = np.empty((stop.lists, 4), dtype=np.float32)
    numbers = np.arange(len(lists.starts) - 1)
    # most searches end long before the last list: ranking all of them would cost more than they do
    some = width if learned or len(stop.chance) else min(width, FIRST)
    for row in rows:
        near = rank(queries.similarities[row], Heap(closest.scores[:some], closest.places[:some]), numbers)
        mean, spread = moments(queries.similarities[row])
        outlook = Outlook(queries.vectors[row], closest.scores[:near], mean, spread)
        top = Heap(answers.scores[row], answers.places[row])
        trace = answers.traces[row] if len(answers.traces) else own
        answers.costs[row, 0], answers.costs[row, 1] = probe(
            row, queries, outlook, closest, near, numbers, lists, stop, top, trace, notes, buffer
        )


# -- whether to stop


@compiled()
def notes_for(dimensions: int, tau: int, learned: bool) -> Notes:
    size = features_of(dimensions, tau) if learned else 0
    return Notes(np.zeros(2, dtype=np.int64), np.zeros(CLUES), np.zeros(size))


@compiled()
def features_of(dimensions: int, tau: int) -> int:
    """Return the number of features of Table 1 after τ lists."""
    return dimensions + 3 * tau + RATIOS + 2


@compiled(inline="always")
def limit_after(
    h: int, most: int, start: float, stop: Conditions, outlook: Outlook, trace: Single, k: int, notes: Notes
) -> int:
    """Return how many lists a query probes in all, after h of `most`; h itself means to stop.

    `start` is the best score that the search began with, −inf if it began with nothing.
    """
    before = trace[h - 2, BEST] if h > 1 else start
    stays = trace[h - 1, STAYED] >= stop.needed and (h > 1 or start > -np.inf)
    notes.counts[STABLE] = notes.counts[STABLE] + 1 if stays else 0
    notes.counts[SINCE] = 0 if trace[h - 1, BEST] > before else notes.counts[SINCE] + 1
    if h < stop.tau:
        return most
    if h == stop.tau and (len(stop.classifier.roots) or len(stop.regression.roots)):
        most = forest_limit(most, stop, outlook, trace, k, notes.features)
    if h >= most or (stop.rounds and notes.counts[STABLE] >= stop.rounds):
        return h
    if len(stop.chance) and trace[h - 1, BEST] > -np.inf:
        look(outlook, trace[h - 1, BEST], outlook.near[h], h, notes.counts[SINCE], notes.clues)
        if 1 / (1 + np.exp(-log_odds(notes.clues, stop.chance))) < stop.rate * window(h):
            return h
    return most


@compiled()
def forest_limit(most: int, stop: Conditions, outlook: Outlook, trace: Single, k: int, features: Double) -> int:
    """Return how many lists to probe after τ: no more (Exit), or as many as the regression predicts."""
    describe(outlook, trace, k, stop.tau, features)
    if len(stop.classifier.roots) and sum_of_trees(stop.classifier, features) < 0:
        return stop.tau
    if len(stop.regression.roots):
        return min(most, max(stop.tau, int(np.ceil(sum_of_trees(stop.regression, features)))))
    return most


@compiled()
def sum_of_trees(trees: TreeArrays, features: Double) -> float:
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
    """Compute features, after h lists, of whether a later list has a better result than the best so far.

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
    """`look` after every list of every trace: (q × N × 7). The last list is its own next one."""
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
