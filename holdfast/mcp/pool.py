"""`McpPool`: the MCP connections of one process, opened when first needed and shared where that is safe."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from importlib.util import find_spec
from typing import TYPE_CHECKING, Final, TextIO

from holdfast.core.base.did_you_mean import nearest
from holdfast.core.base.errors import InvalidInput, MissingPart
from holdfast.core.tools.mcp_catalog import McpCatalog
from holdfast.core.tools.mcp_servers import McpServer

if TYPE_CHECKING:  # an extra
    from holdfast.mcp.connection import McpConnection

CONNECTIONS_MAX: Final = 64
"""The most connections that are kept; beyond it the one that was used longest ago is closed, if it is idle."""

MISSING: Final = "MCP servers need the extra `mcp`: install holdfast[mcp]"

Key = tuple[str, str]
"""A server's name, and whose connection it is: an execution's, or everybody's."""

SHARED: Final = ""


@dataclass(slots=True)
class _Slot:
    """A place for one connection; `users` are the calls under way on it."""

    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    connection: McpConnection | None = None
    users: int = 0


class McpPool:
    """Connections to `servers`, which are known by their names. Use it within one event loop, and close it.

    A server that is started by a command runs once per process, and a server of the protocol's modern era has no memory
    of a connection: those are shared. What an older server over HTTP keeps for a connection is one execution's.
    """

    def __init__(
        self, servers: Mapping[str, McpServer], environment: Mapping[str, str], log: TextIO | None = None
    ) -> None:
        self.servers: Final = servers
        self._environment = environment
        self._log = log or sys.stderr
        self._slots: dict[Key, _Slot] = {}

    def named(self, names: Sequence[str], agent: str) -> tuple[McpServer, ...]:
        """Return the servers with these names. Raises InvalidInput for one that is not known here."""
        for name in names:
            if name not in self.servers:
                problem = f"agent {agent!r} names the MCP server {name!r}, {nearest(name, self.servers)}"
                raise InvalidInput(f"{problem} (what mcp.yaml lists where this process runs)")
        return tuple(self.servers[name] for name in names)

    async def catalog(self, names: Sequence[str], agent: str, execution_id: str = SHARED) -> McpCatalog:
        """Return the tools of the servers with these names. Raises InvalidInput, McpUnavailable, McpCallFailed."""
        servers = self.named(names, agent)
        check_installed()
        from holdfast.mcp.listing import catalog_of  # noqa: PLC0415  # an extra

        async with AsyncExitStack() as scope:
            borrowed = (scope.enter_async_context(self.connection(server, execution_id)) for server in servers)
            return await catalog_of([await each for each in borrowed])

    @asynccontextmanager
    async def connection(self, server: McpServer, execution_id: str = SHARED) -> AsyncGenerator[McpConnection]:
        """Lend a connection to `server`, opened if need be. Raises McpUnavailable."""
        check_installed()
        owner = SHARED
        async with self._lent((server.name, owner), server) as connection:
            if connection.is_shareable or not execution_id:
                yield connection
                return
        async with self._lent((server.name, execution_id), server) as connection:
            yield connection

    @asynccontextmanager
    async def _lent(self, key: Key, server: McpServer) -> AsyncGenerator[McpConnection]:
        from holdfast.mcp.connection import McpConnection  # noqa: PLC0415  # an extra

        slot = self._slots.pop(key, None) or _Slot()
        self._slots[key] = slot  # the latest used is the last
        slot.users += 1
        try:
            async with slot.lock:
                if slot.connection is None or not slot.connection.open:
                    if slot.connection is not None:
                        await slot.connection.__aexit__()
                    slot.connection = None
                    opened = McpConnection(server, self._environment, self._log)
                    await opened.__aenter__()
                    slot.connection = opened
            yield slot.connection
        finally:
            slot.users -= 1
            await self._close_surplus()

    async def _close_surplus(self) -> None:
        while len(self._slots) > CONNECTIONS_MAX:
            idle = next((key for key, slot in self._slots.items() if not slot.users), None)
            if idle is None:
                return
            await _closed(self._slots.pop(idle))

    async def close(self) -> None:
        """Close every connection, and end every server that was started here; in bounded time."""
        slots, self._slots = self._slots, {}
        await asyncio.gather(*map(_closed, slots.values()))


async def _closed(slot: _Slot) -> None:
    if slot.connection is not None:
        with suppress(Exception):
            await slot.connection.__aexit__()


def check_installed() -> None:
    """Raise MissingPart where the extra `mcp` is not installed."""
    if find_spec("mcp") is None:
        raise MissingPart(MISSING)
