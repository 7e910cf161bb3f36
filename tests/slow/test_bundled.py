"""What ships: the world, its notice, its scores, and the models."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path

import numpy as np
import pytest

from crosscut import demo_states
from crosscut.datasets.bundled import load_scores, load_world, world_folder
from crosscut.encoders.dual import OnnxDualEncoder
from crosscut.encoders.folder import default_folder
from crosscut.errors import InputError, WriteError
from crosscut.scorers.onnx import BoundOnnxCrossEncoder, OnnxCrossEncoder


def test_world_and_notice() -> None:
    world = load_world()
    assert len(world.items) == 2964
    assert len(world.queries) == 1002
    assert all("[START]" in query.text and "[END]" in query.text for query in world.queries)
    assert all(len(world.gold(query.id)) == 1 for query in world.queries)
    notice = files("crosscut").joinpath("data/WORDNET-LICENSE").read_text("utf-8")
    assert "WordNet 3.0 Copyright 2006 by Princeton University" in notice
    with pytest.raises(InputError, match="there is wordnet-cognition"):
        world_folder("atlantis")


def test_scores_belong_to_world_and_model() -> None:
    world, scores = load_world(), load_scores()
    queries = {query.id for query in world.queries}
    assert scores.anchor_scores.shape == (len(scores.anchor_ids), len(world.items))
    assert len(scores.vectors) == len(world.items)
    assert set(scores.anchor_ids) | set(scores.test_ids) <= queries
    assert not set(scores.anchor_ids) & set(scores.test_ids)
    assert np.isfinite(scores.anchor_scores).all()
    model = OnnxCrossEncoder.load()
    assert model.fingerprint == scores.fingerprint
    texts = {query.id: query.text for query in world.queries}
    some = np.asarray([5, 100, 2000, 2963])
    bound = model.bind(world.items)
    again = bound.score(texts[scores.anchor_ids[0]], some)
    # equal on a processor like the one that made them; elsewhere the last digit of a float may decide a rounding
    np.testing.assert_allclose(again, scores.anchor_scores[0, some], atol=0.3)
    vectors = OnnxDualEncoder.load().encode_items([world.items[5]])
    assert vectors[0] @ scores.vectors[5].astype(np.float32) > 0.998


def test_models_fit_in_forty_megabytes() -> None:
    assert sum(path.stat().st_size for path in default_folder().iterdir()) <= 40e6


def test_the_default_model_is_blind_to_batch_mates() -> None:
    world = load_world()
    items = world.items[:60]
    query = world.queries[0].text
    together = OnnxCrossEncoder.load().bind(items).score(query, np.arange(60))
    bound = OnnxCrossEncoder.load(threads=1).bind(items)
    alone = np.concatenate([bound.score(query, np.asarray([position])) for position in range(60)])
    np.testing.assert_allclose(together, alone, atol=1e-4)


def test_the_default_model_tells_meanings_apart() -> None:
    meanings = [
        "bank [ENT] sloping land, especially the slope beside a body of water",
        "bank, banking concern [ENT] a financial institution that accepts deposits",
        "penguin [ENT] short-legged flightless birds of cold southern regions",
    ]
    scorer = OnnxCrossEncoder.load()
    assert np.argmax(scorer.score("they pulled the canoe up on the [START] bank [END] of the stream", meanings)) == 0
    assert np.argmax(scorer.score("he cashed a check at the [START] bank [END]", meanings)) == 1


def test_demo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    from crosscut.cli.demo import show
    from crosscut.demo import BUDGETS, METHODS, run
    from crosscut.demo_report import write

    monkeypatch.setenv("CROSSCUT_CACHE", str(tmp_path / "cache"))
    told: dict[str, int] = {}

    def note(what: str, done: int, total: int) -> None:
        assert told.get(what, 0) <= done <= total
        told[what] = done

    idea = "that is a strange [START] idea [END]"
    result = run(idea, queries=1, report=tmp_path / "r.html", progress=note)
    assert list(told.values()) == [result.items, 2 * result.items, len(METHODS) * len(BUDGETS)]
    assert set(result.recalls) == set(METHODS)
    assert all(len(values) == 2 for by in result.recalls.values() for values in by.values())
    assert set(result.recalls["rerank"]) == set(BUDGETS)
    assert result.found[0].crosscut.calls == 100
    show(result)
    text = capsys.readouterr().out
    assert "retrieve and rerank" in text
    assert "that is a strange idea\nmeanings of “idea”" in text
    assert f"report: {tmp_path / 'r.html'}" in text
    page = (tmp_path / "r.html").read_text("utf-8")
    assert "<mark>idea</mark>" in page
    assert "http" not in page
    (kept,) = (tmp_path / "cache").iterdir()
    calls = []
    score_many = BoundOnnxCrossEncoder.score_many
    monkeypatch.setattr(
        BoundOnnxCrossEncoder, "score_many", lambda self, asked: calls.append(asked) or score_many(self, asked)
    )
    again = run("that is a strange [START] idea [END]", queries=1, report=None)
    assert sum(len(handles) for asked in calls for _, handles in asked) == 200  # the two live searches, nothing else
    assert again.recalls == result.recalls
    kept.write_bytes(b"damaged")
    assert demo_states.load(kept, OnnxCrossEncoder.load().bind(load_world().items)) == {}
    with pytest.raises(InputError, match="the query is empty"):
        run("  ")
    with pytest.raises(WriteError, match=r"failed \(File exists"):
        write(result, tmp_path / "r.html" / "below a file.html")
