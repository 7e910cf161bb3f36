"""From a trained model to a folder that runs without torch.

    config.json      sizes, head, limits, format version
    tokenizer.json   the vocabulary
    lower.onnx       embeddings and the layers that read a text alone
    cross.onnx       the layers in which query and item meet; the head     (cross-encoder)
    dual.onnx        the remaining layers of a dual encoder; pooling        (dual encoder)
    known.json, lexicon.json, token_idf.npy
                     what is known without a call (`crosscut.encoders.known`), if the cross-encoder corrects it

A cross-encoder and a dual encoder that share their frozen lower layers may share one folder.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from crosscut.encoders.folder import FORMAT
from crosscut.encoders.graph import FLOAT, FLOAT16, Precision, cross_graph, dual_graph, lower_graph
from crosscut.encoders.known import Constants
from crosscut.errors import InputError, needing
from crosscut.storage import write_file, write_json
from crosscut.training.models import CrossModel, DualModel, Split


def numpy_weights(model: Split) -> dict[str, npt.NDArray[np.float32]]:
    """Parameters by name, as float32 arrays."""
    return {name: p.detach().cpu().numpy().astype(np.float32) for name, p in model.state_dict().items()}


def export(
    folder: str | Path,
    tokenizer: str | Path,
    *,
    cross: CrossModel | None = None,
    dual: DualModel | None = None,
    lower_precision: Precision = "float32",
    upper_precision: Precision = "float32",
    dual_precision: Precision | None = None,
    half_states: bool = True,
    query_tokens: int = 128,
    item_tokens: int = 128,
    narrow: npt.NDArray[np.float32] | None = None,
    known: Constants | None = None,
) -> Path:
    """Write a model folder; files appear under their names only when they are complete.

    `narrow` (D × d) projects the dual encoder's token vectors for late interaction, and `known` makes the cross-encoder
    a correction of what is known without it; they go together. `dual_precision` is that of the dual encoder's own
    layers, if another than that of the cross-encoder's.
    `half_states` keeps item states in float16: half the memory, and scores that differ from float32 by about 1e-4.
    """
    with needing("exporting writes ONNX files", "torch"):
        import onnx  # noqa: F401
    models = [model for model in (cross, dual) if model is not None]
    if not models:
        raise InputError("nothing to export; pass a cross-encoder, a dual encoder or both")
    if known is not None and (narrow is None or dual is None):
        raise InputError("a known part needs a dual encoder and a projection of its token vectors")
    first = models[0]
    shape, independent = first.shape, first.independent
    lower = _lower_weights(models)
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    heads, epsilon = shape.num_attention_heads, shape.layer_norm_eps
    upper = shape.num_hidden_layers - independent
    kind = FLOAT16 if half_states else FLOAT
    parts = {"lower.onnx": lower_graph(lower, independent, heads, epsilon, lower_precision, kind)}
    if cross is not None:
        weights = numpy_weights(cross)
        parts["cross.onnx"] = cross_graph(weights, upper, heads, epsilon, upper_precision, cross.head, states=kind)
    if dual is not None:
        precision = dual_precision or upper_precision
        parts["dual.onnx"] = dual_graph(numpy_weights(dual), upper, heads, epsilon, precision, kind, narrow)
    config: dict[str, Any] = {
        "format": FORMAT,
        "shape": shape.asdict(),
        "independent_layers": independent,
        "head": cross.head if cross is not None else None,
        "query_tokens": query_tokens,
        "item_tokens": item_tokens,
        "known": known is not None,
        "precision": {
            "lower": lower_precision,
            "upper": upper_precision,
            "dual": dual_precision or upper_precision,
        },
    }
    for name, content in parts.items():
        write_file(folder / name, [content])
    if known is not None:
        known.save(folder)
    if Path(tokenizer).resolve() != (folder / "tokenizer.json").resolve():
        write_file(folder / "tokenizer.json", [Path(tokenizer).read_bytes()])
    write_json(folder / "config.json", config)
    return folder


def _lower_weights(models: Sequence[Split]) -> dict[str, npt.NDArray[np.float32]]:
    """Weights of the lower layers, which must be the same in all models."""
    first, *others = models
    lower = {name.removeprefix("lower."): w for name, w in numpy_weights(first).items() if name.startswith("lower.")}
    for other in others:
        theirs = numpy_weights(other)
        if other.independent != first.independent or any(
            not np.array_equal(weight, theirs[f"lower.{name}"]) for name, weight in lower.items()
        ):
            raise InputError("the two models do not share their lower layers; export them to two folders")
    return lower
