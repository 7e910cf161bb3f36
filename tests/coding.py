"""A deterministic encoder that other processes can load."""

from __future__ import annotations

import hashlib
import os
import signal
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from crosscut.datasets import Item
from crosscut.datasets.records import plain_text


class Coding:
    """A vector is a hash of the text. With a folder, the first that reads `item 700` is killed over it, once."""

    fingerprint = "coding"
    dimension = 8

    def __init__(self, folder: str = "", name: str = "item 700") -> None:
        self.folder, self.name = folder, name

    def encode_queries(self, texts: Sequence[str]) -> npt.NDArray[np.float32]:
        rows = [np.frombuffer(hashlib.blake2b(text.encode(), digest_size=8).digest(), np.uint8) for text in texts]
        return np.array(rows).reshape(len(texts), 8).astype(np.float32) / np.float32(255) - np.float32(0.5)

    def encode_items(
        self, items: Sequence[Item | str], *, progress: Callable[[int], None] | None = None
    ) -> npt.NDArray[np.float32]:
        texts = [plain_text(item) for item in items]
        mark = Path(self.folder, "died")
        if self.folder and self.name in texts and not mark.exists():
            mark.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return self.encode_queries(texts)
