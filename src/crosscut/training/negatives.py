"""Hard negatives: random, TF-IDF, dual encoder (ANNCUR appendix B.1, table 3).

A miner ranks items for queries (`TfIdf.rank`, `rank_dense`); `draw` picks negatives from a ranking, never a judged
item. Drawing at random among the best few dozen, rather than taking the very best, keeps unjudged relevant items from
being taught as wrong.
"""

from __future__ import annotations

import random
from collections.abc import Collection as AnyCollection
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt


def rank_dense(items: npt.NDArray[np.float32], queries: npt.NDArray[np.float32], k: int) -> npt.NDArray[np.int64]:
    """Positions of the k items (n × d) with the largest inner product, for every query (m × d): (m × k)."""
    k = min(k, len(items))
    ranked = np.empty((len(queries), k), np.int64)
    for start in range(0, len(queries), 256):
        ranked[start : start + 256] = top(queries[start : start + 256] @ items.T, k)
    return ranked


def top(scores: npt.NDArray[np.floating], k: int) -> npt.NDArray[np.int64]:
    """Positions of the k largest of each row, best first; ties go to the lower position."""
    if k < scores.shape[1]:
        best = np.sort(np.argpartition(-scores, k - 1, axis=1)[:, :k], axis=1)
    else:
        best = np.tile(np.arange(scores.shape[1]), (len(scores), 1))
    values = np.take_along_axis(scores, best, 1)
    return np.take_along_axis(best, np.argsort(-values, axis=1, kind="stable"), 1)


def draw(
    ranked: Sequence[int] | npt.NDArray[np.int64],
    judged: AnyCollection[int],
    count: int,
    rng: random.Random,
    *,
    among: int = 50,
) -> list[int]:
    """`count` items drawn from the best `among` of a ranking, without the judged ones."""
    pool = [int(position) for position in ranked[: among + len(judged)] if int(position) not in judged]
    return rng.sample(pool[:among], min(count, len(pool[:among])))
