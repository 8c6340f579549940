"""What the conformance suite starts as a client: it lists the tools of the server at a URL, and calls each."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Mapping

from pydantic import JsonValue

from holdfast.core.base.errors import HoldfastError
from holdfast.core.tools.mcp_servers import McpServer
from holdfast.mcp.pool import McpPool


def arguments(schema: Mapping[str, JsonValue]) -> dict[str, JsonValue]:
    """Return arguments that fit: the suite's tools take numbers, or nothing."""
    properties = schema.get("properties")
    return dict.fromkeys(properties, 2) if isinstance(properties, dict) else {}


async def talk(url: str) -> None:
    """Do what a run does with a server: list its tools, and call each."""
    server = McpServer(name="suite", url=url)
    pool = McpPool({server.name: server}, os.environ)
    try:
        for tool in (await pool.catalog((server.name,), "conformance")).tools:
            async with pool.connection(server) as connection:
                answer = await connection.call(tool.tool, arguments(tool.parameters))
                sys.stdout.write(f"{tool.tool}: {answer.text}\n")
    finally:
        await pool.close()


if __name__ == "__main__":
    try:
        asyncio.run(talk(sys.argv[1]))
    except HoldfastError as error:
        sys.exit(str(error))
