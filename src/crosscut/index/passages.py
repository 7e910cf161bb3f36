"""Long documents: their passages are the items, and a search answers with documents.

A passage is a window of sentences. The budget counts passages, k counts documents; a document scores as its best
passage does, or as the mean of those that were scored, and the best one is shown (`hit.text`, `hit.item`). Stopping
rules see documents: a search is not over because ten passages of one document are its top ten.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal

import numpy as np

from crosscut.datasets.reading import holds_texts
from crosscut.datasets.records import Item
from crosscut.errors import InputError
from crosscut.search.hits import Scored
from crosscut.search.stopping import SoFar, Stop, Watch
from crosscut.types import whole

OF, AT = "passage_of", "passage_at"
"""In a passage's metadata: the id of its document, and the character at which it begins there."""
SENTENCE_END = re.compile(r"(?:[.!?…][\"'”’)\]]*+(?=\s)|\n)\s*")
WORD = re.compile(r"\S+\s*")


@dataclass(frozen=True)
class Passages:
    """Options for splitting documents into passages and merging their hits.

    Parameters
    ----------
    words
        Of a passage, at most; sentences stay whole unless one is longer than that.
    overlap
        Sentences that a passage has in common with the one before it.
    score
        Of a document: that of its `best` passage, or the `mean` of those that were scored.
    """

    words: int = 120
    overlap: int = 1
    score: Literal["best", "mean"] = "best"

    def __post_init__(self) -> None:
        whole("words of a passage", self.words, 1)
        whole("overlap of passages, in sentences,", self.overlap)
        if self.score not in ("best", "mean"):
            raise InputError(f"a document scores as its 'best' passage or as the 'mean' of them; got {self.score!r}")

    @classmethod
    def of(cls, given: Passages | int | bool | None, source: Any = None) -> Passages | None:
        """Convert `passages=`: True, False, a number of words, or `Passages(…)`; None cuts a folder of files."""
        if given is None:
            given = isinstance(source, str | Path) and holds_texts(Path(source))
        if isinstance(given, bool):
            return cls() if given else None
        if not isinstance(given, int | Passages):
            raise InputError(f"passages is a number of words, True, False or Passages(…); got {given!r}")
        return cls(given) if isinstance(given, int) else given

    def cut(self, items: Iterable[Item]) -> Iterator[Item]:
        """The passages of documents, one after another."""
        for item in items:
            for key in (OF, AT):
                if key in item.metadata:
                    raise InputError(
                        f"item {item.id!r} has {key!r} in its metadata, which an index of passages keeps for itself: "
                        "rename it, or build with passages=False"
                    )
            for number, (start, end) in enumerate(self.windows(item.text), 1):
                place = {OF: item.id, AT: start}
                yield Item(f"{item.id}#{number}", item.title, item.text[start:end], {**item.metadata, **place})

    def windows(self, text: str) -> list[tuple[int, int]]:
        """Return begins and ends of passages; a text without a word is one passage."""
        pieces = list(self._pieces(text))
        made: list[tuple[int, int]] = []
        first = 0
        while first < len(pieces):
            last, count = first, 0
            while last < len(pieces) and (last == first or count + pieces[last][2] <= self.words):
                count += pieces[last][2]
                last += 1
            start, end = pieces[first][0], pieces[last - 1][1]
            made.append((start, start + len(text[start:end].rstrip())))
            if last == len(pieces):
                break
            first = max(last - self.overlap, first + 1)
        return made or [(0, len(text))]

    def _pieces(self, text: str) -> Iterator[tuple[int, int, int]]:
        """Sentences as (start, end, words); one that is too long comes in parts."""
        ends = [end.end() for end in SENTENCE_END.finditer(text)]
        for first, last in pairwise([0, *ends, len(text)]):
            words = [word.span() for word in WORD.finditer(text, first, last)]
            for start in range(0, len(words), self.words):
                part = words[start : start + self.words]
                yield part[0][0], part[-1][1], len(part)


def document_of(passages: Sequence[Item]) -> Item:
    """A document, put together from all of its passages."""
    text = ""
    for passage in sorted(passages, key=lambda one: int(one.metadata[AT])):
        start = int(passage.metadata[AT])
        text = text[:start].ljust(start) + passage.text
    first = passages[0]
    metadata: dict[str, Any] = {key: value for key, value in first.metadata.items() if key not in (OF, AT)}
    return Item(str(first.metadata[OF]), first.title, text, metadata)


def document_at(items: Sequence[Item], position: int) -> Any:
    """The document of a passage; of an item that is none, its own id."""
    item = items[position]
    return item.metadata.get(OF, item.id)


@dataclass(frozen=True)
class OfDocuments:
    """A stopping rule that is shown documents, each by its best passage, in place of passages."""

    rule: Stop
    document: Callable[[int], Any]

    @property
    def reason(self) -> str:
        return self.rule.reason

    def watch(self, k: int) -> Watch:
        return _Grouping(self.rule.watch(k), self.document)


@dataclass(frozen=True)
class _Grouping:
    inner: Watch
    document: Callable[[int], Any]

    def enough(self, so_far: SoFar) -> bool:
        handles, scores, *_ = Scored.of(so_far.rounds)
        best: dict[Any, int] = {}  # document → place of its best passage, best first
        for place in np.lexsort((handles, -scores)).tolist():
            best.setdefault(self.document(int(handles[place])), place)
            if len(best) == so_far.k:
                break
        places = list(best.values())
        return self.inner.enough(replace(so_far, handles=handles[places], scores=scores[places]))
