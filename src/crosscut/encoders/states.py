"""Item states at the meeting point: computed once per item, when first asked for, and kept.

The lower layers read an item alone, so their result serves every query. It is kept in float16: 2·D bytes a token, 13 kB
for a sentence of 17 tokens at D = 384. Past `cache_bytes` items are encoded again whenever they are needed, and past
`TOKEN_BYTES` (24 a token) tokenised again; the scores are the same. When an index is built the dual encoder reads every
item through the same layers: the first `AHEAD_BYTES` of that pass are kept, too.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from crosscut.datasets.records import Items
from crosscut.encoders.session import TOKENS_PER_CALL, OnnxSession
from crosscut.encoders.tokens import Tokenizer, Tokens
from crosscut.threads import ForkLock

States = npt.NDArray[np.floating]
TOKEN_BYTES = 256 << 20
AHEAD_BYTES = 512 << 20


class HasIds(Protocol):
    """A text as token ids."""

    @property
    def ids(self) -> npt.NDArray[np.int64]: ...


def of_one_length(texts: Sequence[HasIds], tokens: int = TOKENS_PER_CALL) -> list[list[int]]:
    """Places of texts in groups of exactly one length, at most `tokens` tokens each: no padding, nothing to mask."""
    by_length: dict[int, list[int]] = {}
    for place, text in enumerate(texts):
        by_length.setdefault(len(text.ids), []).append(place)
    groups = []
    for length, places in sorted(by_length.items(), reverse=True):  # the longest first: short ones even out the end
        step = max(1, tokens // length)
        groups += [places[start : start + step] for start in range(0, len(places), step)]
    return groups


def encode_alone(lower: OnnxSession, texts: Sequence[Tokens]) -> list[States]:
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


class ReadItem(NamedTuple):
    """An item as the lower layers have read it: tokens, and states (length × D)."""

    tokens: Tokens
    states: States


class BoundedCache(dict[int, Any]):
    """What fits into so many bytes, first come, first kept."""

    def __init__(self, room: int) -> None:
        super().__init__()
        self.room = room
        self.full = False

    def keep(self, handle: int, value: Any, size: int) -> None:
        self.full = self.full or size > self.room
        if not self.full:
            self.room -= size
            self[handle] = value


class ItemStates:
    """Items by handle, read when they are first asked for; states are kept up to `cache_bytes`, tokens for longer."""

    def __init__(self, lower: OnnxSession, tokenizer: Tokenizer, items: Items, cache_bytes: int) -> None:
        self.lower, self.tokenizer, self.items = lower, tokenizer, items
        self.dtype = lower.dtype
        self.tokens, self.states = BoundedCache(TOKEN_BYTES), BoundedCache(cache_bytes)
        self._ahead = min(AHEAD_BYTES, cache_bytes)
        self._lock = ForkLock()

    def read(self, handles: npt.NDArray[np.int64]) -> dict[int, ReadItem]:
        """The items of these handles, each once, by handle."""
        wanted = np.unique(handles).tolist()
        with self._lock:
            tokens = {handle: self.tokens[handle] for handle in wanted if handle in self.tokens}
            unread = [handle for handle in wanted if handle not in tokens]
            if unread:
                texts = self.items.get(np.asarray(unread, np.int64))
                tokens.update(zip(unread, self.tokenizer.items(texts), strict=True))
            states = {handle: self.states[handle] for handle in wanted if handle in self.states}
            alone = [handle for handle in wanted if handle not in states]
            states.update(zip(alone, encode_alone(self.lower, [tokens[one] for one in alone]), strict=True))
            for handle in unread:
                self._keep_tokens(handle, tokens[handle])
            for handle in alone:
                self._keep_states(handle, states[handle])
        return {handle: ReadItem(tokens[handle], states[handle]) for handle in wanted}

    def keep(self, handle: int, tokens: Tokens, states: States) -> None:
        """An item that the dual encoder has just read, as long as there is room ahead of the first search."""
        with self._lock:
            if states.nbytes <= self._ahead:
                self._ahead -= states.nbytes
                self._keep_tokens(handle, tokens)
                self._keep_states(handle, states)

    def _keep_tokens(self, handle: int, tokens: Tokens) -> None:
        self.tokens.keep(handle, tokens, sum(part.nbytes for part in tokens))

    def _keep_states(self, handle: int, states: States) -> None:
        self.states.keep(handle, states.copy(), states.nbytes)  # a copy: no view of a whole call is kept
