"""One search over a vector store.

A `Store` is long-lived: a connection, a collection, which fields hold what. For every search it opens a `Session`, a
`TopK` that holds only what this search has seen: handles, numbers given in order of appearance, the store's own key of
each, and the vectors and payloads that came with the answers. So a round is one trip, and memory does not grow with n.

An adapter only translates (`query`, `sample`, `fetch`, `count`, `write`, `erase`). What all of them share is here:

- u is sent at length 1, which changes no order, and answers are put in order in float64, ties by key;
- an index that gives fewer items than it was asked for, because it looked at its candidates first and at exclusions and
  filters later, is asked again, exactly. Adapters also let it look at as many more candidates as there are exclusions.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from importlib import import_module
from typing import Any

import numpy as np

from crosscut.ann.topk import Allowed, Ask, Found
from crosscut.datasets.records import Item
from crosscut.errors import CrosscutError, InputError, MissingDependency, StoreUnavailable
from crosscut.linalg.top import slack_for
from crosscut.stores.filters import Condition, conditions
from crosscut.types import NO_HANDLES, Floats, Handles

SPREAD = 1000  # items sampled to estimate how far apart a store's vectors are
ROUNDED = 6  # more than are wanted of an exact store, which compares in float32
CAPACITY = 1024  # items that a session can hold from the start; memory that is not used yet costs nothing


@dataclass(slots=True)
class Want:
    """One question to a store: its best `count` by v · u, without these keys, within these conditions."""

    vector: Floats  # u (d), of length 1
    count: int
    exclude: list[Any] = field(default_factory=list)
    where: tuple[Condition, ...] = ()


@dataclass(slots=True)
class Rows:
    """Rows of a store, converted on access: earlier rounds have seen many of the rows of an answer."""

    keys: list[Any]  # what the store calls them
    vectors_at: Callable[[Sequence[int]], Floats]  # (m × d) of those at some places
    payload_at: Callable[[int], Mapping[str, Any]]  # everything else, of the one at a place

    @classmethod
    def of(cls, keys: list[Any], vectors: Floats, payloads: Sequence[Mapping[str, Any]]) -> Rows:
        """Return rows of vectors (m × d) and payloads that need no conversion."""
        return cls(keys, lambda places: vectors[np.asarray(places, np.int64)], payloads.__getitem__)

    @property
    def vectors(self) -> Floats:
        """Of all (m × d)."""
        return self.vectors_at(range(len(self.keys)))

    @property
    def payloads(self) -> list[Mapping[str, Any]]:
        """Of all."""
        return [self.payload_at(place) for place in range(len(self.keys))]


@dataclass(frozen=True, slots=True)
class Fields:
    """Names of the fields of a store that hold the parts of an item.

    `text` and `title` name fields of a payload, or columns; `metadata` one that holds a mapping, None: all others.
    """

    text: str = "text"
    title: str | None = None
    metadata: str | None = None
    name: str | None = None  # where an item's name is not its key

    def item(self, name: Any, payload: Mapping[str, Any]) -> Item:
        title = "" if self.title is None else payload.get(self.title)
        if self.metadata is not None:
            metadata = payload.get(self.metadata) or {}
        else:
            metadata = {key: payload[key] for key in payload if key not in (self.text, self.title, self.name)}
        # NaN is no value: a key without one is a key that is not there
        metadata = {key: value for key, value in metadata.items() if not _is_nan(value)}
        return Item(str(name), _text(title), _text(payload.get(self.text)), metadata)

    def record(self, item: Item) -> dict[str, Any]:
        """The payload of an item that is added."""
        if wrong := [key for key, value in item.metadata.items() if _is_nan(value)]:
            raise InputError(f"the metadata {wrong[0]!r} of item {item.id!r} is NaN: leave out what has no value")
        metadata = {self.metadata: dict(item.metadata)} if self.metadata is not None else dict(item.metadata)
        if self.title is None and item.title:
            raise InputError(
                f"item {item.id!r} has a title, and the store has no place for titles: open it with title='a field'"
            )
        return metadata | {self.text: item.text} | ({} if self.title is None else {self.title: item.title})


def _is_nan(value: Any) -> bool:
    return isinstance(value, float) and value != value


def _text(value: Any) -> str:
    return value if isinstance(value, str) else "" if value is None else str(value)


class Store(ABC):
    """A collection in a vector database."""

    exact: bool  # whether `query` finds the best, or only most of them
    recipe: Callable[[], Store] | None = None  # opens it in another process or on another machine; None: only here
    address: str = ""  # where it is, for who opened it
    secrets: tuple[str, ...] = ()  # that its client may quote when it fails
    fields: Fields
    d: int

    @abstractmethod
    def query(self, wants: Sequence[Want], *, exact: bool) -> list[Rows]:
        """Return the best of every want, with vectors and payloads, in one trip; fewer only if there are no more."""

    @abstractmethod
    def sample(self, count: int, seed: int, exclude: Sequence[Any], where: tuple[Condition, ...]) -> Rows:
        """Return some items drawn at random."""

    @abstractmethod
    def fetch(self, names: Sequence[Any], where: tuple[Condition, ...] = ()) -> Rows:
        """Return the items of these names that exist and pass, in no order."""

    @abstractmethod
    def count(self, where: tuple[Condition, ...] = ()) -> int:
        """Return how many items pass."""

    @abstractmethod
    def write(self, items: Sequence[Item], vectors: Floats) -> None:
        """Add items."""

    @abstractmethod
    def erase(self, keys: Sequence[Any]) -> None:
        """Delete items."""

    @abstractmethod
    def named(self, name: Any) -> Any:
        """Return an item's name in the store's own type: a number or uuid for a text that spells one."""

    @property
    @abstractmethod
    def place(self) -> str:
        """Its name in messages, which servers pass on to their clients: no address, and no key."""

    def close(self) -> None:
        """Close the connection."""
        return

    def name(self, key: Any, payload: Mapping[str, Any]) -> Any:
        """Return an item's name: its key, unless the store has another name for it."""
        return key

    def session(self) -> Session:
        """Open a session for one search."""
        return Session(self)

    @cached_property
    def spread(self) -> float:
        """Root mean square distance of the vectors from their mean, on a sample that is drawn once."""
        with self.reaching():
            rows = self.sample(SPREAD, 0, (), ()).vectors
        if not len(rows):
            return 1.0
        return float(np.sqrt(np.mean(np.sum((rows - rows.mean(axis=0)) ** 2, axis=1)))) or 1.0

    @contextmanager
    def reaching(self) -> Iterator[None]:
        """Turn what goes wrong on a trip into an error of the store."""
        try:
            yield
        except CrosscutError:
            raise
        except Exception as error:
            raise self.refused(error) or self.failed(error)  # noqa: B904  (it has its cause)

    def refused(self, error: Exception) -> InputError | None:
        """Return an InputError if the store refused what it was given, so that trying again would not help."""
        return None

    def failed(self, error: Exception) -> StoreUnavailable:
        """Return what went wrong on a trip as an error of the store that shows no secret."""
        message = str(error).strip() or "without a message"
        shown = message
        for secret in filter(None, self.secrets):
            shown = shown.replace(secret, "…")
        unavailable = StoreUnavailable(
            f"{self.place}{f' at {self.address}' if self.address else ''} failed: {type(error).__name__}: {shown}; "
            "check that it is there and try again (what a search had found is in error.hits)"
        )
        unavailable.__cause__ = error if shown == message else None  # a traceback would show what is hidden here
        return unavailable

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.place}, d={self.d}, {'exact' if self.exact else 'approximate'})"


class Session:
    """The items of a store that one search has read: a `TopK`, and `Items` by handle. Not shared between threads."""

    precise = True  # answers are in order in float64

    def __init__(self, store: Store) -> None:
        self.store = store
        self._keys: list[Any] = []
        self._table: Floats = np.empty((CAPACITY, store.d))  # vectors by handle, and unused rows
        self._shown: list[tuple[Rows, int]] = []  # where an item's payload is
        self._handle: dict[Any, int] = {}
        self.trips = 0

    @property
    def d(self) -> int:
        return self.store.d

    @property
    def exact(self) -> bool:
        return self.store.exact

    @property
    def spread(self) -> float:
        """Of the whole store (see `Store.spread`)."""
        return self.store.spread

    def __repr__(self) -> str:
        return f"Session({len(self._keys)} items seen of {self.store.place}, {self.trips} trips)"

    # -- TopK ----------------------------------------------------------------------------------------------------

    def count(self, allowed: Allowed = None) -> int | None:
        """Return how many handles are allowed; a search does not count a store's items (`Store.count` does)."""
        return len(allowed) if isinstance(allowed, np.ndarray) else None

    def top(self, asks: Sequence[Ask]) -> list[Found]:
        remote = [j for j, ask in enumerate(asks) if not isinstance(ask.allowed, np.ndarray) and ask.count > 0]
        pools = [ask.allowed.tolist() if isinstance(ask.allowed, np.ndarray) else [] for ask in asks]
        if remote:
            with self.store.reaching():
                for j, rows in zip(remote, self._query([self._want(asks[j]) for j in remote]), strict=True):
                    pools[j] = self._number(rows)
        return [self._best(ask, pool) for ask, pool in zip(asks, pools, strict=True)]

    def sample(
        self, count: int, rng: np.random.Generator, exclude: Handles = NO_HANDLES, allowed: Allowed = None
    ) -> Handles:
        if count < 1:
            return NO_HANDLES
        if isinstance(allowed, np.ndarray):
            return np.asarray(rng.permutation(np.setdiff1d(allowed, exclude))[:count], dtype=np.int64)
        seed = int(rng.integers(1 << 31))
        self.trips += 1
        with self.store.reaching():
            return np.array(
                self._number(self.store.sample(count, seed, self.keys(exclude), conditions(allowed))), np.int64
            )

    def rows(self, handles: Handles) -> Floats:
        rows: Floats = self._table[handles]
        return rows

    # -- items ---------------------------------------------------------------------------------------------------

    def get(self, handles: Handles) -> list[Item]:
        """Return the items of these handles, as they came with the answers."""
        found = []
        for handle in np.asarray(handles).tolist():
            rows, place = self._shown[handle]
            found.append(self.store.fields.item(self.name(handle), rows.payload_at(place)))
        return found

    def keys(self, handles: Handles) -> list[Any]:
        """Return the store's keys of these items."""
        return [self._keys[handle] for handle in handles.tolist()]

    def name(self, handle: int) -> Any:
        """Return the user's name of an item."""
        (rows, place), key = self._shown[handle], self._keys[handle]
        return key if self.store.fields.name is None else self.store.name(key, rows.payload_at(place))

    def handles(self, names: Sequence[Any], allowed: Allowed = None) -> Handles:
        """Return handles of items that the user names, in that order, without those that do not pass a filter."""
        wanted = list(dict.fromkeys(self.store.named(name) for name in names))
        if not wanted:
            return NO_HANDLES
        self.trips += 1
        with self.store.reaching():
            found = self._number(self.store.fetch(wanted))
            missing = set(wanted) - set(map(self.name, found))
            if missing:
                first = next(name for name in wanted if name in missing)
                raise InputError(f"{len(missing)} of {len(wanted)} ids are not in {self.store.place}, as {first!r}")
            if allowed is not None:
                found = self._number(self.store.fetch(wanted, conditions(allowed)))
        place = {name: number for number, name in enumerate(wanted)}
        return np.array(sorted(found, key=lambda handle: place[self.name(handle)]), dtype=np.int64)

    def there(self, names: Sequence[Any], where: tuple[Condition, ...] = ()) -> Handles:
        """Return handles of those of some items that exist and pass, rising."""
        if not names:
            return NO_HANDLES
        self.trips += 1
        with self.store.reaching():
            found = self._number(self.store.fetch([self.store.named(name) for name in names], where))
            return np.array(sorted(found), dtype=np.int64)

    # -- inside --------------------------------------------------------------------------------------------------

    def _want(self, ask: Ask) -> Want:
        length = math.sqrt(ask.vector @ ask.vector)
        vector = ask.vector / length if length > 0 else np.eye(1, self.d)[0]  # no direction: any order will do
        count = ask.count + (ROUNDED if self.exact else slack_for(ask.count))
        return Want(vector, count, self.keys(ask.exclude), conditions(ask.allowed))

    def _query(self, wants: Sequence[Want]) -> list[Rows]:
        """One trip; a second one, exact, for those that come back short of an index that is not."""
        self.trips += 1
        answers = self.store.query(wants, exact=self.exact)
        short = [] if self.exact else [j for j, rows in enumerate(answers) if len(rows.keys) < wants[j].count]
        if short:
            self.trips += 1
            for j, rows in zip(short, self.store.query([wants[j] for j in short], exact=True), strict=True):
                answers[j] = rows
        return answers

    def _number(self, rows: Rows) -> list[int]:
        """Handles of what a store shows, as numbers of Python; new items get the next ones."""
        handles, keys = self._handle, rows.keys
        start = len(handles)
        new: list[int] = []
        for place, key in enumerate(keys):
            if handles.setdefault(key, len(handles)) == start + len(new):
                new.append(place)
        if new:
            end = len(handles)
            self._keys += [keys[place] for place in new]
            self._shown += [(rows, place) for place in new]
            while end > len(self._table):
                self._table = np.concatenate([self._table, np.empty_like(self._table)])
            self._table[start:end] = rows.vectors_at(new)
        return [handles[key] for key in keys]

    def _best(self, ask: Ask, pool: list[int]) -> Found:
        """The best of what was shown, or of the handles that are allowed."""
        excluded = set(ask.exclude.tolist())
        # few, one by one: whatever numpy does at once it begins slowly when a store has just emptied the caches
        table, along = self._table, ask.vector.dot
        scores = {handle: along(table[handle]).item() for handle in pool if handle not in excluded}
        best = sorted(scores, key=scores.__getitem__, reverse=True)
        if len(set(scores.values())) < len(best):
            keys = self._keys  # of one store, they may be numbers and texts side by side
            best.sort(key=lambda handle: (-scores[handle], type(keys[handle]).__name__, keys[handle]))
        best = best[: max(ask.count, 0)]
        return Found(np.array(best, np.int64), np.array([scores[handle] for handle in best], np.float64))


def unit(vectors: Floats) -> Floats:
    """Return vectors (m × d) scaled to length 1."""
    scaled: Floats = vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12)
    return scaled


def integer_id(name: Any, place: str, kind: str, least: int, most: int) -> int:
    """Return the name of an item whose store counts in whole numbers, least … most, from a number or digits."""
    text = str(name) if isinstance(name, int | np.integer) and not isinstance(name, bool) else name
    digits = text.removeprefix("-") if isinstance(text, str) else ""
    if digits.isascii() and digits.isdecimal() and len(digits) < 32 and least <= int(text) <= most:
        return int(text)
    raise InputError(f"ids of {place} are of type {kind}, and {name!r:.60} is not")


def check_columns(place: str, there: Collection[str], id: str, vector: str, fields: Fields) -> None:
    """Refuse columns that a table does not have."""
    wanted = {"id": id, "vector": vector, "text": fields.text, "title": fields.title, "metadata": fields.metadata}
    for column, name in wanted.items():
        if name is not None and name not in there:
            raise InputError(f"{place} has no column {name!r} for {column}=; it has {', '.join(there) or 'none'}")


def needed(module: str, extra: str, what: str) -> Any:
    """Import a client's module, or raise an error with the command that installs it."""
    try:
        return import_module(module)
    except ImportError as error:
        raise MissingDependency(f"{what} needs {module}", extra) from error
