"""What scores are kept under: the content of the texts, never their ids or positions.

A text is named by 16 bytes of BLAKE2b, so a changed text has no scores. A whole list of texts has a digest of its own,
which takes milliseconds: it tells whether a stored matrix is the one that is asked for.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from functools import cached_property

import numpy as np
import numpy.typing as npt

from crosscut.errors import InputError

HASH_BYTES = 16
Hashes = npt.NDArray[np.uint8]


def text_hash(text: str) -> bytes:
    """16 bytes that name a text."""
    if not isinstance(text, str):
        raise InputError(f"scores are kept under texts, and {text!r} is a {type(text).__name__}")
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=HASH_BYTES).digest()


class Keys:
    """The keys of a list of texts, in order; repeated texts have the same key.

    Made once for a corpus, it saves hashing it again: every method of the store takes texts or `Keys`.
    """

    def __init__(self, digest: str, size: int, *, texts: Sequence[str] | None = None, hashes: Hashes | None = None):
        self.digest = digest
        self._size = size
        self._texts = texts
        self._hashes = hashes

    @classmethod
    def of(cls, texts: Sequence[str] | Keys) -> Keys:
        """Keys of texts; of keys, themselves."""
        if isinstance(texts, Keys):
            return texts
        if isinstance(texts, str):
            raise InputError(f"expected a list of texts, not one text ({texts[:40]!r}); put it in a list")
        texts = list(texts)
        try:
            together = "".join(texts).encode("utf-8", "surrogatepass")
        except TypeError as error:
            raise InputError(f"scores are kept under texts, and one of these is not a string ({error})") from error
        lengths = np.fromiter(map(len, texts), np.int64, len(texts))
        digest = hashlib.blake2b(lengths.tobytes(), digest_size=HASH_BYTES)
        digest.update(together)
        return cls(digest.hexdigest(), len(texts), texts=texts)

    def __len__(self) -> int:
        return self._size

    @cached_property
    def hashes(self) -> Hashes:
        """(n × 16), one row a text."""
        if self._hashes is not None:
            return self._hashes
        joined = b"".join(map(text_hash, self._texts or ()))
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

    def find(self, hashes: Hashes) -> npt.NDArray[np.int64]:
        """The position of each hash in this list, −1 where it is not in it."""
        return np.fromiter((self.places.get(name, -1) for name in split_hashes(hashes)), np.int64, len(hashes))


def split_hashes(hashes: Hashes) -> list[bytes]:
    """(n × 16) as n strings of 16 bytes."""
    joined = hashes.tobytes()
    return [joined[start : start + HASH_BYTES] for start in range(0, len(joined), HASH_BYTES)]
