"""Joins concurrent searches into shared scorer calls.

Requests with the same settings wait for each other: a few milliseconds when the server is idle, and otherwise as long
as the batch before them runs. Each batch is one `index.search_many` in a worker thread, in which every round of all its
searches is one batch of scorer calls. One batch runs at a time: the scorer is the scarce thing.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Hashable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

from crosscut.errors import CrosscutError, ScorerError, ScorerTimeout

Work = Callable[[Sequence[Any], float | None], list[Any]]
"""What a batch does: payloads and seconds left in, one result (or exception) for each out."""


class QueueFull(CrosscutError):
    """More requests are waiting than the server allows."""

    def __init__(self, waiting: int, seconds: float) -> None:
        super().__init__(f"{waiting} requests are waiting, as many as this server allows; try again later")
        self.seconds = seconds


class Closing(CrosscutError):
    """The server is shutting down."""


@dataclass
class Job:
    key: Hashable
    payload: Any
    work: Work
    deadline: float | None
    future: asyncio.Future[Any]
    arrived: float = field(default_factory=time.perf_counter)


@dataclass(frozen=True)
class Outcome:
    """A result, and what it took to get there."""

    value: Any
    waited: float  # seconds in the queue
    batch: int  # searches in its batch


class Batcher:
    """A bounded queue and the worker that empties it, batch by batch."""

    def __init__(self, *, queue: int, batch: int, linger: float) -> None:
        self.limit = queue
        self.batch = batch
        self.linger = linger
        self.waiting: list[Job] = []
        self.running = 0
        self.on_batch: Callable[[int, float], None] = lambda size, seconds: None
        self._pace = 0.05  # seconds a request takes, averaged
        self._closing = False
        self._wake = asyncio.Event()
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="crosscut-search")
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._run(), name="crosscut-batcher")

    async def close(self) -> None:
        """Finish what was accepted, accept nothing more."""
        self._closing = True
        self._wake.set()
        if self._task is not None:
            await self._task
        self._pool.shutdown(wait=True)

    async def submit(self, key: Hashable, payload: Any, work: Work, deadline: float | None = None) -> Outcome:
        """The result of this payload, worked on together with others of the same key."""
        if self._closing:
            raise Closing("the server is shutting down")
        if len(self.waiting) >= self.limit:
            raise QueueFull(len(self.waiting), self._pace * (len(self.waiting) + self.running))
        job = Job(key, payload, work, deadline, asyncio.get_running_loop().create_future())
        self.waiting.append(job)
        self._wake.set()
        outcome: Outcome = await job.future
        return outcome

    async def _run(self) -> None:
        while True:
            if not self.waiting:
                if self._closing:
                    return
                self._wake.clear()
                await self._wake.wait()
                if self.linger and not self._closing:
                    await asyncio.sleep(self.linger)
                continue
            await self._work(self._next())

    def _next(self) -> list[Job]:
        """The oldest request and those that can go with it."""
        key = self.waiting[0].key
        chosen = [job for job in self.waiting if job.key == key][: self.batch]
        taken = set(map(id, chosen))
        self.waiting = [job for job in self.waiting if id(job) not in taken]
        return [job for job in chosen if not job.future.done()]  # a client that has left is not searched for

    async def _work(self, jobs: list[Job]) -> None:
        started = time.perf_counter()
        jobs = [job for job in jobs if not _expired(job, started)]
        if not jobs:
            return
        left = [job.deadline - (started - job.arrived) for job in jobs if job.deadline is not None]
        self.running = len(jobs)
        try:
            values = await asyncio.get_running_loop().run_in_executor(
                self._pool, jobs[0].work, [job.payload for job in jobs], min(left, default=None)
            )
        except Exception as error:
            values = _shared(error, len(jobs))
        finally:
            self.running = 0
        seconds = time.perf_counter() - started
        self._pace += 0.2 * (seconds / len(jobs) - self._pace)
        self.on_batch(len(jobs), seconds)
        for job, value in zip(jobs, values, strict=True):
            if job.future.done():
                continue
            if isinstance(value, Exception):
                job.future.set_exception(value)
            else:
                job.future.set_result(Outcome(value, started - job.arrived, len(jobs)))


def _expired(job: Job, now: float) -> bool:
    if job.deadline is None or now - job.arrived < job.deadline:
        return False
    if not job.future.done():
        job.future.set_exception(
            ScorerTimeout(
                f"the search waited {now - job.arrived:.3g} s in the queue; its deadline is {job.deadline:.3g} s"
            )
        )
    return True


def _shared(error: Exception, count: int) -> list[Any]:
    """What each search of a failed batch gets: its hits if it had ended before, else the error with its hits so far."""
    if not isinstance(error, ScorerError) or len(error.hits) != count:
        return [error] * count
    values: list[Any] = []
    for hits in error.hits:
        if hits.stop_reason != "scorer failed":
            values.append(hits)
            continue
        own = type(error)(str(error), hits=[hits], calls=hits.calls)
        own.__cause__ = error.__cause__
        values.append(own)
    return values
