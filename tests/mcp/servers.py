"""A real MCP server for tests, made with the protocol's own SDK: `python servers.py stdio`, or `http PORT`.

It appends a line per call to the file in the variable LEDGER, and answers in whatever way a tool's name says.
"""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path
from typing import Any

from mcp.server.mcpserver import Context, MCPServer
from mcp_types import ToolAnnotations

server = MCPServer("trial", instructions="ask politely", version=os.environ.get("VERSION", "7"))


def note(line: str) -> None:
    with Path(os.environ["LEDGER"]).open("a", encoding="utf-8") as ledger:
        ledger.write(f"{line}\n")


@server.tool(annotations=ToolAnnotations(read_only_hint=True))
def add(a: int, b: int) -> int:
    """Add two numbers."""
    note(f"add {a} {b}")
    return a + b


@server.tool(description=os.environ.get("PAY_ABOUT", "Pay an amount."))
def pay(amount: int, ctx: Context[Any, Any]) -> str:
    meta = ctx.request_context.meta
    key = dict(meta).get("holdfast.dev/idempotency-key", "") if meta else ""
    note(f"pay {amount} {key}")
    return f"paid {amount} {os.environ.get('CURRENCY', '')}".strip()


@server.tool()
async def wait(ctx: Context[Any, Any], seconds: float = 60) -> str:
    """Wait, and report how far it is."""
    note("wait begun")
    try:
        for tenth in range(int(seconds * 10)):
            await ctx.report_progress(tenth, seconds * 10, f"at {tenth}")
            await asyncio.sleep(0.1)
    except asyncio.CancelledError:
        note("wait cancelled")
        raise
    note("wait ended")
    return "waited"


@server.tool()
def fail() -> str:
    """Fail."""
    note("fail")
    raise ValueError("it does not work")


@server.tool()
def die() -> str:
    """End the server in the middle of a call."""
    note("die")
    os._exit(3)


@server.resource("note://one")
def one() -> str:
    """Say hello."""
    return "hello"


@server.prompt()
def greet(name: str) -> str:
    """Greet somebody."""
    return f"greet {name}"


if __name__ == "__main__":
    if sys.argv[1] == "stdio":
        server.run("stdio")
    else:
        server.run("streamable-http", host="127.0.0.1", port=int(sys.argv[2]))
