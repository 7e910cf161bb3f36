"""Item states at the meeting point: computed once per item, when first asked for, and kept.

The lower layers read an item alone, so their result serves every query. It is kept in float16, tokens of
all items in one flat array: 2·D bytes a token, 13 kB for a sentence of 17 tokens at D = 384. Past
`cache_bytes` items are encoded again whenever they are needed; the scores are the same.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from crosscut.encoders.session import TOKENS_PER_CALL, Session
from crosscut.encoders.tokens import Tokens

States = npt.NDArray[np.floating]


def of_one_length(texts: Sequence[Tokens], tokens: int = TOKENS_PER_CALL) -> list[list[int]]:
    """Places of texts in groups of exactly one length, at most `tokens` tokens each: no padding, nothing to mask."""
    by_length: dict[int, list[int]] = {}
    for place, text in enumerate(texts):
        by_length.setdefault(len(text.ids), []).append(place)
    groups = []
    for length, places in sorted(by_length.items(), reverse=True):  # the longest first: short ones even out the end
        step = max(1, tokens // length)
        groups += [places[start : start + step] for start in range(0, len(places), step)]
    return groups


def encode_alone(lower: Session, texts: Sequence[Tokens]) -> list[States]:
    """States (length × D) of each text.

    Texts run together only with texts of their own length. Without padding a text's states are the same
    whoever it is batched with, so what is rounded to float16 here never depends on the order in which items
    were asked for.
    """
    states: list[States] = [np.empty(0)] * len(texts)

    def encode(group: list[int]) -> None:
        for place, one in zip(group, lower.run({"input_ids": np.stack([texts[p].ids for p in group])}), strict=True):
            states[place] = one

    lower.map(encode, of_one_length(texts))
    return states


class ItemStates:
    """The states of a corpus, filled in as they are needed."""

    def __init__(self, lower: Session, tokens: Sequence[Tokens], width: int, cache_bytes: int) -> None:
        self.lower = lower
        self.tokens = list(tokens)
        self.lengths = np.asarray([len(text.ids) for text in tokens], np.int64)  # (n,)
        self.starts = np.cumsum(self.lengths) - self.lengths
        self.dtype = lower.dtype
        held = np.cumsum(self.lengths) * width * self.dtype.itemsize <= cache_bytes
        self.kept = int(held.sum())  # items past this one are never kept
        self.known = np.zeros(len(self.tokens), np.bool_)
        rows = int(self.lengths[: self.kept].sum())
        self.flat: States = np.empty((rows, width), self.dtype)  # pages are touched when written
        self._lock = threading.Lock()

    def fill(self, positions: npt.NDArray[np.int64]) -> dict[int, States]:
        """Make sure that the kept ones among `positions` are known; return the states of the others."""
        with self._lock:
            missing = np.unique(positions[~self.known[positions]])
            states = encode_alone(self.lower, [self.tokens[position] for position in missing])
            passing = {}
            for position, one in zip(missing.tolist(), states, strict=True):
                if position < self.kept:
                    start = self.starts[position]
                    self.flat[start : start + len(one)] = one
                    self.known[position] = True
                else:
                    passing[position] = one
        return passing

    def of(self, position: int, passing: dict[int, States]) -> States:
        """States (length × D) of one item, kept or passing."""
        if position >= self.kept:
            return passing[position]
        start = self.starts[position]
        return self.flat[start : start + self.lengths[position]]
