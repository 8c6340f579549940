"""MCP tools as tools of ours: a catalog's entries with the traits that their server's settings give them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NoReturn

from pydantic import JsonValue

from holdfast.core.base.bounds import TOOL_DESCRIPTION_CHARS_MAX
from holdfast.core.base.errors import InvalidInput
from holdfast.core.base.frozen import replace
from holdfast.core.base.safe_text import clamped
from holdfast.core.tools.mcp_catalog import McpTool
from holdfast.core.tools.mcp_servers import McpServer
from holdfast.core.tools.remote_tools import RemoteTool
from holdfast.core.tools.schema_arguments import any_arguments
from holdfast.core.tools.tool_context import NO_REPORTER, CallReporter, ToolContext
from holdfast.core.tools.tool_traits import ToolSchema, ToolTraits, traits_of, with_schema
from holdfast.mcp.errors import McpCallFailed, McpUnavailable
from holdfast.mcp.pool import McpPool

if TYPE_CHECKING:  # an extra
    from holdfast.mcp.answers import McpAnswer

TRIES_MAX: Final = 3
"""How often a server is tried that cannot be reached: nothing has been called yet."""

WAIT_SECONDS: Final = 0.5
"""The wait after the first such try; it doubles."""

KEY_META: Final = "holdfast.dev/idempotency-key"
"""The key of a call in the request's `_meta`: the same for every attempt."""


@dataclass(frozen=True, slots=True)
class McpProxyTool(RemoteTool):
    """An MCP server's tool among an agent's; its arguments are checked against its schema like a remote tool's."""


def schema_of(tool: McpTool) -> ToolSchema:
    """Return the tool as a model sees it."""
    description = clamped(tool.description, TOOL_DESCRIPTION_CHARS_MAX)
    return ToolSchema(name=tool.name, description=description, parameters=tool.parameters)


def traits_for(tool: McpTool, server: McpServer) -> ToolTraits:
    """Return the tool's traits: at most once, unless it says that it is repeatable and its server is trusted."""
    again = server.trusted and tool.repeatable
    options: dict[str, Any] = {"timeout_seconds": server.timeout_seconds}
    options |= {"idempotent": True} if again else {"at_most_once": True}
    return replace(with_schema(traits_of(tool.name, options), schema_of(tool)), mcp=server.name)


def proxy_tools(tools: Iterable[McpTool], servers: Mapping[str, McpServer]) -> tuple[McpProxyTool, ...]:
    """Return the catalog's tools for a toolset; they are called as activities, by name."""
    return tuple(_proxy(tool, servers[tool.server]) for tool in tools if tool.server in servers)


def _proxy(tool: McpTool, server: McpServer) -> McpProxyTool:
    return McpProxyTool(
        _elsewhere(tool.name),
        schema_of(tool),
        traits_for(tool, server),
        any_arguments(tool.name),
        None,
        checked_by_schema=True,
        source=f"the MCP server {server.name!r}",
    )


async def call_mcp_tool(
    pool: McpPool,
    server: McpServer,
    tool: McpTool,
    arguments: Mapping[str, JsonValue],
    context: ToolContext,
    reporter: CallReporter = NO_REPORTER,
) -> McpAnswer:
    """Call the tool, and return its answer. Cancelling this cancels the call at the server.

    `reporter` gets what the server reports of its progress.

    Raises McpUnavailable when the server cannot be reached in TRIES_MAX tries, McpCallFailed for an error of the tool's
    or the server's, and McpOutcomeUnknown.
    """

    async def report(progress: float, total: float | None, message: str | None) -> None:
        reporter.progress(message or "", min(progress / total, 1.0) if total and total > 0 else None)

    for tried in range(1, TRIES_MAX + 1):
        try:
            async with pool.connection(server, context.execution_id) as connection:
                meta = {KEY_META: context.idempotency_key}
                answer = await connection.call(tool.tool, arguments, meta=meta, on_progress=report)
        except McpUnavailable:
            if tried == TRIES_MAX:
                raise
            await asyncio.sleep(WAIT_SECONDS * 2 ** (tried - 1))
        else:
            answer = answer.with_warning(tool.output if isinstance(tool.output, dict) else None)
            if answer.is_error:
                raise McpCallFailed(answer.text or "the tool reports an error without a text")
            return answer
    raise AssertionError("the last try returns or raises")


def _elsewhere(name: str) -> Callable[..., NoReturn]:
    def called_here(**_: object) -> NoReturn:
        raise InvalidInput(f"the tool {name!r} is an MCP server's; it cannot be called here")

    return called_here
