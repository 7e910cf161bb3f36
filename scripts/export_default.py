"""Write the models in the box: python scripts/export_default.py WORK [FOLDER] [--precision float32]

WORK/ce and WORK/de hold what train_default.py left there. The frozen lower layers are shared and kept in
eight bits (they were rounded before training, so nothing is lost), the trained layers in sixteen.
"""

from __future__ import annotations

import argparse
import json
import tomllib
from pathlib import Path

from safetensors.torch import load_file
from train_default import RECIPE, encoder_folder, start

from crosscut.encoders.folder import default_folder
from crosscut.training.bert import read_encoder
from crosscut.training.export import export
from crosscut.training.loop import load_into
from crosscut.training.models import CrossModel, DualModel, Split


def trained(model: Split, weights: dict, folder: Path) -> Split:  # type: ignore[type-arg]
    start(model, weights)
    parameters = {name: p for name, p in model.named_parameters() if p.requires_grad}
    load_into(parameters, load_file(folder / "best.safetensors"), folder)
    return model


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
