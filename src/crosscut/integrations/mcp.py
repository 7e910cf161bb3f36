"""The Model Context Protocol: tools for agents over an index. `crosscut mcp my.index`, over standard input and output.

search   the items that the scorer would rank first, within a budget of calls
item     one item with its whole text
cost     what the searches of this session have cost, and what one search may cost

An agent is no more trusted than a client of the server: what it asks for is bounded first, no answer names a folder or
an endpoint, and the calls of a search are counted however it ends, by cancellation too.
"""

from __future__ import annotations

import asyncio
import threading
from typing import Any

from crosscut import __version__
from crosscut.errors import BudgetError, CrosscutError, FolderError, InputError, ScorerError, StoreUnavailable
from crosscut.index import Index
from crosscut.integrations import needing
from crosscut.search.hits import Hits
from crosscut.stores.filters import request_filter

with needing("crosscut.integrations.mcp needs {}", "mcp"):
    from mcp.server.mcpserver import MCPServer
    from mcp.server.mcpserver.exceptions import ToolError

SHOWN, QUERY, VALUES = 2000, 4000, 100_000
"""Characters of a text in an answer of `search`; most characters of a query, and values in a filter."""


def make_server(
    index: Index, *, budget: int | None = None, max_budget: int = 1000, max_k: int = 50, deadline: float = 60.0
) -> MCPServer:
    """Return a server of tools over an index; `run()` serves standard input and output.

    `deadline` is in seconds: after it no search makes further calls.
    """
    budget = min(index.budget or 100, max_budget) if budget is None else budget
    if not 1 <= budget <= max_budget:
        raise InputError(f"a budget is between 1 and the cap of {max_budget} calls; got {budget}")
    session = SearchSession(index, deadline)
    about = f"Search over {len(index):,} items, with at most {budget} calls of an expensive scorer by default."
    server = MCPServer("crosscut", version=__version__, instructions=about, log_level="CRITICAL")  # logs would quote

    @server.tool()
    async def search(
        query: str, k: int = min(10, max_k), budget: int = budget, filter: dict[str, Any] | None = None
    ) -> dict[str, Any]:
        """Find the items that fit a query best. `filter` holds conditions on metadata: a value, a list of values, or
        bounds such as {"year": {"gte": 2000}}. `budget` is the most calls of the scorer that may be made."""
        if not (1 <= k <= max_k and 1 <= budget <= max_budget):
            raise ToolError(f"k is 1 to {max_k} and budget 1 to {max_budget}; got {k} and {budget}")
        try:
            hits = await session.search(query, k, budget, filter)
        except CrosscutError as error:
            raise ToolError(public_message(error)) from None
        found = [
            {"id": str(hit.id), "score": round(hit.score, 4), "title": hit.item.title, "text": hit.item.text[:SHOWN]}
            for hit in hits
            if hit.item is not None
        ]
        return {"hits": found, "calls": hits.calls, "stop_reason": hits.stop_reason}

    @server.tool()
    def item(id: str) -> dict[str, Any]:
        """One item by its id: title, whole text, metadata."""
        try:
            if id not in index:
                raise ToolError(f"there is no item with the id {id[:100]!r}")
            found = index[id]
        except CrosscutError as error:
            raise ToolError(public_message(error)) from None
        return {"id": str(found.id), "title": found.title, "text": found.text, "metadata": dict(found.metadata)}

    @server.tool()
    def cost() -> dict[str, Any]:
        """Return the cost of the searches of this session, and the maximum cost of one search."""
        return {**session.spent, "default_budget": budget, "max_budget": max_budget}

    return server


class SearchSession:
    """Searches of one session, and what they have cost."""

    def __init__(self, index: Index, deadline: float) -> None:
        if not deadline > 0:
            raise InputError(f"the deadline of a search is more than 0 seconds; got {deadline}")
        self.index, self.deadline = index, deadline
        self.spent = {"searches": 0, "calls": 0, "cached": 0}
        self._lock = threading.Lock()

    async def search(self, query: str, k: int, budget: int, filter: dict[str, Any] | None) -> Hits:
        """Return the hits, or raise what was wrong with the request."""
        if len(query) > QUERY:
            raise InputError(f"a query has {QUERY} characters at most; got {len(query)}")
        size = sum(len(one) if isinstance(one, list | dict) else 1 for one in (filter or {}).values())
        if size > VALUES:
            raise InputError(f"a filter has {VALUES:,} values at most; got {size:,}")
        try:
            checked = None if filter is None else request_filter(filter)
        except ValueError as error:
            raise InputError(str(error)) from None
        gone = threading.Event()
        try:
            return await asyncio.to_thread(self._search, query, k, budget, checked, gone)
        finally:
            gone.set()

    def _search(self, query: str, k: int, budget: int, filter: dict[str, Any] | None, gone: threading.Event) -> Hits:
        """Search in a thread, which counts the calls whether or not somebody still waits."""
        halts = [lambda: "cancelled" if gone.is_set() else None]
        try:
            (hits,) = self.index.search_many([query], k, budget, filter=filter, deadline=self.deadline, halts=halts)
        except Exception as error:
            self._count(calls=getattr(error, "calls", 0))
            raise
        self._count(searches=1, calls=hits.calls, cached=hits.cached)
        return hits

    def _count(self, **numbers: int) -> None:
        with self._lock:
            for name, number in numbers.items():
                self.spent[name] += number


def public_message(error: CrosscutError) -> str:
    """Return the message of a mistake in the request; of any other error the kind: the rest may quote addresses."""
    if isinstance(error, ScorerError | StoreUnavailable):
        return f"the search failed after {error.calls} calls: {type(error).__name__}"
    if isinstance(error, InputError | BudgetError) and not isinstance(error, FolderError):
        return str(error)[:1000]
    return f"this cannot be done now: {type(error).__name__}; `crosscut index verify` checks the index"
