"""A scorer that knows part of its score without a call: f = g + costly, and the loop regresses the rest."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

import crosscut
from crosscut.ann import clustered
from crosscut.ann.ivf import IVF
from crosscut.scorers.base import Answer, BoundScorer, Request
from crosscut.search.stopping import Confident
from crosscut.types import Floats, Handles
from tests.worlds import Planted, planted


class Corrected(BoundScorer):
    """f = g + c: g rough and known everywhere, c a small correction that takes a call."""

    knows = True

    def __init__(self, known: np.ndarray, costly: np.ndarray) -> None:
        self.base, self.costly = known, costly
        self.n_items = known.shape[1]

    def known(self, query: Any, handles: Handles | None = None) -> Floats:
        return self.base[query].copy() if handles is None else self.base[query, handles]

    def score_many(self, requests: Sequence[Request]) -> list[Answer]:
        return [Answer.of(self.base[query, handles] + self.costly[query, handles]) for query, handles in requests]


@pytest.fixture
def corrected() -> tuple[Planted, Corrected]:
    world = planted(n=1500, queries=30, rank=8)
    rough = np.random.default_rng(5).normal(size=world.test.shape)
    return world, Corrected(6 * rough, world.test)  # most of f is g, and no vector tells g


def recall(scorer: Corrected, found: list[crosscut.Hits], k: int) -> float:
    truth = np.argsort(-(scorer.base + scorer.costly), axis=1, kind="stable")[:, :k]
    return float(np.mean([len({*hits.ids} & {*row.tolist()}) / k for hits, row in zip(found, truth, strict=True)]))


def searched(scorer: Any, world: Planted, budget: int, **how: Any) -> list[crosscut.Hits]:
    searcher = crosscut.Searcher(scorer, vectors=how.pop("vectors", world.vectors), **how.pop("made", {}))
    return searcher.search_many(range(30), 10, budget, query_vectors=world.query_vectors, **how)


def test_round_one_takes_what_is_known_and_the_rest_is_a_correction(corrected: tuple[Planted, Corrected]) -> None:
    world, scorer = corrected
    found = searched(scorer, world, 40)
    for query, hits in enumerate(found):
        most = np.argsort(-scorer.base[query], kind="stable")[:4]
        assert hits.trace[0].positions.tolist() == most.tolist()
        assert hits.trace[0].estimates.tolist() == scorer.base[query, most].tolist()
    black_box = crosscut.MatrixScorer(scorer.base + scorer.costly)
    assert recall(scorer, found, 10) > 0.9
    assert recall(scorer, found, 10) > recall(scorer, searched(black_box, world, 40), 10) + 0.3


def test_it_beats_reranking_by_what_is_known(corrected: tuple[Planted, Corrected]) -> None:
    world, scorer = corrected
    first = [np.argsort(-row, kind="stable")[:30].tolist() for row in scorer.base]
    reranked = searched(scorer, world, 30, first_ids=first, made={"method": "rnr"})
    assert recall(scorer, searched(scorer, world, 30), 10) > recall(scorer, reranked, 10)


def test_the_papers_methods_see_a_black_box(corrected: tuple[Planted, Corrected]) -> None:
    world, scorer = corrected
    black_box = crosscut.MatrixScorer(scorer.base + scorer.costly)
    mine, theirs = (searched(s, world, 40, made={"method": "axn"}) for s in (scorer, black_box))
    assert [hits.scored.tolist() for hits in mine] == [hits.scored.tolist() for hits in theirs]


def test_over_an_index_the_known_part_orders_a_pool(
    corrected: tuple[Planted, Corrected], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(clustered, "SMALL", 0)
    world, scorer = corrected
    index = IVF.build(world.vectors, lists=20, rule=20)
    assert (
        recall(scorer, searched(scorer, world, 40, vectors=index), 10)
        > recall(scorer, searched(scorer, world, 40), 10) - 0.03
    )


def test_filters_hold(corrected: tuple[Planted, Corrected]) -> None:
    world, scorer = corrected
    for hits in searched(scorer, world, 40, allow=np.arange(0, 1500, 3)):
        assert (hits.scored % 3 == 0).all()
        assert hits.calls == 40


def test_it_stops_when_the_next_items_would_not_change_the_top(corrected: tuple[Planted, Corrected]) -> None:
    world, scorer = corrected
    whole = searched(scorer, world, 200, made={"method": "crosscut@rounds=20"})
    early = searched(scorer, world, 200, made={"method": "crosscut@rounds=20"}, stop="confident")
    assert all(hits.stop_reason in ("confident", "budget") for hits in early)
    assert np.mean([hits.calls for hits in early]) < 120
    assert recall(scorer, early, 10) > recall(scorer, whole, 10) - 0.03
    careful = searched(scorer, world, 200, made={"method": "crosscut@rounds=20"}, stop=Confident(misses=1e-4))
    assert np.mean([h.calls for h in careful]) > np.mean([h.calls for h in early])
