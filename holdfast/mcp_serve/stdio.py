"""The server over standard input and output. Standard output carries the protocol alone."""

from __future__ import annotations

import asyncio
import os
import sys
import threading
from collections.abc import AsyncGenerator, Callable
from contextvars import Context
from typing import Any, Final, Self, cast

from mcp.server.stdio import stdio_server
from mcp.shared._context_streams import ContextReceiveStream, ContextSendStream
from mcp.shared.message import SessionMessage
from mcp_types import INVALID_REQUEST, PARSE_ERROR, ErrorData, JSONRPCError
from pydantic import ValidationError

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
        messages = cast("Any", _Messages(incoming, outgoing))
        await agents.server.run(messages, outgoing, agents.server.create_initialization_options())


class _Messages:
    """What the client says; a line that is no message is answered here: the SDK's server passes over it."""

    def __init__(
        self, incoming: ContextReceiveStream[SessionMessage | Exception], outgoing: ContextSendStream[SessionMessage]
    ) -> None:
        self._incoming = incoming
        self._outgoing = outgoing

    @property
    def last_context(self) -> Context | None:
        """The context in which the last message was sent; the SDK asks for it."""
        return self._incoming.last_context

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> SessionMessage:
        while isinstance(item := await self._incoming.__anext__(), Exception):
            await self._outgoing.send(SessionMessage(_refusal(item)))
        return item

    async def __aenter__(self) -> Self:
        await self._incoming.__aenter__()
        return self

    async def __aexit__(self, *error: object) -> None:
        await self._incoming.aclose()

    async def aclose(self) -> None:
        await self._incoming.aclose()


def _refusal(error: Exception) -> JSONRPCError:
    """Return the answer to a line that cannot be read; it has no id, because its own is not known."""
    if isinstance(error, ValidationError) and error.errors()[0]["type"] == "json_invalid":
        fault = ErrorData(code=PARSE_ERROR, message="a line is not JSON")
    else:
        fault = ErrorData(code=INVALID_REQUEST, message="a line is no message of JSON-RPC 2.0")
    return JSONRPCError(jsonrpc="2.0", id=None, error=fault)


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
