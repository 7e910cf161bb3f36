"""A language model in a GGUF file: its settings, tensors and tokenizer, read with numpy.

Tensors may be float32, Q8_0 (32 bytes and a scale) or Q4_1 (32 half bytes, a scale and a level).
"""

from __future__ import annotations

import struct
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from crosscut.errors import InputError

if TYPE_CHECKING:
    import tokenizers

Array = npt.NDArray[np.float32]
SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
TEXT, LIST = 8, 9
BLOCK = 32
BYTES = {3: 20, 8: 34}  # of a block of Q4_1 and of Q8_0


class GGUF:
    """A file, memory-mapped; `settings` are its metadata."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._bytes = np.memmap(path, np.uint8, "r")
        self._at = 0
        try:
            self._read_header()
        except (struct.error, KeyError, UnicodeDecodeError, OverflowError) as error:
            raise InputError(f"{str(path)!r} is not a readable GGUF file ({error!r}); install it again") from error

    def _read_header(self) -> None:
        if bytes(self._bytes[:4]) != b"GGUF":
            raise InputError(f"{str(self.path)!r} is not a GGUF file; install it again")
        self._at = 8
        tensors, settings = self._number("Q"), self._number("Q")
        self.settings: dict[str, Any] = {}
        for _ in range(settings):
            name = self._text()
            self.settings[name] = self._value(self._number("I"))
        self._tensors: dict[str, tuple[list[int], int, int]] = {}
        for _ in range(tensors):
            name = self._text()
            shape = [self._number("Q") for _ in range(self._number("I"))]
            self._tensors[name] = shape, self._number("I"), self._number("Q")
        step = int(self.settings.get("general.alignment", 32))
        self._data = -(-self._at // step) * step

    def tensor(self, name: str) -> Array:
        """Return a tensor as float32: a row of numbers, or (outputs × inputs)."""
        shape, kind, _ = self._tensors[name]
        if kind == 0:
            return np.frombuffer(self._raw(name), np.float32).reshape(shape[::-1])
        blocks = np.frombuffer(self._raw(name), np.uint8).reshape(-1, BYTES[kind])
        scale = blocks[:, :2].copy().view(np.float16).astype(np.float32)
        if kind == 8:
            return np.asarray(blocks[:, 2:].view(np.int8) * scale, np.float32).reshape(shape[::-1])
        level = blocks[:, 2:4].copy().view(np.float16).astype(np.float32)
        halves = np.concatenate([blocks[:, 4:] & 15, blocks[:, 4:] >> 4], axis=1)
        return np.asarray(halves * scale + level, np.float32).reshape(shape[::-1])

    def _raw(self, name: str) -> bytes:
        shape, kind, offset = self._tensors[name]
        if kind != 0 and kind not in BYTES:
            raise InputError(f"{name} in {str(self.path)!r} has the type {kind}; float32, Q8_0 and Q4_1 can be read")
        count = int(np.prod(shape))
        size = 4 * count if kind == 0 else count // BLOCK * BYTES[kind]
        raw = self._bytes[self._data + offset : self._data + offset + size]
        if len(raw) != size:
            raise InputError(f"{str(self.path)!r} ends within {name}; install it again")
        return raw.tobytes()

    def tokenizer(self) -> tokenizers.Tokenizer:
        """Return the byte-level tokenizer; digits are tokens of their own."""
        from tokenizers import Tokenizer, models, pre_tokenizers

        words = {word: number for number, word in enumerate(self.settings["tokenizer.ggml.tokens"])}
        merges = [tuple(merge.split(" ")) for merge in self.settings["tokenizer.ggml.merges"]]
        tokenizer = Tokenizer(models.BPE(vocab=words, merges=merges))
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
            [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
        )
        return tokenizer

    def _number(self, kind: str) -> Any:
        (value,) = struct.unpack_from(f"<{kind}", self._bytes.data, self._at)
        self._at += struct.calcsize(f"<{kind}")
        return value

    def _text(self) -> str:
        size = self._number("Q")
        self._at += size
        return self._bytes[self._at - size : self._at].tobytes().decode("utf-8")

    def _value(self, kind: int) -> Any:
        if kind == TEXT:
            return self._text()
        if kind == LIST:
            of, count = self._number("I"), self._number("Q")
            return [self._value(of) for _ in range(count)]
        return self._number(SCALARS[kind])
