"""A server whose answers come as a whole, some of them too large: `python large_server.py http PORT`."""

from __future__ import annotations

import asyncio
import sys

from mcp.server.mcpserver import MCPServer

server = MCPServer("large")


@server.tool()
def large() -> str:
    """Return 20 MB."""
    return "x" * 20_000_000


@server.tool()
async def wait(seconds: float) -> str:
    """Wait."""
    await asyncio.sleep(seconds)
    return "waited"


server.run("streamable-http", host="127.0.0.1", port=int(sys.argv[2]), json_response=True)
