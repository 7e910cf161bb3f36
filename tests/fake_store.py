"""A vector store in memory that does not know how many items it holds: handles are given in order of appearance."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from crosscut.ann.topk import Ask, Found
from crosscut.datasets.records import Item
from crosscut.stores.base import Fields, Rows, Store, Want
from crosscut.stores.filters import Condition, within
from crosscut.types import NO_HANDLES, Floats, Handles


class FakeStore:
    """A `TopK` over named vectors. Names become handles when they are first seen, as over a real store."""

    exact = True
    precise = False
    spread = None

    def __init__(self, names: Sequence[str], vectors: np.ndarray) -> None:
        self._names, self._vectors = list(names), np.asarray(vectors, dtype=np.float64)
        self.seen: list[int] = []  # rows of the store by handle
        self._handle: dict[int, int] = {}
        self.trips = 0

    @property
    def d(self) -> int:
        return self._vectors.shape[1]

    def name(self, handle: int) -> str:
        return self._names[self.seen[handle]]

    def handle(self, row: int) -> int:
        if row not in self._handle:
            self._handle[row] = len(self.seen)
            self.seen.append(row)
        return self._handle[row]

    def count(self, within: Any = None) -> int | None:
        return None

    def rows(self, handles: Handles) -> Floats:
        return self._vectors[[self.seen[handle] for handle in handles]].reshape(len(handles), self.d)

    def _open(self, exclude: Handles, within: Any) -> list[int]:
        gone = {self.seen[handle] for handle in exclude}
        return [row for row in range(len(self._names)) if row not in gone and (within is None or within(row))]

    def top(self, asks: Sequence[Ask]) -> list[Found]:
        self.trips += 1
        answers = []
        for ask in asks:
            rows = np.array(self._open(ask.exclude, ask.allowed), dtype=np.int64)
            values = np.einsum("md,d->m", self._vectors[rows], ask.vector)
            order = np.lexsort((rows, -values))[: ask.count]
            handles = np.array([self.handle(int(row)) for row in rows[order]], dtype=np.int64)
            answers.append(Found(handles, values[order]))
        return answers

    def sample(
        self, count: int, rng: np.random.Generator, exclude: Handles = NO_HANDLES, within: Any = None
    ) -> Handles:
        rows = rng.permutation(self._open(exclude, within))[:count]
        return np.array([self.handle(int(row)) for row in rows], dtype=np.int64)


class MemoryStore(Store):
    """A `Store` of planted items, for `Index.over`; `before` is called at every trip, and may wait or fail."""

    exact = True
    fields = Fields()
    place = "the store in memory"

    def __init__(self, items: Sequence[Item], vectors: np.ndarray, before: Callable[[], object] = lambda: None) -> None:
        self.items = {item.id: (item, vector) for item, vector in zip(items, vectors, strict=True)}
        self.d, self.before = vectors.shape[1], before

    def _shown(self, names: Sequence[Any]) -> Rows:
        self.before()
        found = [self.items[name] for name in names]
        payloads = [{"text": item.text, **item.metadata} for item, _ in found]
        return Rows.of(list(names), np.array([vector for _, vector in found]).reshape(-1, self.d), payloads)

    def _passing(self, exclude: Sequence[Any], where: Sequence[Condition]) -> list[Any]:
        gone = set(exclude)

        def passes(metadata: Mapping[str, Any]) -> bool:
            return all(
                one.key in metadata
                and (within(metadata[one.key], one.bounds) if one.values is None else metadata[one.key] in one.values)
                for one in where
            )

        return [name for name, (item, _) in self.items.items() if name not in gone and passes(item.metadata)]

    def query(self, wants: Sequence[Want], *, exact: bool) -> list[Rows]:
        answers = []
        for want in wants:
            names = self._passing(want.exclude, want.where)
            names.sort(key=lambda name: (-float(self.items[name][1] @ want.vector), name))
            answers.append(self._shown(names[: want.count]))
        return answers

    def sample(self, count: int, seed: int, exclude: Sequence[Any], where: Any) -> Rows:
        names = self._passing(exclude, where)
        return self._shown(np.random.default_rng(seed).permutation(names)[:count].tolist())

    def fetch(self, names: Sequence[Any], where: Any = ()) -> Rows:
        there = set(self._passing((), where))
        return self._shown([name for name in names if name in there])

    def count(self, where: Any = ()) -> int:
        with self.reaching():
            self.before()
        return len(self._passing((), where))

    def write(self, items: Sequence[Item], vectors: Floats) -> None:
        self.items |= {item.id: (item, vector) for item, vector in zip(items, vectors, strict=True)}

    def erase(self, keys: Sequence[Any]) -> None:
        for key in keys:
            del self.items[key]

    def named(self, name: Any) -> Any:
        return str(name)
