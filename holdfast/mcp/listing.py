"""Lists what an MCP server offers, bounded: its tools as a catalog, its resources and prompts for people."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, Protocol, TypeVar

from mcp.client import ClientSession
from mcp_types import PaginatedRequestParams, Prompt, Resource, ResourceTemplate, Tool
from pydantic import ValidationError
from pydantic_core import to_json

from holdfast.core.base.frozen import canonical
from holdfast.core.base.safe_text import clamped, encodable
from holdfast.core.tools.mcp_catalog import McpAnnotations, McpCatalog, McpTool, legal_names
from holdfast.core.tools.mcp_servers import McpServer
from holdfast.mcp.answer_bounds import LISTED_MAX
from holdfast.mcp.connection import McpConnection
from holdfast.mcp.task_messages import makes_tasks

PAGES_MAX: Final = 100
"""The most pages of one list that are asked for: a server's pages may never end."""

LIST_SECONDS_MAX: Final = 30.0
"""How long a server may take for one list with all its pages."""

SCHEMA_BYTES_MAX: Final = 64 * 1024
"""The largest schema of a tool, as JSON."""

CATALOG_BYTES_MAX: Final = 4 * 1024 * 1024
"""The largest catalog of all servers of an agent."""

DESCRIPTION_CHARS_MAX: Final = 16_000
"""How much of a description is kept; a model may be shown less."""

TITLE_CHARS_MAX: Final = 200

ItemT = TypeVar("ItemT")


class Page(Protocol):
    """What every list of the protocol answers with."""

    next_cursor: str | None


@dataclass(frozen=True, slots=True)
class Offer:
    """What a server offers besides tools, and what it says of itself."""

    protocol: str
    title: str
    instructions: str
    resources: tuple[Resource | ResourceTemplate, ...]
    prompts: tuple[Prompt, ...]


async def catalog_of(connections: Sequence[McpConnection]) -> McpCatalog:
    """Return the tools of all servers under legal names. Raises McpUnavailable, McpCallFailed: the first one's."""
    listed = await asyncio.gather(*map(_tools_of, connections))
    prefixes = {each.server.name: each.server.tool_prefix for each in connections}
    every = [tool for tools, _ in listed for tool in tools]
    tools, beyond = _within(legal_names(every, prefixes))
    return McpCatalog(tools=tools, left_out=(*(line for _, lines in listed for line in lines), *beyond))


def _within(tools: Sequence[McpTool]) -> tuple[tuple[McpTool, ...], tuple[str, ...]]:
    """Return as many of the first tools as CATALOG_BYTES_MAX holds, and a line about the others."""
    kept, size = 0, 0
    for tool in tools:
        size += len(canonical(tool))
        if size > CATALOG_BYTES_MAX:
            break
        kept += 1
    if kept == len(tools):
        return tuple(tools), ()
    about = f"{len(tools) - kept} tools from {tools[kept].name!r} on"
    return tuple(tools[:kept]), (f"{about}: the catalog would have over {CATALOG_BYTES_MAX:,} bytes",)


async def offer_of(connection: McpConnection) -> Offer:
    """Return the server's resources, prompts and words about itself. Raises McpUnavailable, McpCallFailed."""
    client = connection.client
    can = client.server_capabilities
    resources: list[Resource | ResourceTemplate] = []
    prompts: list[Prompt] = []
    if can.resources is not None:
        found, _ = await _pages(
            connection, lambda params, session: session.list_resources(params=params), lambda page: page.resources
        )
        templates, _ = await _pages(
            connection,
            lambda params, session: session.list_resource_templates(params=params),
            lambda page: page.resource_templates,
        )
        resources = [*found, *templates]
    if can.prompts is not None:
        prompts, _ = await _pages(
            connection, lambda params, session: session.list_prompts(params=params), lambda page: page.prompts
        )
    info = client.server_info
    title = f"{info.title or info.name} {info.version}".strip() if info else ""
    return Offer(
        protocol=client.protocol_version,
        title=clamped(title, TITLE_CHARS_MAX),
        instructions=clamped(client.instructions or "", DESCRIPTION_CHARS_MAX),
        resources=tuple(resources),
        prompts=tuple(prompts),
    )


async def _tools_of(connection: McpConnection) -> tuple[list[McpTool], list[str]]:
    server = connection.server
    if connection.client.server_capabilities.tools is None:
        return [], []
    listed, complete = await _pages(
        connection, lambda params, session: session.list_tools(params=params), lambda page: page.tools
    )
    tasks = makes_tasks(connection.client.server_capabilities)
    tools: dict[str, McpTool] = {}
    left_out: list[str] = [] if complete else [f"{server.name}: it lists more than {LISTED_MAX:,} tools"]
    for each in listed:
        if not server.offers(each.name):
            continue
        problem = "it is listed twice" if each.name in tools else _problem_with(each)
        if problem is None:
            try:
                tools[each.name] = _tool(server, each, tasks=tasks)
            except (ValidationError, RecursionError) as error:
                problem = f"it cannot be kept: {type(error).__name__}"
        if problem is not None:
            left_out.append(f"{server.name}: the tool {encodable(each.name)[:80]!r} is left out: {problem}")
    missing = [name for name in server.tools or () if name not in tools]
    left_out += [f"{server.name}: it has no tool {name!r}, which `tools` names" for name in missing]
    return list(tools.values()), left_out


def _problem_with(tool: Tool) -> str | None:
    """Return why the tool cannot be offered to a model, if so."""
    for what, schema in (("input", tool.input_schema), ("output", tool.output_schema)):
        if schema is None:
            continue
        size = len(to_json(schema, inf_nan_mode="strings", serialize_unknown=True)) if _is_json(schema) else None
        if size is None:
            return f"its {what} schema is no valid JSON"
        if size > SCHEMA_BYTES_MAX:
            return f"its {what} schema has {size:,} bytes, at most {SCHEMA_BYTES_MAX:,} are allowed"
    from holdfast.runtime.json_schema import broken_schema  # noqa: PLC0415  # 0.1 s that only its users pay

    problem = broken_schema(tool.input_schema)
    return f"its input schema: {problem}" if problem else None


def _is_json(schema: Mapping[str, Any]) -> bool:
    try:
        json.dumps(schema, allow_nan=False).encode()
    except (ValueError, TypeError, RecursionError):
        return False
    return True


def _tool(server: McpServer, tool: Tool, *, tasks: bool) -> McpTool:
    from holdfast.runtime.json_schema import broken_schema  # noqa: PLC0415  # as above

    hints = tool.annotations
    output = tool.output_schema
    return McpTool(
        name=encodable(tool.name),
        server=server.name,
        tool=encodable(tool.name),
        description=clamped(tool.description or "", DESCRIPTION_CHARS_MAX),
        parameters=tool.input_schema,
        # a broken promise of the server's binds nobody
        output=None if output is None or broken_schema(output) else output,
        annotations=McpAnnotations()
        if hints is None
        else McpAnnotations(
            title=None if hints.title is None else clamped(hints.title, TITLE_CHARS_MAX),
            read_only=hints.read_only_hint,
            destructive=hints.destructive_hint,
            idempotent=hints.idempotent_hint,
            open_world=hints.open_world_hint,
        ),
        tasks=tasks or None,
    )


async def _pages(
    connection: McpConnection,
    ask: Callable[[PaginatedRequestParams | None, ClientSession], Awaitable[Any]],
    items_of: Callable[[Any], list[ItemT]],
) -> tuple[list[ItemT], bool]:
    """Return all items of a list, and whether there are no more. Raises McpUnavailable, McpCallFailed."""
    items: list[ItemT] = []
    cursor: str | None = None
    ends_at = asyncio.get_running_loop().time() + LIST_SECONDS_MAX
    for _ in range(PAGES_MAX):
        params = None if cursor is None else PaginatedRequestParams(cursor=cursor)
        left = ends_at - asyncio.get_running_loop().time()
        page: Page = await connection.ask(partial(ask, params), max(left, 0.001))
        items += items_of(page)
        cursor = page.next_cursor
        if cursor is None or len(items) > LISTED_MAX:
            break
    return items[:LISTED_MAX], cursor is None and len(items) <= LISTED_MAX
