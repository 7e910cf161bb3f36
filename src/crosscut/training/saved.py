"""A dual encoder that was exported, in torch again: training goes on from the model in the box, or from one's own.

`crosscut.encoders.graph` writes the constants of a graph in the order in which a text passes them, and in that order
they are read here. Numbers of shapes and single numbers are no weights. What was rounded to eight bits stays rounded.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from crosscut.encoders.folder import ModelFolder
from crosscut.encoders.graph import GELU_LEAST, INT64
from crosscut.errors import InputError, needing
from crosscut.training.bert import EncoderSizes

Array = npt.NDArray[np.float32]
PROJECTIONS = ("query", "key", "value")


def is_exported(folder: str | Path) -> bool:
    """Whether a folder is one that `crosscut.training.export` has written, with a dual encoder in it."""
    return (Path(folder) / "dual.onnx").is_file() and (Path(folder) / "lower.onnx").is_file()


def read_exported(folder: str | Path) -> tuple[EncoderSizes, int, dict[str, Tensor]]:
    """Sizes, independent layers and weights of a folder's dual encoder, named as in `DualModel`."""
    config = ModelFolder(folder).config
    try:
        shape, independent = EncoderSizes(**config["shape"]), int(config["independent_layers"])
        integer = {part: config["precision"][part] == "integer" for part in ("lower", "dual")}
    except (KeyError, TypeError, ValueError) as error:
        raise InputError(
            f"{str(folder)!r} does not tell the sizes of its encoder ({error!r}); export it again"
        ) from error
    lower = _Constants(Path(folder) / "lower.onnx", shape.hidden_size, shifted=integer["lower"])
    weights = {"lower.words.weight": lower.matrix(), "lower.positions.weight": lower.vector()}
    weights |= {f"lower.norm.{part}": lower.vector() for part in ("weight", "bias")}
    for number in range(independent):
        weights |= lower.layer(f"lower.layers.{number}")
    dual = _Constants(Path(folder) / "dual.onnx", shape.hidden_size, shifted=integer["dual"])
    weights["roles.weight"] = dual.vector()
    for number in range(shape.num_hidden_layers - independent):
        weights |= dual.layer(f"upper.{number}")
    return shape, independent, {name: torch.tensor(np.ascontiguousarray(value)) for name, value in weights.items()}


class _Constants:
    """The weights in a graph, one after the other.

    `shifted` says that activations were raised above 0 before the last product of a layer, for which its bias makes up.
    """

    def __init__(self, path: Path, width: int, *, shifted: bool) -> None:
        with needing("reading an exported model", "torch"):
            import onnx
        self.path, self.width, self.shifted = path, width, shifted
        kept = (one for one in onnx.load(str(path)).graph.initializer if one.data_type != INT64)
        arrays = (onnx.numpy_helper.to_array(one) for one in kept)
        self._following: Iterator[npt.NDArray[Any]] = (array for array in arrays if array.ndim)

    def vector(self) -> Array:
        """A vector, or a table that was not rounded."""
        return self._next().astype(np.float32)

    def matrix(self) -> Array:
        """A matrix as it lies in the graph: in × out, or a table of rows."""
        values = self._next()
        return self.vector() * values if values.dtype == np.int8 else values.astype(np.float32)

    def layer(self, name: str) -> dict[str, Array]:
        """The weights of one layer."""
        weights = {f"{name}.{part}.weight": self.matrix().T for part in PROJECTIONS}
        biases = self.vector().reshape(len(PROJECTIONS), self.width)
        weights |= {f"{name}.{part}.bias": bias for part, bias in zip(PROJECTIONS, biases, strict=True)}
        weights[f"{name}.output.weight"] = self.matrix().T
        weights |= {f"{name}.{part}": self.vector() for part in ("output.bias", "attention_norm.weight")}
        weights[f"{name}.attention_norm.bias"] = self.vector()
        weights |= {f"{name}.up.weight": self.matrix().T, f"{name}.up.bias": self.vector()}
        weights[f"{name}.down.weight"] = down = self.matrix().T
        bias = self.vector()
        weights[f"{name}.down.bias"] = bias + np.float32(GELU_LEAST) * down.sum(axis=1) if self.shifted else bias
        return weights | {f"{name}.norm.{part}": self.vector() for part in ("weight", "bias")}

    def _next(self) -> npt.NDArray[Any]:
        try:
            return next(self._following)
        except StopIteration:
            raise InputError(
                f"{str(self.path)!r} holds fewer weights than its folder says; export or install it again"
            ) from None
