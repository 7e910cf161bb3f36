"""What every reader yields: items, queries, judgements, and the collection that holds them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from crosscut.errors import InputError

TITLE_MARK = "[ENT]"
MENTION_START = "[START]"
MENTION_END = "[END]"


class Item(NamedTuple):
    """One document, entity or synset; `metadata` is what else its record held, for filters."""

    id: str
    title: str
    text: str
    metadata: Mapping[str, Any] = {}

    @property
    def full_text(self) -> str:
        """Title and text as one string, `title [ENT] text`, the item form of ANNCUR appendix A.1."""
        if not self.title:
            return self.text
        return f"{self.title} {TITLE_MARK} {self.text}" if self.text else self.title


class Query(NamedTuple):
    """One query; a mention inside its sentence is marked `[START] … [END]`."""

    id: str
    text: str


class Judgement(NamedTuple):
    """How relevant an item is to a query; 0 is not relevant."""

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
    judgements: dict[str, dict[str, float]] = field(default_factory=dict)
    empty_items: list[str] = field(default_factory=list)
    empty_queries: list[str] = field(default_factory=list)

    @property
    def positions(self) -> dict[str, int]:
        """Item id → position in `items`."""
        return {item.id: position for position, item in enumerate(self.items)}

    def gold(self, query_id: str) -> list[str]:
        """Ids of the items judged relevant to a query, best first."""
        judged = self.judgements.get(query_id, {})
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
            judgements={query.id: self.judgements.get(query.id, {}) for query in queries},
            empty_items=self.empty_items,
            empty_queries=[id for id in self.empty_queries if id in wanted],
        )
