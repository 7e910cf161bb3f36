"""The one place that decides on threads: how many there are, who works on them, and what a fork leaves of them.

`CROSSCUT_THREADS` limits them; without it there are as many as cores that this process may use.
"""

from __future__ import annotations

import os
import threading
from collections import Counter
from collections.abc import Callable, Coroutine
from functools import cache
from typing import TYPE_CHECKING, Any, TypeVar
from weakref import WeakSet

from crosscut.errors import InputError, ScorerBusy

if TYPE_CHECKING:
    import asyncio

T = TypeVar("T")


@cache
def cores() -> int:
    """Return the number of threads: `CROSSCUT_THREADS`, or the cores that this process may use."""
    wanted = os.environ.get("CROSSCUT_THREADS")
    if wanted is not None:
        if not wanted.isdecimal() or int(wanted) < 1:
            raise InputError(f"CROSSCUT_THREADS is a whole number of 1 or more; got {wanted!r}")
        return int(wanted)
    if hasattr(os, "sched_getaffinity"):  # Linux: containers and `taskset` allow fewer than there are
        return max(1, len(os.sched_getaffinity(0)))
    return os.cpu_count() or 1


def after_fork(forget: Callable[[], object]) -> None:
    """Call `forget` in a child process: threads do not survive a fork. Where there is no fork, nothing happens."""
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=forget)


class ForkLock:
    """A lock that a child process has anew: there nobody would let go of what another thread held at the fork."""

    def __init__(self) -> None:
        self.renew()
        _locks.add(self)

    def renew(self) -> None:
        self._lock = threading.Lock()

    def __enter__(self) -> None:
        self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        self._lock.release()


_locks: WeakSet[ForkLock] = WeakSet()


def _renew_locks() -> None:
    for lock in _locks:
        lock.renew()


after_fork(_renew_locks)


MOST_ABANDONED = 4
"""Threads of one scorer that may hang; with so many, it gets no further calls until one returns."""
_counting = ForkLock()
_abandoned: Counter[int] = Counter()  # by the id of their owner, which the threads keep alive


def in_thread(work: Callable[[], T], seconds: float, *, owner: object) -> T:
    """Return the result of `work()`, run in another thread.

    After `seconds` without a result, raise TimeoutError: Python cannot stop a thread, so it is abandoned and its
    result dropped. An `owner` with too many abandoned threads raises `ScorerBusy` instead of starting another.
    """
    with _counting:
        if _abandoned[id(owner)] >= MOST_ABANDONED:
            raise ScorerBusy(
                f"{MOST_ABANDONED} calls of the scorer have not returned; it gets no further ones until one does",
                attempted=False,
            )
    done = threading.Event()
    box: dict[str, Any] = {}

    def run() -> None:
        try:
            box["value"] = work()
        except BaseException as error:  # raised in the calling thread below
            box["error"] = error
        with _counting:
            done.set()
            if box.get("abandoned"):
                _abandoned[id(owner)] -= 1

    threading.Thread(target=run, name="crosscut-scorer", daemon=True).start()
    try:
        done.wait(min(max(seconds, 0.0), threading.TIMEOUT_MAX))
    finally:
        with _counting:
            if not done.is_set():
                box["abandoned"] = True
                _abandoned[id(owner)] += 1
    if not done.is_set():
        raise TimeoutError
    if "error" in box:
        raise box["error"]
    value: T = box["value"]
    return value


_starting = threading.Lock()
_running: asyncio.AbstractEventLoop | None = None
_thread: threading.Thread | None = None


def _loop() -> asyncio.AbstractEventLoop:
    """Return the event loop of all async scorers, which lives as long as the process.

    Clients, sessions and semaphores belong to the loop that first ran them; so every round runs on the same one.
    """
    import asyncio

    global _running, _thread
    with _starting:
        if _running is None:
            _running = asyncio.new_event_loop()
            _thread = threading.Thread(target=_running.run_forever, name="crosscut-async", daemon=True)
            _thread.start()
        return _running


def _forget_loop() -> None:
    global _starting, _running, _thread
    _starting, _running, _thread = threading.Lock(), None, None
    _abandoned.clear()


after_fork(_forget_loop)

CANCEL_SECONDS = 2.0


def run_async(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine to its end, also when this thread runs an event loop of its own (a notebook, a server).

    An interrupt of the waiting thread cancels the coroutine and waits until it has ended.
    """
    import asyncio

    loop = _loop()
    if threading.current_thread() is _thread:  # an async scorer that searches: its loop is busy with waiting for us
        from concurrent.futures import ThreadPoolExecutor

        with ThreadPoolExecutor(1, "crosscut-nested") as pool:
            return pool.submit(asyncio.run, coroutine).result()
    ended = threading.Lock()  # held until the coroutine has ended; an interrupt cannot damage it, as it can an Event
    ended.acquire()
    tasks: list[asyncio.Task[T]] = []

    def start() -> None:
        task = loop.create_task(coroutine)
        tasks.append(task)
        task.add_done_callback(lambda _: ended.release())

    def cancel() -> None:
        if not tasks:  # the interrupt came before the start
            coroutine.close()
            ended.release()
        for task in tasks:
            task.cancel()

    try:
        loop.call_soon_threadsafe(start)
        ended.acquire()
    except BaseException:
        if not (tasks and tasks[0].done()):
            loop.call_soon_threadsafe(cancel)
            ended.acquire(timeout=CANCEL_SECONDS)
        raise
    return tasks[0].result()
