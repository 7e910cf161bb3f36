from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import crosscut
from crosscut.errors import InputError
from crosscut.search import candidates as module
from crosscut.search.candidates import Candidates
from crosscut.vectors.ivf import IVF
from tests.worlds import Planted


@pytest.fixture
def large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SMALL", 0)


def searched(searcher: crosscut.Searcher, world: Planted, **how: Any) -> list[list[tuple[Any, float]]]:
    found = searcher.search_many(range(4), 10, 60, query_vectors=world.query_vectors[:4], **how)
    assert all(hits.calls == 60 for hits in found)
    return [[(hit.id, hit.score) for hit in hits] for hits in found]


@pytest.mark.usefixtures("large")
@pytest.mark.parametrize("method", ["rnr", "axn", "crosscut", "tour"])
def test_rounds_that_visit_every_list_are_flat_rounds(world: Planted, method: str) -> None:
    scorer = crosscut.MatrixScorer(world.test)
    index = IVF.build(world.vectors, lists=12, rule=12)
    flat = crosscut.Searcher(scorer, vectors=world.vectors, method=method)
    clustered = crosscut.Searcher(scorer, vectors=index, method=method)
    assert isinstance(clustered.plan.first.index, Candidates)  # type: ignore[attr-defined]
    assert method == "rnr" or clustered.plan.index is not None
    only = np.arange(0, len(world.vectors), 2)
    assert searched(clustered, world) == searched(flat, world)
    assert searched(clustered, world, allow=only) == searched(flat, world, allow=only)
    first = [[5, 9]] * 4
    assert searched(clustered, world, first_ids=first) == searched(flat, world, first_ids=first)


@pytest.mark.parametrize("method", ["crosscut", "adacur", "axn"])
def test_any_space_can_be_clustered(world: Planted, method: str) -> None:
    """CUR, stacked blocks, a constant coordinate and a base per item: one index over all of it."""
    scorer = crosscut.MatrixScorer(world.test)
    space = crosscut.CUR(world.anchors)

    def made() -> crosscut.Searcher:
        return crosscut.Searcher(scorer, vectors=world.vectors, space=space, method=method, first="dense")

    flat, clustered = made(), made().cluster(lists=10, rule=10)
    assert clustered.plan.index is not None
    if method == "crosscut":
        assert clustered.plan.index.level == 1.0
        assert clustered.plan.first.index is not None  # type: ignore[attr-defined]
    mine, theirs = searched(clustered, world), searched(flat, world)
    shared = np.mean([len({*a} & {*b}) / 10 for a, b in zip(mine, theirs, strict=True)])
    assert shared >= 0.95  # the index holds float16, so that a near-tie at the edge of a round may fall either way


def test_small_corpora_stay_flat(world: Planted) -> None:
    searcher = crosscut.Searcher(crosscut.MatrixScorer(world.test), vectors=IVF.build(world.vectors, lists=8))
    assert searcher.plan.index is None
    assert searcher.plan.first.index is None  # type: ignore[attr-defined]


@pytest.mark.usefixtures("large")
def test_rounds_obey_the_exit_rule_and_still_spend_the_budget(world: Planted) -> None:
    scorer = crosscut.MatrixScorer(world.test)
    index = IVF.build(world.vectors, lists=30, rule=1)  # one list holds fewer items than a round wants
    searched(crosscut.Searcher(scorer, vectors=index), world)
    visited: list[int] = []
    original = index.search_many

    def watched(*given: Any, **how: Any) -> Any:
        found = original(*given, **how)
        visited.extend(found.lists.tolist())
        return found

    index.rule = crosscut.Patience(1, 0.5)
    index.search_many = watched  # type: ignore[method-assign]
    searched(crosscut.Searcher(scorer, vectors=index), world)
    assert min(visited) < 30


@pytest.mark.usefixtures("large")
def test_what_an_index_cannot_do(world: Planted) -> None:
    scorer = crosscut.MatrixScorer(world.test)
    with pytest.raises(InputError, match="metric='ip'"):
        crosscut.Searcher(scorer, vectors=IVF.build(world.vectors, lists=8, metric="l2"))
    with pytest.raises(InputError, match="nothing to cluster"):
        crosscut.Searcher(scorer, vectors=world.vectors, method="rnr").cluster()
    # every prediction is needed: the index steps aside
    index = IVF.build(world.vectors, lists=8, rule=8)
    kept = crosscut.Searcher(scorer, vectors=index).search(
        0, 5, 40, query_vector=world.query_vectors[0], keep_predictions=True
    )
    assert kept.trace[-1].predictions is not None
    assert crosscut.Searcher(
        scorer, vectors=index, method="adacur", space=crosscut.CUR(world.anchors), select="softmax"
    )
