"""Planted data: score matrices of known structure, for tests, examples and benchmarks without a model."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from crosscut.errors import InputError

Matrix = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Planted:
    """scores = offset + base + query_factors @ item_factors.T + noise, and vectors that see it dimly."""

    scores: Matrix  # (queries × items)
    query_factors: Matrix  # (queries × rank)
    item_factors: Matrix  # (items × rank)
    base: Matrix  # (items,) how much every query likes an item
    vectors: Matrix  # (items × dimension), a "dual encoder" of the items
    query_vectors: Matrix  # (queries × dimension)


def planted(
    queries: int,
    items: int,
    *,
    rank: int = 8,
    noise: float = 0.0,
    base: float = 0.0,
    offset: float = 0.0,
    dimension: int | None = None,
    blur: float = 0.5,
    seed: int = 0,
) -> Planted:
    """A low-rank score matrix plus noise.

    `noise` is the standard deviation of what no factor explains (the factors' part has standard deviation
    1), `base` that of the items' popularity, `offset` a constant. The vectors are the factors in
    `dimension` dimensions with `blur` of noise: what an encoder trained for the task would know.
    """
    dimension = rank if dimension is None else dimension
    if min(queries, items, rank) < 1 or dimension < rank:
        raise InputError(
            f"{queries} queries, {items} items, rank {rank} and dimension {dimension} cannot be planted; "
            "all must be at least 1 and the dimension at least the rank"
        )
    if min(noise, base, blur) < 0:
        raise InputError(f"noise {noise}, base {base} and blur {blur} are standard deviations and cannot be negative")
    rng = np.random.default_rng(seed)
    q = rng.standard_normal((queries, rank)) / rank**0.25
    v = rng.standard_normal((items, rank)) / rank**0.25
    popularity = base * rng.standard_normal(items)
    scores = offset + popularity + q @ v.T + noise * rng.standard_normal((queries, items))
    turn = np.linalg.qr(rng.standard_normal((dimension, dimension)))[0][:rank]  # (rank × dimension)
    seen_items = v @ turn + blur * rng.standard_normal((items, dimension)) / dimension**0.5
    seen_queries = q @ turn + blur * rng.standard_normal((queries, dimension)) / dimension**0.5
    return Planted(scores, q, v, popularity, seen_items, seen_queries)
