"""Small data sets and models, made on the spot."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

TEXT = "river bank cat dog tree house king queen sea ship iron gold moon star rain wind fire stone bird fish"
WORDS = TEXT.split()


def sentences(count: int, seed: int = 0, length: int = 8) -> list[str]:
    rng = np.random.default_rng(seed)
    return [" ".join(rng.choice(WORDS, length)) for _ in range(count)]


def arrays(items: int = 120, train: int = 12, test: int = 10, d: int = 8, seed: int = 0) -> dict[str, Any]:
    """Return scores of low rank, and vectors that explain a part of them."""
    rng = np.random.default_rng(seed)
    v, u = rng.normal(size=(items, d)), rng.normal(size=(train + test, d))
    scores = 3 * u @ v.T + 0.1 * rng.normal(size=(train + test, items)) + 2
    near = u + 0.4 * rng.normal(size=u.shape)
    between = v @ v[:20].T
    made = {
        "train": scores[:train], "test": scores[train:], "vectors": v, "query_vectors": near[train:],
        "anchor_query_vectors": near[:train], "words": scores[train:] + rng.normal(size=(test, items)),
        "item_scores": between.T, "views": np.repeat(v, 2, axis=0), "merged": v,
    }  # fmt: skip
    whole = {"item_anchors": np.arange(20), "view_counts": np.full(items, 2), "merged_counts": np.ones(items, np.int64)}
    return {name: array.astype(np.float32) for name, array in made.items()} | whole


def archive(folder: Path, **sizes: int) -> Path:
    np.savez(folder / "scores.npz", **arrays(**sizes))
    return folder / "scores.npz"


def beir(folder: Path, items: int = 40, queries: int = 16) -> Path:
    (folder / "qrels").mkdir(parents=True)
    texts = sentences(items)
    rows = [{"_id": f"i{n}", "title": text.split()[0], "text": text} for n, text in enumerate(texts)]
    (folder / "corpus.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    asked = [{"_id": f"q{n}", "text": " ".join(texts[n].split()[2:6])} for n in range(queries)]
    (folder / "queries.jsonl").write_text("".join(json.dumps(row) + "\n" for row in asked))
    lines = "query-id\tcorpus-id\tscore\n" + "".join(f"q{n}\ti{n}\t1\n" for n in range(queries))
    for split in ("train", "test"):
        (folder / "qrels" / f"{split}.tsv").write_text(lines)
    return folder


def bert(folder: Path, layers: int = 1, spread: float = 0.15) -> Path:
    """Write a tiny BERT with a tokenizer of word pieces."""
    import torch
    from tokenizers import BertWordPieceTokenizer
    from transformers import BertConfig, BertModel

    folder.mkdir(parents=True)
    vocabulary = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "[unused0]", "[unused1]", "[unused2]"]
    vocabulary += [*WORDS, *"abcdefghijklmnopqrstuvwxyz", *(f"##{c}" for c in "abcdefghijklmnopqrstuvwxyz")]
    (folder / "vocab.txt").write_text("\n".join(vocabulary))
    BertWordPieceTokenizer(str(folder / "vocab.txt")).save(str(folder / "tokenizer.json"))
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=len(vocabulary), hidden_size=32, num_hidden_layers=layers, num_attention_heads=2,
        intermediate_size=48, max_position_embeddings=128, initializer_range=spread,
        hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0,
    )  # fmt: skip
    BertModel(config).save_pretrained(folder)
    return folder
