"""Keys of stored scores: hashes of the content of queries and items, never their ids or positions.

A text, or an item without a title, has 16 bytes of BLAKE2b of its text; an item with a title those of both, and no text
has the same hash. So an edited item has no scores.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import TypeAlias

import numpy as np

from crosscut.datasets.records import Item
from crosscut.errors import InputError
from crosscut.types import Positions

HASH_BYTES = 16
REMEMBERED = 1 << 18  # hashes of single positions
TITLED = b"title and text"  # separates the hashes of items with a title from those of texts

Contents: TypeAlias = "Sequence[Item | str] | Keys"
"""Types that have keys: texts, items, or the keys themselves."""


def text_hash(text: str) -> bytes:
    """Return the 16 bytes that identify a text."""
    if not isinstance(text, str):
        raise InputError(f"scores are kept under texts, and {text!r} is a {type(text).__name__}")
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=HASH_BYTES).digest()


def item_hash(item: Item | str) -> bytes:
    """Return the 16 bytes that identify an item: its title, if it has one, and its text."""
    if isinstance(item, str):
        return text_hash(item)
    if not isinstance(item, Item):
        raise InputError(f"scores are kept under texts or items, and {item!r} is a {type(item).__name__}")
    if not item.title:
        return text_hash(item.text)
    sizes = np.array([len(item.title), len(item.text)], np.int64).tobytes()
    content = sizes + (item.title + item.text).encode("utf-8", "surrogatepass")
    return hashlib.blake2b(content, digest_size=HASH_BYTES, person=TITLED).digest()


class Keys:
    """The hashes of a list of texts or items, by position; computed when they are first needed.

    Every method of the store takes texts, items or `Keys`, which save hashing a corpus again that is used often. No
    `cached_property`: before Python 3.12 it holds a lock that a child forked at that moment could never get.
    """

    def __init__(self, contents: Sequence[Item | str], names: list[bytes] | None = None) -> None:
        self._contents = list(contents) if isinstance(contents, list) else contents
        self._names = names
        self._single: dict[int, bytes] = {}
        self._places: dict[bytes, int] | None = None
        self._digest: str | None = None

    @classmethod
    def of(cls, contents: Contents) -> Keys:
        """Return the keys of texts or items; of keys, themselves."""
        if isinstance(contents, Keys):
            return contents
        if isinstance(contents, str):
            raise InputError(f"expected a list of texts, not one text ({contents[:40]!r}); put it in a list")
        return cls(contents)

    @classmethod
    def of_hashes(cls, joined: bytes) -> Keys:
        """Return the keys whose hashes are joined here."""
        return cls((), [joined[start : start + HASH_BYTES] for start in range(0, len(joined), HASH_BYTES)])

    def __len__(self) -> int:
        return len(self._contents if self._names is None else self._names)

    @property
    def names(self) -> list[bytes]:
        """All hashes, by position."""
        if self._names is None:
            self._names = [item_hash(item) for item in self._contents]
        return self._names

    def at(self, positions: Positions) -> list[bytes]:
        """Return the hashes at some positions, without reading the other items."""
        if self._names is not None or 2 * len(positions) > len(self):
            names = self.names
            return [names[position] for position in positions.tolist()]
        if len(self._single) > REMEMBERED:
            self._single = {}
        single, found = self._single, []
        for position in positions.tolist():
            name = single.get(position)
            if name is None:
                name = single[position] = item_hash(self._contents[position])
            found.append(name)
        return found

    @property
    def digest(self) -> str:
        """A hash of the whole list: whether a stored list of items is this one."""
        if self._digest is None:
            self._digest = hashlib.blake2b(b"".join(self.names), digest_size=HASH_BYTES).hexdigest()
        return self._digest

    @property
    def places(self) -> dict[bytes, int]:
        """The first position of each text."""
        if self._places is None:
            names = self.names
            self._places = dict(zip(reversed(names), range(len(names) - 1, -1, -1), strict=True))
        return self._places

    @property
    def first(self) -> Positions | None:
        """For every position, the first one of the same text (n,); None if no text is repeated."""
        if len(self.places) == len(self):
            return None
        return np.fromiter((self.places[name] for name in self.names), np.int64, len(self))

    def find(self, hashes: Sequence[bytes]) -> Positions:
        """Return the position of each hash in this list, −1 where it is not in it."""
        places = self.places
        return np.fromiter((places.get(name, -1) for name in hashes), np.int64, len(hashes))
