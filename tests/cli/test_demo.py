"""The bundled collection and the demo."""

from __future__ import annotations

import json
from importlib.resources import files

import numpy as np
import pytest
from typer.testing import CliRunner

from crosscut.cli import app
from crosscut.datasets.bundled import load_scores, load_world, world_folder
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


def test_the_demo_compares_methods_and_searches_a_query() -> None:
    command = ["demo", "--query", "that is a strange [START] idea [END]", "--queries", "5", "-k", "3"]
    record = json.loads(CliRunner().invoke(app, [*command, "--json"]).stdout)
    assert record["recall"]["crosscut"][0] >= record["recall"]["retrieve and rerank"][0]
    assert record["calls_before"]["crosscut"] == 0 < record["calls_before"]["ADACUR"]
    assert len(record["hits"]) == 3
    assert "idea" in record["hits"][0]["title"]
