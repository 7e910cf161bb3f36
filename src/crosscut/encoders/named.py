"""A dual encoder from what the user has: a name, a folder, a hub id, a model."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from crosscut.datasets.records import Item, plain_text
from crosscut.errors import InputError, MissingDependency

Rows = npt.NDArray[np.float32]


@runtime_checkable
class DualEncoder(Protocol):
    """Texts to vectors whose inner products are similarities."""

    @property
    def fingerprint(self) -> str:
        """A short name that changes whenever the vectors may change."""
        ...

    @property
    def dimension(self) -> int:
        """d of the vectors."""
        ...

    def encode_queries(self, texts: Sequence[str]) -> Rows:
        """(q × d)."""
        ...

    def encode_items(self, items: Sequence[Item | str], *, progress: Callable[[int], None] | None = None) -> Rows:
        """(n × d), of items or texts; `progress(m)` is called with the number of items done since the last call."""
        ...


def torch_fingerprint(model: Any) -> str:
    """SHA-256, shortened, of a model's weights and its length limit: what vectors and scores depend on."""
    limit = getattr(model, "max_seq_length", None) or getattr(model, "max_length", None)
    digest = hashlib.sha256(f"{type(model).__name__} {limit}".encode())
    for name, tensor in sorted(model.state_dict().items()):
        digest.update(name.encode())
        digest.update(tensor.detach().cpu().float().numpy().tobytes())
    return digest.hexdigest()[:16]


class TorchDualEncoder:
    """A sentence-transformers model as a crosscut dual encoder; vectors are made unit length."""

    def __init__(self, model: Any, *, batch_size: int = 64) -> None:
        self.model = model
        self.batch_size = batch_size
        self.fingerprint = torch_fingerprint(model)
        self.dimension = self._encode(["a"]).shape[1]

    @classmethod
    def load(cls, model: str | Path) -> TorchDualEncoder:
        """A hub id or a folder."""
        try:
            from sentence_transformers import SentenceTransformer
        except ImportError as error:
            raise MissingDependency("hub encoders run on sentence-transformers", "torch") from error
        try:
            return cls(SentenceTransformer(str(model)))
        except (OSError, ValueError) as error:
            raise InputError(f"no dual encoder can be loaded from {str(model)!r} ({error})") from error

    def encode_queries(self, texts: Sequence[str]) -> Rows:
        return self._encode(texts)

    def encode_items(self, items: Sequence[Item | str], *, progress: Callable[[int], None] | None = None) -> Rows:
        parts = [np.empty((0, self.dimension), np.float32)]
        for start in range(0, len(items), 1024):
            parts.append(self._encode([plain_text(item) for item in items[start : start + 1024]]))
            if progress is not None:
                progress(len(parts[-1]))
        return np.concatenate(parts)

    def _encode(self, texts: Sequence[str]) -> Rows:
        rows = self.model.encode(
            list(texts),
            batch_size=self.batch_size,
            normalize_embeddings=True,
            convert_to_numpy=True,
            show_progress_bar=False,
        )
        return np.asarray(rows, np.float32)


def load_encoder(encoder: Any = "default") -> DualEncoder:
    """The dual encoder in the box (`"default"`), one in a folder, a hub id, or a sentence-transformers model."""
    if isinstance(encoder, str | Path):
        name = str(encoder)
        if name == "default" or (Path(name) / "dual.onnx").is_file():
            from crosscut.encoders.dual import OnnxDualEncoder

            return OnnxDualEncoder.load(name)
        if not Path(name).is_dir() and name.count("/") != 1:
            raise InputError(
                f"there is no dual encoder called {name!r} and no folder of that name; pass 'default', a model "
                "folder, or a hub id such as 'organisation/model'"
            )
        return TorchDualEncoder.load(name)
    if isinstance(encoder, DualEncoder):
        return encoder
    if hasattr(encoder, "encode") and hasattr(encoder, "state_dict"):
        return TorchDualEncoder(encoder)
    raise InputError(f"{encoder!r} is no dual encoder: pass a name, a folder, a hub id or a SentenceTransformer")
