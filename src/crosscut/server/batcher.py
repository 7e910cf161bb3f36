"""Joins concurrent searches into shared scorer calls.

Requests with the same settings wait for each other: a few milliseconds when the server is idle, and otherwise as long
as the batch before them runs. Each batch is one `index.search_many` in a worker thread, in which every round of all its
searches is one batch of scorer calls. One batch runs at a time where the scorer computes on this machine: its cores are
the scarce thing. Where it lies behind HTTP, batches run side by side, in a lane of their own. A request whose client
hangs up, or whose deadline passes, leaves the queue at once; one under way is told so before its next calls.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

from crosscut.errors import ClientLeft, Closing, QueueFull, ScorerError, StoreUnavailable, TooLate
from crosscut.server.problems import retold

THREADS = 32
"""Batches of all lanes that can run at a time."""


@dataclass(frozen=True)
class Lane:
    """Batches that wait for one another: no more than `width` of a name run at a time."""

    name: str = "here"
    width: int = 1


HERE = Lane()
"""Of scorers that compute on this machine."""


@dataclass(eq=False)
class QueuedRequest:
    """One request: what is wanted, by when, and whether its client is still there."""

    key: Hashable
    payload: Any
    work: Work
    deadline: float  # seconds from its arrival
    gone: asyncio.Event
    lane: Lane
    future: asyncio.Future[Any] = field(default_factory=lambda: asyncio.get_running_loop().create_future())
    arrived: float = field(default_factory=time.perf_counter)
    paying: bool = False  # whether calls were made for it, or are about to be

    @property
    def left(self) -> float:
        """Seconds until its deadline."""
        return self.deadline - (time.perf_counter() - self.arrived)

    def halt(self) -> str | None:
        """Why the search must stop now, if so; asked from the worker thread."""
        reason = "cancelled" if self.gone.is_set() else "deadline" if self.left <= 0 else None
        self.paying = self.paying or reason is None
        return reason


Work = Callable[[Sequence[QueuedRequest], float], list[Any]]
"""What a batch does: jobs and the seconds of the one that has most in, one result (or exception) for each out."""


@dataclass(frozen=True)
class Answered:
    """A result, and what it took to get there."""

    value: Any
    waited: float  # seconds in the queue
    batch: int  # searches in its batch


class Batcher:
    """A bounded queue and the worker that empties it, batch by batch."""

    def __init__(self, *, queue: int, batch: int, linger: float, on_batch: Callable[[int], None]) -> None:
        self.limit = queue
        self.batch = batch
        self.linger = linger
        self.waiting: list[QueuedRequest] = []
        self.running = 0
        self._busy: Counter[str] = Counter()  # batches that run, by lane
        self._batches: set[asyncio.Task[None]] = set()
        self._on_batch = on_batch
        self._pace = 0.05  # seconds a request takes, averaged
        self._closing = False
        self._wake = asyncio.Event()
        self._pool = ThreadPoolExecutor(THREADS, thread_name_prefix="crosscut-search")
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

    async def submit(
        self,
        key: Hashable,
        payload: Any,
        work: Work,
        deadline: float,
        gone: asyncio.Event,
        lane: Lane = HERE,
    ) -> Answered:
        """The result of this payload, worked on together with others of the same key."""
        if self._closing:
            raise Closing("the server is shutting down")
        if len(self.waiting) >= self.limit:
            raise QueueFull(len(self.waiting), self._pace * (len(self.waiting) + self.running))
        job = QueuedRequest(key, payload, work, deadline, gone, lane)
        job.future.add_done_callback(_read)
        self.waiting.append(job)
        self._wake.set()
        leaving = asyncio.ensure_future(gone.wait())
        try:
            await asyncio.wait({job.future, leaving}, timeout=deadline, return_when=asyncio.FIRST_COMPLETED)
            if job not in self.waiting:
                outcome: Answered = await job.future
                return outcome
        except asyncio.CancelledError:
            gone.set()  # the search, if it is under way, ends before its next calls
            raise
        finally:
            leaving.cancel()
            if job in self.waiting:
                self.waiting.remove(job)
        if gone.is_set():
            raise ClientLeft("the client hung up while its request waited")
        raise TooLate(f"the search waited {deadline:.3g} s in the queue, and that was its deadline")

    async def _run(self) -> None:
        while True:
            jobs = self._next()
            if jobs:
                self._busy[jobs[0].lane.name] += 1
                self.running += len(jobs)
                batch = asyncio.get_running_loop().create_task(self._work(jobs), name="crosscut-batch")
                self._batches.add(batch)
                batch.add_done_callback(self._batches.discard)
                continue
            if self._closing and not self.waiting and not self.running:
                return
            self._wake.clear()
            await self._wake.wait()
            if self.linger and not self._closing and not self.running:
                await asyncio.sleep(self.linger)

    def _next(self) -> list[QueuedRequest]:
        """The oldest request whose lane has room, and those that can go with it."""
        oldest = next((job for job in self.waiting if self._busy[job.lane.name] < job.lane.width), None)
        if oldest is None:
            return []
        chosen = [job for job in self.waiting if job.key == oldest.key][: self.batch]
        self.waiting = [job for job in self.waiting if job not in chosen]
        return chosen

    async def _work(self, jobs: list[QueuedRequest]) -> None:
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
                job.future.set_result(Answered(value, started - job.arrived, len(jobs)))

    async def _values(self, jobs: list[QueuedRequest]) -> list[Any]:
        """What each job gets. A batch that failed before its first call is repeated, each request by itself."""
        try:
            return await asyncio.get_running_loop().run_in_executor(self._pool, _guarded, jobs)
        except Exception as error:
            paid = getattr(error, "calls", 0) > 0 or any(job.paying for job in jobs)
            if len(jobs) == 1 or paid:
                return _shared(error, len(jobs))
            return [value for job in jobs for value in await self._values([job])]


def _guarded(jobs: list[QueuedRequest]) -> list[Any]:
    try:
        values = jobs[0].work(jobs, max(0.001, *(job.left for job in jobs)))
    except Exception:
        raise
    except BaseException as error:  # a scorer that calls sys.exit() does not end the server
        raise ScorerError(f"the scorer raised {type(error).__name__}") from error
    if len(values) != len(jobs):
        raise RuntimeError(f"{len(values)} results for {len(jobs)} requests")
    return values


def _shared(error: Exception, count: int) -> list[Any]:
    """What each search of a failed batch gets: its hits if it had ended before, else the error with its hits so far."""
    if not isinstance(error, ScorerError | StoreUnavailable):
        return [error] * count
    if len(error.hits) != count:
        return [retold(error, [], error.calls if count == 1 else 0) for _ in range(count)]
    failed = ("scorer failed", "store failed")
    own = getattr(error, "failures", None) or [None] * count
    return [
        hits if hits.stop_reason not in failed else retold(fault or error, [hits], hits.calls)
        for hits, fault in zip(error.hits, own, strict=True)
    ]


def _read(future: asyncio.Future[Any]) -> None:
    """An exception that nobody looks at is logged by asyncio, with its text."""
    if not future.cancelled():
        future.exception()
