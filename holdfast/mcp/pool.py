"""`McpPool`: the MCP connections of one process, opened when first needed and shared where that is safe."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from hashlib import sha256
from importlib.util import find_spec
from typing import TYPE_CHECKING, Final, NamedTuple, TextIO

from holdfast.core.base.errors import InvalidInput, MissingPart
from holdfast.core.base.extras import install_command
from holdfast.core.base.frozen import canonical, replace
from holdfast.core.tools.mcp_catalog import McpCatalog
from holdfast.core.tools.mcp_servers import InlineServer, McpServer
from holdfast.mcp.credentials import Credentials
from holdfast.mcp.server_file import unknown_server

if TYPE_CHECKING:  # an extra
    from holdfast.mcp.connection import McpConnection

CONNECTIONS_MAX: Final = 64
"""The most connections that are kept; beyond it the one that was used longest ago is closed, if it is idle."""

CREDENTIALS_MAX: Final = 1_000
"""For how many servers and tenants OAuth tokens are kept; those of the others are asked for again."""

MISSING: Final = f"MCP servers need the extra `mcp`: {install_command('mcp')}"

SETTLE_SECONDS_MAX: Final = 5.0
"""How long the end of the pool waits for tokens that are being asked for."""

SHARED: Final = ""
"""Stands for an execution's id where a connection is no execution's own."""


class _Key(NamedTuple):
    """Which connection: the identity of its server, whose it is (or SHARED), and the tenant if that matters."""

    server: str
    execution_id: str
    tenant: str


@dataclass(slots=True)
class _Slot:
    """A place for one connection; `users` are the calls under way on it."""

    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    connection: McpConnection | None = None
    users: int = 0


class McpPool:
    """Connections to `servers`, which are known by their names. Use it within one event loop, and close it.

    `inline` allows servers that agents' definitions describe: they start any command and reach any address.

    A server that is started by a command runs once per process, and a server of the protocol's modern era has no memory
    of a connection: those are shared. What an older server over HTTP keeps for a connection is one execution's.
    """

    def __init__(
        self,
        servers: Mapping[str, McpServer],
        environment: Mapping[str, str],
        log: TextIO | None = None,
        *,
        inline: bool = False,
    ) -> None:
        self.servers: Final = servers
        self._inline = inline
        self._environment = environment
        self._log = log or sys.stderr
        self._slots: dict[_Key, _Slot] = {}
        self._credentials: dict[tuple[str, str], Credentials] = {}

    def chosen(self, choices: Sequence[str | InlineServer], agent: str) -> tuple[McpServer, ...]:
        """Return an agent's servers. Raises InvalidInput for an unknown name, and for an inline one unless `inline`."""
        for each in choices:
            if isinstance(each, InlineServer):
                if not self._inline:
                    problem = f"agent {agent!r} describes the MCP server {each.name!r} itself"
                    remedy = "start it with --mcp-inline if every client may have it run commands, or use its mcp.yaml"
                    raise InvalidInput(f"{problem}, which this worker refuses; {remedy}")
            elif each not in self.servers:
                raise InvalidInput(unknown_server(agent, each, self.servers))
        return tuple(each if isinstance(each, InlineServer) else self.servers[each] for each in choices)

    def servers_of(self, catalog: McpCatalog) -> Mapping[str, McpServer]:
        """Return the servers that the catalog's tools are called at, as far as this process may reach them."""
        inline = {each.name: each for each in catalog.inline}
        named = {name: server for name, server in self.servers.items() if name not in inline}
        return {**named, **inline} if self._inline else named

    async def catalog(
        self, choices: Sequence[str | InlineServer], agent: str, execution_id: str = SHARED, tenant: str = ""
    ) -> McpCatalog:
        """Return the tools of an agent's servers. Raises InvalidInput, McpUnavailable, McpCallFailed."""
        servers = self.chosen(choices, agent)
        check_installed()
        from holdfast.mcp.listing import catalog_of  # noqa: PLC0415  # an extra

        async with AsyncExitStack() as scope:
            borrowed = (scope.enter_async_context(self.connection(server, execution_id, tenant)) for server in servers)
            listed = await catalog_of([await each for each in borrowed])
        return replace(listed, inline=tuple(each for each in servers if isinstance(each, InlineServer)))

    @asynccontextmanager
    async def connection(
        self, server: McpServer, execution_id: str = SHARED, tenant: str = ""
    ) -> AsyncGenerator[McpConnection]:
        """Lend a connection to `server`, opened if need be. Raises McpUnavailable, InvalidInput.

        Where the server's entry names the tenant, only runs of the same one share it.
        """
        check_installed()
        tenant = tenant if server.is_per_tenant else ""
        async with self._lent(_Key(_identity(server), SHARED, tenant), server) as connection:
            if connection.is_shareable or not execution_id:
                yield connection
                return
        async with self._lent(_Key(_identity(server), execution_id, tenant), server) as connection:
            yield connection

    @asynccontextmanager
    async def _lent(self, key: _Key, server: McpServer) -> AsyncGenerator[McpConnection]:
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
                    credentials = self._credentials_for(key, server)
                    opened = McpConnection(server, self._environment, self._log, credentials)
                    await opened.__aenter__()
                    slot.connection = opened
            yield slot.connection
        finally:
            slot.users -= 1
            await self._close_surplus()

    def _credentials_for(self, key: _Key, server: McpServer) -> Credentials:
        """Return the credentials of the server and tenant: their connections share one grant."""
        place = (key.server, key.tenant)
        credentials = self._credentials.pop(place, None) or Credentials(server, self._environment, key.tenant)
        self._credentials[place] = credentials
        while len(self._credentials) > CREDENTIALS_MAX:
            self._credentials.pop(next(iter(self._credentials)))
        return credentials

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
        grants = [each.grant for each in self._credentials.values() if each.grant is not None]
        if grants:  # a rotated refresh token would be lost with its answer
            with suppress(TimeoutError):
                async with asyncio.timeout(SETTLE_SECONDS_MAX):
                    await asyncio.gather(*(each.settled() for each in grants))


def _identity(server: McpServer) -> str:
    """Return what tells a server from every other: two definitions may each describe one of the same name."""
    return f"{server.name}@{sha256(canonical(server)).hexdigest()}" if isinstance(server, InlineServer) else server.name


async def _closed(slot: _Slot) -> None:
    if slot.connection is not None:
        with suppress(Exception):
            await slot.connection.__aexit__()


def check_installed() -> None:
    """Raise MissingPart where the extra `mcp` is not installed."""
    if find_spec("mcp") is None:
        raise MissingPart(MISSING)
