"""Write the models in the box: python scripts/export_default.py WORK [FOLDER] [--precision float32]

WORK/ce and WORK/de hold what train_default.py left there. The frozen lower layers are shared and kept in
eight bits (they were rounded before training, so nothing is lost), the trained layers in sixteen.
"""

from __future__ import annotations

import argparse
import json
import random
import tomllib
from pathlib import Path

import torch
from safetensors.torch import load_file
from train_default import RECIPE, encoder_folder, start

from crosscut.datasets.bundled import load_world
from crosscut.encoders.folder import default_folder
from crosscut.encoders.tokens import Tokenizer, marked_text
from crosscut.training.bert import read_encoder
from crosscut.training.export import export
from crosscut.training.loop import load_into
from crosscut.training.models import CrossModel, DualModel, Split, pack_texts


def trained(model: Split, weights: dict, folder: Path) -> Split:  # type: ignore[type-arg]
    start(model, weights)
    parameters = {name: p for name, p in model.named_parameters() if p.requires_grad}
    load_into(parameters, load_file(folder / "best.safetensors"), folder)
    if isinstance(model, CrossModel):
        centre(model)
    return model


@torch.no_grad()
def centre(model: CrossModel) -> None:
    """Take the mean score of random pairs off every score: near zero float16 is finest, and least squares happiest."""
    world = load_world()
    tokenizer = Tokenizer(encoder_folder() / "tokenizer.json", query_tokens=64, item_tokens=128)
    rng = random.Random(0)
    queries = [tokenizer.query(query.text) for query in rng.sample(world.queries, 32)]
    items = tokenizer.items([marked_text(item) for item in rng.sample(world.items, 32)])
    pairs = [(q, i) for q in range(32) for i in range(32, 64)]
    texts = pack_texts([*queries, *items])
    model.offset.fill_(model(texts, [q for q, _ in pairs], [i for _, i in pairs]).mean().round())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("work", type=Path)
    parser.add_argument("folder", type=Path, nargs="?", default=default_folder())
    parser.add_argument("--precision", choices=["float16", "float32"], default="float16")
    arguments = parser.parse_args()
    recipe = tomllib.loads(RECIPE.read_text("utf-8"))
    shape, weights = read_encoder(encoder_folder())
    independent = recipe["independent_layers"]
    cross = trained(CrossModel(shape, independent, recipe["cross_encoder"]["head"]), weights, arguments.work / "ce")
    dual = trained(DualModel(shape, independent), weights, arguments.work / "de")
    assert isinstance(cross, CrossModel)
    assert isinstance(dual, DualModel)
    slim = json.loads((encoder_folder() / "tokenizer.json").read_text("utf-8"))
    slim["truncation"] = slim["padding"] = None
    arguments.folder.mkdir(parents=True, exist_ok=True)
    tokenizer = arguments.folder / "tokenizer.json"
    tokenizer.write_text(json.dumps(slim, ensure_ascii=False, separators=(",", ":")), "utf-8")
    export(
        arguments.folder,
        tokenizer,
        cross=cross,
        dual=dual,
        lower_precision="int8" if arguments.precision == "float16" else "float32",
        upper_precision=arguments.precision,
        query_tokens=recipe["query_tokens"],
        item_tokens=recipe["item_tokens"],
    )
    for path in sorted(arguments.folder.iterdir()):
        print(f"{path.stat().st_size / 1e6:8.2f} MB  {path.name}")


if __name__ == "__main__":
    main()
