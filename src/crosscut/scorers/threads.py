"""Work handed to helper threads."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable, Coroutine
from functools import cache
from typing import Any, TypeVar

T = TypeVar("T")


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


@cache
def _loop() -> asyncio.AbstractEventLoop:
    """One event loop for all async scorers, alive as long as the process.

    Clients, sessions and semaphores belong to the loop that first ran them; so every round runs on the same.
    """
    loop = asyncio.new_event_loop()
    threading.Thread(target=loop.run_forever, name="crosscut-async", daemon=True).start()
    return loop


os.register_at_fork(after_in_child=_loop.cache_clear)


def run_async(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine to its end, also when this thread runs an event loop of its own (a notebook, a server)."""
    return asyncio.run_coroutine_threadsafe(coroutine, _loop()).result()
