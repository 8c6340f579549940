"""The server over standard input and output. Standard output carries the protocol alone."""

from __future__ import annotations

import asyncio
import os
import sys
import threading
from collections.abc import AsyncGenerator, Callable
from typing import Any, Final, cast

from mcp.server.stdio import stdio_server

from holdfast.mcp_serve.agent_server import AgentServer

LINE_BYTES_MAX: Final = 4 * 1024 * 1024
"""The longest message, as over HTTP; a longer one is dropped, so its client gets no answer."""

CHUNK_BYTES: Final = 64 * 1024

LINES_WAITING_MAX: Final = 16
"""The most messages that are read before they are taken."""


async def serve_stdio(agents: AgentServer) -> None:
    """Serve one client until its end of file; calls under way are cancelled then."""
    lines = stdin_lines(sys.stdin.fileno())
    async with stdio_server(stdin=cast("Any", lines)) as (incoming, outgoing):
        await agents.server.run(incoming, outgoing, agents.server.create_initialization_options())


async def stdin_lines(descriptor: int) -> AsyncGenerator[str]:
    """Yield the lines of a descriptor, each bounded, until its end.

    A daemon thread reads them: the SDK's own reader keeps the program from ending until there is input.
    """
    queue: asyncio.Queue[bytes | None] = asyncio.Queue(LINES_WAITING_MAX)
    loop = asyncio.get_running_loop()

    def put(line: bytes | None) -> None:
        asyncio.run_coroutine_threadsafe(queue.put(line), loop).result()

    def read() -> None:
        try:
            _read(descriptor, put)
            put(None)
        except RuntimeError:  # the loop is closed: the program ends
            return

    threading.Thread(target=read, name="stdin", daemon=True).start()
    while (line := await queue.get()) is not None:
        yield line.decode(errors="replace")


def _read(descriptor: int, put: Callable[[bytes], None]) -> None:
    line, is_too_long = bytearray(), False
    while chunk := _chunk(descriptor):
        *ended, rest = chunk.split(b"\n")
        for part in ended:
            line += part
            if is_too_long or len(line) > LINE_BYTES_MAX:
                sys.stderr.write(f"dropped a message of more than {LINE_BYTES_MAX:,} bytes\n")
            elif line.strip():
                put(bytes(line))
            line, is_too_long = bytearray(), False
        line += rest
        if len(line) > LINE_BYTES_MAX:
            line, is_too_long = bytearray(), True
    if line.strip() and not is_too_long:
        put(bytes(line))


def _chunk(descriptor: int) -> bytes:
    try:
        return os.read(descriptor, CHUNK_BYTES)
    except OSError:  # a terminal that has gone
        return b""
