"""Small models made on the spot: a word-piece vocabulary and a random BERT-like encoder."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

WORDS = [
    *("the", "a", "of", "in", "to", "he", "she", "sat", "on", "bank", "river", "money"),
    *("deposit", "slope", "land", "fish", "water", "account", "big", "red", "cat", "dog"),
]


def write_tokenizer(path: Path) -> Path:
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers

    pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", *WORDS, *"abcdefghijklmnopqrstuvwxyz"]
    pieces += [f"##{letter}" for letter in "abcdefghijklmnopqrstuvwxyz"]
    tokenizer = Tokenizer(models.WordPiece({piece: n for n, piece in enumerate(pieces)}, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer()
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.save(str(path))
    return path


def write_encoder(folder: Path, *, layers: int = 3, width: int = 16, seed: int = 0) -> Path:
    """A random encoder as transformers would save it: config.json, model.safetensors, tokenizer.json."""
    from safetensors.numpy import save_file

    folder.mkdir(parents=True, exist_ok=True)
    write_tokenizer(folder / "tokenizer.json")
    vocabulary = len(json.loads((folder / "tokenizer.json").read_text())["model"]["vocab"])
    rng = np.random.default_rng(seed)

    def random(*shape: int) -> np.ndarray:
        return (rng.standard_normal(shape) * 0.3).astype(np.float32)

    tensors = {
        "embeddings.word_embeddings.weight": random(vocabulary, width),
        "embeddings.position_embeddings.weight": random(64, width),
        "embeddings.token_type_embeddings.weight": random(2, width),
        "embeddings.LayerNorm.weight": 1 + random(width),
        "embeddings.LayerNorm.bias": random(width),
    }
    for i in range(layers):
        for name, rows, columns in (
            ("attention.self.query", width, width),
            ("attention.self.key", width, width),
            ("attention.self.value", width, width),
            ("attention.output.dense", width, width),
            ("intermediate.dense", 2 * width, width),
            ("output.dense", width, 2 * width),
        ):
            tensors[f"encoder.layer.{i}.{name}.weight"] = random(rows, columns)
            tensors[f"encoder.layer.{i}.{name}.bias"] = random(rows)
        for name in ("attention.output.LayerNorm", "output.LayerNorm"):
            tensors[f"encoder.layer.{i}.{name}.weight"] = 1 + random(width)
            tensors[f"encoder.layer.{i}.{name}.bias"] = random(width)
    save_file(tensors, folder / "model.safetensors")
    config = {
        "model_type": "bert",
        "architectures": ["BertModel"],
        "vocab_size": vocabulary,
        "hidden_size": width,
        "num_attention_heads": 2,
        "intermediate_size": 2 * width,
        "num_hidden_layers": layers,
        "max_position_embeddings": 64,
        "layer_norm_eps": 1e-12,
        "hidden_act": "gelu",
        "type_vocab_size": 2,
    }
    (folder / "config.json").write_text(json.dumps(config))
    return folder


def sentences(count: int, *, seed: int = 0, longest: int = 12) -> list[str]:
    rng = np.random.default_rng(seed)
    return [" ".join(rng.choice(WORDS, rng.integers(1, longest + 1))) for _ in range(count)]
