"""The compiled search of a clustered index: rank lists, scan them one by one, keep the best k, ask the exit rule.

Busolin et al. 2024, §2. For one query q:

    lists in order of σ(q, c), c a list's centroid
    h = 1, 2, …: scan list h; RS_h are the best k of what was scanned, ties to the lower id
    until the exit rule says so (`deciding.py`), N lists at most

A list is a contiguous piece of the vectors, so the members of RS_h that list h brought are those whose place lies in
it and that the search did not begin with: |RS_h ∩ RS_{h−1}| = |RS_h| − their number, exactly, as sets.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from crosscut.ann.ivf.deciding import (
    BEST,
    KTH,
    OF_FIRST,
    STAYED,
    Notes,
    Outlook,
    Single,
    Whole,
    limit_after,
    moments,
    notes_for,
)
from crosscut.ann.ivf.rules import Conditions
from crosscut.linalg.kernels import compiled, distance, dot, wide

FIRST = 256  # lists that are ranked before one is visited
MANY = (
    2  # one vector of a list in so many allowed, and the whole list is read: single ones cost more than twice as much
)


class Stored(NamedTuple):
    """The index: vectors list by list."""

    vectors: npt.NDArray[Any]  # (n × d) float32, or bits of float16
    starts: Whole  # (lists + 1)
    ids: Whole  # (n)
    euclidean: bool


class Asked(NamedTuple):
    """Some queries, and the sorted places that each must not find and begins with (which it must not find again)."""

    queries: Single  # (q × d)
    similarities: Single  # (q × lists) to centroids; −inf: not to be visited
    excluded: Whole
    excluded_starts: Whole  # (q + 1)
    known: Whole
    known_starts: Whole  # (q + 1)
    allowed: Whole  # what all may find, if filtered
    filtered: bool


class Answers(NamedTuple):
    """What was found, (q × …)."""

    scores: Single  # (q × k) best first
    places: Whole  # (q × k)
    costs: Whole  # (q × 2) lists probed, vectors scanned
    traces: Single  # (q × N × 4) or nothing


class ListOrder(NamedTuple):
    """The lists of one query: the closest of them, best first, with room for all that may be visited."""

    similarities: Single  # (lists)
    closest: Heap
    numbers: Whole  # 0 … lists − 1


class QueryLimits(NamedTuple):
    """What one query may find."""

    excluded: Whole
    known: Whole
    allowed: Whole
    filtered: bool


class Heap(NamedTuple):
    """The best so far: a bounded heap whose root is the worst."""

    scores: Single  # (k)
    places: Whole  # (k)


@compiled()
def precedes(score: Any, place: int, other: Any, other_place: int, ids: Whole | None) -> Any:
    """Whether one ranks before another: by score, then by id if there are any."""
    if ids is None:  # compiled away
        return score > other
    return score > other or (score == other and ids[place] < ids[other_place])


@compiled()
def offer(top: Heap, size: int, score: np.float32, place: int, ids: Whole | None) -> tuple[int, bool]:
    """Take one into the best so far, if it belongs there. Returns their number, and whether it was taken."""
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
def sink(top: Heap, size: int, score: np.float32, place: int, ids: Whole | None) -> None:
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
def sort(top: Heap, size: int, ids: Whole | None) -> None:
    """A heap, sorted in place: best first."""
    while size > 1:
        size -= 1
        score, place = top.scores[size], top.places[size]
        top.scores[size], top.places[size] = top.scores[0], top.places[0]
        sink(top, size, score, place, ids)


@compiled()
def rank(similarities: Single, closest: Heap, numbers: Whole) -> int:
    """The closest lists, best first, as many as there is room for, ties to the lower number; lists of −inf are left
    out. Returns how many. `numbers` are 0, 1, 2 …"""
    size, count = 0, len(closest.scores)
    for j in range(len(similarities)):
        score = similarities[j]
        if score > -np.inf and (size < count or score > closest.scores[0]):
            size, _ = offer(closest, size, score, j, numbers)
    sort(closest, size, numbers)
    return size


@compiled()
def below(places: Whole, place: int) -> int:
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
def among(places: Whole, place: int) -> bool:
    """Whether a place is one of some sorted ones."""
    at = below(places, place)
    return at < len(places) and places[at] == place


@compiled(fastmath=True)
def similarity(stored: Stored, place: int, query: Single) -> np.float32:
    """q · v, or −‖q − v‖², of one place."""
    total = np.float32(0)
    if stored.euclidean:
        for j in range(len(query)):
            difference = wide(stored.vectors[place, j]) - query[j]
            total -= difference * difference
    else:
        for j in range(len(query)):
            total += wide(stored.vectors[place, j]) * query[j]
    return total


@compiled()
def begin(stored: Stored, query: Single, known: Whole, top: Heap) -> tuple[int, Any]:
    """RS_0, of what is known before the first list. Returns how many there are, and the best score."""
    size, best = 0, np.float32(-np.inf)
    for place in known:
        score = similarity(stored, place, query)
        size, _ = offer(top, size, score, place, stored.ids)
        best = max(best, score)
    return size, best


@compiled()
def close(values: Single, low: int, allowed: Whole) -> None:
    """−inf for the vectors of a list, which begins at `low`, that are not among its allowed places."""
    place = 0
    for one in allowed:
        values[place : one - low] = -np.inf
        place = one - low + 1
    values[place:] = -np.inf


@compiled(inline="always")
def scan(
    low: int, high: int, stored: Stored, query: Single, limits: QueryLimits, top: Heap, size: int, buffer: Single
) -> tuple[int, int, Any]:
    """Every vector of a list. Returns how many results there are, how many were taken, and the list's best score."""
    values, excluded = buffer[: high - low], limits.excluded
    if stored.euclidean:
        distance(stored.vectors[low:high], query, values)
    else:
        dot(stored.vectors[low:high], query, values)
    if limits.filtered:
        close(values, low, limits.allowed)
    e = below(excluded, low)
    while e < len(excluded) and excluded[e] < high:
        values[excluded[e] - low] = -np.inf
        e += 1
    taken, best = 0, np.float32(-np.inf)
    floor = top.scores[0] if size == len(top.scores) else best
    for i in range(high - low):
        score = values[i]
        if score >= floor and score > -np.inf:
            size, fits = offer(top, size, score, low + i, stored.ids)
            taken += fits
            best = max(best, score)
            if size == len(top.scores):
                floor = top.scores[0]
    return size, taken, best


@compiled()
def scan_allowed(
    low: int, stored: Stored, query: Single, limits: QueryLimits, top: Heap, size: int
) -> tuple[int, int, Any, int]:
    """The allowed vectors of a list, one by one. Returns what `scan` does, and how many were looked at."""
    excluded = limits.excluded
    e = below(excluded, low)
    taken, scanned, best = 0, 0, np.float32(-np.inf)
    for place in limits.allowed:
        while e < len(excluded) and excluded[e] < place:
            e += 1
        if e < len(excluded) and excluded[e] == place:
            continue
        score = similarity(stored, place, query)
        scanned += 1
        size, fits = offer(top, size, score, place, stored.ids)
        taken += fits
        best = max(best, score)
    return size, taken, best, scanned


@compiled(inline="always")
def members(
    top: Heap, size: int, low: int, high: int, first_low: int, first_high: int, known: Whole
) -> tuple[int, int]:
    """How many of the result were there before the list at low … high, and how many lie in the first list."""
    stayed = of_first = 0
    for i in range(size):
        place = top.places[i]
        stayed += not low <= place < high or among(known, place)
        of_first += first_low <= place < first_high
    return stayed, of_first


@compiled()
def probe(
    outlook: Outlook,
    order: ListOrder,
    ranked: int,
    limits: QueryLimits,
    stored: Stored,
    stop: Conditions,
    top: Heap,
    trace: Single,
    notes: Notes,
    buffer: Single,
) -> tuple[int, int]:
    """Search one query, its lists in this order, of which so many are ranked. Fills `top`, best first, and `trace`.

    Returns how many lists were probed and vectors scanned.
    """
    query, k = outlook.query, len(top.scores)
    size, start = begin(stored, query, limits.known, top)
    scanned, best, of_first = len(limits.known), start, 0
    first_low, first_high = 0, 0
    notes.counts[:] = 0
    places = order.closest.places
    most = min(stop.lists, len(places) if ranked == FIRST else ranked)
    h = 0
    while h < most:
        if h == FIRST == ranked:  # few searches come here
            ranked = rank(order.similarities, order.closest, order.numbers)
            most = min(most, ranked)
            if h >= most:
                break
        low, high = stored.starts[places[h]], stored.starts[places[h] + 1]
        if h == 0:
            first_low, first_high = low, high
        inside = limits
        if limits.filtered:
            allowed = limits.allowed[below(limits.allowed, low) : below(limits.allowed, high)]
            inside = QueryLimits(limits.excluded, limits.known, allowed, len(allowed) < high - low)
        if inside.filtered and MANY * len(inside.allowed) < high - low:
            size, taken, here, looked_at = scan_allowed(low, stored, query, inside, top, size)
        else:
            size, taken, here = scan(low, high, stored, query, inside, top, size, buffer)
            looked_at = high - low
        scanned += looked_at
        best = max(best, here)
        stayed = size
        if taken or h == 0:
            stayed, of_first = members(top, size, low, high, first_low, first_high, limits.known)
        trace[h, BEST], trace[h, KTH] = best, top.scores[0] if size == k else -np.inf
        trace[h, STAYED], trace[h, OF_FIRST] = stayed, of_first
        h += 1
        most = limit_after(h, most, start, stop, outlook, trace, k, notes)
    sort(top, size, stored.ids)
    return h, scanned


@compiled()
def probe_all(turns: Whole, asked: Asked, stored: Stored, stop: Conditions, width: int, answers: Answers) -> None:
    """Search some of the queries, `turns`, each ranking its `width` closest lists."""
    closest = Heap(np.empty(width, dtype=np.float32), np.empty(width, dtype=np.int64))
    longest = 0
    for j in range(len(stored.starts) - 1):
        longest = max(longest, stored.starts[j + 1] - stored.starts[j])
    buffer = np.empty(longest, dtype=np.float32)
    learned = len(stop.classifier.roots) + len(stop.regression.roots) > 0
    notes = notes_for(asked.queries.shape[1], stop.tau, learned)
    own = np.empty((stop.lists, 4), dtype=np.float32)
    numbers = np.arange(len(stored.starts) - 1)
    # most searches end long before the last list: ranking all of them would cost more than they do
    some = width if learned or len(stop.chance) else min(width, FIRST)
    for turn in turns:
        near = rank(asked.similarities[turn], Heap(closest.scores[:some], closest.places[:some]), numbers)
        mean, spread = moments(asked.similarities[turn])
        excluded = asked.excluded[asked.excluded_starts[turn] : asked.excluded_starts[turn + 1]]
        known = asked.known[asked.known_starts[turn] : asked.known_starts[turn + 1]]
        answers.costs[turn, 0], answers.costs[turn, 1] = probe(
            Outlook(asked.queries[turn], closest.scores[:near], mean, spread),
            ListOrder(asked.similarities[turn], closest, numbers),
            near,
            QueryLimits(excluded, known, asked.allowed, asked.filtered),
            stored,
            stop,
            Heap(answers.scores[turn], answers.places[turn]),
            answers.traces[turn] if len(answers.traces) else own,
            notes,
            buffer,
        )
