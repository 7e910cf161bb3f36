"""Items into a vector store, block by block: encoded in this process, or by workers of Ray.

Workers load the encoder once, take a block of items at a time and write it, with its vectors, straight into the store:
a server's (`Qdrant(url=…)`, `PgVector("postgresql://…")`), which each of them opens for itself. A store that only this
process can reach (a shard, a folder, a client or connection of the caller's) gets what the workers send back.

The store is the record of what is done. A block that was lost with its worker is asked for again, less what the store
has of it by then; so is everything, when the same is added again with `resume`.
"""

from __future__ import annotations

import itertools
import pickle
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from crosscut.ann.stores.base import Store
from crosscut.datasets.records import Item
from crosscut.encoders.named import DualEncoder, load_encoder
from crosscut.encoders.running import placed
from crosscut.errors import CrosscutError, InputError, StoreError, StoreUnavailable
from crosscut.index.building import distinct
from crosscut.linalg.arrays import finite
from crosscut.scores.engines import Engine, LocalEngine, RayEngine
from crosscut.scores.engines.local import DEATHS
from crosscut.scores.engines.ray import connected
from crosscut.types import Progress

BLOCK = 512  # items that are encoded and written together

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


class Filling:
    """One source of items on its way into a store."""

    def __init__(self, store: Store, items: Iterator[Item], *, resume: bool, progress: Progress | None) -> None:
        self.store, self.resume = store, resume
        self._items, self._progress = items, progress
        self.written = self.seen = 0

    def blocks(self) -> Iterator[list[Item]]:
        """Some items at a time, without those that are there."""
        while block := list(itertools.islice(self._items, BLOCK)):
            distinct(block)
            self.seen += len(block)
            if fresh := self.missing(block, again=self.resume):
                yield fresh

    def missing(self, items: list[Item], again: bool = True) -> list[Item]:
        """The items that the store does not have; unless they may be asked for `again`, one that it has is an error."""
        with self.store.reaching():
            rows = self.store.fetch([self.store.named(item.id) for item in items])
        there = {self.store.name(key, payload) for key, payload in zip(rows.keys, rows.payloads, strict=True)}
        if there and not again:
            raise InputError(
                f"{len(there)} of {len(items)} ids are in {self.store.place} already, one is {next(iter(there))!r}; "
                f"{self.written} items before them were written: remove them, or add with resume=True (--resume), "
                "which skips what is there"
            )
        return [item for item in items if self.store.named(item.id) not in there]

    def done(self, items: list[Item], rows: Vectors | None) -> None:
        """A block came back: written, or to be written here."""
        if rows is not None:
            write(self.store, items, rows)
        self.written += len(items)
        if self._progress is not None:
            self._progress("adding items", self.written, 0)

    def run(self, encoder: str | DualEncoder, engine: Engine) -> int:
        """How many items were written."""
        if isinstance(engine, RayEngine):
            with connected(engine.address) as ray:
                _FillCrew(ray, engine, self, encoder).finish()
        elif isinstance(engine, LocalEngine) and engine.workers == 1:
            here = Filler(encoder, None)
            for block in self.blocks():
                self.done(block, here.fill(block))
        else:
            raise InputError(
                f"items are encoded in this process (engine='local') or by Ray (RayEngine(…)); got {engine}"
            )
        return self.written


class _FillCrew:
    """Workers of Ray, and the block that each of them has."""

    def __init__(self, ray: Any, engine: RayEngine, filling: Filling, encoder: str | DualEncoder) -> None:
        self.ray, self.engine, self.filling = ray, engine, filling
        self._kind = ray.remote(num_cpus=engine.cpus, num_gpus=engine.gpus, max_restarts=0)(Filler)
        if engine.gpus and isinstance(encoder, str):
            encoder = placed(encoder, ["cuda"])  # the one that Ray shows to this worker
        try:
            self._given = ray.put(encoder), filling.store.recipe
        except (TypeError, pickle.PicklingError) as error:
            raise InputError(
                f"Ray workers load the encoder themselves, and this one cannot be sent to them "
                f"({str(error).splitlines()[0]}): open the index with its name or folder"
            ) from error
        self._deaths = 0
        self._pending: dict[Any, tuple[Any, list[Item]]] = {}
        self._again: deque[list[Item]] = deque()

    def finish(self) -> None:
        blocks, idle = self.filling.blocks(), [self._start() for _ in range(self.engine.workers)]
        try:
            while True:
                while idle and (block := self._next(blocks)) is not None:
                    worker = idle.pop()
                    self._pending[worker.fill.remote(block)] = (worker, block)
                if not self._pending:
                    return
                (ready, *_), _ = self.ray.wait(list(self._pending), num_returns=1)
                worker, block = self._pending.pop(ready)
                if self._settled(ready, block):
                    idle.append(worker)
                else:
                    self._again.append(block)
                    idle.append(self._start())
        finally:
            for worker in [*idle, *(worker for worker, _ in self._pending.values())]:
                self.ray.kill(worker)

    def _start(self) -> Any:
        return self._kind.remote(*self._given)

    def _next(self, blocks: Iterator[list[Item]]) -> list[Item] | None:
        while self._again:  # a worker may have written before it died
            lost = self._again.popleft()
            left = self.filling.missing(lost)
            self.filling.written += len(lost) - len(left)
            if left:
                return left
        return next(blocks, None)

    def _settled(self, reference: Any, block: list[Item]) -> bool:
        """Take what came back; False if the worker died over it."""
        try:
            rows = self.ray.get(reference)
        except self.ray.exceptions.RayTaskError as error:  # of the encoder or the store, not of Ray
            cause = error.cause if isinstance(error.cause, Exception) else error
            if isinstance(cause, CrosscutError):
                raise cause from error
            raise StoreUnavailable(f"a Ray worker failed: {type(cause).__name__}: {cause}") from error
        except (self.ray.exceptions.RayActorError, self.ray.exceptions.WorkerCrashedError) as error:
            self._deaths += 1
            if self._deaths >= DEATHS + self.engine.workers:
                raise StoreError(
                    f"Ray workers died {self._deaths} times without finishing a block ({str(error).splitlines()[0]}); "
                    f"{self.filling.written} items are written: add the same again with resume=True and fewer workers"
                ) from error
            return False
        self._deaths = 0
        self.filling.done(block, rows)
        return True


def write(store: Store, items: list[Item], rows: Vectors) -> None:
    """One block, with its vectors."""
    if rows.shape != (len(items), store.d):
        raise InputError(
            f"{len(items)} items have vectors of shape {rows.shape}, those of {store.place} have {store.d} dimensions"
        )
    with store.reaching():
        store.write(items, rows.astype(np.float64))
