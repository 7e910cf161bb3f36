"""One thread for BLAS while a search runs.

numpy and scipy each bring a BLAS with threads of its own. Alternating between them, and with the threads of
`products.py`, the idle threads of one spin while those of another work, and a fit of 1 ms takes 20. So both get one
thread, and large products are split by queries or by blocks of items (`products.share`).
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import scipy.linalg  # noqa: F401  (its BLAS must be loaded to be found)
from threadpoolctl import ThreadpoolController

from crosscut.threads import after_fork


class _Limit:
    """One thread for BLAS; nested and concurrent uses share the limit, lifted by the last to leave.

    Libraries are looked up once and called directly: entering costs microseconds, and a search enters every round.
    """

    def __init__(self) -> None:
        self._libraries: list[Any] | None = None
        self._before: list[int] = []
        self._lock = threading.Lock()
        self._depth = 0

    @contextmanager
    def held(self) -> Iterator[None]:
        with self._lock:
            if self._libraries is None:
                self._libraries = ThreadpoolController().select(user_api="blas").lib_controllers
            if self._depth == 0:
                self._before = [library.num_threads for library in self._libraries]
                self._set([1] * len(self._libraries))
            self._depth += 1
        try:
            yield
        finally:
            with self._lock:
                self._depth -= 1
                if self._depth == 0:
                    self._set(self._before)

    def _set(self, threads: list[int]) -> None:
        for library, count in zip(self._libraries or [], threads, strict=True):
            _free(library)  # held by a thread that has asked before, or it would be heard and this one ignored
            library.set_num_threads(count)
            _free(library)

    def forked(self) -> None:
        """In a child none of the threads that held the limit lives on."""
        self._lock = threading.Lock()
        if self._depth:
            self._depth = 0
            self._set(self._before)


def _free(library: Any) -> None:
    """Let any thread set a library's threads: threadpoolctl 3.7 and later listens to the first that did, silently."""
    if hasattr(library, "clear_controlling_thread"):
        library.clear_controlling_thread(force=True)


_limit = _Limit()
after_fork(_limit.forked)


def one_thread() -> AbstractContextManager[None]:
    """BLAS runs on the thread that calls it."""
    return _limit.held()
