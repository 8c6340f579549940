"""What the activities of MCP servers take and return. `contracts` has their names."""

from __future__ import annotations

from typing import Final

from pydantic import Field

from holdfast.core.agent.tool_selection import ToolChoice
from holdfast.core.base.bounds import CALL_ID_KEPT_CHARS_MAX
from holdfast.core.base.call_digest import Digest
from holdfast.core.base.frozen import Frozen, is_empty
from holdfast.core.base.json_values import JsonMap
from holdfast.core.tools.mcp_changes import McpToolsChange
from holdfast.core.tools.mcp_servers import McpChoice

MCP_LEFT_OUT_MAX: Final = 20
"""How many lines about left out MCP tools a history keeps."""


class McpRequest(Frozen):
    """The MCP servers that an agent names, for its worker to list."""

    agent: str
    servers: tuple[McpChoice, ...]
    previous: Digest | None = None
    """The catalog that the agent had before, to compare with."""


class McpResolved(Frozen):
    """The catalog of the servers' tools, which is in the record store, and what was left out of it."""

    catalog: Digest
    tools: int
    changes: tuple[McpToolsChange, ...] = Field(default=(), exclude_if=is_empty)
    left_out: tuple[str, ...] = Field(default=(), max_length=MCP_LEFT_OUT_MAX)


class McpCall(Frozen):
    """One call of an MCP server's tool, by the name and the catalog that the run has pinned."""

    catalog: Digest
    name: str
    arguments: JsonMap
    step: int
    call_id: str = Field(max_length=CALL_ID_KEPT_CHARS_MAX)


class McpSearch(Frozen):
    """A search among the tools of a pinned catalog that an agent with this choice of tools may call."""

    catalog: Digest
    arguments: JsonMap
    tools: ToolChoice = ()
    tools_deny: tuple[str, ...] = ()
