"""What an agent may ask of an index: it is no more trusted than a client of the server.

What it asks for is bounded before it is looked at, no answer names a folder or an endpoint, and what a search has paid
is counted however it ends, by being called off too.
"""

from __future__ import annotations

import asyncio
import threading
from typing import Any

from crosscut.errors import BudgetError, CrosscutError, FolderError, InputError, ScorerError, StoreUnavailable
from crosscut.index import Index
from crosscut.search.hits import Hits
from crosscut.stores.filters import request_filter

QUERY, VALUES = 4000, 100_000
"""Characters of a query, and values in a filter, at most."""


class Asking:
    """Searches of one session, and what they have spent."""

    def __init__(self, index: Index, deadline: float) -> None:
        if not deadline > 0:
            raise InputError(f"the deadline of a search is more than 0 seconds; got {deadline}")
        self._index, self._deadline = index, deadline
        self._spent = {"searches": 0, "calls": 0, "cached": 0}
        self._counting = threading.Lock()

    @property
    def spent(self) -> dict[str, int]:
        with self._counting:
            return dict(self._spent)

    async def search(self, query: str, k: int, budget: int, filter: dict[str, Any] | None) -> Hits:
        """The hits, or an InputError that tells what was wrong with the question."""
        if len(query) > QUERY:
            raise InputError(f"a query has {QUERY} characters at most; got {len(query)}")
        sizes = [len(one) if isinstance(one, list | dict) else 1 for one in (filter or {}).values()]
        if sum(sizes) > VALUES:
            raise InputError(f"a filter has {VALUES:,} values at most; got {sum(sizes):,}")
        try:
            checked = None if filter is None else request_filter(filter)
        except ValueError as error:
            raise InputError(str(error)) from None
        gone = threading.Event()
        try:
            return await asyncio.to_thread(self._found, query, k, budget, checked, gone)
        except asyncio.CancelledError:
            gone.set()
            raise

    def _found(self, query: str, k: int, budget: int, filter: dict[str, Any] | None, gone: threading.Event) -> Hits:
        """In a thread, which counts what it has paid whether or not somebody waits for it still."""
        try:
            halt = [lambda: "cancelled" if gone.is_set() else None]
            (hits,) = self._index.search_many([query], k, budget, filter=filter, deadline=self._deadline, halts=halt)
        except (ScorerError, StoreUnavailable) as error:
            self._pay(0, error.calls, 0)
            raise
        self._pay(1, hits.calls, hits.cached)
        return hits

    def _pay(self, *numbers: int) -> None:
        with self._counting:
            for name, number in zip(self._spent, numbers, strict=True):
                self._spent[name] += number


def told(error: CrosscutError) -> str:
    """Somebody's own mistakes; of all else the kind: the rest may hold addresses, folders, other people's texts."""
    if isinstance(error, ScorerError | StoreUnavailable):
        return f"the search failed after {error.calls} calls: {type(error).__name__}"
    if isinstance(error, InputError | BudgetError) and not isinstance(error, FolderError):
        return str(error)[:1000]
    return f"this cannot be done now: {type(error).__name__}; whoever runs this server can verify the index"
