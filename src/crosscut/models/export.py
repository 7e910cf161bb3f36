"""A cross-encoder as one ONNX graph: the one that its folder brings, or a plain export from torch."""

from __future__ import annotations

import inspect
import io
import json
from pathlib import Path
from typing import Any

from crosscut.errors import InputError, MissingDependency, needing

OPSET = 17
INPUTS = ("input_ids", "attention_mask", "token_type_ids")


def weight_files(folder: Path) -> list[Path]:
    """Return the files that hold the weights of a model: its own graph, or the tensors it would be exported from."""
    own = folder / "onnx" / "model.onnx"
    if own.is_file():
        return [own]
    return sorted([*folder.glob("*.safetensors"), *folder.glob("pytorch_model.bin")])


def graph_of(folder: Path) -> bytes:
    """Return the graph of a cross-encoder, whose inputs are token ids and masks and whose first output are logits."""
    own = folder / "onnx" / "model.onnx"
    return own.read_bytes() if own.is_file() else _exported(folder)


def longest_pair(folder: Path) -> int:
    """Return how many tokens of a pair a model takes."""
    config = _json(folder / "config.json")
    given = _json(folder / "tokenizer_config.json").get("model_max_length", 1 << 60)
    places = config.get("max_position_embeddings")
    if places is None:
        return int(min(given, 512))
    kind = str(config.get("model_type"))
    if kind in ("roberta", "xlm-roberta", "camembert"):
        places -= int(config.get("pad_token_id", 1)) + 1
    elif kind == "mpnet":  # whose positions begin behind its usual padding
        places -= 2
    return int(min(given, places))


def _exported(folder: Path) -> bytes:
    with needing("a model without an onnx/model.onnx of its own is exported by torch", "torch"):
        import onnx  # noqa: F401
        import torch
        import transformers
    library: Any = transformers
    try:
        config = library.AutoConfig.from_pretrained(folder, trust_remote_code=False)
        if getattr(config, "reference_compile", None) is not None:
            config.reference_compile = False
        model = library.AutoModelForSequenceClassification.from_pretrained(
            folder, config=config, attn_implementation="eager", trust_remote_code=False, dtype=torch.float32
        ).eval()
    except (OSError, ValueError, KeyError, RuntimeError, ImportError) as error:
        if isinstance(error, MissingDependency):
            raise
        raise InputError(f"no cross-encoder can be loaded from {str(folder)!r} ({error})") from error
    labels = int(model.config.num_labels)
    if labels != 1:
        raise InputError(f"the cross-encoder in {str(folder)!r} has {labels} labels; a scorer needs one score a pair")
    read = library.AutoTokenizer.from_pretrained(folder, trust_remote_code=False).model_input_names
    names = [name for name in INPUTS if name in read and name in inspect.signature(model.forward).parameters]
    ids = torch.full((2, 12), 5, dtype=torch.long)
    given = {"input_ids": ids, "attention_mask": torch.ones_like(ids), "token_type_ids": torch.zeros_like(ids)}
    written = io.BytesIO()

    class Logits(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def forward(self, *tensors: torch.Tensor) -> torch.Tensor:
            logits: torch.Tensor = self.model(**dict(zip(names, tensors, strict=True))).logits
            return logits

    try:
        torch.onnx.export(
            Logits(),
            tuple(given[name] for name in names),
            written,  # type: ignore[arg-type]
            input_names=names,
            output_names=["logits"],
            dynamic_axes={name: {0: "pairs", 1: "tokens"} for name in names} | {"logits": {0: "pairs"}},
            opset_version=OPSET,
            dynamo=False,
        )
    except Exception as error:  # torch raises a family of unrelated exceptions for what it cannot export
        raise InputError(f"the model in {str(folder)!r} cannot be exported ({error})") from error
    return written.getvalue()


def _json(path: Path) -> dict[str, Any]:
    return dict(json.loads(path.read_text("utf-8"))) if path.is_file() else {}
