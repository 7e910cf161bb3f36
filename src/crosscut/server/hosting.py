"""The indexes of a server, by name: changed by requests, saved, and loaded again when their folders change.

A search keeps the index it began with, so nothing has to stop for any of this. What a request adds or removes can be
found at once; the folder is written a moment later, once for all changes of that moment. A folder that somebody else
has changed is loaded beside the index that is served, and takes its place when it is ready.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from typing import Any

from crosscut.errors import CrosscutError, InputError, NoSuchIndex, StoreError
from crosscut.index import Index
from crosscut.scorers.http import RemoteScorer
from crosscut.server.batcher import HERE, Lane
from crosscut.server.logs import LOGGER, outline
from crosscut.server.settings import Settings

DEFAULT = "default"


class Hosting:
    """Indexes by name; the first is what requests mean that name none."""

    def __init__(self, indexes: Index | Mapping[str, Index], settings: Settings) -> None:
        self._indexes = {DEFAULT: indexes} if isinstance(indexes, Index) else dict(indexes)
        if not self._indexes:
            raise InputError("a server needs an index: pass one, or a mapping of names to indexes")
        self.settings = settings
        self._locks = {name: asyncio.Lock() for name in self._indexes}  # of those who change one
        self._unsaved: set[str] = set()
        self._counts: dict[str, int] = {}  # items in vector stores, when they were last asked
        self._tasks: list[asyncio.Task[None]] = []
        self._stopping = asyncio.Event()

    def __iter__(self) -> Iterator[str]:
        return iter(self._indexes)

    def __getitem__(self, name: str | None) -> Index:
        if name is not None and name not in self._indexes:
            raise NoSuchIndex(f"there is no index of that name; there are {', '.join(self._indexes)}")
        return self._indexes[next(iter(self._indexes)) if name is None else name]

    def called(self, name: str | None) -> str:
        """The name of an index, also where none was given."""
        _ = self[name]
        return next(iter(self._indexes)) if name is None else name

    def lane(self, index: Index) -> Lane:
        """Where its batches wait: those of a scorer behind HTTP run side by side."""
        if isinstance(index.scorer, RemoteScorer):
            return Lane(index.scorer.url, self.settings.side_by_side)
        return HERE

    def size(self, name: str | None) -> int:
        """How many items there are; of a vector store, which may be slow or gone, how many there were."""
        index = self[name]
        return self._counts.get(self.called(name), 0) if index.store is not None else len(index)

    async def count(self) -> None:
        """Ask the vector stores how many items they hold."""
        for name, index in self._indexes.items():
            if index.store is not None:
                with contextlib.suppress(CrosscutError):
                    self._counts[name] = await asyncio.to_thread(len, index)

    @property
    def places(self) -> set[str]:
        """Where on the disk indexes, models, scores and logs lie: for whoever runs this server, not for its clients."""
        return {str(place) for index in self._indexes.values() for place in index.paths if len(place.parts) > 1}

    # -- changes ---------------------------------------------------------------------------------------------------

    async def add(self, name: str | None, items: Sequence[Mapping[str, Any]]) -> int:
        """More items, that can be found at once."""
        return await self._change(self.called(name), lambda index: index.add(items))

    async def remove(self, name: str | None, ids: Sequence[str], *, forget: bool = False) -> int:
        """Take items out, at once; `forget`: out of every file too, before this returns."""
        return await self._change(self.called(name), lambda index: index.forget(ids) if forget else index.remove(ids))

    async def _change(self, name: str, work: Callable[[Index], int]) -> int:
        """Change the index that is served when its turn comes; what somebody else has changed is loaded first."""
        async with self._locks[name]:
            try:
                if await asyncio.to_thread(self._indexes[name].changed_on_disk):
                    await self._load(name)
            except InputError as error:  # no fault of the one who asks
                raise StoreError("the folder of this index cannot be read") from error
            try:
                count = await asyncio.to_thread(work, self._indexes[name])
            finally:
                if self._indexes[name].unsaved:
                    self._unsaved.add(name)
        await self.count()
        return count

    async def _load(self, name: str) -> None:
        """Serve what the folder holds; the caller has the lock."""
        self._indexes[name] = await asyncio.to_thread(again, self._indexes[name])
        LOGGER.info("reloaded", extra={"fields": {"index": name, "items": self.size(name)}})

    async def save(self) -> None:
        """Write what has changed to its folder."""
        for name in sorted(self._unsaved):
            async with self._locks[name]:
                index = self._indexes[name]
                try:
                    if index.path is not None:
                        await asyncio.to_thread(index.save)
                except Exception as error:  # tried again
                    LOGGER.error("not saved", extra={"fields": {"index": name, "causes": outline(error)}})
                    continue
                self._unsaved.discard(name)
            if index.path is not None:
                LOGGER.info("saved", extra={"fields": {"index": name, "items": self.size(name)}})

    # -- upkeep ----------------------------------------------------------------------------------------------------

    def start(self) -> None:
        for seconds, work in ((self.settings.save_seconds, self.save), (self.settings.reload_seconds, self.reload)):
            if seconds is not None:
                self._tasks.append(asyncio.get_running_loop().create_task(self._every(seconds, work)))

    async def stop(self) -> None:
        """Let a save that is under way end, and save what it has not."""
        self._stopping.set()
        await asyncio.gather(*self._tasks)
        await self.save()

    async def _every(self, seconds: float, work: Callable[[], Awaitable[None]]) -> None:
        while not self._stopping.is_set():
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._stopping.wait(), seconds)
                return
            try:
                await work()
            except Exception as error:  # the next time may be better
                LOGGER.error("upkeep failed", extra={"fields": {"causes": outline(error)}})

    async def reload(self) -> None:
        """Load what somebody else has changed, and serve that from then on; what cannot be loaded changes nothing."""
        await self.count()
        for name in self._indexes:
            try:
                async with self._locks[name]:
                    if name not in self._unsaved and await asyncio.to_thread(self._indexes[name].changed_on_disk):
                        await self._load(name)
            except CrosscutError as error:
                LOGGER.error("not reloaded", extra={"fields": {"index": name, "causes": outline(error)}})


def again(index: Index) -> Index:
    """The index that is in the folder of this one now, warm."""
    index = index.reload()
    warm_up(index)
    return index


def warm_up(index: Index) -> None:
    """Load what a local model loads on first use. Any other scorer may cost money: it is not called."""
    if getattr(index.scorer, "local", False) and len(index):
        log, index.log = index.log, None
        with contextlib.suppress(CrosscutError):
            index.search("warm up", k=1, budget=min(10, len(index)))
        index.log = log
