"""Id → position: looked up in files, or in a table."""

from __future__ import annotations

from collections.abc import Sequence

from crosscut.datasets.columnar import FiledItems
from crosscut.datasets.records import Item
from crosscut.types import Mask


class Places:
    """Where the items that are there stand, by id."""

    def __init__(self, items: Sequence[Item], alive: Mask) -> None:
        self._alive = alive
        self._first = items.first if isinstance(items, FiledItems) else None
        behind = items.more if isinstance(items, FiledItems) else items
        start = len(items) - len(behind)
        self._table = {item.id: j for j, item in enumerate(behind, start) if alive[j]}

    def get(self, id: object) -> int | None:
        """The position of an item, None if it is not there."""
        if not isinstance(id, str):
            return None
        place = self._table.get(id)
        if place is None and self._first is not None:
            place = self._first.find(id)
        return place if place is not None and self._alive[place] else None

    def __contains__(self, id: object) -> bool:
        return self.get(id) is not None
