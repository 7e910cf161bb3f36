"""How many threads BLAS may use while query vectors are fitted.

numpy and scipy each bring a BLAS with threads of its own. Alternating between them, the idle threads of one spin while
those of the other work, and a fit of 1 ms takes 20. So scipy's, which only rotates small triangles, always gets one
thread. For a single query numpy's gets one too, because its spinning threads would take cores from the product that
follows (`vectors/products.py`); for a batch, whose product is BLAS itself, it keeps them all.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

import scipy.linalg  # noqa: F401  (its BLAS must be loaded to be found)
from threadpoolctl import ThreadpoolController


class _Limit:
    """One thread for some libraries; nested and concurrent uses share the limit, lifted by the last to leave."""

    def __init__(self, controller: ThreadpoolController) -> None:
        self._controller = controller
        self._lock = threading.Lock()
        self._depth = 0
        self._limiter: Any = None

    @contextmanager
    def held(self) -> Iterator[None]:
        with self._lock:
            if self._depth == 0:
                self._limiter = self._controller.limit(limits=1, user_api="blas")
            self._depth += 1
        try:
            yield
        finally:
            with self._lock:
                self._depth -= 1
                if self._depth == 0:
                    self._limiter.restore_original_limits()


@cache
def _limits() -> tuple[_Limit, _Limit]:
    """Limits on numpy's BLAS and on the others'."""
    everything = ThreadpoolController()
    paths = [library.filepath for library in everything.lib_controllers]
    numpys = [path for path in paths if "numpy.libs" in path or "/numpy/" in path]
    others = [path for path in paths if path not in numpys]
    return _Limit(everything.select(filepath=numpys)), _Limit(everything.select(filepath=others))


@contextmanager
def few_threads(queries: int) -> Iterator[None]:
    """The threads that suit fits of this many queries."""
    numpys, others = _limits()
    with others.held():
        if queries > 1:
            yield
        else:
            with numpys.held():
                yield
