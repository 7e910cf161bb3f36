"""The one place that decides on threads: how many there are, who works on them, and what a fork leaves of them.

`CROSSCUT_THREADS` limits them; without it there are as many as cores that this process may use.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Coroutine
from functools import cache
from typing import TYPE_CHECKING, Any, TypeVar
from weakref import WeakSet

from crosscut.errors import InputError

if TYPE_CHECKING:
    import asyncio

T = TypeVar("T")


@cache
def cores() -> int:
    """How many threads work at a time: `CROSSCUT_THREADS`, or the cores that this process may use."""
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


def in_thread(work: Callable[[], T], seconds: float) -> T:
    """The result of `work()`, run in another thread.

    After `seconds` without a result: TimeoutError. Python cannot stop a thread, so that one is left behind, and
    what it may still return is dropped.
    """
    box: dict[str, Any] = {}

    def run() -> None:
        try:
            box["value"] = work()
        except BaseException as error:  # handed to the caller below
            box["error"] = error

    thread = threading.Thread(target=run, name="crosscut-scorer", daemon=True)
    thread.start()
    thread.join(min(seconds, threading.TIMEOUT_MAX))
    if thread.is_alive():
        raise TimeoutError
    if "error" in box:
        raise box["error"]
    value: T = box["value"]
    return value


_starting = threading.Lock()
_running: asyncio.AbstractEventLoop | None = None


def _loop() -> asyncio.AbstractEventLoop:
    """One event loop for all async scorers, alive as long as the process.

    Clients, sessions and semaphores belong to the loop that first ran them; so every round runs on the same, also
    when several threads ask for it first at the same time.
    """
    import asyncio

    global _running
    with _starting:
        if _running is None:
            _running = asyncio.new_event_loop()
            threading.Thread(target=_running.run_forever, name="crosscut-async", daemon=True).start()
        return _running


def _forget_loop() -> None:
    global _starting, _running
    _starting, _running = threading.Lock(), None


after_fork(_forget_loop)


def run_async(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine to its end, also when this thread runs an event loop of its own (a notebook, a server)."""
    import asyncio

    return asyncio.run_coroutine_threadsafe(coroutine, _loop()).result()
