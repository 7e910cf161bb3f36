"""Planted worlds: score matrices whose answer is known."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

import crosscut

METHODS = tuple(
    name
    for name, method in crosscut.methods.methods().items()
    if name != "exact" and method.__module__.startswith("crosscut.")
)


@dataclass(frozen=True)
class Planted:
    """Scores of known low rank, with an encoder that sees part of them."""

    test: np.ndarray  # (q × n)
    anchors: np.ndarray  # (k_q × n)
    vectors: np.ndarray  # (n × d)
    query_vectors: np.ndarray  # (q × d)

    @property
    def n(self) -> int:
        return self.test.shape[1]

    def searcher(
        self, method: str, scorer: Any = None, *, seed: int = 0, ids: Any = None, **settings: Any
    ) -> crosscut.Searcher:
        scorer = crosscut.MatrixScorer(self.test) if scorer is None else scorer
        chosen = crosscut.methods.parse(method).with_settings(settings)
        return crosscut.Searcher(
            scorer, vectors=self.vectors, space=crosscut.CUR(self.anchors), method=chosen, seed=seed, ids=ids
        )


def planted(n: int = 200, queries: int = 6, anchors: int = 30, rank: int = 8, seed: int = 0) -> Planted:
    rng = np.random.default_rng(seed)
    items = rng.normal(size=(n, rank)) * np.linspace(2, 0.5, rank)
    popular = rng.normal(size=n)

    def scores(latent: np.ndarray) -> np.ndarray:
        return latent @ items.T + popular + 0.01 * rng.normal(size=(len(latent), n))

    test, train = rng.normal(size=(queries, rank)), rng.normal(size=(anchors, rank))
    width = rank + 4
    lift = np.linalg.qr(rng.normal(size=(width, width)))[0][:rank]
    vectors = items @ lift + 0.3 * rng.normal(size=(n, width))  # an encoder that sees the items through noise
    return Planted(scores(test), scores(train), vectors, test @ lift)
