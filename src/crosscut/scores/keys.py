"""What scores are kept under: the content of queries and items, never their ids or positions.

A text, or an item without a title, is named by 16 bytes of BLAKE2b of its text; an item with a title by those of both,
and no text has the same name. So a changed item has no scores. A whole list has a digest of its own, which takes
milliseconds: it tells whether a stored matrix is the one that is asked for.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from functools import cached_property
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from crosscut.datasets.records import Item
from crosscut.errors import InputError

HASH_BYTES = 16
TITLED = b"title and text"  # sets the hashes of items with a title apart from those of texts
Hashes = npt.NDArray[np.uint8]


Contents: TypeAlias = "Sequence[Item | str] | Keys"
"""What has keys: texts, items, or the keys themselves."""


def text_hash(text: str) -> bytes:
    """16 bytes that name a text."""
    if not isinstance(text, str):
        raise InputError(f"scores are kept under texts, and {text!r} is a {type(text).__name__}")
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=HASH_BYTES).digest()


def item_hash(item: Item | str) -> bytes:
    """16 bytes that name an item: its title, if it has one, and its text."""
    if isinstance(item, Item) and item.title:
        return hashlib.blake2b(_joined([item.title, item.text]), digest_size=HASH_BYTES, person=TITLED).digest()
    return text_hash(item.text if isinstance(item, Item) else item)


def _joined(texts: Sequence[Item | str]) -> bytes:
    """Lengths, then texts: no two lists of texts give the same."""
    lengths = np.fromiter(map(len, texts), np.int64, len(texts))
    return lengths.tobytes() + "".join(texts).encode("utf-8", "surrogatepass")  # type: ignore[arg-type]


def _items_joined(items: Sequence[Item | str]) -> tuple[bytes, bytes]:
    """The same of items: titles, if any has one, and texts; and what sets such lists apart."""
    texts = [item.text if isinstance(item, Item) else item for item in items]
    titles = [item.title if isinstance(item, Item) else "" for item in items]
    try:
        return (_joined([*titles, *texts]), TITLED) if any(titles) else (_joined(texts), b"")
    except TypeError as error:
        raise InputError(f"scores are kept under texts, and one of these is not a string ({error})") from error


class Keys:
    """The keys of a list of texts or items, in order; what has the same content has the same key.

    Made once for a corpus, it saves hashing it again: every method of the store takes texts or `Keys`.
    """

    def __init__(
        self, digest: str, size: int, *, texts: Sequence[Item | str] | None = None, hashes: Hashes | None = None
    ) -> None:
        self.digest = digest
        self._size = size
        self._texts = texts
        self._hashes = hashes

    @classmethod
    def of(cls, contents: Contents) -> Keys:
        """Keys of texts or items; of keys, themselves."""
        if isinstance(contents, Keys):
            return contents
        if isinstance(contents, str):
            raise InputError(f"expected a list of texts, not one text ({contents[:40]!r}); put it in a list")
        listed = list(contents)
        person = b""
        try:
            joined = _joined(listed)
        except TypeError:  # they are not all texts: most lists are, and are not looked at one by one
            joined, person = _items_joined(listed)
        digest = hashlib.blake2b(joined, digest_size=HASH_BYTES, person=person)
        return cls(digest.hexdigest(), len(listed), texts=listed)

    def __len__(self) -> int:
        return self._size

    @cached_property
    def hashes(self) -> Hashes:
        """(n × 16), one row a text."""
        if self._hashes is not None:
            return self._hashes
        joined = b"".join(map(item_hash, self._texts or ()))
        return np.frombuffer(joined, np.uint8).reshape(-1, HASH_BYTES)

    @cached_property
    def names(self) -> list[bytes]:
        """The same as a list of bytes."""
        return split_hashes(self.hashes)

    @cached_property
    def places(self) -> dict[bytes, int]:
        """Where each text stands first."""
        places: dict[bytes, int] = {}
        for place, name in enumerate(self.names):
            places.setdefault(name, place)
        return places

    @cached_property
    def first(self) -> npt.NDArray[np.int64] | None:
        """For every position, where the same text stands first (n,); None if no text is repeated."""
        if len(self.places) == len(self):
            return None
        return np.fromiter((self.places[name] for name in self.names), np.int64, len(self))

    def only(self, stay: npt.NDArray[np.bool_]) -> Keys:
        """Those that stay, as a list of its own."""
        hashes = self.hashes[stay]
        return Keys(hashlib.blake2b(hashes.tobytes(), digest_size=HASH_BYTES).hexdigest(), len(hashes), hashes=hashes)

    def find(self, hashes: Hashes) -> npt.NDArray[np.int64]:
        """The position of each hash in this list, −1 where it is not in it."""
        return np.fromiter((self.places.get(name, -1) for name in split_hashes(hashes)), np.int64, len(hashes))


def split_hashes(hashes: Hashes) -> list[bytes]:
    """(n × 16) as n strings of 16 bytes."""
    joined = hashes.tobytes()
    return [joined[start : start + HASH_BYTES] for start in range(0, len(joined), HASH_BYTES)]
