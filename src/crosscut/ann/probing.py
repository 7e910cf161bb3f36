"""The compiled search of a clustered index: rank lists, scan them one by one, keep the best k, ask the exit rule.

Busolin et al. 2024, §2. For one query q:

    lists in order of σ(q, c), c a list's centroid
    h = 1, 2, …: scan list h; RS_h are the best k of what was scanned
        kept[h]  = |RS_h ∩ RS_{h−1}|
        first[h] = |RS_h ∩ RS_1|
    until the exit rule says so, N lists at most

A list is a contiguous piece of the vectors, so the members of RS_h that list h brought are those whose place lies in
it and that the search did not begin with: kept[h] = |RS_h| − their number, exactly, as sets.
"""

from __future__ import annotations

from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from crosscut.linalg.kernels import compiled, distance, dot, wide

Single: TypeAlias = npt.NDArray[np.float32]
Double: TypeAlias = npt.NDArray[np.float64]
Places: TypeAlias = npt.NDArray[np.int64]

RATIOS = 10  # similarities of the 10th, 20th, … 100th centroid over the first
CLUES = 7
BEST, KTH, KEPT, FIRST = range(4)
"""Columns of a trace."""


class Forest(NamedTuple):
    """Regression trees as arrays; a node with feature −1 is a leaf. No roots: no forest."""

    roots: Places
    feature: Places
    threshold: Double
    left: Places
    right: Places
    value: Double


_WHOLE, _REAL = np.zeros(0, dtype=np.int64), np.zeros(0)
NO_FOREST = Forest(_WHOLE, _WHOLE, _REAL, _WHOLE, _WHOLE, _REAL)


class Program(NamedTuple):
    """An exit rule as the compiled search understands it; parts that are not used are 0 or empty.

    After τ lists the classifier may end the search and the regression may lower the cap; from then on patience and
    the chance of improvement are asked after every list.
    """

    lists: int  # N
    tau: int
    rounds: int  # Δ of patience
    needed: int  # Φ·k, members that must stay
    classifier: Forest
    regression: Forest
    rate: float  # chance of improvement per list at which to stop
    chance: Double  # coefficients of `odds`

    @classmethod
    def fixed(cls, lists: int) -> Program:
        """No rule but the cap."""
        return cls(lists, 1, 0, 0, NO_FOREST, NO_FOREST, 0.0, _REAL)


class Lists(NamedTuple):
    """The index: vectors list by list."""

    vectors: npt.NDArray[Any]  # (n × d) float32, or bits of float16
    starts: Places  # (lists + 1)
    euclidean: bool


@compiled()
def push(scores: Single, places: Places, size: int, score: np.float32, place: int) -> int:
    """Into a bounded heap whose root is the worst; returns the new size."""
    if size < len(scores):
        child = size
        while child > 0:
            parent = (child - 1) >> 1
            if scores[parent] <= score:
                break
            scores[child], places[child] = scores[parent], places[parent]
            child = parent
        scores[child], places[child] = score, place
        return size + 1
    sink(scores, places, size, score, place)
    return size


@compiled()
def sink(scores: Single, places: Places, size: int, score: np.float32, place: int) -> None:
    """Replace the root of a heap of `size`."""
    parent = 0
    while True:
        child = 2 * parent + 1
        if child >= size:
            break
        if child + 1 < size and scores[child + 1] < scores[child]:
            child += 1
        if scores[child] >= score:
            break
        scores[parent], places[parent] = scores[child], places[child]
        parent = child
    scores[parent], places[parent] = score, place


@compiled()
def unheap(scores: Single, places: Places, size: int) -> None:
    """A heap, sorted in place: best first."""
    while size > 1:
        size -= 1
        score, place = scores[size], places[size]
        scores[size], places[size] = scores[0], places[0]
        sink(scores, places, size, score, place)


@compiled()
def rank(similarities: Single, near: Single, order: Places) -> int:
    """The closest lists, best first, as many as `order` holds; lists of −inf are left out. Returns how many."""
    size = 0
    count = len(order)
    for j in range(len(similarities)):
        score = similarities[j]
        if score > -np.inf and (size < count or score > near[0]):
            size = push(near, order, size, score, j)
    unheap(near, order, size)
    return size


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
def grow(forest: Forest, features: Double) -> float:
    """The sum of the trees' values."""
    total = 0.0
    for node in forest.roots:
        while forest.feature[node] >= 0:
            goes_left = features[forest.feature[node]] <= forest.threshold[node]
            node = forest.left[node] if goes_left else forest.right[node]
        total += forest.value[node]
    return total


@compiled()
def ratio(above: float, below: float) -> float:
    """above / below, 0 where there is nothing to divide by."""
    return above / below if abs(below) > 1e-12 else 0.0


@compiled()
def describe(query: Single, near: Single, known: int, trace: Single, k: int, tau: int, features: Double) -> None:
    """The features of Table 1 after τ lists: query, centroids, results, stability.

    `trace` (h × 4) holds what the first τ lists did; `near` the similarities of the `known` closest centroids.
    """
    d = len(query)
    features[:d] = query
    features[d:] = 0.0
    at = d
    for h in range(min(tau, known)):
        features[at + h] = near[h]
    at += tau
    for step in range(RATIOS):
        place = 10 * (step + 1) - 1
        if place < known:
            features[at + step] = ratio(near[place], near[0])
    at += RATIOS
    best, kth = trace[tau - 1, BEST], trace[tau - 1, KTH]
    features[at], features[at + 1] = best, kth
    features[at + 2], features[at + 3] = ratio(best, kth), ratio(best, near[0])
    at += 4
    for h in range(1, tau):
        features[at + h - 1] = trace[h, KEPT] / k
        features[at + tau + h - 2] = trace[h, FIRST] / k


@compiled()
def odds(clues: Double, coefficients: Double) -> Any:
    """Log-odds of a logistic model with all products of two clues; coefficients: constant, linear, quadratic."""
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
def look(best: Any, first: Any, following: Any, mean: float, scale: float, h: int, since: int, clues: Double) -> None:
    """What is known after h lists of whether a later one holds something better than the best so far.

    In units of the spread of this query's similarities to all centroids: how far the best lies above the next
    centroid, how far the next centroid lies below the first, how far the first stands out. As logarithms: the lists
    probed and those since the best last changed. And what kind of query it is: that mean and that spread themselves.
    """
    clues[0] = (best - following) / scale
    clues[1] = (first - following) / scale
    clues[2] = (first - mean) / scale
    clues[3] = np.log(h)
    clues[4] = np.log(1 + since)
    clues[5] = mean
    clues[6] = scale


@compiled()
def look_all(traces: Single, near: Single, moments: Double) -> Double:
    """`look` after every list of every trace: (q × N × clues). After the last list of all, the last stands for next."""
    out = np.zeros((traces.shape[0], traces.shape[1], CLUES))
    for row in range(traces.shape[0]):
        since = 0
        for h in range(traces.shape[1]):
            best = traces[row, h, BEST]
            since = since + 1 if h and best == traces[row, h - 1, BEST] else 0
            following = near[row, min(h + 1, near.shape[1] - 1)]
            if best > -np.inf:
                look(best, near[row, 0], following, moments[row, 0], moments[row, 1], h + 1, since, out[row, h])
    return out


@compiled()
def window(h: int) -> int:
    """Over how many lists ahead the chance of improvement is estimated."""
    return max(1, h // 4)


@compiled()
def below(places: Places, place: int) -> int:
    """How many of sorted places lie below one."""
    low, high = 0, len(places)
    while low < high:
        middle = (low + high) >> 1
        if places[middle] < place:
            low = middle + 1
        else:
            high = middle
    return low


@compiled()
def among(places: Places, place: int) -> bool:
    """Whether a place is one of some sorted ones."""
    at = below(places, place)
    return at < len(places) and places[at] == place


@compiled(fastmath=True)
def similarity(vectors: npt.NDArray[Any], place: int, query: Single, euclidean: bool) -> np.float32:
    """q · v, or −‖q − v‖², of one place."""
    total = np.float32(0)
    if euclidean:
        for j in range(len(query)):
            difference = wide(vectors[place, j]) - query[j]
            total -= difference * difference
    else:
        for j in range(len(query)):
            total += wide(vectors[place, j]) * query[j]
    return total


@compiled()
def probe(
    query: Single,
    order: Places,
    near: Single,
    known: int,
    mean: float,
    scale: float,
    lists: Lists,
    program: Program,
    excluded: Places,
    allowed: Places,
    filtered: bool,
    begun: Places,
    scores: Single,
    places: Places,
    trace: Single,
    buffer: Single,
    features: Double,
) -> tuple[int, int, int]:
    """Search one query. Fills `scores` and `places` (k), best first, and `trace` (N × 4).

    `excluded`, `allowed` and `begun` are sorted places; `allowed` counts when `filtered`. RS_0 are the best k of
    `begun`, all of which are excluded from the lists. Returns how many results there are, lists probed and vectors
    scanned.
    """
    k = len(scores)
    size = settled = probed = 0
    cap = min(program.lists, known)
    first_low = first_high = since = 0
    best = np.float32(-np.inf)
    clues = np.empty(CLUES)
    for place in begun:
        score = similarity(lists.vectors, place, query, lists.euclidean)
        if size < k or score > scores[0]:
            size = push(scores, places, size, score, place)
            best = max(best, score)
    scanned = len(begun)
    for h in range(cap):
        if h >= cap:  # lowered meanwhile
            break
        low, high = lists.starts[order[h]], lists.starts[order[h] + 1]
        if h == 0:
            first_low, first_high = low, high
        changed = False
        if filtered:
            a, e = below(allowed, low), below(excluded, low)
            while a < len(allowed) and allowed[a] < high:
                place = allowed[a]
                a += 1
                while e < len(excluded) and excluded[e] < place:
                    e += 1
                if e < len(excluded) and excluded[e] == place:
                    continue
                score = similarity(lists.vectors, place, query, lists.euclidean)
                scanned += 1
                if size < k or score > scores[0]:
                    size = push(scores, places, size, score, place)
                    changed = True
                    if score > best:
                        best, since = score, -1
        elif high > low:
            values = buffer[: high - low]
            if lists.euclidean:
                distance(lists.vectors[low:high], query, values)
            else:
                dot(lists.vectors[low:high], query, values)
            scanned += high - low
            e = below(excluded, low)
            while e < len(excluded) and excluded[e] < high:
                values[excluded[e] - low] = -np.inf
                e += 1
            for i in range(high - low):
                score = values[i]
                if score > (scores[0] if size == k else -np.inf):
                    size = push(scores, places, size, score, low + i)
                    changed = True
                    if score > best:
                        best, since = score, -1
        probed = h + 1
        since += 1
        kept = first = size
        if changed or h == 0:
            kept = first = 0
            for i in range(size):
                kept += not low <= places[i] < high or among(begun, places[i])
                first += first_low <= places[i] < first_high
        elif len(trace):
            first = trace[h - 1, FIRST]
        if len(trace):
            trace[h, BEST], trace[h, KTH] = best, scores[0] if size == k else -np.inf
            trace[h, KEPT], trace[h, FIRST] = kept, first
        settled = settled + 1 if kept >= program.needed and (h > 0 or len(begun) > 0) else 0
        if probed < program.tau:
            continue
        if probed == program.tau and (len(program.classifier.roots) or len(program.regression.roots)):
            describe(query, near, known, trace, k, program.tau, features)
            if len(program.classifier.roots) and grow(program.classifier, features) < 0:
                break  # Exit
            if len(program.regression.roots):
                wanted = grow(program.regression, features)
                cap = min(cap, max(program.tau, int(np.ceil(wanted))))
        if program.rounds and settled >= program.rounds:
            break
        if len(program.chance) and probed < cap and size > 0:
            look(best, near[0], near[probed], mean, scale, probed, since, clues)
            chance = 1 / (1 + np.exp(-odds(clues, program.chance)))
            if chance < program.rate * window(probed):
                break
    unheap(scores, places, size)
    return size, probed, scanned


@compiled()
def probe_all(
    queries: Single,
    turns: Places,
    similarities: Single,
    lists: Lists,
    program: Program,
    excluded: Places,
    excluded_starts: Places,
    allowed: Places,
    filtered: bool,
    begun: Places,
    begun_starts: Places,
    width: int,
    scores: Single,
    places: Places,
    costs: Places,
    traces: Single,
) -> None:
    """Search some of the queries, `turns`. `costs` (q × 3): results, lists probed, vectors scanned."""
    near, order = np.empty(width, dtype=np.float32), np.empty(width, dtype=np.int64)
    longest = 0
    for j in range(len(lists.starts) - 1):
        longest = max(longest, lists.starts[j + 1] - lists.starts[j])
    buffer = np.empty(longest, dtype=np.float32)
    learned = len(program.classifier.roots) or len(program.regression.roots)
    room = queries.shape[1] + 3 * program.tau + RATIOS + 4 if learned else 0
    features = np.empty(room, dtype=np.float64)
    own = np.empty((program.lists if learned else 0, 4), dtype=np.float32)
    for turn in turns:
        known = rank(similarities[turn], near, order)
        mean, scale = moments(similarities[turn])
        trace = traces[turn] if len(traces) else own
        costs[turn, 0], costs[turn, 1], costs[turn, 2] = probe(
            queries[turn],
            order,
            near,
            known,
            mean,
            scale,
            lists,
            program,
            excluded[excluded_starts[turn] : excluded_starts[turn + 1]],
            allowed,
            filtered,
            begun[begun_starts[turn] : begun_starts[turn + 1]],
            scores[turn],
            places[turn],
            trace,
            buffer,
            features,
        )
