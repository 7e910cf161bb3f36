"""Encoders as others have saved them, read into arrays under one set of names.

| `model_type` | what differs |
|---|---|
| bert (MiniLM too) | – |
| electra | embeddings may be narrower than the layers |
| roberta, xlm-roberta, camembert | positions begin behind the padding id; one segment |
| distilbert | no segments, other names |
| modernbert | norms before the layers, rotary positions, gated layers, windows of attention |

The first four are one architecture: `words`, `positions`, `types`, `norm`, and per layer `query`, `key`, `value`,
`output`, `attention_norm`, `up`, `down`, `norm`, as in `crosscut.training.bert`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from crosscut.errors import InputError, needing

Arrays = dict[str, npt.NDArray[np.float32]]
POST_NORM = ("bert", "electra", "roberta", "xlm-roberta", "camembert", "distilbert")
READABLE = (*POST_NORM, "modernbert")
WEIGHTS = ("model.safetensors", "pytorch_model.bin", "model.torch", "model.ckpt")
_GELU = ("gelu", "gelu_python")
_BERT = {
    "attention.self.query": "query",
    "attention.self.key": "key",
    "attention.self.value": "value",
    "attention.output.dense": "output",
    "attention.output.LayerNorm": "attention_norm",
    "intermediate.dense": "up",
    "output.dense": "down",
    "output.LayerNorm": "norm",
}
_DISTILBERT = {
    "attention.q_lin": "query",
    "attention.k_lin": "key",
    "attention.v_lin": "value",
    "attention.out_lin": "output",
    "sa_layer_norm": "attention_norm",
    "ffn.lin1": "up",
    "ffn.lin2": "down",
    "output_layer_norm": "norm",
}


@dataclass(frozen=True)
class ModernBert:
    """What a ModernBERT has that others have not: a layer's rotary base, and its window or None."""

    thetas: tuple[float, ...]
    windows: tuple[int | None, ...]


@dataclass(frozen=True)
class Body:
    """An encoder without a head."""

    kind: str
    width: int
    heads: int
    layers: int
    longest: int  # tokens it has positions for
    epsilon: float
    weights: Arrays = field(repr=False)
    modern: ModernBert | None = None

    @property
    def segments(self) -> int:
        """Rows of the table of segments; 0 where there is none."""
        return len(self.weights["types"]) if "types" in self.weights else 0


def read_config(folder: str | Path) -> dict[str, Any]:
    """`config.json` of a folder that transformers, or ANNCUR (`model.config`), has written."""
    for name in ("config.json", "model.config"):
        path = Path(folder) / name
        if path.is_file():
            try:
                found = json.loads(path.read_text("utf-8"))
            except json.JSONDecodeError as error:
                raise InputError(f"{str(path)!r} is not JSON ({error}); save the model again") from error
            if not isinstance(found, dict):
                raise InputError(f"{str(path)!r} does not describe a model; save the model again")
            return {"model_type": "bert", **found} if name == "model.config" else found
    raise InputError(f"there is no encoder at {str(folder)!r}: config.json is missing")


def weights_file(folder: str | Path) -> Path:
    """The file of a folder that holds the weights."""
    found = [path for name in WEIGHTS if (path := Path(folder) / name).is_file()]
    found += sorted(Path(folder).glob("*.ckpt"))
    if not found:
        raise InputError(
            f"{str(folder)!r} has no weights ({', '.join(WEIGHTS)}); save the model with save_pretrained, in one file"
        )
    return found[0]


def read_arrays(path: Path) -> Arrays:
    """The tensors of a safetensors file, a torch state dict or a Lightning checkpoint, as float32."""
    if path.suffix == ".safetensors":
        from safetensors import safe_open

        try:
            with safe_open(str(path), "numpy") as file:
                return {name: np.asarray(file.get_tensor(name), np.float32) for name in file.keys()}  # noqa: SIM118
        except TypeError:  # numpy knows no bfloat16
            pass
    with needing(f"{path.name} is read by torch", "torch"):
        import torch
    if path.suffix == ".safetensors":
        from safetensors.torch import load_file

        saved: Mapping[str, Any] = load_file(path)
    else:
        saved = torch.load(path, map_location="cpu", weights_only=True)
    inner = saved.get("state_dict", saved)
    # Lightning puts `model.` before every name; transformers never has it before all of a BERT's
    lightning = "state_dict" in saved and all(name.startswith("model.") for name in inner)
    return {
        name.removeprefix("model.") if lightning else name: tensor.detach().float().numpy()
        for name, tensor in inner.items()
        if hasattr(tensor, "detach") and tensor.is_floating_point()
    }


def read_body(config: Mapping[str, Any], saved: Arrays, where: str, prefix: str | None = None) -> Body:
    """The encoder that a configuration describes, out of tensors by their saved names.

    `prefix` is what stands before the encoder's own names; by default what transformers writes.
    """
    kind = str(config.get("model_type", "bert"))
    if kind not in READABLE:
        raise InputError(f"{where} is of the kind {kind!r}; {', '.join(READABLE)} can be read")
    activation = config.get("hidden_activation" if kind == "modernbert" else "hidden_act", config.get("activation"))
    if activation not in (*_GELU, None):
        raise InputError(f"{where} uses the activation {activation!r}; only gelu can be read")
    prefixes = ("", "bert.", "roberta.", "distilbert.", "electra.", "model.") if prefix is None else (prefix,)
    marks = {"modernbert": "embeddings.tok_embeddings.weight"}
    mark = marks.get(kind, "embeddings.word_embeddings.weight")
    base = next((one for one in prefixes if one + mark in saved), None)
    if base is None:
        raise InputError(f"{where} lacks the tensor {mark!r}; only encoders of {', '.join(READABLE)} can be read")
    own = {name.removeprefix(base): tensor for name, tensor in saved.items() if name.startswith(base)}
    try:
        return _modern(config, own) if kind == "modernbert" else _post_norm(kind, config, own)
    except KeyError as error:
        raise InputError(f"{where} lacks {error}; save the model again with save_pretrained") from error


def _post_norm(kind: str, config: Mapping[str, Any], own: Arrays) -> Body:
    distil = kind == "distilbert"
    size = {
        "width": config["dim"] if distil else config["hidden_size"],
        "heads": config["n_heads"] if distil else config["num_attention_heads"],
        "layers": config["n_layers"] if distil else config["num_hidden_layers"],
    }
    weights: Arrays = {
        "words": own["embeddings.word_embeddings.weight"],
        "positions": own["embeddings.position_embeddings.weight"],
        "norm.weight": own["embeddings.LayerNorm.weight"],
        "norm.bias": own["embeddings.LayerNorm.bias"],
    }
    if "roberta" in kind or kind == "camembert":
        weights["positions"] = weights["positions"][int(config.get("pad_token_id", 1)) + 1 :]
    if "embeddings.token_type_embeddings.weight" in own:
        weights["types"] = own["embeddings.token_type_embeddings.weight"]
    if "embeddings_project.weight" in own:
        weights["project.weight"], weights["project.bias"] = (
            own["embeddings_project.weight"],
            own["embeddings_project.bias"],
        )
    names, path = (_DISTILBERT, "transformer.layer") if distil else (_BERT, "encoder.layer")
    for layer in range(size["layers"]):
        for theirs, ours in names.items():
            for part in ("weight", "bias"):
                weights[f"layers.{layer}.{ours}.{part}"] = own[f"{path}.{layer}.{theirs}.{part}"]
    epsilon = 1e-12 if distil else float(config.get("layer_norm_eps", 1e-12))
    return Body(kind, **size, longest=len(weights["positions"]), epsilon=epsilon, weights=weights)


def _modern(config: Mapping[str, Any], own: Arrays) -> Body:
    layers = int(config["num_hidden_layers"])
    if config.get("attention_bias"):
        raise InputError("a ModernBERT whose attention has biases cannot be read; it runs in torch")
    every = int(config.get("global_attn_every_n_layers", 3))
    kinds = config.get("layer_types") or [
        "full_attention" if layer % every == 0 else "sliding_attention" for layer in range(layers)
    ]
    ropes = config.get("rope_parameters") or {}
    bases = {
        "full_attention": ropes.get("full_attention", {}).get("rope_theta", config.get("global_rope_theta", 160_000.0)),
        "sliding_attention": ropes.get("sliding_attention", {}).get(
            "rope_theta", config.get("local_rope_theta") or 10_000.0
        ),
    }
    half = int(config.get("local_attention", 128)) // 2
    weights: Arrays = {"words": own["embeddings.tok_embeddings.weight"], "norm.weight": own["embeddings.norm.weight"]}
    weights["final_norm.weight"] = own["final_norm.weight"]
    for name, tensor in own.items():
        if re.match(r"layers\.\d+\.", name):
            weights[name] = tensor
    for optional in ("embeddings.norm.bias", "final_norm.bias"):
        if optional in own:
            weights[optional.removeprefix("embeddings.")] = own[optional]
    for layer in range(layers):
        _ = weights[f"layers.{layer}.attn.Wqkv.weight"], weights[f"layers.{layer}.mlp.Wo.weight"]
    return Body(
        "modernbert",
        width=int(config["hidden_size"]),
        heads=int(config["num_attention_heads"]),
        layers=layers,
        longest=int(config["max_position_embeddings"]),
        epsilon=float(config.get("norm_eps", 1e-5)),
        weights=weights,
        modern=ModernBert(
            tuple(float(bases[kind]) for kind in kinds),
            tuple(None if kind == "full_attention" else half for kind in kinds),
        ),
    )
