"""Dual encoders without torch: one unit vector per text."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from crosscut.datasets.records import Item
from crosscut.encoders.folder import DEFAULT, REMEMBERED_QUERIES, ModelFolder, open_folder
from crosscut.encoders.states import States, of_one_length
from crosscut.encoders.tokens import Tokens

Vectors = npt.NDArray[np.float32]


class OnnxDualEncoder:
    """Texts to vectors (n × D), float32, unit length: an inner product is a cosine."""

    def __init__(self, folder: ModelFolder) -> None:
        self.folder = folder
        self.fingerprint = folder.fingerprint("lower.onnx", "dual.onnx")
        self._lower, self._dual = folder.lower, folder.session("dual.onnx")

    @classmethod
    def load(cls, path: str | Path = DEFAULT, *, threads: int | None = None) -> OnnxDualEncoder:
        """The model in the box, or the one in a folder written by `crosscut train dual-encoder`."""
        return cls(open_folder(path, threads=threads))

    @property
    def dimension(self) -> int:
        return self.folder.width

    def encode_queries(self, texts: Sequence[str]) -> Vectors:
        """One vector per query; marked mentions are seen."""
        texts = list(texts)
        vectors = np.empty((len(texts), self.dimension), np.float32)
        for start in range(0, len(texts), REMEMBERED_QUERIES):
            read = self.folder.read_queries(texts[start : start + REMEMBERED_QUERIES])
            part = self._encode([tokens for _, tokens in read], [states for states, _ in read])
            vectors[start : start + len(part)] = part
        return vectors

    def encode_items(self, items: Sequence[Item | str], *, progress: Callable[[int], None] | None = None) -> Vectors:
        """One vector per item; `progress(n)` is called with the number of items done since the last call."""
        vectors = np.empty((len(items), self.dimension), np.float32)
        for start in range(0, len(items), 1024):
            part = items[start : start + 1024]
            vectors[start : start + len(part)] = self._encode(self.folder.tokenizer.items(part))
            if progress is not None:
                progress(len(part))
        return vectors

    def _encode(self, tokens: Sequence[Tokens], states: Sequence[States] | None = None) -> Vectors:
        vectors = np.empty((len(tokens), self.dimension), np.float32)

        def encode(group: list[int]) -> None:
            if states is None:
                read = self._lower.run({"input_ids": np.stack([tokens[place].ids for place in group])})
            else:
                read = np.stack([states[place] for place in group])
            roles = np.stack([tokens[place].roles for place in group])
            vectors[group] = self._dual.run({"states": read, "roles": roles})

        self._dual.map(encode, of_one_length(tokens))
        return vectors

    def __repr__(self) -> str:
        return f"OnnxDualEncoder({str(self.folder.path)!r}, fingerprint={self.fingerprint!r})"
