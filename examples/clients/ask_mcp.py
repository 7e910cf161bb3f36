"""An agent's side of `crosscut mcp my.index`."""

import asyncio

from mcp import Client, StdioServerParameters, stdio_client


async def main() -> None:
    async with Client(stdio_client(StdioServerParameters(command="crosscut", args=["mcp", "my.index"]))) as client:
        print(await client.call_tool("search", {"query": "why does ice float", "k": 3, "budget": 8}))


asyncio.run(main())
