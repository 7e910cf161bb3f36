"""Cross-encoders of many architectures, small, with random weights, saved as transformers saves them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

WORDS = [
    *("the", "a", "of", "in", "to", "he", "she", "sat", "on", "bank", "river", "money"),
    *("deposit", "slope", "land", "fish", "water", "account", "big", "red", "cat", "dog"),
]
KINDS = {
    "bert": "Bert",
    "roberta": "Roberta",
    "xlm-roberta": "XLMRoberta",
    "mpnet": "MPNet",
    "deberta-v2": "DebertaV2",
    "electra": "Electra",
    "distilbert": "DistilBert",
    "modernbert": "ModernBert",
}
LONGEST = 64


def sentences(count: int, *, seed: int = 0, longest: int = 12) -> list[str]:
    rng = np.random.default_rng(seed)
    return [" ".join(rng.choice(WORDS, rng.integers(1, longest + 1))) for _ in range(count)]


def write_tokenizer(path: Path) -> Path:
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers
    from tokenizers.processors import TemplateProcessing

    pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", *WORDS, *"abcdefghijklmnopqrstuvwxyz"]
    pieces += [f"##{letter}" for letter in "abcdefghijklmnopqrstuvwxyz"]
    tokenizer = Tokenizer(models.WordPiece({piece: n for n, piece in enumerate(pieces)}, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer()
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.post_processor = TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    tokenizer.save(str(path))
    return path


def write_cross_encoder(folder: Path, kind: str = "bert", *, labels: int = 1, width: int = 64, layers: int = 2) -> Path:
    """A cross-encoder of an architecture, with random weights."""
    import torch
    import transformers

    library: Any = transformers
    folder.mkdir(parents=True, exist_ok=True)
    inputs = ["input_ids", "attention_mask"]
    if kind in ("bert", "electra", "deberta-v2"):
        inputs.insert(1, "token_type_ids")
    fast = library.PreTrainedTokenizerFast(
        tokenizer_file=str(write_tokenizer(folder / "tokenizer.json")),
        unk_token="[UNK]",
        cls_token="[CLS]",
        sep_token="[SEP]",
        pad_token="[PAD]",
        model_max_length=LONGEST,
        model_input_names=inputs,
    )
    fast.save_pretrained(folder)
    offset = {"roberta": 1, "xlm-roberta": 1, "mpnet": 2}.get(kind, 0)
    settings: dict[str, Any] = {"vocab_size": len(fast) + 1, "num_labels": labels, "pad_token_id": 0}
    if kind == "distilbert":
        settings |= {"dim": width, "n_layers": layers, "n_heads": 4, "hidden_dim": 2 * width}
    else:
        settings |= {
            "hidden_size": width,
            "num_hidden_layers": layers,
            "num_attention_heads": 4,
            "intermediate_size": 2 * width,
        }
    settings["max_position_embeddings"] = LONGEST + offset
    if kind == "electra":
        settings["embedding_size"] = width // 2
    if kind == "deberta-v2":
        settings |= {"relative_attention": True, "pos_att_type": ["p2c", "c2p"], "type_vocab_size": 2}
    if kind == "modernbert":
        settings |= {"cls_token_id": 2, "sep_token_id": 3, "bos_token_id": 2, "eos_token_id": 3, "local_attention": 16}
    torch.manual_seed(0)
    config = getattr(library, f"{KINDS[kind]}Config")(**settings)
    model = library.AutoModelForSequenceClassification.from_config(config)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "norm" not in name.lower():
                parameter.normal_(0, 0.15)
    model.save_pretrained(folder)
    return folder
