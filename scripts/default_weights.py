"""Weights of models that exist: the encoder that training starts from, and the editions in a box.

The second edition of the models in the box is the start of the third: its folder, as it lay in
`src/crosscut/data/models` before, is read from the environment variable CROSSCUT_SECOND_EDITION (a checkout of the
commit before the third edition has it).
"""

from __future__ import annotations

import json
import os
from pathlib import Path

import numpy as np
import torch
from train_default import encoder_folder, start

from crosscut.training.bert import read_encoder
from crosscut.training.models import CrossModel, DualModel

__all__ = ["cross_model", "dual_model", "encoder_folder", "upper_weights"]

HALF, SINGLE = 10, 1
FORMAT = 3


def second_edition() -> Path:
    try:
        return Path(os.environ["CROSSCUT_SECOND_EDITION"])
    except KeyError:
        raise SystemExit("set CROSSCUT_SECOND_EDITION to the model folder that training starts from") from None


def upper_weights(path: Path) -> dict[str, torch.Tensor]:
    """The trained weights in a graph of the second edition: float16 constants, in the order of its own.

    Graphs of today have another (`crosscut.training.saved` reads those).
    """
    import onnx
    from onnx import numpy_helper

    written = json.loads((path.parent / "config.json").read_text("utf-8"))["format"]
    if written != FORMAT:
        raise SystemExit(f"{path.parent} is of format {written}; the second edition is of format {FORMAT}")
    constants = onnx.load(str(path)).graph.initializer
    halves = [numpy_helper.to_array(c).astype(np.float32) for c in constants if c.data_type == HALF]
    singles = [numpy_helper.to_array(c) for c in constants if c.data_type == SINGLE]
    following = iter(halves)
    weights = {"roles.weight": next(following)}
    for number in range((len(halves) - 1) // 14):
        name = f"upper.{number}"
        for part in ("query", "key", "value"):
            weights[f"{name}.{part}.weight"] = next(following).T
        for part, bias in zip(("query", "key", "value"), np.split(next(following), 3), strict=True):
            weights[f"{name}.{part}.bias"] = bias
        weights[f"{name}.output.weight"] = next(following).T
        for part in ("attention_norm.weight", "attention_norm.bias", "output.bias"):
            weights[f"{name}.{part}"] = next(following)
        weights[f"{name}.up.weight"], weights[f"{name}.up.bias"] = next(following).T, next(following)
        weights[f"{name}.down.weight"] = next(following).T
        for part in ("norm.weight", "norm.bias", "down.bias"):
            weights[f"{name}.{part}"] = next(following)
    if len(singles) == 2:  # of a cross-encoder
        weights["scale"], weights["offset"] = singles[0].reshape(()), singles[1].reshape(())
    return {name: torch.tensor(np.ascontiguousarray(value)) for name, value in weights.items()}


def dual_model(share: float) -> DualModel:
    """The dual encoder: `share` of the second edition's, the rest of the untrained encoder, weight by weight.

    Averaged weights generalise better than either (Wortsman et al. 2022): the second edition's knows entity linking,
    the encoder's has seen a billion pairs of every kind.
    """
    shape, weights = read_encoder(encoder_folder())
    model = DualModel(shape, 4)
    start(model, weights)
    plain = model.state_dict()
    later = upper_weights(second_edition() / "dual.onnx")
    mixed = {name: (1 - share) * plain[name] + share * value for name, value in later.items()}
    model.load_state_dict(mixed, strict=False)
    return model


def cross_model(scale: float = 1.0) -> CrossModel:
    """The second edition's cross-encoder, its scores times `scale`."""
    shape, weights = read_encoder(encoder_folder())
    model = CrossModel(shape, 4, "emb")
    start(model, weights)
    model.load_state_dict(upper_weights(second_edition() / "cross.onnx"), strict=False)
    with torch.no_grad():
        model.scale.mul_(scale)
        model.offset.mul_(scale)
    return model
