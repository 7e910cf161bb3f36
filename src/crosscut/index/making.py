"""What an index is made of: vectors of texts, scores of queries with every item."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from crosscut.ann.flat import top_items
from crosscut.datasets.records import Item
from crosscut.encoders.named import DualEncoder
from crosscut.errors import InputError
from crosscut.index.state import State
from crosscut.scorers.meter import Account, Meter
from crosscut.spaces.factorization import Factors, factorize
from crosscut.spaces.sparse import items_per_query, score_pairs
from crosscut.types import Progress


def exhaustive(
    state: State, queries: Sequence[str], positions: npt.NDArray[np.int64], progress: Progress | None
) -> tuple[npt.NDArray[np.float32], int]:
    """Scores (q × m) of queries with items, and the calls they took; every call goes through the meter."""
    if state.scorer is None:
        raise InputError("this index has no scorer: load it with scorer=…")
    meter = Meter(state.scorer, cache=state.cache)
    scores = np.empty((len(queries), len(positions)), np.float32)
    done = 0
    for row, query in enumerate(queries):
        account = Account(query, len(positions))
        for start in range(0, len(positions), 512):
            part = positions[start : start + 512]
            meter.buy([account], [part])
            done += len(part)
            if progress is not None:
                progress("scoring train queries with every item", done, scores.size)
        order = np.argsort(account.positions)
        scores[row] = account.scores[order[np.searchsorted(account.positions, positions, sorter=order)]]
    return scores, meter.calls


def factorized(
    state: State,
    encoder: DualEncoder | None,
    queries: Sequence[str],
    per_query: int,
    solver: Any,
    progress: Progress | None,
) -> Factors:
    """Item factors from `per_query` scores of each train query: half of its nearest items, half drawn (AXN §2.1)."""
    if encoder is None or state.vectors is None or state.scorer is None:
        raise InputError(f"space={solver!r} starts from an encoder's vectors, and this index has none")
    vectors = encoder.encode_queries(queries)
    ranked = top_items(per_query, state.vectors, vectors)
    pairs = items_per_query(per_query, (len(queries), len(state.items)), ranked=ranked, random=0.5, seed=state.seed)
    done = 0

    def advance(count: int) -> None:
        nonlocal done
        done += count
        if progress is not None:
            progress("scoring train queries with some items", done, len(pairs))

    scores = score_pairs(state.scorer, queries, pairs, cache=state.cache, progress=advance)
    return factorize(scores, state.vectors, vectors, solver=solver)


def encoded(
    encoder: DualEncoder, texts: Sequence[str], dtype: npt.DTypeLike, progress: Progress | None
) -> npt.NDArray[Any]:
    """Vectors (n × d) of item texts, in the precision they are kept in."""
    if np.dtype(dtype) not in (np.dtype(np.float16), np.dtype(np.float32)):
        raise InputError(f"vectors are kept as float16 or float32; got {np.dtype(dtype)}")
    done = 0

    def advance(count: int) -> None:
        nonlocal done
        done += count
        if progress is not None:
            progress("encoding items", done, len(texts))

    return encoder.encode_items(texts, progress=advance).astype(dtype)


def distinct(items: Sequence[Item]) -> None:
    """Refuse an id that stands twice."""
    seen: set[str] = set()
    for item in items:
        if item.id in seen:
            raise InputError(f"the id {item.id!r} stands twice among {len(items)} items; ids must be unique")
        seen.add(item.id)
