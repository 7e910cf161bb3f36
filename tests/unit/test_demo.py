"""The bundled collection and the demo."""

from __future__ import annotations

from importlib.resources import files

import numpy as np
import pytest

from crosscut.cli.demo import show
from crosscut.datasets.bundled import load_scores, load_world, world_folder
from crosscut.demo import BUDGETS, METHODS, run
from crosscut.errors import InputError


def test_the_collection_comes_with_scores_and_its_notice() -> None:
    world, scores = load_world(), load_scores()
    assert (len(world.items), len(world.queries)) == (2964, 1002)
    assert all(len(world.gold(query.id)) == 1 for query in world.queries)
    assert scores.anchor_scores.shape == (len(scores.anchor_ids), len(world.items))
    assert set(scores.anchor_ids) <= {query.id for query in world.queries}
    assert np.isfinite(scores.anchor_scores).all()
    assert "Princeton University" in files("crosscut").joinpath("data/WORDNET-LICENSE").read_text("utf-8")
    with pytest.raises(InputError, match="there is wordnet-cognition"):
        world_folder("atlantis")


def test_the_demo_compares_methods_and_searches_a_query(capsys: pytest.CaptureFixture[str]) -> None:
    result = run("that is a strange [START] idea [END]", queries=5)
    assert set(result.recalls) == set(METHODS)
    assert all(set(by_budget) == set(BUDGETS) for by_budget in result.recalls.values())
    assert result.recalls["crosscut"][50] > result.recalls["rerank"][50]
    assert "idea" in result.world.items[result.found[0][0]].title
    show(result)
    printed = capsys.readouterr().out
    assert "retrieve and rerank" in printed
    assert "that is a strange idea" in printed
    with pytest.raises(InputError, match="the query is empty"):
        run("  ")
    with pytest.raises(InputError, match="0 queries"):
        run(queries=0)
