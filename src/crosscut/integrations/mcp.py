"""The Model Context Protocol: tools for agents over an index. `crosscut mcp my.index`, over standard input and output.

search   the items that the scorer would rank first, within a budget of calls
item     one item, whole
cost     what the searches of this session have spent, and what one of them may spend

An agent is no more trusted than a client of the server: what it asks for is bounded before it is looked at, no answer
names a folder or an endpoint, and what a search has paid is counted however it ends, by being called off too.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from crosscut import __version__
from crosscut.errors import BudgetError, CrosscutError, FolderError, InputError, ScorerError, StoreUnavailable
from crosscut.index import Index
from crosscut.index.conditions import conditions
from crosscut.integrations import needing
from crosscut.search.hits import Hits

with needing("mcp"):
    from mcp.server.mcpserver import MCPServer
    from mcp.server.mcpserver.exceptions import ToolError

LONGEST = 2000
"""Characters of a text that a search tells; `item` tells all of it."""
QUERY, VALUES = 4000, 100_000
"""Characters of a query, and values in a filter, at most."""


def make_server(
    index: Index, *, budget: int = 100, max_budget: int = 1000, max_k: int = 50, deadline: float = 60.0
) -> MCPServer:
    """A server of tools over an index; `run()` serves standard input and output.

    `deadline` is in seconds: after it no search makes further calls.
    """
    if not 1 <= budget <= max_budget:
        raise InputError(f"a budget is between 1 and the cap of {max_budget} calls; got {budget}")
    if not deadline > 0:
        raise InputError(f"the deadline of a search is more than 0 seconds; got {deadline}")
    told = (
        f"Search over {len(index):,} items. A search costs calls of an expensive scorer: at most {budget} by default."
    )
    server = MCPServer("crosscut", version=__version__, instructions=told, log_level="CRITICAL")  # logs would quote
    spent = {"searches": 0, "calls": 0, "cached": 0}
    counting = threading.Lock()

    def paid(searches: int, calls: int, cached: int = 0) -> None:
        with counting:
            for name, value in (("searches", searches), ("calls", calls), ("cached", cached)):
                spent[name] += value

    def found(query: str, k: int, budget: int, filter: dict[str, Any] | None, gone: threading.Event) -> Hits:
        """In a thread, which counts what it has paid whether or not somebody waits for it still."""
        try:
            halt = [lambda: "cancelled" if gone.is_set() else None]
            (hits,) = index.search_many([query], k, budget, filter=filter, deadline=deadline, halts=halt)
        except (ScorerError, StoreUnavailable) as error:
            paid(0, error.calls)
            raise
        paid(1, hits.calls, hits.cached)
        return hits

    @server.tool()
    async def search(
        query: str, k: int = 10, budget: int = budget, filter: dict[str, Any] | None = None
    ) -> dict[str, Any]:
        """Find the items that fit a query best. `filter` holds conditions on metadata: a value, a list of values, or
        bounds such as {"year": {"gte": 2000}}. `budget` is the most calls of the scorer that may be spent."""
        if not (1 <= k <= max_k and 1 <= budget <= max_budget):
            raise ToolError(f"k is 1 to {max_k} and budget 1 to {max_budget}; got {k} and {budget}")
        if len(query) > QUERY:
            raise ToolError(f"a query has {QUERY} characters at most; got {len(query)}")
        gone = threading.Event()
        with telling():
            hits = await _beside(found, query, k, budget, _filter(filter), gone)
        told = [
            {"id": str(hit.id), "score": round(hit.score, 4), "title": hit.item.title, "text": hit.item.text[:LONGEST]}
            for hit in hits
            if hit.item is not None
        ]
        return {"hits": told, "calls": hits.calls, "stop_reason": hits.stop_reason}

    @server.tool()
    def item(id: str) -> dict[str, Any]:
        """One item by its id: title, whole text, metadata."""
        with telling():
            if id not in index:
                raise ToolError(f"there is no item with the id {id[:100]!r}")
            one = index[id]
        return {"id": one.id, "title": one.title, "text": one.text, "metadata": dict(one.metadata)}

    @server.tool()
    def cost() -> dict[str, Any]:
        """What the searches of this session have spent, and what one search may spend."""
        with counting:
            return {**spent, "default_budget": budget, "max_budget": max_budget}

    return server


async def _beside(work: Any, *given: Any) -> Hits:
    """The outcome of a thread; its last argument is set when nobody waits for it any more."""
    try:
        hits: Hits = await asyncio.to_thread(work, *given)
        return hits
    except asyncio.CancelledError:
        given[-1].set()
        raise


def _filter(given: dict[str, Any] | None) -> dict[str, Any] | None:
    if given is None:
        return None
    size = sum(len(wanted) if isinstance(wanted, list | dict) else 1 for wanted in given.values())
    if size > VALUES:
        raise ToolError(f"a filter has {VALUES:,} values at most; got {size:,}")
    try:
        return conditions(given)
    except ValueError as error:
        raise ToolError(str(error)) from None


@contextmanager
def telling() -> Iterator[None]:
    """What an agent is told of an error: its own mistakes in our words; of anything else the kind, because the rest may
    hold addresses, folders, or other people's texts."""
    try:
        yield
    except ToolError:
        raise
    except (ScorerError, StoreUnavailable) as error:
        raise ToolError(f"the search failed after {error.calls} calls: {type(error).__name__}") from None
    except (InputError, BudgetError) as error:
        if isinstance(error, FolderError):
            raise ToolError("the index cannot be read: whoever runs this server should verify it") from None
        raise ToolError(str(error)[:1000]) from None
    except CrosscutError as error:
        raise ToolError(f"this cannot be done now: {type(error).__name__}") from None
