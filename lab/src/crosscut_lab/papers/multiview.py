"""Multi-view retrieval: several vectors per item, and an item is as close as its best view.

MuVER (Ma et al. 2021), as compared in ADACUR (Yadav et al. 2023, app. C.3): a long item says several things, and one
vector blurs them. Its sentences, or windows of words, are embedded apart, each under the item's title:

    score(q, i) = max over views v of item i of  q · v

It serves as a first stage (`first=` of any method) or as a retriever that ranks positions; the price is the memory of
all views.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from crosscut.ann.baseline import masked
from crosscut.ann.topk import Found
from crosscut.datasets.records import Item, as_item
from crosscut.errors import InputError
from crosscut.linalg.products import product
from crosscut.linalg.top import ranked
from crosscut.search.loop import Picker, Query
from crosscut.search.stages import unpredicted
from crosscut.types import NO_HANDLES, Positions

SENTENCE = re.compile(r"(?<=[.!?;])\s+")
BATCH = 1 << 24  # view scores held at a time: 64 MiB of float32


class Encoder(Protocol):
    """The interface of encoders of items, such as `BundledEncoder`."""

    def encode_items(self, items: Sequence[Item | str]) -> npt.NDArray[np.float32]: ...


def sentences(text: str) -> list[str]:
    """The sentences of a text."""
    return [part for part in SENTENCE.split(text.strip()) if part]


def windows(size: int = 48, step: int = 32) -> Callable[[str], list[str]]:
    """A splitter into windows of `size` words, one every `step`."""
    if not 1 <= step <= size:
        raise InputError(f"windows of {size} words every {step} words leave words out: use 1 ≤ step ≤ size")

    def split(text: str) -> list[str]:
        words = text.split()
        last = max(len(words) - size, 0)
        starts = [*range(0, last, step), last]
        return [" ".join(words[start : start + size]) for start in starts] if words else []

    return split


def runs(length: int = 3) -> Callable[[str], list[str]]:
    """A splitter into every run of 1 … `length` neighbouring sentences, the short ones first: view-merging.

    MuVER merges, for a query, neighbouring views that match it and encodes them anew. The best of all runs is what that
    search looks for; here they are encoded beforehand, and nothing is encoded while searching.
    """
    if length < 1:
        raise InputError(f"runs of {length} sentences hold nothing; use 1 or more")

    def split(text: str) -> list[str]:
        parts = sentences(text)
        return [
            " ".join(parts[start : start + size])
            for size in range(1, min(length, len(parts)) + 1)
            for start in range(len(parts) - size + 1)
        ]

    return split


def views(item: Item | str, split: Callable[[str], list[str]], *, most: int = 15) -> list[Item]:
    """The whole item and, if there are several, its parts, each under its title: `most` in all."""
    whole = as_item(item)
    parts = split(whole.text)
    return [whole, *(whole._replace(text=part) for part in parts if len(parts) > 1)][:most]


class MultiView(Picker):
    """Items with several vectors each.

    Parameters
    ----------
    vectors
        (views × d), the views of item 0, then of item 1, …
    counts
        (n) views of each item, at least 1.
    """

    def __init__(self, vectors: npt.NDArray[Any], counts: npt.ArrayLike) -> None:
        self.vectors = vectors
        self.counts: Positions = np.asarray(counts, dtype=np.int64).reshape(-1)
        if vectors.ndim != 2 or not np.issubdtype(vectors.dtype, np.floating):
            raise InputError(f"views are floats (views × d); got {vectors.dtype} of shape {vectors.shape}")
        if self.counts.sum() != len(vectors) or (len(self.counts) and self.counts.min() < 1):
            raise InputError(
                f"{len(vectors)} vectors for counts that sum to {self.counts.sum()}: every item needs 1 view or more"
            )
        self._starts = np.cumsum(self.counts) - self.counts

    @classmethod
    def encode(
        cls,
        encoder: Encoder,
        items: Sequence[Item | str],
        *,
        split: Callable[[str], list[str]] = sentences,
        most: int = 15,
    ) -> MultiView:
        """Items, cut into views and encoded."""
        if most < 1:
            raise InputError(f"an item has at least 1 view; got most={most}")
        made = [views(item, split, most=most) for item in items]
        return cls(encoder.encode_items([view for parts in made for view in parts]), [len(parts) for parts in made])

    @property
    def n(self) -> int:
        return len(self.counts)

    @property
    def ranks(self) -> int:
        return self.n

    @property
    def d(self) -> int:
        return int(self.vectors.shape[1])

    def scores(self, query_vectors: npt.ArrayLike) -> npt.NDArray[Any]:
        """Each item's best view: (q × d) → (q × n)."""
        queries = np.asarray(query_vectors, dtype=np.float64)
        if queries.ndim != 2 or queries.shape[1] != self.d:
            raise InputError(f"the query vectors have shape {queries.shape} and the views {self.d} dimensions")
        out = np.empty((len(queries), self.n), dtype=np.float32)
        step = max(1, BATCH // max(len(self.vectors), 1))
        for start in range(0, len(queries), step):
            of_views = product(self.vectors, queries[start : start + step])  # (q × views)
            out[start : start + step] = np.maximum.reduceat(of_views, self._starts, axis=1) if self.n else 0
        return out

    def rank(self, query_vectors: npt.ArrayLike, k: int) -> list[Positions]:
        """Positions of each query's k best items, best first; ties go to the lower position."""
        return [ranked(row, k) for row in self.scores(query_vectors)]

    def pick(self, queries: Sequence[Query], counts: Sequence[int]) -> list[Found]:
        """As a first stage: the best items of each query's vector, in the space of the views."""
        pairs = zip(queries, counts, strict=True)
        return [unpredicted(self._best(query, count) if count else NO_HANDLES) for query, count in pairs]

    def _best(self, query: Query, count: int) -> Positions:
        if query.vector is None:
            raise InputError("a multi-view first stage ranks by the query vector, and this query has none")
        values = self.scores(query.vector[None])[0]
        return ranked(masked(values, query.exclude, query.allowed), count)

    def __repr__(self) -> str:
        return f"MultiView({self.n} items, {len(self.vectors)} views, d={self.d})"
