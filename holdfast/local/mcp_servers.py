"""`LocalMcpServers`: the MCP servers of an in-process run: lists their tools, and holds the connections to them."""

from __future__ import annotations

import asyncio
import logging
import os
from typing import Final, NamedTuple

from holdfast.core.agent.definition import AgentDefinition
from holdfast.core.base.errors import HoldfastError
from holdfast.core.tools.mcp_catalog import McpCatalog
from holdfast.core.tools.mcp_changes import PinnedCatalog, tool_changes
from holdfast.core.tools.tools import AnyTool
from holdfast.core.wire.mcp_contracts import MCP_LEFT_OUT_MAX
from holdfast.local.inbox import Inbox, is_end
from holdfast.mcp.errors import FINAL, McpUnavailable
from holdfast.mcp.pool import McpPool, check_installed
from holdfast.mcp.server_file import McpServers, servers_from
from holdfast.mcp.tools import TRIES_MAX, WAIT_SECONDS, connected_tools

LISTING_SECONDS_MAX: Final = 90.0
"""How long one try of listing an agent's servers may take: as long as an attempt of a worker's."""

GIVE_UP_SECONDS_MAX: Final = 12.0
"""How long the end of a run waits for a listing that it cancelled: for a server that starts to be ended, twice."""

CATALOGS_MAX: Final = 16
"""How many catalogs are remembered, to compare later ones with."""

LOGGER: Final = logging.getLogger("holdfast.mcp")


class ListedTools(NamedTuple):
    """The tools of an agent's servers, and the catalog that they are from."""

    tools: tuple[AnyTool, ...]
    pinned: PinnedCatalog


class LocalMcpServers:
    """The MCP servers that an in-process run knows. Connections are opened when first needed, until `close`.

    Subagents use those of the run that called them.
    """

    def __init__(self, given: McpServers | None) -> None:
        self._given = given
        self.tenant = ""
        """On whose account the run works: the credentials of servers can depend on it."""
        self._pool: McpPool | None = None
        self._catalogs: dict[str, McpCatalog] = {}
        self._listings: set[asyncio.Task[McpCatalog]] = set()

    @property
    def servers(self) -> McpServers | None:
        """What lists the servers; the servers themselves once they are read."""
        return self._given if self._pool is None else self._pool.servers

    def check(self, definition: AgentDefinition) -> None:
        """Raise InvalidInput for a server that is not known here, and MissingPart; connect to nothing."""
        if definition.mcp:
            check_installed()
            self._opened().chosen(definition.mcp, definition.name)

    async def listed(
        self, definition: AgentDefinition, inbox: Inbox, previous: str | None, seconds_max: float | None = None
    ) -> ListedTools | None:
        """Return the tools of the agent's servers as they are now; none when a stop or the time limit comes first.

        They say what is new since the agent's catalog `previous`, if this process has listed that. Raises what the last
        try raised: InvalidInput, McpUnavailable, McpCallFailed.
        """
        listing = asyncio.create_task(self._catalog(definition))
        end = asyncio.create_task(inbox.until(is_end))
        self._listings.add(listing)
        listing.add_done_callback(self._listings.discard)
        # one that is cancelled can end with an error that nobody reads
        listing.add_done_callback(lambda ended: ended.cancelled() or ended.exception())
        try:
            await asyncio.wait((listing, end), timeout=seconds_max, return_when=asyncio.FIRST_COMPLETED)
            return self._pinned(listing.result(), definition, previous) if listing.done() else None
        finally:
            listing.cancel()
            end.cancel()

    async def close(self) -> None:
        """Close the connections, and end the servers that were started; in bounded time."""
        if self._listings:  # cancelled already; once more would keep them from ending the server that starts
            await asyncio.wait(self._listings, timeout=GIVE_UP_SECONDS_MAX)
        if self._pool is not None:
            await self._pool.close()

    def _pinned(self, catalog: McpCatalog, definition: AgentDefinition, previous: str | None) -> ListedTools:
        older = self._catalogs.get(previous or "", catalog)
        self._catalogs[catalog.digest] = catalog
        while len(self._catalogs) > CATALOGS_MAX:
            self._catalogs.pop(next(iter(self._catalogs)))
        changes = tool_changes(older, catalog, definition.mcp_names)
        pinned = PinnedCatalog(digest=catalog.digest, changes=changes)
        return ListedTools(connected_tools(catalog, self._opened()), pinned)

    def _opened(self) -> McpPool:
        if self._pool is None:
            self._pool = McpPool(servers_from(self._given, os.environ), os.environ, inline=True)
        return self._pool

    async def _catalog(self, definition: AgentDefinition) -> McpCatalog:
        for tried in range(1, TRIES_MAX + 1):
            try:
                catalog = await self._listed(definition)
            except FINAL:
                raise
            except HoldfastError:
                if tried == TRIES_MAX:
                    raise
                await asyncio.sleep(WAIT_SECONDS * 2 ** (tried - 1))
            else:
                for line in catalog.left_out[:MCP_LEFT_OUT_MAX]:
                    LOGGER.warning("%s", line)
                return catalog
        raise AssertionError("the last try returns or raises")

    async def _listed(self, definition: AgentDefinition) -> McpCatalog:
        limit = asyncio.timeout(LISTING_SECONDS_MAX)
        try:
            async with limit:
                return await self._opened().catalog(definition.mcp, definition.name, tenant=self.tenant)
        except TimeoutError:
            if not limit.expired():
                raise
            names = ", ".join(definition.mcp_names)
            text = f"the MCP servers of agent {definition.name!r} ({names}) were not listed"
            raise McpUnavailable(f"{text} within {LISTING_SECONDS_MAX:g} s") from None
