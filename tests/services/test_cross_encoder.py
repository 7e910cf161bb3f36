"""Cross-encoders that others have trained, on small ones made on the spot."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from crosscut.datasets.records import Item
from crosscut.errors import InputError, ScorerError
from crosscut.index import Index
from crosscut.models import cross_encoder, export
from crosscut.models.batching import length_buckets
from crosscut.models.cross_encoder import (
    OnnxCrossEncoder,
    PairTokenizer,
    TorchCrossEncoder,
    load_cross_encoder,
    longest_first,
)
from crosscut.models.spec import ModelSettings
from crosscut.scorers.base import BoundScorer, Scorer
from crosscut.scorers.loading import load_scorer
from tests.tiny_models import KINDS, LONGEST, sentences, write_cross_encoder

pytest.importorskip("torch")
pytest.importorskip("sentence_transformers")
pytestmark = pytest.mark.filterwarnings("ignore")

ITEMS = [*sentences(20), "river " * 80, "", "🙂" * 40]
QUERIES = ["river bank", "the big red dog " * 6, ""]


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    root = tmp_path_factory.mktemp("models")
    return {kind: write_cross_encoder(root / kind, kind) for kind in KINDS}


@pytest.mark.parametrize("kind", KINDS)
def test_scores_are_those_of_sentence_transformers_and_ignore_batch_mates(models: dict[str, Path], kind: str) -> None:
    scorer, reference = OnnxCrossEncoder.load(models[kind], threads=2), TorchCrossEncoder.load(models[kind])
    for query in QUERIES:
        scores = scorer.score(query, ITEMS)
        np.testing.assert_allclose(scores, reference.score(query, ITEMS), atol=1e-4)
        alone = np.concatenate([scorer.score(query, [item]) for item in ITEMS])
        np.testing.assert_allclose(scores, alone, atol=1e-5)
    assert np.ptp(scorer.score(QUERIES[0], ITEMS)) > 0.01


@pytest.mark.parametrize("kind", KINDS)
def test_eight_bits_keep_the_ranking_and_ignore_batch_mates(
    models: dict[str, Path], kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cross_encoder, "KEPT_SHARE", 0.5)  # of weights that were never trained
    samples = QUERIES[:2], sentences(60, seed=5)
    scorer = OnnxCrossEncoder.load(models[kind], precision="int8", samples=samples)
    exact = OnnxCrossEncoder.load(models[kind]).score(QUERIES[0], ITEMS)
    scores = scorer.score(QUERIES[0], ITEMS)
    assert np.corrcoef(scores, exact)[0, 1] > 0.95
    assert not np.array_equal(scores, exact)
    alone = np.concatenate([scorer.score(QUERIES[0], [item]) for item in ITEMS])
    np.testing.assert_allclose(scores, alone, atol=1e-3)
    assert scorer.record["top10_kept"] >= 0.5


def test_eight_bits_that_change_the_ranking_are_refused(
    models: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cross_encoder, "KEPT_SHARE", 1.01)
    with pytest.raises(InputError, match="of each top 10"):
        load_cross_encoder(f"{models['bert']}#dtype=int8")
    with pytest.raises(InputError, match="are too few"):
        OnnxCrossEncoder.load(models["bert"], precision="int8", samples=([], []))


def test_a_model_is_exported_once_and_its_own_graph_is_taken(
    models: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = OnnxCrossEncoder.load(models["bert"])
    folder = tmp_path / "own"
    shutil.copytree(models["bert"], folder)
    (folder / "onnx").mkdir()
    shutil.copy(expected.home / "model.onnx", folder / "onnx" / "model.onnx")
    (folder / "model.safetensors").unlink()
    monkeypatch.setattr(export, "_exported", None)
    again = OnnxCrossEncoder.load(models["bert"])
    assert again.fingerprint == expected.fingerprint
    own = OnnxCrossEncoder.load(folder)
    assert own.score(QUERIES[0], ITEMS).tolist() == expected.score(QUERIES[0], ITEMS).tolist()
    assert OnnxCrossEncoder.load(folder, max_length=16).fingerprint != own.fingerprint


def test_pairs_are_cut_as_the_tokenizer_cuts_them(models: dict[str, Path]) -> None:
    import transformers

    library: Any = transformers
    reference = library.PreTrainedTokenizerFast.from_pretrained(models["bert"])
    tokenizer = PairTokenizer(models["bert"] / "tokenizer.json", 24)
    for query in ("river", "big red dog " * 10):
        for item in ("cat", "bank " * 7, "cat " * 50):
            (first,), (second,) = tokenizer.read([query]), tokenizer.read([item])
            pair = tokenizer.join(first, second)
            encoding = reference(query, item, truncation=True, max_length=24)
            assert pair.ids.tolist() == encoding["input_ids"]
            assert pair.segments.tolist() == encoding["token_type_ids"]
    assert longest_first(5, 90, 20) == (5, 15)
    with pytest.raises(InputError, match="no room for two texts"):
        PairTokenizer(models["bert"] / "tokenizer.json", 4)


@pytest.mark.parametrize("threads", [1, 3])
def test_groups_hold_every_pair_once_and_little_padding(threads: int) -> None:
    lengths = np.random.default_rng(0).integers(5, 300, 200)
    groups = list(length_buckets(lengths, 512, threads))
    assert sorted(np.concatenate(groups).tolist()) == list(range(200))
    for group in groups:
        held = lengths[group]
        assert 8 * len(held) * held.max() <= 9 * held.sum() + 64
        assert len(held) == 1 or held.sum() <= 1200


def test_a_bound_model_reads_an_item_once(models: dict[str, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    scorer = load_scorer(str(models["bert"]))
    assert isinstance(scorer, OnnxCrossEncoder)
    bound = scorer.bind(ITEMS)
    read: list[str] = []
    inner = PairTokenizer.read
    monkeypatch.setattr(PairTokenizer, "read", lambda self, texts: read.extend(texts) or inner(self, texts))
    requests = [("river", np.array([2, 0])), ("dog", np.array([], np.int64)), ("cat", np.array([2, 5]))]
    first, empty, last = (answer.scores for answer in bound.score_many(requests))
    np.testing.assert_allclose(first, scorer.score("river", [ITEMS[2], ITEMS[0]]), atol=1e-5)
    np.testing.assert_allclose(last, scorer.score("cat", [ITEMS[2], ITEMS[5]]), atol=1e-5)
    assert empty.shape == (0,)
    read.clear()
    bound.score_many(requests)
    assert read == []


def test_an_index_scores_with_a_folder(models: dict[str, Path], tmp_path: Path) -> None:
    items = [Item(f"d{n}", "", text) for n, text in enumerate(sentences(15))]
    index = Index.build(items, scorer=str(models["bert"]), encoder=None, method="exact")
    hits = index.search("river bank", k=3, method="exact")
    assert hits.calls == 15
    index.save(tmp_path / "i")
    assert Index.load(tmp_path / "i").search("river bank", k=3, method="exact").ids == hits.ids


def test_a_model_that_cannot_be_exported_runs_in_torch(
    models: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Any, **__: Any) -> Any:
        raise InputError("cannot be exported")

    monkeypatch.setattr(cross_encoder, "graph_of", refuse)
    monkeypatch.setattr(cross_encoder, "cached_model", lambda key, make: make())
    assert isinstance(load_cross_encoder(f"{models['bert']}#max_length=32"), TorchCrossEncoder)
    with pytest.raises(InputError, match="cannot be exported"):
        load_cross_encoder(f"{models['bert']}#dtype=int8")


def test_in_torch_scores_are_raw_logits(models: dict[str, Path]) -> None:
    import torch

    scorer = TorchCrossEncoder.load(models["bert"], ModelSettings(batch_size=3))
    assert isinstance(scorer, Scorer)
    assert isinstance(scorer.bind(ITEMS), BoundScorer)
    scores = scorer.score("river bank", ITEMS)
    squashed = scorer.model.predict(
        [("river bank", item) for item in ITEMS], activation_fn=torch.nn.Sigmoid(), show_progress_bar=False
    )
    np.testing.assert_allclose(1 / (1 + np.exp(-scores)), squashed, atol=1e-5)
    with pytest.raises(ScorerError, match="do not fit a corpus"):
        scorer.bind(ITEMS).score("cat", np.asarray([99]))
    assert TorchCrossEncoder.load(models["bert"]).fingerprint == scorer.fingerprint


def test_wrong_models_and_settings_are_sentences(models: dict[str, Path], tmp_path: Path) -> None:
    with pytest.raises(InputError, match="has 3 labels"):
        OnnxCrossEncoder.load(write_cross_encoder(tmp_path / "three", labels=3))
    with pytest.raises(InputError, match=r"no tokenizer\.json"):
        OnnxCrossEncoder.load(tmp_path)
    with pytest.raises(InputError, match="not 'int4'"):
        OnnxCrossEncoder.load(models["bert"], precision="int4")  # type: ignore[arg-type]
    with pytest.raises(InputError, match="0 threads"):
        OnnxCrossEncoder.load(models["bert"], threads=0)
    with pytest.raises(InputError, match="no cross-encoder can be loaded"):
        TorchCrossEncoder.load(tmp_path / "nothing")
    assert export.longest_pair(models["roberta"]) == LONGEST
