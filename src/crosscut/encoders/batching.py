"""Texts in groups that a model reads together, and a cache of what was read."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

TOKENS_PER_CALL = 1024
TOKEN_BYTES = 256 << 20


class HasIds(Protocol):
    """A text as token ids."""

    @property
    def ids(self) -> npt.NDArray[np.int64]: ...


def groups_of_one_length(texts: Sequence[HasIds], tokens: int = TOKENS_PER_CALL) -> list[list[int]]:
    """Return the places of texts in groups of exactly one length, about `tokens` tokens each: nothing is padded."""
    by_length: dict[int, list[int]] = {}
    for place, text in enumerate(texts):
        by_length.setdefault(len(text.ids), []).append(place)
    groups = []
    for length, places in sorted(by_length.items(), reverse=True):  # the longest first: short ones even out the end
        step = max(1, tokens // length)
        groups += [places[start : start + step] for start in range(0, len(places), step)]
    return groups


class BoundedCache(dict[int, Any]):
    """What fits into so many bytes; what comes first stays."""

    def __init__(self, room: int) -> None:
        super().__init__()
        self.room = room
        self.full = False

    def keep(self, handle: int, value: Any, size: int) -> None:
        self.full = self.full or size > self.room
        if not self.full:
            self.room -= size
            self[handle] = value
