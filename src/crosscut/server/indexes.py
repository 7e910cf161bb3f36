"""The indexes of a server, by name: changed by requests, saved, and loaded again when their folders change.

A search keeps the index it began with, so nothing has to stop for any of this. What a request adds or removes can be
found at once; the folder is written a moment later, once for all changes of that moment. A folder that another process
has changed is loaded beside the index that is served, and takes its place when it is ready.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from typing import Any

from crosscut.errors import CrosscutError, InputError, StoreError
from crosscut.index import Index
from crosscut.server.batching import Lane
from crosscut.server.errors import NoSuchIndex
from crosscut.server.observability import LOGGER, outline
from crosscut.server.settings import Settings

DEFAULT = "default"


class Indexes:
    """Indexes by name; requests that name none mean the first."""

    def __init__(self, indexes: Index | Mapping[str, Index], settings: Settings) -> None:
        self._indexes = {DEFAULT: indexes} if isinstance(indexes, Index) else dict(indexes)
        if not self._indexes:
            raise InputError("a server needs an index: pass one, or a mapping of names to indexes")
        self.settings = settings
        self._locks = {name: asyncio.Lock() for name in self._indexes}  # held while an index is changed
        self._counts: dict[str, int] = {}  # items in vector stores, when they were last counted
        self._tasks: list[asyncio.Task[None]] = []
        self._stopping = asyncio.Event()

    def __iter__(self) -> Iterator[str]:
        return iter(self._indexes)

    def __getitem__(self, name: str | None) -> Index:
        return self._indexes[self.name_of(name)]

    def name_of(self, name: str | None) -> str:
        """Return the name of an index, also where none was given."""
        if name is not None and name not in self._indexes:
            raise NoSuchIndex(f"there is no index of that name; there are {', '.join(self._indexes)}")
        return next(iter(self._indexes)) if name is None else name

    def lane(self, index: Index) -> Lane:
        """Return the lane of its batches: concurrent behind HTTP, one at a time where scoring takes this machine."""
        url = getattr(index.scorer, "url", None)
        if url is not None:
            return Lane(url, self.settings.remote_batches)
        return Lane("local models" if getattr(index.scorer, "local", False) else id(index.scorer))

    def size(self, name: str | None) -> int:
        """Return the number of items; of a vector store, which may be slow or gone, the last number counted."""
        index = self[name]
        return self._counts.get(self.name_of(name), 0) if index.store is not None else len(index)

    async def count(self) -> None:
        """Ask the vector stores how many items they hold."""
        for name, index in self._indexes.items():
            if index.store is not None:
                with contextlib.suppress(CrosscutError):
                    self._counts[name] = await asyncio.to_thread(len, index)

    # -- changes ---------------------------------------------------------------------------------------------------

    async def add(self, name: str | None, items: Sequence[Mapping[str, Any]]) -> int:
        """Add items, which can be found at once, and return how many."""
        return await self._change(self.name_of(name), lambda index: index.add(items))

    async def remove(self, name: str | None, ids: Sequence[str], *, forget: bool = False) -> int:
        """Remove items at once; with `forget` out of every file too, before this returns."""
        return await self._change(
            self.name_of(name), lambda index: index.forget(ids).items if forget else index.remove(ids)
        )

    async def _change(self, name: str, work: Callable[[Index], int]) -> int:
        """Change the index that is served; what another process has changed is loaded first."""
        async with self._locks[name]:
            try:
                if await asyncio.to_thread(self._indexes[name].changed_on_disk):
                    await self._load(name)
            except InputError as error:  # no mistake of the client
                raise StoreError("the folder of this index cannot be read") from error
            count = await asyncio.to_thread(work, self._indexes[name])
        await self.count()
        return count

    async def _load(self, name: str) -> None:
        """Serve what the folder holds; the caller has the lock."""
        index = await asyncio.to_thread(self._indexes[name].reload)
        await asyncio.to_thread(warm_up, index)
        self._indexes[name] = index
        LOGGER.info("reloaded", extra={"fields": {"index": name, "items": self.size(name)}})

    async def save(self) -> None:
        """Write what has changed to its folder."""
        for name, lock in self._locks.items():
            async with lock:
                index = self._indexes[name]
                if index.path is None or not index.unsaved:
                    continue
                try:
                    await asyncio.to_thread(index.save)
                except Exception as error:  # tried again
                    LOGGER.error("not saved", extra={"fields": {"index": name, "causes": outline(error)}})
                else:
                    LOGGER.info("saved", extra={"fields": {"index": name, "items": self.size(name)}})

    # -- upkeep ----------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Begin to save and to reload, now and then."""
        for seconds, work in ((self.settings.save_seconds, self.save), (self.settings.reload_seconds, self.reload)):
            if seconds:
                self._tasks.append(asyncio.get_running_loop().create_task(self._repeat(seconds, work)))

    async def stop(self) -> None:
        """Let a running save end, and save what it has not."""
        self._stopping.set()
        await asyncio.gather(*self._tasks)
        await self.save()
        await self.save()  # what failed once

    async def _repeat(self, seconds: float, work: Callable[[], Awaitable[None]]) -> None:
        while not self._stopping.is_set():
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._stopping.wait(), seconds)
                return
            try:
                await work()
            except Exception as error:  # the next time may be better
                LOGGER.error("upkeep failed", extra={"fields": {"causes": outline(error)}})

    async def reload(self) -> None:
        """Load what other processes have changed; a folder that cannot be loaded changes nothing."""
        await self.count()
        for name in self._indexes:
            try:
                async with self._locks[name]:
                    index = self._indexes[name]
                    if not index.unsaved and await asyncio.to_thread(index.changed_on_disk):
                        await self._load(name)
            except CrosscutError as error:
                LOGGER.error("not reloaded", extra={"fields": {"index": name, "causes": outline(error)}})


def warm_up(index: Index) -> None:
    """Load what a local model loads on first use. Any other scorer may cost money: it is not called."""
    if getattr(index.scorer, "local", False) and len(index):
        log, index.log = index.log, None
        with contextlib.suppress(CrosscutError):
            index.search("warm up", k=1, budget=min(10, len(index)))
        index.log = log
