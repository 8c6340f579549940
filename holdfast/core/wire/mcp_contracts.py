"""What the activities of MCP servers take and return. `contracts` has their names."""

from __future__ import annotations

from typing import Final

from pydantic import Field

from holdfast.core.base.bounds import CALL_ID_KEPT_CHARS_MAX
from holdfast.core.base.call_digest import Digest
from holdfast.core.base.frozen import Frozen
from holdfast.core.base.json_form import SparseForm
from holdfast.core.base.json_values import JsonMap
from holdfast.core.tools.mcp_servers import ServerName

MCP_LEFT_OUT_MAX: Final = 20
"""How many lines about left out MCP tools a history keeps."""


class McpRequest(SparseForm):
    """The MCP servers that an agent names, for its worker to list; the `tenant` is for their credentials."""

    agent: str
    servers: tuple[ServerName, ...]
    tenant: str = ""


class McpResolved(Frozen):
    """The catalog of the servers' tools, which is in the record store, and what was left out of it."""

    catalog: Digest
    tools: int
    left_out: tuple[str, ...] = Field(default=(), max_length=MCP_LEFT_OUT_MAX)


class McpCall(SparseForm):
    """One call of an MCP server's tool, by the name and the catalog that the run has pinned.

    The `tenant` is for the server's credentials.
    """

    catalog: Digest
    name: str
    arguments: JsonMap
    step: int
    call_id: str = Field(max_length=CALL_ID_KEPT_CHARS_MAX)
    tenant: str = ""
