"""Work handed to a helper thread."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, TypeVar

T = TypeVar("T")


def in_thread(work: Callable[[], T], seconds: float | None = None) -> T:
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
    thread.join(seconds)
    if thread.is_alive():
        raise TimeoutError
    if "error" in box:
        raise box["error"]
    value: T = box["value"]
    return value
