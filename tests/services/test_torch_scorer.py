"""Hub cross-encoders, on a small one made on the spot."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from crosscut.encoders.running import Running
from crosscut.errors import InputError, ScorerError
from crosscut.scorers.base import BoundScorer, Scorer
from tests.tiny_models import sentences, write_tokenizer

pytest.importorskip("torch")
pytest.importorskip("sentence_transformers")
pytestmark = pytest.mark.filterwarnings("default")

ITEMS = sentences(12)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_cross_encoder(tmp_path_factory.mktemp("hub"))


def write_cross_encoder(path: Path) -> Path:
    import torch
    import transformers

    library: Any = transformers  # not typed
    tokenizer = library.PreTrainedTokenizerFast(
        tokenizer_file=str(write_tokenizer(path / "tokenizer.json")),
        unk_token="[UNK]",
        cls_token="[CLS]",
        sep_token="[SEP]",
        pad_token="[PAD]",
        model_max_length=64,
    )
    tokenizer.save_pretrained(path)
    torch.manual_seed(0)
    config = library.BertConfig(
        vocab_size=len(tokenizer),
        hidden_size=16,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=32,
        max_position_embeddings=64,
        num_labels=1,
    )
    library.BertForSequenceClassification(config).save_pretrained(path)
    return path


def test_raw_logits_in_order(folder: Path) -> None:
    import torch

    from crosscut.scorers.torch import TorchCrossEncoder

    scorer = TorchCrossEncoder.load(folder, Running(batch_size=3))
    assert isinstance(scorer, Scorer)
    scores = scorer.score("river bank", ITEMS)
    single = np.concatenate([scorer.score("river bank", [item]) for item in ITEMS])
    np.testing.assert_allclose(scores, single, atol=1e-5)
    squashed = scorer.model.predict(
        [("river bank", item) for item in ITEMS], activation_fn=torch.nn.Sigmoid(), show_progress_bar=False
    )
    np.testing.assert_allclose(1 / (1 + np.exp(-scores)), squashed, atol=1e-5)
    assert np.isfinite(scorer.score("🙂" * 500, ["", "word " * 20_000])).all()
    assert scorer.score("river", []).shape == (0,)


def test_bound_form(folder: Path) -> None:
    from crosscut.scorers.torch import TorchCrossEncoder

    scorer = TorchCrossEncoder.load(folder)
    bound = scorer.bind(ITEMS)
    assert isinstance(bound, BoundScorer)
    requests = [("river", np.asarray([2, 0])), ("dog", np.asarray([], np.int64)), ("cat", np.asarray([5]))]
    first, empty, last = (answer.scores for answer in bound.score_many(requests))
    np.testing.assert_allclose(first, scorer.score("river", [ITEMS[2], ITEMS[0]]), atol=1e-5)
    assert empty.shape == (0,)
    np.testing.assert_allclose(last, bound.score("cat", np.asarray([5])), atol=1e-5)
    with pytest.raises(ScorerError, match="do not fit a corpus of 12 items"):
        bound.score("cat", np.asarray([12]))
    assert TorchCrossEncoder.load(folder).fingerprint == scorer.fingerprint


def test_an_unknown_path_is_a_sentence(tmp_path: Path) -> None:
    from crosscut.scorers.torch import TorchCrossEncoder

    with pytest.raises(InputError, match="no cross-encoder can be loaded"):
        TorchCrossEncoder.load(tmp_path / "nothing")
