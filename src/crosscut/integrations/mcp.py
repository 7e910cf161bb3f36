"""The Model Context Protocol: tools for agents over an index. `crosscut mcp my.index`, over standard input and output.

search   the items that the scorer would rank first, within a budget of calls
item     one item, whole
cost     what the searches of this session have spent, and what one of them may spend
"""

from __future__ import annotations

from typing import Any

from crosscut import __version__
from crosscut.errors import CrosscutError, InputError
from crosscut.index import Index
from crosscut.integrations import needing
from crosscut.integrations.asking import Asking, told

with needing("crosscut.integrations.mcp needs {}", "mcp"):
    from mcp.server.mcpserver import MCPServer
    from mcp.server.mcpserver.exceptions import ToolError

LONGEST = 2000
"""Characters of a text that a search tells; `item` tells all of it."""


def make_server(
    index: Index, *, budget: int | None = None, max_budget: int = 1000, max_k: int = 50, deadline: float = 60.0
) -> MCPServer:
    """A server of tools over an index; `run()` serves standard input and output.

    `deadline` is in seconds: after it no search makes further calls.
    """
    budget = min(index.budget or 100, max_budget) if budget is None else budget
    if not 1 <= budget <= max_budget:
        raise InputError(f"a budget is between 1 and the cap of {max_budget} calls; got {budget}")
    asking = Asking(index, deadline)
    about = (
        f"Search over {len(index):,} items. A search costs calls of an expensive scorer: at most {budget} by default."
    )
    server = MCPServer("crosscut", version=__version__, instructions=about, log_level="CRITICAL")  # logs would quote

    @server.tool()
    async def search(
        query: str, k: int = min(10, max_k), budget: int = budget, filter: dict[str, Any] | None = None
    ) -> dict[str, Any]:
        """Find the items that fit a query best. `filter` holds conditions on metadata: a value, a list of values, or
        bounds such as {"year": {"gte": 2000}}. `budget` is the most calls of the scorer that may be spent."""
        if not (1 <= k <= max_k and 1 <= budget <= max_budget):
            raise ToolError(f"k is 1 to {max_k} and budget 1 to {max_budget}; got {k} and {budget}")
        try:
            hits = await asking.search(query, k, budget, filter)
        except CrosscutError as error:
            raise ToolError(told(error)) from None
        found = [
            {"id": str(hit.id), "score": round(hit.score, 4), "title": hit.item.title, "text": hit.item.text[:LONGEST]}
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
            one = index[id]
        except CrosscutError as error:
            raise ToolError(told(error)) from None
        return {"id": one.id, "title": one.title, "text": one.text, "metadata": dict(one.metadata)}

    @server.tool()
    def cost() -> dict[str, Any]:
        """What the searches of this session have spent, and what one search may spend."""
        return {**asking.spent, "default_budget": budget, "max_budget": max_budget}

    return server
