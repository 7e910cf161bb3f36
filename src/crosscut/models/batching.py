"""Texts in groups that a model reads together, and caches of what it has read."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from typing import Any, Generic, Protocol, TypeVar

import numpy as np
import numpy.typing as npt

from crosscut.threads import ForkLock
from crosscut.types import Positions

TOKENS_PER_CALL = 1024
TOKEN_BYTES = 256 << 20

Key = TypeVar("Key", bound=Hashable)
Value = TypeVar("Value")


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


def length_buckets(lengths: Positions, tokens: int, threads: int = 1) -> Iterator[Positions]:
    """Yield the places of texts in groups of about one length and `tokens` tokens, from short to long.

    There are as many groups for each thread; the padding of a group is at most an eighth of its tokens.
    """
    order = np.argsort(lengths, kind="stable")
    long = lengths[order]
    ends = np.cumsum(long)
    every = max(1, int(long.sum()))
    parts = threads * -(-every // (threads * tokens))
    group = (2 * ends - long) * parts // (2 * every)  # by the middle of each text: all groups hold about as many tokens
    start = 0
    for place in range(1, len(order) + 1):
        if place == len(order) or group[place] != group[start] or _padded(long[start : place + 1]):
            yield order[start:place]
            start = place


def _padded(long: Positions) -> bool:
    """Whether texts, from short to long, would be padded by more than an eighth."""
    return bool(8 * len(long) * long[-1] > 9 * long.sum() + 64)


class LRUCache(Generic[Key, Value]):
    """The values of the last `most` keys, and of as many more as were asked for at once."""

    def __init__(self, most: int) -> None:
        self.most = most
        self._values: OrderedDict[Key, Value] = OrderedDict()
        self._lock = ForkLock()

    def of(self, keys: Sequence[Key], make: Callable[[list[Key]], Iterable[Value]]) -> list[Value]:
        """Return one value for every key; `make` is given those that are missing, each once."""
        with self._lock:
            found = {key: self._values[key] for key in keys if key in self._values}
        new = [key for key in dict.fromkeys(keys) if key not in found]
        if new:
            found.update(zip(new, make(new), strict=True))
        with self._lock:
            for key in found:  # what was asked for last is forgotten last
                self._values[key] = found[key]
                self._values.move_to_end(key)
            while len(self._values) > max(self.most, len(found)):
                self._values.popitem(last=False)
        return [found[key] for key in keys]

    def __len__(self) -> int:
        return len(self._values)


class BoundedCache(dict[int, Any]):
    """A cache that is limited in bytes; the first entries stay."""

    def __init__(self, room: int) -> None:
        super().__init__()
        self.room = room
        self.full = False

    def keep(self, handle: int, value: Any, size: int) -> None:
        self.full = self.full or size > self.room
        if not self.full:
            self.room -= size
            self[handle] = value
