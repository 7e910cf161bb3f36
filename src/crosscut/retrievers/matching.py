"""Compiled: which items share most with a query's words. Importing this loads numba.

Items go by in blocks that fit the processor's cache. Within a block the rarer words come first; once k items are found,
the frequent words, which cannot bring an item in by themselves, are looked at only where the rarer ones come near
(MaxScore: Turtle and Flood 1995).
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from crosscut.linalg.kernels import compiled

BLOCK = 1 << 14
Whole = npt.NDArray[np.int64]
Single = npt.NDArray[np.float32]


@compiled()
def count(tokens: Any, sizes: Any, last: Whole, numbers: Any, times: Any, lengths: Any) -> int:
    """Terms of items, each once, and how often (255 at most); returns how many were put.

    `sizes` are the tokens of each item, and become its terms; `last` is where a term was put last (−1: nowhere).
    """
    put = token = 0
    for item in range(len(sizes)):
        begin = put
        for place in range(token, token + sizes[item]):
            term = tokens[place]
            if term < 0:
                continue
            lengths[item] += 1
            if last[term] >= begin:
                times[last[term]] = min(times[last[term]] + 1, 255)
            else:
                last[term] = put
                numbers[put] = term
                times[put] = 1
                put += 1
        token += sizes[item]
        sizes[item] = put - begin
    return put


@compiled()
def turn(
    order: Whole, starts: Whole, numbers: Any, counts: Any, rank: Any, ends: Whole, items: Any, often: Any
) -> None:
    """Item by item → term by term: `ends` is where each term begins, and is moved on."""
    for position in range(len(order)):
        item = order[position]
        for place in range(starts[item], starts[item + 1]):
            term = rank[numbers[place]]
            to = ends[term]
            items[to] = position
            often[to] = counts[place]
            ends[term] = to + 1


@compiled()
def add(
    items: Any, counts: Any, lengths: Any, idf: np.float32, flat: np.float32, slope: np.float32, out: Single
) -> None:
    """out[i] += idf · tf / (tf + flat + slope · |i|) for the items of one term."""
    for place in range(len(items)):
        item = items[place]
        tf = np.float32(counts[place])
        out[item] += idf * tf / (tf + flat + slope * np.float32(lengths[item]))


@compiled()
def _advanced(items: Any, place: int, end: int, low: int) -> int:
    """The first place from `place` on whose item is `low` or more."""
    step = 1
    last = place
    while last < end and items[last] < low:
        place = last + 1
        last += step
        step *= 2
    last = min(last, end)
    while place < last:
        middle = (place + last) >> 1
        if items[middle] < low:
            place = middle + 1
        else:
            last = middle
    return place


@compiled()
def _first(items: Any, at: Whole, ends: Whole, rest: Single, low: int, n: int, least: np.float32) -> int:
    """The first item from `low` on that any word has, of words that may still bring an item past `least`; n: none."""
    first = n
    for t in range(len(at)):
        if rest[t] <= least:
            break
        at[t] = _advanced(items, at[t], ends[t], low)
        if at[t] < ends[t] and items[at[t]] < first:
            first = items[at[t]]
    return first


@compiled()
def _summed(
    items: Any,
    counts: Any,
    lengths: Any,
    idf: Single,
    rest: Single,
    at: Whole,
    ends: Whole,
    low: int,
    high: int,
    flat: np.float32,
    slope: np.float32,
    least: np.float32,
    sums: Single,
) -> np.float32:
    """Scores of a block, added to `sums`, word by word; the highest, or −1 if nothing here comes near `least`."""
    most = np.float32(0)
    for t in range(len(idf)):
        if most + rest[t] <= least:
            return np.float32(-1)
        place = _advanced(items, at[t], ends[t], low)
        end, weight = ends[t], idf[t]
        while place < end and items[place] < high:
            item = items[place]
            tf = np.float32(counts[place])
            value = sums[item - low] + weight * tf / (tf + flat + slope * np.float32(lengths[item]))
            sums[item - low] = value
            most = max(most, value)
            place += 1
        at[t] = place
    return most


@compiled()
def _opened(allowed: Whole, gate: int, low: int, high: int, open_: Any) -> int:
    """Mark the allowed items of a block; where the next block goes on."""
    open_[:] = False
    gate = _advanced(allowed, gate, len(allowed), low)
    place = gate
    while place < len(allowed) and allowed[place] < high:
        open_[allowed[place] - low] = True
        place += 1
    return gate


@compiled()
def _put(scores: Single, places: Whole, size: int, value: np.float32, place: int) -> int:
    """Put an item among the best, behind those of its score; how many there are now."""
    room = len(scores)
    slot = size if size < room else room - 1
    while slot > 0 and scores[slot - 1] < value:
        if slot < room:
            scores[slot], places[slot] = scores[slot - 1], places[slot - 1]
        slot -= 1
    scores[slot], places[slot] = value, place
    return min(size + 1, room)


@compiled()
def best(
    begins: Whole,
    ends: Whole,
    idf: Single,
    items: Any,
    counts: Any,
    lengths: Any,
    flat: np.float32,
    slope: np.float32,
    allowed: Whole,
    filtered: bool,
    scores: Single,
    places: Whole,
) -> int:
    """The items that score highest, best first, ties to the lower position; returns how many were found.

    Terms are in order of idf, the highest first; `allowed` are sorted positions, if `filtered`.
    """
    n, terms, room, size = len(lengths), len(idf), len(scores), 0
    rest = np.zeros(terms + 1, dtype=np.float32)  # what terms from here on bring at most
    for t in range(terms - 1, -1, -1):
        rest[t] = rest[t + 1] + idf[t]
    at = begins.copy()
    sums = np.zeros(BLOCK, dtype=np.float32)
    open_ = np.zeros(BLOCK, dtype=np.bool_)
    gate = 0
    low = 0
    while low < n and room:
        least = scores[room - 1] if size == room else np.float32(-1)
        first = _first(items, at, ends, rest, low, n, least)  # blocks without any word are not visited
        if first >= n:
            break
        low = first - first % BLOCK
        high = min(low + BLOCK, n)
        most = _summed(items, counts, lengths, idf, rest, at, ends, low, high, flat, slope, least, sums)
        if most > max(least, np.float32(0)):
            if filtered:
                gate = _opened(allowed, gate, low, high, open_)
            for j in range(high - low):
                value = sums[j]
                if value > 0 and (size < room or value > scores[size - 1]) and (not filtered or open_[j]):
                    size = _put(scores, places, size, value, low + j)
        sums[: high - low] = 0
        low = high
    return size
