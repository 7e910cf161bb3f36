"""The bundled dual encoder: one unit vector a text, without torch."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from crosscut.bundled.model_dir import DEFAULT, ModelDir, open_model_dir
from crosscut.bundled.tokenizer import Tokens
from crosscut.datasets.records import Item
from crosscut.models.batching import LRUCache, groups_of_one_length
from crosscut.models.bi_encoder import ENCODING
from crosscut.types import Progress

Vectors = npt.NDArray[np.float32]
PORTION = 2048  # items: enough that most have others of their own length
REMEMBERED_QUERIES = 128


class BundledEncoder:
    """Texts to vectors (n × D), float32, of unit length: an inner product is a cosine."""

    def __init__(self, model: ModelDir) -> None:
        self.model = model
        self.fingerprint = model.fingerprint("lower.onnx", "dual.onnx")
        self._lower, self._dual = model.session("lower.onnx"), model.session("dual.onnx")
        self._queries: LRUCache[str, Vectors] = LRUCache(REMEMBERED_QUERIES)

    @classmethod
    def load(cls, path: str | Path = DEFAULT, *, threads: int | None = None) -> BundledEncoder:
        """Return the encoder of the package, or of a directory of the same files."""
        return cls(open_model_dir(path, threads=threads))

    @property
    def dimension(self) -> int:
        return self.model.width

    def encode_queries(self, texts: Sequence[str]) -> Vectors:
        """Return one vector a query; marked mentions count as such."""
        found = self._queries.of(list(texts), self._read_queries)
        return np.asarray(found, np.float32).reshape(len(found), self.dimension)

    def encode_items(self, items: Sequence[Item | str], *, progress: Progress | None = None) -> Vectors:
        """Return one vector an item."""
        vectors = np.empty((len(items), self.dimension), np.float32)
        for start in range(0, len(items), PORTION):
            tokens = self.model.tokenizer.items(items[start : start + PORTION])
            vectors[start : start + len(tokens)] = self._encode(tokens, groups_of_one_length(tokens))
            if progress is not None:
                progress(ENCODING, start + len(tokens), len(items))
        return vectors

    def _read_queries(self, texts: Sequence[str]) -> list[Vectors]:
        tokens = [self.model.tokenizer.query(text) for text in texts]
        alone = [[place] for place in range(len(texts))]  # a vector never depends on the queries beside it
        return [row.copy() for row in self._encode(tokens, alone)]

    def _encode(self, tokens: Sequence[Tokens], groups: Sequence[list[int]]) -> Vectors:
        vectors = np.empty((len(tokens), self.dimension), np.float32)

        def encode(group: list[int]) -> None:
            states = self._lower.run({"input_ids": np.stack([tokens[place].ids for place in group])})
            vectors[group] = self._dual.run(
                {"states": states, "roles": np.stack([tokens[place].roles for place in group])}
            )

        self._dual.map(encode, groups)
        return vectors

    def __repr__(self) -> str:
        return f"BundledEncoder({str(self.model.path)!r}, fingerprint={self.fingerprint!r})"
