"""A hub id or a folder as a scorer: on the CPU exported to onnxruntime, on a GPU by torch."""

from __future__ import annotations

from pathlib import Path

from crosscut.encoders.running import Running, split_name
from crosscut.errors import InputError, MissingDependency
from crosscut.scorers.base import Scorer


def hub_scorer(name: str) -> Scorer:
    """The cross-encoder of a hub id or a folder, with settings behind a `#` (`crosscut.encoders.running`).

    On the CPU it is exported once (`crosscut.scorers.exported`); what cannot be exported runs in torch, as all do on
    other devices.
    """
    model, how = split_name(name)
    folder = Path(model.removeprefix("emb+"))
    if how.max_length is not None and any(folder.glob("*.torch")) + any(folder.glob("*.ckpt")):
        raise InputError(
            f"{model!r} reads each side in the lengths of its wrapper_config.json, and no pair of {how.max_length} "
            "tokens: leave max_length out, or change the file"
        )
    if how.on_cpu:
        exported = _exported(model, how)
        if exported is not None:
            return exported
    from crosscut.scorers.torch import TorchCrossEncoder, TorchPairs, is_published

    kind = TorchPairs if is_published(model) else TorchCrossEncoder
    return kind.load(model, how)


def _exported(model: str, how: Running) -> Scorer | None:
    """The model on onnxruntime; None where only torch can run it."""
    from crosscut.scorers.exported import ExportedCrossEncoder

    try:
        return ExportedCrossEncoder.load(
            model, precision="int8" if how.dtype == "int8" else "float32", max_length=how.max_length
        )
    except ImportError as error:  # onnx and safetensors write the graph; once it is kept they are not needed
        if how.dtype == "int8" or not _torch():
            raise MissingDependency("hub models are exported with onnx and safetensors", "torch") from error
        return None
    except InputError:
        if how.dtype == "int8" or not _torch():
            raise
        return None


def _torch() -> bool:
    from importlib.util import find_spec

    return find_spec("sentence_transformers") is not None
