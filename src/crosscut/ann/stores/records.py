"""What goes to a vector store and what comes back: questions, rows, and which fields an item is made of."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from crosscut.ann.stores.filters import Condition
from crosscut.datasets.records import Item
from crosscut.errors import InputError
from crosscut.types import Floats


@dataclass(slots=True)
class Want:
    """One question to a store: its best `count` by v · u, without these keys, within these conditions."""

    vector: Floats  # u (d), of length 1
    count: int
    exclude: list[Any] = field(default_factory=list)
    where: tuple[Condition, ...] = ()


@dataclass(slots=True)
class Rows:
    """What a store shows of some items, translated when it is looked at: earlier rounds have seen much of an answer."""

    keys: list[Any]  # what the store calls them
    vectors_at: Callable[[Sequence[int]], Floats]  # (m × d) of those at some places
    payload_at: Callable[[int], Mapping[str, Any]]  # everything else, of the one at a place

    @classmethod
    def of(cls, keys: list[Any], vectors: Floats, payloads: Sequence[Mapping[str, Any]]) -> Rows:
        """What needs no translation: vectors (m × d) and payloads as they are."""
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
    """Where a store keeps what an item is made of.

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
            metadata = dict(payload)
            for key in (self.text, self.title, self.name):
                if key is not None:
                    metadata.pop(key, None)
        return Item(str(name), _text(title), _text(payload.get(self.text)), metadata)

    def record(self, item: Item) -> dict[str, Any]:
        """The payload of an item that is added."""
        metadata = {self.metadata: dict(item.metadata)} if self.metadata is not None else dict(item.metadata)
        if self.title is None and item.title:
            raise InputError(
                f"item {item.id!r} has a title, and the store has no place for titles: open it with title='a field'"
            )
        return metadata | {self.text: item.text} | ({} if self.title is None else {self.title: item.title})


def _text(value: Any) -> str:
    return value if isinstance(value, str) else "" if value is None else str(value)
