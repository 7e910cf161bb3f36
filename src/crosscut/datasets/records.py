"""Records of all readers: items, queries, qrels, and the collection that holds them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple, Protocol, Self, overload, runtime_checkable

import numpy as np

from crosscut.errors import InputError
from crosscut.types import Handles

MENTION_START = "[START]"
MENTION_END = "[END]"
TITLE_MARK = "[ENT]"


class Item(NamedTuple):
    """One document, entity or synset; `metadata` is what else its record held, for filters."""

    id: str
    title: str
    text: str
    metadata: Mapping[str, Any] = {}


def as_item(item: Item | str) -> Item:
    """An item; a text alone is an item without a title."""
    return Item("", "", item) if isinstance(item, str) else item


def plain_text(item: Item | str) -> str:
    """Title, newline, text: what a model is given that knows no other form."""
    if isinstance(item, str):
        return item
    return "\n".join(part for part in (item.title, item.text) if part)


def marked_text(item: Item) -> str:
    """Return an item as one text, `title [ENT] text`, the form of ANNCUR appendix A.1."""
    return f" {TITLE_MARK} ".join(part for part in (item.title, item.text) if part)


@runtime_checkable
class Items(Protocol):
    """Items by handle, wherever they lie."""

    def get(self, handles: Handles) -> list[Item]:
        """The items of these handles, in order."""


class SharedItems:
    """Items without a fixed number of them: what a list of items and those that it grew into share."""

    filed: ClassVar[bool] = False
    """Whether they lie in files, by the million perhaps."""

    def __init__(self, items: list[Item]) -> None:
        self.items = items

    @property
    def total(self) -> int:
        """The number of items so far."""
        return len(self.items)

    def at(self, place: int) -> Item:
        return self.items[place]

    def add(self, items: Sequence[Item]) -> None:
        self.items.extend(items)

    def get(self, handles: Handles, size: int | None = None) -> list[Item]:
        """Those of these handles, in order; of the first `size`."""
        handles, size = np.asarray(handles, np.int64), self.total if size is None else size
        if handles.size and not (handles.min() >= 0 and handles.max() < size):
            raise InputError(f"positions {handles.min()} … {handles.max()} do not fit a corpus of {size} items")
        return self._taken(handles)

    def _taken(self, handles: Handles) -> list[Item]:
        return [self.items[handle] for handle in handles.tolist()]


class ItemSequence(Sequence[Item]):
    """Items by position, which is their handle.

    A list is never changed: `grown` makes a longer one. The two share what they have in common, and `shared` is
    all of it, for a scorer that is bound once and sees what is added later.
    """

    def __init__(self, shared: SharedItems) -> None:
        self.shared, self._size = shared, shared.total

    def grown(self, items: Iterable[Item | str]) -> Self:
        """These items and more behind them."""
        size, total = self._size, self.shared.total
        if total != size:
            raise InputError(f"a list of {size} items cannot grow: it did before, to {total}; add to the longer one")
        more = [as_item(item) for item in items]
        made = copy(self)
        made._size = size + len(more)
        self.shared.add(more)
        return made

    def get(self, handles: Handles) -> list[Item]:
        return self.shared.get(handles, self._size)

    def __len__(self) -> int:
        return self._size

    def __iter__(self) -> Iterator[Item]:
        return map(self.shared.at, range(self._size))

    @overload
    def __getitem__(self, place: int) -> Item: ...
    @overload
    def __getitem__(self, place: slice) -> list[Item]: ...
    def __getitem__(self, place: int | slice) -> Item | list[Item]:
        chosen = range(self._size)[place]
        return self.shared.at(chosen) if isinstance(chosen, int) else [self.shared.at(j) for j in chosen]


class ItemList(ItemSequence):
    """Items in memory."""

    def __init__(self, items: Iterable[Item | str] = ()) -> None:
        super().__init__(SharedItems([as_item(item) for item in items]))


def items_of(items: Items | Sequence[Item | str]) -> Items:
    """Items by handle; of a list of items or texts, by position."""
    return items if isinstance(items, Items) else ItemList(items)


class Query(NamedTuple):
    """One query; a mention inside its sentence is marked `[START] … [END]`."""

    id: str
    text: str


class Judgement(NamedTuple):
    """A relevance judgement of a query and an item; 0 is not relevant."""

    query_id: str
    item_id: str
    score: float


@dataclass
class Collection:
    """Items, queries and judgements that belong together.

    `empty_items` and `empty_queries` are the ids whose text is blank: kept, so that positions agree with the
    files, and reported here, so that the caller can decide.
    """

    name: str
    items: list[Item]
    queries: list[Query]
    qrels: dict[str, dict[str, float]] = field(default_factory=dict)
    empty_items: list[str] = field(default_factory=list)
    empty_queries: list[str] = field(default_factory=list)

    @property
    def positions(self) -> dict[str, int]:
        """Item id → position in `items`."""
        return {item.id: position for position, item in enumerate(self.items)}

    def gold(self, query_id: str) -> list[str]:
        """Ids of the items judged relevant to a query, best first."""
        judged = self.qrels.get(query_id, {})
        return [id for id, score in sorted(judged.items(), key=lambda pair: -pair[1]) if score > 0]

    def select(self, query_ids: Iterable[str]) -> Collection:
        """The same items with only the named queries."""
        wanted = set(query_ids)
        queries = [query for query in self.queries if query.id in wanted]
        if len(queries) != len(wanted):
            unknown = sorted(wanted - {query.id for query in queries})
            raise InputError(
                f"{len(unknown)} of {len(wanted)} query ids are not in {self.name!r}, "
                f"the first is {unknown[0]!r}; take ids from collection.queries"
            )
        return Collection(
            name=self.name,
            items=self.items,
            queries=queries,
            qrels={query.id: self.qrels.get(query.id, {}) for query in queries},
            empty_items=self.empty_items,
            empty_queries=[id for id in self.empty_queries if id in wanted],
        )
