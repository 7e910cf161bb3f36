"""The largest of many values."""

from __future__ import annotations

import numpy as np

from crosscut.types import Array, Positions

SAMPLED = 2048  # sampled values, to estimate where the largest begin


def best(values: Array, count: int, slack: int = 0) -> Positions:
    """The places of the `count` largest values, and of all that tie with them or come up to `slack` places after.

    Values of −inf are never returned. In order of place, not of value.
    """
    wanted = min(count + slack, len(values))
    if wanted <= 0:
        return np.empty(0, dtype=np.int64)
    step = len(values) // SAMPLED
    if step > 8 and wanted * 16 < len(values):
        # most values lie below a threshold estimated from a sample: one pass finds the few above it
        sample = values[::step]
        rank = 2 * wanted // step + 9
        floor = np.partition(sample, len(sample) - rank)[len(sample) - rank]
        few = np.flatnonzero(~(values < floor))  # NaN among them
        if wanted <= len(few) < len(values) // 4:
            return few[best(values[few], count, slack)]
    top = np.partition(values, len(values) - wanted)[len(values) - wanted :]  # NaN counts as the largest
    if np.isnan(top).any():
        return np.flatnonzero(np.isnan(values))  # the caller raises an error that names these items
    threshold = top[0]
    if threshold == -np.inf:
        return np.flatnonzero(values > -np.inf)
    places = np.flatnonzero(values >= threshold)
    if len(places) <= wanted + 64:
        return places
    # a crowd of equal predictions (zero vectors, constant scores): the lowest positions of it are enough
    above = np.flatnonzero(values > threshold)
    level = np.flatnonzero(values == threshold)[: wanted - len(above)]
    return np.union1d(above, level)


def ranked(values: Array, count: int) -> Positions:
    """The places of the `count` largest values, best first; ties go to the lower place, −inf is never returned."""
    places = best(values, count)
    return places[np.lexsort((places, -values[places]))][:count]


def slack_for(count: int) -> int:
    """Return how many more than `count` are predicted again in float64."""
    return 16 + count // 4
