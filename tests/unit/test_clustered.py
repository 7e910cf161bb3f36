from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import crosscut
from crosscut.ann import clustered as module
from crosscut.ann.clustered import Clustered
from crosscut.ann.flat import Flat
from crosscut.ann.ivf import IVF
from crosscut.ann.linear import Projected
from crosscut.ann.topk import Ask
from crosscut.errors import InputError
from crosscut.methods import parse
from tests.worlds import Planted


@pytest.fixture
def large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SMALL", 0)


def searched(searcher: crosscut.Searcher, world: Planted, **how: Any) -> list[list[tuple[Any, float]]]:
    found = searcher.search_many(range(4), 10, 60, query_vectors=world.query_vectors[:4], **how)
    assert all(hits.calls == 60 for hits in found)
    return [[(hit.id, hit.score) for hit in hits] for hits in found]


@pytest.mark.usefixtures("large")
@pytest.mark.parametrize("method", ["rerank", "axn", "crosscut"])
def test_rounds_that_visit_every_list_are_flat_rounds(world: Planted, method: str) -> None:
    scorer = crosscut.MatrixScorer(world.test)
    index = IVF.build(world.vectors, lists=12, rule=12)
    flat = crosscut.Searcher(scorer, vectors=world.vectors, method=method)
    clustered = crosscut.Searcher(scorer, vectors=index, method=method)
    only = np.arange(0, len(world.vectors), 2)
    assert searched(clustered, world) == searched(flat, world)
    assert searched(clustered, world, allow=only) == searched(flat, world, allow=only)
    first = [[5, 9]] * 4
    assert searched(clustered, world, candidates=first) == searched(flat, world, candidates=first)


@pytest.mark.parametrize("method", ["crosscut", "adacur", "axn"])
def test_any_space_can_be_clustered(world: Planted, method: str) -> None:
    """CUR, stacked blocks, a constant coordinate and a base per item: one index over all of it."""
    scorer = crosscut.MatrixScorer(world.test)
    space = crosscut.CUR(world.anchors)

    def made() -> crosscut.Searcher:
        return crosscut.Searcher(scorer, vectors=world.vectors, space=space, method=f"{method}@first=dense")

    flat, clustered = made(), made().cluster(lists=10, rule=10)
    assert isinstance(clustered.plan.then.topk, Projected)
    mine, theirs = searched(clustered, world), searched(flat, world)
    shared = np.mean([len({*a} & {*b}) / 10 for a, b in zip(mine, theirs, strict=True)])
    assert shared >= 0.95  # the index holds float16, so that a near-tie at the edge of a round may fall either way


def test_small_corpora_stay_flat(world: Planted) -> None:
    searcher = crosscut.Searcher(crosscut.MatrixScorer(world.test), vectors=IVF.build(world.vectors, lists=8))
    assert isinstance(searcher.plan.then.topk, Flat)


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
        crosscut.Searcher(scorer, vectors=world.vectors, method="rerank").cluster()
    # every prediction is needed: the index steps aside
    index = IVF.build(world.vectors, lists=8, rule=8)
    kept = crosscut.Searcher(scorer, vectors=index).search(0, 5, 40, query_vector=world.query_vectors[0], trace=True)
    assert kept.trace[-1].predictions is not None
    assert crosscut.Searcher(
        scorer, vectors=index, method=parse("adacur@select=softmax"), space=crosscut.CUR(world.anchors)
    )


def test_what_batch_mates_ask_for_does_not_matter(world: Planted) -> None:
    index = IVF.build(world.vectors, lists=20, rule=crosscut.Patience(1, 0.2))
    topk, counts = Clustered(index), [5, 40, 5, 12, 40, 80]

    def ask(j: int) -> Ask:
        return Ask(world.query_vectors[j], counts[j], np.arange(j))

    together = topk.top([ask(j) for j in range(6)])
    for j in range(6):
        assert together[j].handles.tolist() == topk.top([ask(j)])[0].handles.tolist()


@pytest.mark.usefixtures("large")
def test_an_untuned_index_is_visited_carefully(world: Planted, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rules: list[Any] = []
    original = IVF.search_many

    def watched(self: IVF, *given: Any, **how: Any) -> Any:
        rules.append(how["rule"])
        return original(self, *given, **how)

    monkeypatch.setattr(IVF, "search_many", watched)
    scorer = crosscut.MatrixScorer(world.test)

    def asked(index: IVF) -> set[Any]:
        rules.clear()
        crosscut.Searcher(scorer, vectors=index).search(0, 5, 40, query_vector=world.query_vectors[0])
        return {*rules}

    untuned = IVF.build(world.vectors, lists=8)
    assert module.CAREFUL in asked(untuned)
    untuned.save(tmp_path / "untuned")
    assert module.CAREFUL in asked(IVF.load(tmp_path / "untuned"))
    # a rule that was given is obeyed, though it be the usual one
    chosen = IVF.build(world.vectors, lists=8, rule=crosscut.Patience(10, 0.05))
    assert module.CAREFUL not in asked(chosen)
    chosen.save(tmp_path / "chosen")
    assert module.CAREFUL not in asked(IVF.load(tmp_path / "chosen"))
