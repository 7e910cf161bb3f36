"""Dual encoders by name, and the settings behind a name."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from crosscut.errors import InputError
from crosscut.models.bi_encoder import TorchDualEncoder, load_encoder
from crosscut.models.cross_encoder import OnnxCrossEncoder, TorchCrossEncoder
from crosscut.models.spec import WORKER, ModelSettings, split_name, with_settings
from crosscut.scorers.loading import load_scorer
from tests.tiny_models import sentences, write_cross_encoder

pytest.importorskip("torch")
pytest.importorskip("sentence_transformers")
pytestmark = pytest.mark.filterwarnings("ignore")
ITEMS = sentences(12)


def test_names_carry_settings() -> None:
    assert split_name("a/b#device=cuda:1&dtype=bf16&batch_size=8") == ("a/b", ModelSettings("cuda:1", "bf16", 8))
    assert with_settings("a/b", device=None) == "a/b"
    assert (
        with_settings("a/b#device=cpu", device="cuda:0,cuda:1", dtype="fp16") == "a/b#device=cuda:0,cuda:1&dtype=fp16"
    )
    for wrong, said in {
        "a/b#color=red": "'color', which no model has",
        "a/b#dtype=fp8": "fp32, fp16, bf16 or int8",
        "a/b#dtype=fp16": "is for a GPU",
        "a/b#dtype=int8&device=cuda": "int8 runs on the CPU",
        "a/b#batch_size=0": "a batch of 0",
        "a/b#batch_size=x": "whole number",
        "a/b#max_length=3": "3 tokens have no room",
        "a/b#similarity=l2": "dot or cosine",
    }.items():
        with pytest.raises(InputError, match=said):
            split_name(wrong)
    with pytest.raises(InputError, match="not for the address"):
        with_settings("https://example.com", device="cuda")
    with pytest.raises(InputError, match="runs on the CPU as it is"):
        with_settings("default", device="cuda")


def test_every_worker_has_a_device_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    how = ModelSettings("cuda:0,cuda:1,cuda:2")
    for worker, device in (("0", "cuda:0"), ("1", "cuda:1"), ("4", "cuda:1")):
        monkeypatch.setenv(WORKER, worker)
        assert how.here() == device
    assert ModelSettings("cuda:*").here(lambda: 8) == "cuda:4"
    with pytest.raises(InputError, match="torch sees none"):
        ModelSettings("cuda:*").here(lambda: 0)
    assert ModelSettings().here() == "cpu"


def test_a_device_is_passed_on(tmp_path: Path) -> None:
    """No GPU is needed: the `meta` device has shapes and no numbers."""
    model = write_cross_encoder(tmp_path)
    scorer = load_scorer(f"{model}#device=meta&dtype=bf16&batch_size=4&max_length=20")
    assert isinstance(scorer, TorchCrossEncoder)
    parameter = next(scorer.model.parameters())
    assert str(parameter.device) == "meta"
    assert str(parameter.dtype) == "torch.bfloat16"
    assert scorer.batch_size == 4
    assert isinstance(load_scorer(f"{model}#dtype=fp32"), OnnxCrossEncoder)


def test_dot_product_encoders_keep_their_lengths(tmp_path: Path) -> None:
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import Pooling, Transformer

    write_cross_encoder(tmp_path / "plain", "distilbert")
    parts = [Transformer(str(tmp_path / "plain")), Pooling(64, pooling_mode="mean")]
    for similarity in ("dot", "cosine"):
        SentenceTransformer(modules=parts, similarity_fn_name=similarity, device="cpu").save(str(tmp_path / similarity))
    free, unit = (load_encoder(str(tmp_path / name)) for name in ("dot", "cosine"))
    assert isinstance(free, TorchDualEncoder)
    lengths = np.linalg.norm(free.encode_items(ITEMS), axis=1)
    assert lengths.std() > 1e-3
    np.testing.assert_allclose(np.linalg.norm(unit.encode_items(ITEMS), axis=1), 1, atol=1e-5)
    rows = free.encode_items(ITEMS)
    np.testing.assert_allclose(rows / lengths[:, None], unit.encode_items(ITEMS), atol=1e-5)
    assert free.fingerprint != unit.fingerprint
    unnormalised = load_encoder(f"{tmp_path / 'cosine'}#similarity=dot&max_length=16")
    assert np.linalg.norm(unnormalised.encode_items(ITEMS), axis=1).std() > 1e-3
