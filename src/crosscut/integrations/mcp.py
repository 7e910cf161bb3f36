"""The Model Context Protocol: tools for agents over an index. `crosscut mcp my.index`, over standard input and output.

search   the items that the scorer would rank first, within a budget of calls
item     one item, whole
cost     what the searches of this session have spent, and what one of them may spend
"""

from __future__ import annotations

from typing import Any

from crosscut import __version__
from crosscut.errors import CrosscutError, InputError, ScorerError, StoreUnavailable
from crosscut.index import Index
from crosscut.integrations import needing

with needing("mcp"):
    from mcp.server.mcpserver import MCPServer
    from mcp.server.mcpserver.exceptions import ToolError

LONGEST = 2000
"""Characters of a text that a search tells; `item` tells all of it."""


def make_server(index: Index, *, budget: int = 100, max_budget: int = 1000, max_k: int = 50) -> MCPServer:
    """A server of tools over an index; `run()` serves standard input and output."""
    if not 1 <= budget <= max_budget:
        raise InputError(f"a budget is between 1 and the cap of {max_budget} calls; got {budget}")
    told = (
        f"Search over {len(index):,} items. A search costs calls of an expensive scorer: at most {budget} by default."
    )
    server = MCPServer("crosscut", version=__version__, instructions=told)
    spent = {"searches": 0, "calls": 0, "cached": 0}

    @server.tool()
    async def search(
        query: str, k: int = 10, budget: int = budget, filter: dict[str, Any] | None = None
    ) -> dict[str, Any]:
        """Find the items that fit a query best. `filter` holds conditions on metadata: a value, a list of values, or
        bounds such as {"year": {"gte": 2000}}. `budget` is the most calls of the scorer that may be spent."""
        if not (1 <= k <= max_k and 1 <= budget <= max_budget):
            raise ToolError(f"k is 1 to {max_k} and budget 1 to {max_budget}; got {k} and {budget}")
        try:
            hits = await index.search_async(query, k, budget, filter=filter)
        except (ScorerError, StoreUnavailable) as error:  # what it says may hold addresses, or other people's texts
            spent["calls"] += error.calls
            raise ToolError(f"the search failed after {error.calls} calls: {type(error).__name__}") from None
        except CrosscutError as error:
            raise ToolError(str(error)) from error
        for name, value in (("searches", 1), ("calls", hits.calls), ("cached", hits.cached)):
            spent[name] += value
        found = [
            {"id": str(hit.id), "score": round(hit.score, 4), "title": hit.item.title, "text": hit.item.text[:LONGEST]}
            for hit in hits
            if hit.item is not None
        ]
        return {"hits": found, "calls": hits.calls, "stop_reason": hits.stop_reason}

    @server.tool()
    def item(id: str) -> dict[str, Any]:
        """One item by its id: title, whole text, metadata."""
        if id not in index:
            raise ToolError(f"there is no item with the id {id!r}")
        found = index[id]
        return {"id": found.id, "title": found.title, "text": found.text, "metadata": dict(found.metadata)}

    @server.tool()
    def cost() -> dict[str, Any]:
        """What the searches of this session have spent, and what one search may spend."""
        return {**spent, "default_budget": budget, "max_budget": max_budget}

    return server
