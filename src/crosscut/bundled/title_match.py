"""Whether a marked mention names an item: the words of the mention and of the item's title.

    title(m, i) = max_{names of i}  2 |m ∩ name| / (|m| + |name|)        (Dice 1945)

The names of an item are its title, the parts that commas make of it ("car, auto, automobile") and what stands outside
of brackets ("Mercury (planet)"); without a title, its text. More than `LONGEST` words are no name. Words are stemmed
and all of them count: a title may be "The Who".
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

import numpy as np
import numpy.typing as npt

from crosscut.bundled.tokenizer import split_title
from crosscut.datasets.records import Item
from crosscut.linalg.arrays import spans, starts_of
from crosscut.retrieval.bm25 import Terms, term_of
from crosscut.types import Floats, Positions

Sizes = npt.NDArray[np.int64]

LONGEST = 16
WORD = re.compile(r"[^\W_]+")
PARTS = re.compile(r"[,;]")
LONGEST_TEXT = 40 * LONGEST
"""Characters of a text that may be a name."""


class Titles:
    """The words of the names of items; items are positions 0 … n − 1.

    Parameters
    ----------
    words : (w,) hashes of the words, name after name, each once in a name.
    sizes : (m,) words of every name.
    names : (n,) names of every item.
    """

    def __init__(self, words: Terms, sizes: Sizes, names: Sizes) -> None:
        self.words, self.sizes, self.names = words, sizes, names

    @classmethod
    def of(cls, items: Iterable[Item | str]) -> Titles:
        """Read the names of items, or of texts, `title [ENT] text` or plain."""
        read = _NameReader()
        each = [list(dict.fromkeys(filter(None, map(read, _names(item))))) for item in items]
        names = [name for some in each for name in some]
        return cls(
            np.fromiter((word for name in names for word in name), np.uint64),
            np.asarray([len(name) for name in names], np.int64),
            np.asarray([len(some) for some in each], np.int64),
        )

    def __len__(self) -> int:
        return len(self.names)

    def taken(self, positions: Positions) -> Titles:
        """Return the names of some of the items."""
        names = self.names[positions]
        places = spans(starts_of(self.names)[positions], names)
        sizes = self.sizes[places]
        words = self.words[spans(starts_of(self.sizes)[places], sizes)]
        return Titles(words, sizes, names)

    def match(self, mention: str) -> Floats:
        """Return how well a mention names every item: 0 … 1."""
        out = np.zeros(len(self))
        asked = np.asarray(_NameReader()(mention), np.uint64)
        if len(asked) and len(self.sizes):
            shared = np.add.reduceat(np.isin(self.words, asked), starts_of(self.sizes)[:-1], dtype=np.int64)
            named = np.flatnonzero(self.names)
            out[named] = np.maximum.reduceat(2 * shared / (len(asked) + self.sizes), starts_of(self.names)[named])
        return out


class _NameReader(dict[str, int]):
    """The distinct words of names, by hash of their stems, in order; a word is stemmed once."""

    def __init__(self) -> None:
        from Stemmer import Stemmer

        super().__init__()
        self._stem = Stemmer("english").stemWord

    def __missing__(self, word: str) -> int:
        self[word] = key = term_of(self._stem(word))
        return key

    def __call__(self, name: str) -> tuple[int, ...]:
        found = tuple(dict.fromkeys(self[word] for word in WORD.findall(name.lower())))
        return found if len(found) <= LONGEST else ()


def _names(item: Item | str) -> Iterator[str]:
    title, text = split_title(item)
    if title.strip():
        yield title
        yield without_brackets(title)
        yield from PARTS.split(title)
    elif len(text) <= LONGEST_TEXT:
        yield text


def without_brackets(text: str) -> str:
    """Return a text with a blank in place of each part in brackets, in linear time."""
    parts = []
    start = 0
    while (opened := text.find("(", start)) >= 0 and (closed := text.find(")", opened)) >= 0:
        parts.append(text[start:opened])
        start = closed + 1
    return " ".join([*parts, text[start:]])
