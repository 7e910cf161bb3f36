"""Dual encoders without torch: one unit vector per text."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from crosscut.datasets.records import Item
from crosscut.encoders.folder import DEFAULT, REMEMBERED_QUERIES, ModelFolder, open_folder
from crosscut.encoders.functions import ENCODING
from crosscut.encoders.late import Bytes, TokenVectors, to_bytes
from crosscut.encoders.states import States, of_one_length
from crosscut.encoders.tokens import Tokens
from crosscut.errors import InputError
from crosscut.types import Progress

Vectors = npt.NDArray[np.float32]
Keep = Callable[[int, Tokens, States], None]
"""Takes the place of an item, its tokens and its states (length × D): `ItemStates.keep`."""
AT_ONCE = 2048  # items: enough that most have others of their own length


class ReadText(NamedTuple):
    """A text as the dual encoder reads it: one vector (D,), and one in eight bits for each token (length × d)."""

    text: Tokens
    vector: Vectors
    tokens: Bytes


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
        if len(texts) <= REMEMBERED_QUERIES and "tokens" in self._dual.outputs:
            read_now = [read.vector for read in self.read_queries(texts)]  # their tokens may be asked for next
            return np.asarray(read_now, np.float32).reshape(len(texts), self.dimension)
        vectors = np.empty((len(texts), self.dimension), np.float32)
        for start in range(0, len(texts), REMEMBERED_QUERIES):
            read = self.folder.read_queries(texts[start : start + REMEMBERED_QUERIES])
            part = self._encode([tokens for _, tokens in read], [states for states, _ in read])
            vectors[start : start + len(part)] = part
        return vectors

    def encode_items(self, items: Sequence[Item | str], *, progress: Progress | None = None) -> Vectors:
        """One vector per item."""
        vectors = np.empty((len(items), self.dimension), np.float32)
        for start in range(0, len(items), AT_ONCE):
            part = items[start : start + AT_ONCE]
            vectors[start : start + len(part)] = self._encode(self.folder.tokenizer.items(part))
            if progress is not None:
                progress(ENCODING, start + len(part), len(items))
        return vectors

    def read_queries(self, texts: Sequence[str]) -> list[ReadText]:
        """Vectors of queries and of their tokens, for late interaction."""
        return self.folder.read.of(texts, self._read_queries)

    def _read_queries(self, texts: Sequence[str]) -> list[ReadText]:
        read = self.folder.read_queries(texts)
        alone = [[place] for place in range(len(texts))]  # so that a vector never depends on who else asks
        return self._read([tokens for _, tokens in read], [states for states, _ in read], alone)

    def read_items(
        self,
        items: Sequence[Item | str],
        *,
        progress: Progress | None = None,
        keep: Keep | None = None,
    ) -> tuple[Vectors, TokenVectors]:
        """Vectors of items (n × D) and of their tokens, [CLS] and [SEP] apart, in one pass; `keep` is given each item
        as the lower layers have read it."""
        vectors = np.empty((len(items), self.dimension), np.float32)
        flats, lengths = [], [np.empty(0, np.int64)]
        for start in range(0, len(items), AT_ONCE):
            tokens = self.folder.tokenizer.items(items[start : start + AT_ONCE])
            reads = self._read(tokens, keep=keep, first=start)
            vectors[start : start + len(reads)] = [read.vector for read in reads]
            flats.append(np.concatenate([read.tokens[1:-1] for read in reads]))
            lengths.append(np.asarray([len(read.tokens) - 2 for read in reads], np.int64))
            if progress is not None:
                progress(ENCODING, start + len(reads), len(items))
        if not flats:
            return vectors, TokenVectors.of([], 1)
        flat = np.concatenate(flats)
        return vectors, TokenVectors([(flat, np.concatenate(lengths))], flat.shape[1])

    def read_states(self, tokens: Sequence[Tokens], states: Sequence[States]) -> tuple[Vectors, TokenVectors]:
        """The same of items whose states are known: the cross-encoder keeps them, and the lower layers are shared."""
        reads = self._read(tokens, states)
        vectors = np.asarray([read.vector for read in reads], np.float32).reshape(len(reads), self.dimension)
        return vectors, TokenVectors.of([read.tokens[1:-1] for read in reads], reads[0].tokens.shape[1] if reads else 1)

    def _read(
        self,
        tokens: Sequence[Tokens],
        states: Sequence[States] | None = None,
        groups: Sequence[list[int]] | None = None,
        *,
        keep: Keep | None = None,
        first: int = 0,
    ) -> list[ReadText]:
        if "tokens" not in self._dual.outputs:
            raise InputError(
                f"the dual encoder at {str(self.folder.path)!r} has no token vectors for late interaction; "
                "export it with a projection"
            )
        out: list[ReadText | None] = [None] * len(tokens)

        def encode(group: list[int]) -> None:
            inputs = self._inputs(group, tokens, states)
            both = self._dual.run_all(inputs)
            for row, place in enumerate(group):
                if keep is not None:
                    keep(first + place, tokens[place], inputs["states"][row])
                out[place] = ReadText(tokens[place], both["vectors"][row].copy(), to_bytes(both["tokens"][row]))

        self._dual.map(encode, groups or of_one_length(tokens))
        return [read for read in out if read is not None]

    def _inputs(
        self, group: list[int], tokens: Sequence[Tokens], states: Sequence[States] | None
    ) -> dict[str, npt.NDArray[np.generic]]:
        if states is None:
            below = self._lower.run({"input_ids": np.stack([tokens[place].ids for place in group])})
        else:
            below = np.stack([states[place] for place in group])
        return {"states": below, "roles": np.stack([tokens[place].roles for place in group])}

    def _encode(self, tokens: Sequence[Tokens], states: Sequence[States] | None = None) -> Vectors:
        vectors = np.empty((len(tokens), self.dimension), np.float32)

        def encode(group: list[int]) -> None:
            vectors[group] = self._dual.run(self._inputs(group, tokens, states))

        self._dual.map(encode, of_one_length(tokens))
        return vectors

    def __repr__(self) -> str:
        return f"OnnxDualEncoder({str(self.folder.path)!r}, fingerprint={self.fingerprint!r})"
