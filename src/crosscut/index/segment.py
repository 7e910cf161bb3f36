"""Some items and what is kept of each: their vectors, words and metadata. A segment is never changed.

In files, a part of the index's folder (`crosscut.storage`):

    segment.json        how many items, and what there is of them
    items.jsonl, item-*.npy             the items (`crosscut.datasets.tables`)
    metadata.json, metadata-*           their metadata by key (`crosscut.index.metadata`)
    vectors.npy         (n × d) float16 or float32; list by list, where there are
    starts.npy, order.npy               (lists + 1) where each list begins, and (n) the item of each vector
    bm25-*.npy          counts of words (`crosscut.retrieval.bm25`)
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain
from typing import Any

import numpy as np
import numpy.typing as npt

from crosscut.ann import clusters
from crosscut.ann.ivf import IVF
from crosscut.datasets.records import Item
from crosscut.datasets.tables import ItemsInFiles, ItemsInMemory, ItemTable, write_items
from crosscut.errors import InputError
from crosscut.index.metadata import Columns
from crosscut.retrieval.bm25 import Postings
from crosscut.spaces.base import Space, Vectors
from crosscut.spaces.rows import Arranged
from crosscut.storage import Files, Saved, divides
from crosscut.types import Array, Mask, Positions

FLOATS = "<f2 <f4 <f8"


@dataclass(frozen=True, eq=False)
class Segment:
    """Items, by place, and what is kept of each."""

    items: ItemTable
    columns: Columns
    vectors: Array | Arranged | None = None  # (n × d)
    centroids: npt.NDArray[np.float32] | None = None  # (lists × d), shared with other segments
    starts: Positions | None = None  # (lists + 1) where each list of the arranged vectors begins
    words: Postings | None = None
    saved: Saved | None = None

    def __len__(self) -> int:
        return len(self.items)

    @classmethod
    def of(cls, items: Iterable[Item], vectors: Array | None, words: bool) -> Segment:
        table = ItemsInMemory(items)
        return cls(table, Columns(table), vectors, words=Postings.count(table) if words else None)

    @classmethod
    def join(cls, parts: Sequence[Segment], kept: Sequence[Mask]) -> Segment:
        """The kept items of several segments as one, in memory; with lists if one of them has some."""
        places = [np.flatnonzero(keep) for keep in kept]
        table = ItemsInMemory(
            chain.from_iterable(part.items.get(some.tolist()) for part, some in zip(parts, places, strict=True))
        )
        vectors = [part.vectors[some] for part, some in zip(parts, places, strict=True) if part.vectors is not None]
        words = [part.words for part in parts if part.words is not None]
        every = np.flatnonzero(np.concatenate(kept))
        joined = cls(
            table,
            Columns(table),
            np.concatenate(vectors) if vectors else None,
            words=Postings.join(words, every) if words else None,
        )
        centroids = next((part.centroids for part in parts if part.centroids is not None), None)
        return joined if centroids is None else joined.arranged(centroids)

    def arranged(self, centroids: Array, list_of: Positions | None = None) -> Segment:
        """With its vectors list by list; `list_of` (n) is the list of each."""
        if self.starts is not None or self.vectors is None or not len(self):
            return self
        rows = np.asarray(self.vectors)
        list_of = clusters.assign(rows, centroids) if list_of is None else list_of
        order = np.argsort(list_of, kind="stable")
        starts = np.searchsorted(list_of[order], np.arange(len(centroids) + 1)).astype(np.int64)
        stored = Arranged(rows[order], order)
        return replace(self, vectors=stored, centroids=centroids, starts=starts, saved=None)

    @cached_property
    def space(self) -> Space:
        """Its vectors, for the rounds of a search."""
        if isinstance(self.vectors, Arranged) and self.starts is not None and self.centroids is not None:
            return IVF(self.centroids, self.vectors.stored, self.starts, self.vectors.order)
        return Vectors(np.asarray(self.vectors))

    def write(self, files: Files) -> None:
        about = {
            "items": len(self),
            "vectors": self.vectors is not None,
            "lists": self.starts is not None,
            "words": self.words is not None,
        }
        files.json("segment", about)
        write_items(files, self.items)
        self.columns.write(files)
        if isinstance(self.vectors, Arranged):
            files.array("vectors", self.vectors.stored)
            files.array("order", self.vectors.order.astype(np.int32))
        elif self.vectors is not None:
            files.array("vectors", self.vectors)
        if self.starts is not None:
            files.array("starts", self.starts)
        if self.words is not None:
            for name in Postings.DTYPES:
                files.array(f"bm25-{name}", getattr(self.words, name))

    @classmethod
    def read(cls, saved: Saved, centroids: npt.NDArray[np.float32] | None) -> Segment:
        """Read the files of `write`; starts and places are validated, since compiled code relies on them."""
        about = saved.json("segment")
        n = int(about["items"])
        items = ItemsInFiles(saved, n)
        vectors: Any = saved.array("vectors", FLOATS, (n, None)) if about["vectors"] else None
        starts = None
        if about["lists"]:
            order = saved.array("order", "<i4", (n,)).astype(np.int64)
            if n and not (order.min() >= 0 and order.max() < n and (np.bincount(order, minlength=n) == 1).all()):
                raise saved.damaged("order.npy", f"does not name each of {n} items once")
            lists = 0 if centroids is None else len(centroids)
            starts = saved.array("starts", "<i8", (lists + 1,))
            if not divides(starts, n):
                raise saved.damaged("starts.npy", f"does not divide {n} vectors among {lists} lists")
            vectors = Arranged(vectors, order)
        return cls(
            items,
            Columns(items, saved),
            vectors,
            centroids if about["lists"] else None,
            starts,
            _words(saved, n) if about["words"] else None,
            saved,
        )


def _words(saved: Saved, n: int) -> Postings:
    arrays = {name: saved.array(f"bm25-{name}", kind, (None,)) for name, kind in Postings.DTYPES.items()}
    try:
        words = Postings(**arrays)
    except InputError as error:
        raise saved.damaged("bm25-starts.npy", str(error)) from error
    if words.n != n:
        raise saved.damaged("bm25-lengths.npy", f"has {words.n} items, and there are {n}")
    held = words.items
    if len(held) and not (held.min() >= 0 and held.max() < n):
        raise saved.damaged("bm25-items.npy", f"names items outside the {n} there are")
    return words
