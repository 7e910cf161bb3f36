"""Joins concurrent searches into shared scorer calls.

Requests with the same settings wait for each other: a few milliseconds when the server is idle, and otherwise as long
as the batch before them runs. Each batch is one `index.search_many` in a worker thread, in which every round of all its
searches is one batch of scorer calls. A lane bounds how many batches of a scorer run at a time. A request whose client
disconnects, or whose deadline passes, leaves the queue at once; a running search is stopped before its next calls.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from crosscut.errors import ScorerError
from crosscut.server.errors import ClientLeft, NotReady, QueueFull, TooLate, split_failure
from crosscut.server.settings import Settings

THREADS = 32  # batches of all lanes that can run at a time


class Lane(NamedTuple):
    """Batches that share a scorer: at most `width` of a name run at a time."""

    name: Hashable
    width: int = 1


@dataclass(eq=False)
class Job:
    """One request: what is wanted, by when, and whether its client is still connected."""

    key: Hashable
    payload: Any
    work: Work
    deadline: float  # seconds from its arrival
    gone: asyncio.Event
    lane: Lane
    future: asyncio.Future[Any] = field(default_factory=lambda: asyncio.get_running_loop().create_future())
    arrived: float = field(default_factory=time.perf_counter)
    started: bool = False  # whether calls were made for it, or are about to be

    @property
    def left(self) -> float:
        """Seconds until its deadline."""
        return self.deadline - (time.perf_counter() - self.arrived)

    def halt(self) -> str | None:
        """Return why the search must stop now, if so; asked before every batch of calls."""
        reason = "cancelled" if self.gone.is_set() else "deadline" if self.left <= 0 else None
        self.started = self.started or reason is None
        return reason


Work = Callable[[Sequence[Job], float], list[Any]]
"""Run a batch: take jobs and the longest of their deadlines in seconds, return a result or exception for each."""


class Outcome(NamedTuple):
    """A result, and what it took to get it."""

    value: Any
    waited: float  # seconds in the queue
    batch: int  # searches in its batch


class Batcher:
    """A bounded queue, and the task that empties it batch by batch."""

    def __init__(self, settings: Settings, on_batch: Callable[[int], None]) -> None:
        self.settings = settings
        self.waiting: list[Job] = []
        self.running = 0  # jobs
        self._on_batch = on_batch
        self._busy: Counter[Hashable] = Counter()  # running batches by lane
        self._tasks: set[asyncio.Task[None]] = set()
        self._pace = 0.05  # seconds a request takes, averaged
        self._closing = False
        self._wake = asyncio.Event()
        self._pool = ThreadPoolExecutor(THREADS, thread_name_prefix="crosscut-search")
        self._main = asyncio.get_running_loop().create_task(self._run(), name="crosscut-batcher")

    async def close(self) -> None:
        """Finish what was accepted, accept nothing more."""
        self._closing = True
        self._wake.set()
        await self._main
        self._pool.shutdown(wait=True)

    async def submit(
        self, key: Hashable, payload: Any, work: Work, deadline: float, gone: asyncio.Event, lane: Lane
    ) -> Outcome:
        """Return the result of this payload, computed together with others of the same key."""
        if self._closing:
            raise NotReady("the server is shutting down")
        if len(self.waiting) >= self.settings.queue:
            message = f"{len(self.waiting)} requests are waiting, as many as this server allows; try again later"
            raise QueueFull(message, retry_after=self._pace * (len(self.waiting) + self.running))
        job = Job(key, payload, work, deadline, gone, lane)
        job.future.add_done_callback(lambda future: future.cancelled() or future.exception())  # marks it as read
        self.waiting.append(job)
        self._wake.set()
        leaving = asyncio.ensure_future(gone.wait())
        try:
            await asyncio.wait({job.future, leaving}, timeout=deadline, return_when=asyncio.FIRST_COMPLETED)
            if job not in self.waiting:
                outcome: Outcome = await job.future
                return outcome
        except asyncio.CancelledError:
            gone.set()  # a running search ends before its next calls
            raise
        finally:
            leaving.cancel()
            if job in self.waiting:
                self.waiting.remove(job)
        if gone.is_set():
            raise ClientLeft("the client disconnected while its request waited")
        raise TooLate(f"the search waited {deadline:.3g} s in the queue, and that was its deadline")

    async def _run(self) -> None:
        while True:
            jobs = self._next_batch()
            if jobs:
                self._busy[jobs[0].lane.name] += 1
                self.running += len(jobs)
                task = asyncio.get_running_loop().create_task(self._work(jobs), name="crosscut-batch")
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)
                continue
            if self._closing and not self.waiting and not self.running:
                return
            self._wake.clear()
            await self._wake.wait()
            if self.settings.linger and not self._closing and not self.running:
                await asyncio.sleep(self.settings.linger)

    def _next_batch(self) -> list[Job]:
        """Take the oldest request whose lane has room, and those that can share its batch."""
        oldest = next((job for job in self.waiting if self._busy[job.lane.name] < job.lane.width), None)
        if oldest is None:
            return []
        chosen = [job for job in self.waiting if job.key == oldest.key][: self.settings.batch]
        self.waiting = [job for job in self.waiting if job not in chosen]
        return chosen

    async def _work(self, jobs: list[Job]) -> None:
        started = time.perf_counter()
        try:
            values = await self._values(jobs)
        finally:
            self._busy[jobs[0].lane.name] -= 1
            self.running -= len(jobs)
            self._wake.set()
        seconds = time.perf_counter() - started
        self._pace += 0.2 * (seconds / len(jobs) - self._pace)
        self._on_batch(len(jobs))
        for job, value in zip(jobs, values, strict=True):
            if job.future.done():
                continue
            if isinstance(value, Exception):
                job.future.set_exception(value)
            else:
                job.future.set_result(Outcome(value, started - job.arrived, len(jobs)))

    async def _values(self, jobs: list[Job]) -> list[Any]:
        """Return what each job gets. A batch that failed before its first call is repeated, each job by itself."""
        try:
            return await asyncio.get_running_loop().run_in_executor(self._pool, _call, jobs)
        except Exception as error:
            paid = getattr(error, "calls", 0) > 0 or any(job.started for job in jobs)
            if len(jobs) == 1 or paid:
                return split_failure(error, len(jobs))
        return [value for job in jobs for value in await self._values([job])]


def _call(jobs: list[Job]) -> list[Any]:
    """Run the work of a batch, in a worker thread."""
    try:
        values = jobs[0].work(jobs, max(0.001, *(job.left for job in jobs)))
    except Exception:
        raise
    except BaseException as error:  # a scorer that calls sys.exit() does not end the server
        raise ScorerError(f"the scorer raised {type(error).__name__}") from error
    if len(values) != len(jobs):
        raise RuntimeError(f"{len(values)} results for {len(jobs)} requests")
    return values
