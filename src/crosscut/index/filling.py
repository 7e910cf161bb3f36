"""Items into a vector store, block by block: encoded in this process, or by workers of Ray.

Workers load the encoder once, take a block of items at a time and write it, with its vectors, straight into the store:
a server's (`Qdrant(url=…)`, `PgVector("postgresql://…")`), which each of them opens for itself. A store that only this
process can reach (a shard, a folder, a client or connection of the caller's) gets what the workers send back.

The store is the record of what is done. Ray starts a worker that died again, with its block, less what the store has of
it by then; everything else is added again with `resume`.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from crosscut.datasets.records import Item
from crosscut.encoders.named import DualEncoder, load_encoder
from crosscut.encoders.running import placed
from crosscut.errors import InputError, StoreUnavailable
from crosscut.index.building import distinct
from crosscut.linalg.arrays import finite
from crosscut.score_store.engines import Engine, LocalEngine, RayEngine, actors, spread
from crosscut.stores.base import Store
from crosscut.types import Array, Progress

BLOCK = 512  # items that are encoded and written together
UNSENT = (
    "{} load the encoder themselves, and this one cannot be sent to them ({}): open the index with its name or folder"
)

Vectors = npt.NDArray[np.float32]


class Filler:
    """Encodes items, and writes them where it can reach the store; on a worker of Ray, or here."""

    def __init__(self, encoder: str | DualEncoder, store: Callable[[], Store] | None) -> None:
        self.encoder = load_encoder(encoder)
        self.store = None if store is None else store()

    def fill(self, items: list[Item]) -> Vectors | None:
        """None: written. Otherwise the vectors (m × d), for somebody who can write them."""
        rows = np.asarray(self.encoder.encode_items(items), np.float32)
        finite(rows, "vectors")
        if self.store is None:
            return rows
        write(self.store, items, rows)
        return None


class RayFiller(Filler):
    """A filler that Ray may start again: of its first block then, some may be written."""

    def __init__(self, encoder: str | DualEncoder, store: Callable[[], Store] | None) -> None:
        import ray

        super().__init__(encoder, store)
        self.again = self.store is not None and ray.get_runtime_context().was_current_actor_reconstructed

    def fill_block(self, items: list[Item]) -> tuple[list[Item], Vectors | None]:
        """Return the items and what `fill` returns."""
        left = absent(self.store, items) if self.again and self.store is not None else items
        self.again = False
        return items, self.fill(left) if left else None


class Filling:
    """One source of items on its way into a store."""

    def __init__(self, store: Store, items: Iterator[Item], *, resume: bool, progress: Progress | None) -> None:
        self.store, self.resume = store, resume
        self._items, self._progress = items, progress
        self._going: set[Any] = set()  # names of what was handed out and is not written yet
        self.written = self.seen = 0

    def blocks(self) -> Iterator[list[Item]]:
        """Some items at a time, without those that are there."""
        while block := list(itertools.islice(self._items, BLOCK)):
            distinct(block)
            self.seen += len(block)
            twice = next((item for item in block if self.store.named(item.id) in self._going), None)
            if twice is not None:
                raise InputError(f"the id {twice.id!r} stands twice among the items; ids must be unique")
            if fresh := self.missing(block, again=self.resume):
                self._going.update(self.store.named(item.id) for item in fresh)
                yield fresh

    def missing(self, items: list[Item], again: bool) -> list[Item]:
        """The items that the store does not have; unless they may be asked for `again`, one that it has is an error."""
        left = absent(self.store, items)
        there = {item.id for item in items}.difference(item.id for item in left)
        if there and not again:
            raise InputError(
                f"{len(there)} of {len(items)} ids are in {self.store.place} already, one is {next(iter(there))!r}; "
                f"{self.written} items before them were written: remove them, or add with resume=True (--resume), "
                "which skips what is there"
            )
        return left

    def done(self, items: list[Item], rows: Vectors | None) -> None:
        """A block came back: written, or to be written here."""
        if rows is not None:
            write(self.store, items, rows)
        self._going.difference_update(self.store.named(item.id) for item in items)
        self.written += len(items)
        if self._progress is not None:
            self._progress("adding items", self.written, 0)

    def run(self, encoder: str | DualEncoder, engine: Engine) -> int:
        """How many items were written."""
        if isinstance(engine, RayEngine):
            if engine.gpus and isinstance(encoder, str):
                encoder = placed(encoder, ["cuda"])  # the one that Ray shows to this worker
            with actors(engine, RayFiller, encoder, self.store.recipe, unsent=UNSENT) as pool:
                for items, rows in spread(pool, "fill_block", self.blocks(), StoreUnavailable):
                    self.done(items, rows)
        elif isinstance(engine, LocalEngine) and engine.workers == 1:
            here = Filler(encoder, None)
            for block in self.blocks():
                self.done(block, here.fill(block))
        else:
            raise InputError(
                f"items are encoded in this process (engine='local') or by Ray (RayEngine(…)); got {engine}"
            )
        return self.written


def absent(store: Store, items: list[Item]) -> list[Item]:
    """Return the items that a store does not have."""
    with store.reaching():
        rows = store.fetch([store.named(item.id) for item in items])
    there = {store.name(key, payload) for key, payload in zip(rows.keys, rows.payloads, strict=True)}
    return [item for item in items if store.named(item.id) not in there]


def write(store: Store, items: list[Item], rows: Array) -> None:
    """One block, with its vectors."""
    if rows.shape != (len(items), store.d):
        raise InputError(
            f"{len(items)} items have vectors of shape {rows.shape}, those of {store.place} have {store.d} dimensions"
        )
    with store.reaching():
        store.write(items, rows.astype(np.float64))
