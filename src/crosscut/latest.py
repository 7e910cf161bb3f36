"""A cache of the values that were computed last."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

from crosscut.threads import ForkLock

T = TypeVar("T")


class Latest(Generic[T]):
    """The latest values by key, made when they are asked for; the oldest go first."""

    def __init__(self, size: int) -> None:
        self.size = size
        self._values: OrderedDict[Hashable, T] = OrderedDict()
        self._lock = ForkLock()

    def get(self, key: Hashable, make: Callable[[], T]) -> T:
        """Return the value of a key; compute it once, however many threads ask, if it is not cached."""
        with self._lock:
            if key in self._values:
                self._values.move_to_end(key)
                return self._values[key]
        value = make()
        with self._lock:
            self._values[key] = value
            if len(self._values) > self.size:
                self._values.popitem(last=False)
        return value

    def pop(self, key: Hashable) -> None:
        """Keep it no longer."""
        with self._lock:
            self._values.pop(key, None)

    def __len__(self) -> int:
        return len(self._values)
