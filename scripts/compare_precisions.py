"""What the shipped precision costs: python scripts/compare_precisions.py WORK OUT.json

Exports the trained cross-encoder once more in float32 (weights and item states) and compares, on a held-out world, each
query's top 10 with that of the model in the box; also the torch model's own scores, and every pair scored alone.
"""

from __future__ import annotations

import argparse
import json
import random
import tempfile
import tomllib
from pathlib import Path

import numpy as np
import torch
from export_default import trained
from train_default import RECIPE, encoder_folder

from crosscut.datasets.wordnet import WordNet
from crosscut.encoders.tokens import marked_text
from crosscut.scorers.onnx import OnnxCrossEncoder
from crosscut.training.bert import read_encoder
from crosscut.training.export import export
from crosscut.training.models import CrossModel, pack_texts


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("work", type=Path)
    parser.add_argument("output", type=Path)
    parser.add_argument("--world", default="noun.feeling")
    parser.add_argument("--queries", type=int, default=40)
    arguments = parser.parse_args()
    recipe = tomllib.loads(RECIPE.read_text("utf-8"))
    shape, weights = read_encoder(encoder_folder())
    cross = trained(CrossModel(shape, recipe["independent_layers"], "emb"), weights, arguments.work / "ce")
    assert isinstance(cross, CrossModel)
    world = WordNet().world(arguments.world)
    items = [marked_text(item) for item in world.items]
    queries = [query.text for query in random.Random(0).sample(world.queries, arguments.queries)]
    every = np.arange(len(items))
    limits = {"query_tokens": recipe["query_tokens"], "item_tokens": recipe["item_tokens"]}
    with tempfile.TemporaryDirectory() as folder:
        export(folder, encoder_folder() / "tokenizer.json", cross=cross, half_states=False, **limits)
        exact = OnnxCrossEncoder.load(folder)
        bound = exact.bind(items)
        full = np.stack([bound.score(query, every) for query in queries])
        cross.lower.requires_grad_(True)  # a trainable lower part is not rounded to float16
        tokenizer = exact.folder.tokenizer
        texts = pack_texts([tokenizer.query(queries[0]), *tokenizer.items(items[:100])])
        with torch.no_grad():
            reference = cross(texts, [0] * 100, range(1, 101)).numpy()
    shipped = OnnxCrossEncoder.load().bind(items)
    small = np.stack([shipped.score(query, every) for query in queries])
    alone = OnnxCrossEncoder.load(threads=1).bind(items)
    single = np.concatenate([alone.score(queries[0], every[j : j + 1]) for j in range(100)])
    kept = [
        len(set(np.argsort(-a)[:10].tolist()) & set(np.argsort(-b)[:10].tolist())) / 10
        for a, b in zip(full, small, strict=True)
    ]
    report = {
        "world": arguments.world,
        "items": len(items),
        "queries": len(queries),
        "top10_kept_by_shipped_precision": float(np.mean(kept)),
        "largest_difference_shipped_float32": float(np.abs(full - small).max()),
        "largest_difference_onnx_float32_torch": float(np.abs(full[0, :100] - reference).max()),
        "largest_difference_alone_in_batch": float(np.abs(small[0, :100] - single).max()),
    }
    arguments.output.write_text(json.dumps(report, indent=1) + "\n", "utf-8")
    print(json.dumps(report, indent=1))


if __name__ == "__main__":
    main()
