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

from crosscut.errors import CrosscutError, InputError
from crosscut.index import Index
from crosscut.scorers.remote import RemoteScorer
from crosscut.server.batcher import HERE, Lane
from crosscut.server.logs import LOGGER, outline
from crosscut.server.problems import NoSuchIndex
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

    # -- changes ---------------------------------------------------------------------------------------------------

    async def add(self, name: str | None, items: Sequence[Mapping[str, Any]]) -> int:
        """More items, that can be found at once."""
        index = self[name]
        async with self._locks[self.called(name)]:
            count = await asyncio.to_thread(index.add, items)
        self._unsaved.add(self.called(name))
        return count

    async def remove(self, name: str | None, ids: Sequence[str]) -> int:
        """Take items out, at once."""
        index = self[name]
        async with self._locks[self.called(name)]:
            count = await asyncio.to_thread(index.remove, ids)
        self._unsaved.add(self.called(name))
        return count

    async def save(self) -> None:
        """Write what has changed to its folder."""
        for name in sorted(self._unsaved):
            index = self._indexes[name]
            self._unsaved.discard(name)
            if index.path is None:
                continue
            try:
                async with self._locks[name]:
                    await asyncio.to_thread(index.save)
            except CrosscutError as error:
                self._unsaved.add(name)  # tried again
                LOGGER.error("not saved", extra={"fields": {"index": name, "causes": outline(error)}})
            else:
                LOGGER.info("saved", extra={"fields": {"index": name, "items": len(index)}})

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
        for name, index in list(self._indexes.items()):
            try:
                if name in self._unsaved or not await asyncio.to_thread(changed, index):
                    continue
                async with self._locks[name]:
                    self._indexes[name] = await asyncio.to_thread(again, index)
            except CrosscutError as error:
                LOGGER.error("not reloaded", extra={"fields": {"index": name, "causes": outline(error)}})
            else:
                LOGGER.info("reloaded", extra={"fields": {"index": name, "items": len(self._indexes[name])}})


def changed(index: Index) -> bool:
    """Whether the folder of an index holds another generation than this."""
    folder = index._folder
    return folder is not None and index._lock is None and folder.record()["folder"] not in folder.known


def again(index: Index) -> Index:
    """The index that lies in the folder of this one now; models that are the same are not loaded twice."""
    assert index.path is not None
    try:
        made = Index.load(index.path, scorer=index.scorer, encoder=index.encoder)
    except InputError:  # it was built with others
        made = Index.load(index.path)
    made.price, made.log, made.learn_every = index.price, index.log, index.learn_every
    warm_up(made)
    return made


def warm_up(index: Index) -> None:
    """Load what is loaded on first use; calls that cost money are not made."""
    if len(index) and index.scorer is not None and not isinstance(index.scorer, RemoteScorer):
        with contextlib.suppress(CrosscutError):
            index.search("warm up", k=1, budget=min(10, len(index)))
