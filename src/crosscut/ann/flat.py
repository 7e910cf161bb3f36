"""Exact top-k of V u over all items, or over those allowed.

Predictions for all items are made in the precision of the space (a float32 product reads V once); the few best are
then computed again in float64, so that neither rounding nor the size of the batch decides between near neighbours.
Ties go to the lower position.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from crosscut.spaces.base import Space
from crosscut.types import Floats, Positions

BATCH = 1 << 24  # predictions held at a time: 64 MiB of float32
WILD = 1e15
SAMPLED = 2048  # values that tell roughly where the largest begin


def best(values: npt.NDArray[Any], count: int, slack: int = 0) -> Positions:
    """The places of the `count` largest values, and of all that tie with them or come up to `slack` places after.

    Values of −inf are never returned. In order of place, not of value.
    """
    wanted = min(count + slack, len(values))
    if wanted <= 0:
        return np.empty(0, dtype=np.int64)
    step = len(values) // SAMPLED
    if step > 8 and wanted * 16 < len(values):
        # most values lie below a level that a sample of them tells: one pass finds the few that do not
        sample = values[::step]
        rank = 2 * wanted // step + 9
        floor = np.partition(sample, len(sample) - rank)[len(sample) - rank]
        few = np.flatnonzero(~(values < floor))  # NaN among them
        if wanted <= len(few) < len(values) // 4:
            return few[best(values[few], count, slack)]
    top = np.partition(values, len(values) - wanted)[len(values) - wanted :]  # NaN counts as the largest
    if np.isnan(top).any():
        return np.flatnonzero(np.isnan(values))  # whoever looks at these items will name them
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


def rerank(space: Space, u: Floats, places: Positions, base: Floats | float, count: int) -> tuple[Positions, Floats]:
    """The best `count` of `places` by base + Vu in float64, best first, ties to the lower position."""
    rows = space.rows(places)  # (m × d)
    # einsum sums every row in the same order, so that equal rows get equal predictions to the last bit
    exact = np.einsum("md,d->m", rows, u) + (base[places] if isinstance(base, np.ndarray) else base)
    order = np.lexsort((places, -exact))[:count]
    return places[order], exact[order]


def slack_for(count: int) -> int:
    """How many more than `count` are predicted again in float64."""
    return 16 + count // 4


def predictions(space: Space, vectors: Sequence[Floats]) -> Iterator[npt.NDArray[Any]]:
    """V u for some query vectors after others, (q × n) of bounded size; they may be written to."""
    step = max(1, BATCH // max(space.n, 1))
    for start in range(0, len(vectors), step):
        chunk = np.stack(vectors[start : start + step])  # (q × d)
        # a wild u must not overflow the space's precision
        largest = np.abs(chunk).max(axis=1, initial=0.0)
        scales = np.where(largest > WILD, largest, 1.0)
        rows = space.predict(chunk / scales[:, None])
        rows = rows if rows.flags.writeable else rows.copy()
        for wild in np.flatnonzero(scales != 1.0):
            rows[wild] *= rows.dtype.type(scales[wild])
        yield rows
