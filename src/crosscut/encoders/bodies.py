"""Encoders of transformers in torch: filled with a checkpoint's tensors, moved, read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from crosscut.encoders.pairs import Row
from crosscut.errors import InputError, needing


def torch_dtype(name: str) -> Any:
    """The torch type of fp32, fp16 or bf16."""
    import torch

    kinds = {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}
    if name not in kinds:
        raise InputError(f"torch computes in {', '.join(kinds)}; got {name!r}")
    return kinds[name]


def filled_body(config: Mapping[str, Any], tensors: Mapping[str, Any], where: str, prefix: str = "") -> Any:
    """The encoder of a configuration, filled with the tensors under a prefix; a pooler may lack."""
    with needing("models of the papers run on transformers in torch", "torch"):
        import transformers
    library: Any = transformers
    body = library.AutoModel.from_config(library.AutoConfig.for_model(**config))
    own = {name.removeprefix(prefix): torch_tensor(value) for name, value in tensors.items() if name.startswith(prefix)}
    missing, _ = body.load_state_dict(own, strict=False)
    lacking = [name for name in missing if "pooler" not in name and "position_ids" not in name]
    if lacking:
        raise InputError(f"{where!r} lacks the tensor {prefix + lacking[0]!r}; save the model again")
    return body


def padded(rows: Sequence[Row]) -> dict[str, Any]:
    """Rows side by side, padded to the longest."""
    lengths = np.asarray([len(row.ids) for row in rows], np.int64)
    arrays = {name: np.zeros((len(rows), int(lengths.max())), np.int64) for name in ("ids", "types", "positions")}
    for place, row in enumerate(rows):
        for name, array in arrays.items():
            array[place, : lengths[place]] = getattr(row, name)
    return {**arrays, "reads": np.stack([row.reads for row in rows]), "lengths": lengths}


def read_rows(body: Any, rows: Sequence[Row], *, whole: bool = False) -> Any:
    """States of the last layer where each row's head reads them (b × r × D), on the device of the body.

    With `whole` all states (b × l × D) instead, and which of them are of tokens (b × l).
    """
    import inspect

    import torch

    device = next(body.parameters()).device
    arrays = padded(rows)
    tensors = {key: torch.from_numpy(value).to(device) for key, value in arrays.items()}
    mask = torch.arange(tensors["ids"].shape[1], device=device)[None] < tensors["lengths"][:, None]
    inputs = {"input_ids": tensors["ids"], "attention_mask": mask.long()}
    takes = inspect.signature(body.forward).parameters
    kind = str(body.config.model_type)
    gaps = kind != "modernbert"  # which knows distances alone: the papers' gap before an item means nothing there
    if gaps and "position_ids" in takes:
        inputs["position_ids"] = tensors["positions"] + first_position(body.config)
    elif gaps and any(row.positions[-1] + 1 != len(row.positions) for row in rows):
        raise InputError(f"a {kind} of this version of transformers takes no positions; use BERT, or a newer version")
    if int(getattr(body.config, "type_vocab_size", 0) or 0) > 1:
        inputs["token_type_ids"] = tensors["types"]
    states = body(**inputs).last_hidden_state
    if whole:
        return states, mask
    return states[torch.arange(len(rows), device=device)[:, None], tensors["reads"]]


def first_position(config: Any) -> int:
    """The place of a text's first token among the positions: RoBERTa counts from behind its padding."""
    kind = str(config.model_type)
    return int(config.pad_token_id) + 1 if "roberta" in kind or kind == "camembert" else 0


def torch_tensor(array: Any) -> Any:
    """An array that torch may write to."""
    import torch

    return torch.from_numpy(np.array(array, np.float32))
