"""`McpToolsChange`: which tools of a server are others than an agent had before, by name. Compares catalogs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from pydantic import Field

from holdfast.core.base.call_digest import Digest
from holdfast.core.base.frozen import Frozen
from holdfast.core.tools.mcp_catalog import McpCatalog, McpTool
from holdfast.core.tools.mcp_servers import ServerName

CHANGED_NAMES_MAX: Final = 200
"""The most names of changed tools that one listing reports: they stand in the history."""

_SHOWN_MAX: Final = 5
"""How many names of a kind a line shows."""


class McpToolsChange(Frozen):
    """A server's tools that were added, removed or changed, by the names that the model knows.

    `more` is how many further ones are not named.
    """

    server: ServerName
    added: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    more: int = Field(default=0, ge=0)

    @property
    def line(self) -> str:
        """What changed, in words: `1 added (pay), 2 changed (look, list)`."""
        kinds = (("added", self.added), ("removed", self.removed), ("changed", self.changed))
        parts = [f"{len(names)} {kind} ({_listed(names)})" for kind, names in kinds if names]
        return ", ".join(parts) + (f" and {self.more} more" if self.more else "")


class PinnedCatalog(Frozen):
    """The catalog that an execution has pinned, and how it differs from the one that its agent had before."""

    digest: Digest
    changes: tuple[McpToolsChange, ...] = ()


def tool_changes(older: McpCatalog, newer: McpCatalog, servers: Sequence[str]) -> tuple[McpToolsChange, ...]:
    """Return what changed at those of `servers` that the older catalog has tools of, at most CHANGED_NAMES_MAX names.

    A server without tools in it is new to the agent: there is nothing to compare.
    """
    left = CHANGED_NAMES_MAX
    changes: list[McpToolsChange] = []
    for server in servers:
        before, now = (_digests(catalog.tools, server) for catalog in (older, newer))
        if not before or before == now:
            continue
        kinds = (
            [name for name in now if name not in before],
            [name for name in before if name not in now],
            [name for name in now if name in before and now[name] != before[name]],
        )
        named: list[tuple[str, ...]] = []
        for names in kinds:
            named.append(tuple(names[:left]))
            left -= len(named[-1])
        more = sum(map(len, kinds)) - sum(map(len, named))
        added, removed, changed = named
        changes.append(McpToolsChange(server=server, added=added, removed=removed, changed=changed, more=more))
    return tuple(changes)


def _digests(tools: Sequence[McpTool], server: str) -> dict[str, str]:
    return {each.name: each.digest for each in tools if each.server == server}


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names[:_SHOWN_MAX]) + (", ..." if len(names) > _SHOWN_MAX else "")
