"""The same model, reading texts by products of whole numbers: python scripts/integer_products.py FOLDER OUT

Lower layers and dual encoder are rewritten; the cross-encoder stays in float32, whose few layers decide a score.
FOLDER is a model folder whose lower layers are in eight bits and whose upper layers are in sixteen, as
`scripts/export_default.py --precision float16` writes it. The weights are read from its graphs, so that the model in
the box can be rewritten without the training runs that made it.
"""

from __future__ import annotations

import argparse
import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import numpy.typing as npt
import onnx
from default_weights import upper_weights
from onnx import numpy_helper

from crosscut.encoders.graph import Precision, cross_graph, dual_graph, lower_graph
from crosscut.storage import write_file, write_json

Floats = npt.NDArray[np.float32]
WHOLE = 7
PRECISION: Precision = "integer"


def constants(path: Path) -> list[npt.NDArray[np.generic]]:
    """The constants of a graph, numbers of shapes apart, in the order in which they were written."""
    return [numpy_helper.to_array(c) for c in onnx.load(str(path)).graph.initializer if c.data_type != WHOLE]


def lower_weights(path: Path, layers: int) -> dict[str, Floats]:
    """The weights of lower layers kept in eight bits."""
    following = iter(constants(path))

    def vector() -> Floats:
        return next(following).astype(np.float32)

    def matrix(values: Iterator[npt.NDArray[np.generic]] = following) -> Floats:
        return next(values).astype(np.float32) * next(values).astype(np.float32)

    weights = {"words.weight": matrix(), "positions.weight": vector(), "norm.weight": vector(), "norm.bias": vector()}
    for number in range(layers):
        name = f"layers.{number}"
        for part in ("query", "key", "value"):
            weights[f"{name}.{part}.weight"] = matrix().T
        for part, bias in zip(("query", "key", "value"), np.split(vector(), 3), strict=True):
            weights[f"{name}.{part}.bias"] = bias
        weights[f"{name}.output.weight"] = matrix().T
        for part in ("attention_norm.weight", "attention_norm.bias", "output.bias"):
            weights[f"{name}.{part}"] = vector()
        weights[f"{name}.up.weight"], weights[f"{name}.up.bias"] = matrix().T, vector()
        weights[f"{name}.down.weight"] = matrix().T
        for part in ("norm.weight", "norm.bias", "down.bias"):
            weights[f"{name}.{part}"] = vector()
    return weights


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("out", type=Path)
    arguments = parser.parse_args()
    config = json.loads((arguments.folder / "config.json").read_text("utf-8"))
    shape, independent = config["shape"], config["independent_layers"]
    heads, epsilon = shape["num_attention_heads"], shape["layer_norm_eps"]
    upper = shape["num_hidden_layers"] - independent
    cross, dual = (
        {name: weight.numpy() for name, weight in upper_weights(arguments.folder / f"{part}.onnx").items()}
        for part in ("cross", "dual")
    )
    narrow = constants(arguments.folder / "dual.onnx")[-1].astype(np.float32)
    lower = lower_weights(arguments.folder / "lower.onnx", independent)
    graphs = {
        "lower.onnx": lower_graph(lower, independent, heads, epsilon, PRECISION),
        "cross.onnx": cross_graph(cross, upper, heads, epsilon, "float16", config["head"]),
        "dual.onnx": dual_graph(dual, upper, heads, epsilon, PRECISION, narrow=narrow),
    }
    arguments.out.mkdir(parents=True, exist_ok=True)
    for path in arguments.folder.iterdir():
        if path.name not in graphs and path.resolve().parent != arguments.out.resolve():
            shutil.copy(path, arguments.out / path.name)
    for name, content in graphs.items():
        write_file(arguments.out / name, [content])
    write_json(
        arguments.out / "config.json",
        {**config, "precision": {**config["precision"], "lower": PRECISION, "dual": PRECISION}},
    )


if __name__ == "__main__":
    main()
