"""Tools of MCP servers that are too many to be shown: the search among them, in-process."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from pydantic import JsonValue

from holdfast.core.agent.toolset import AgentToolset
from holdfast.core.base.bounds import TOOLS_MAX
from holdfast.core.tools.remote_tools import RemoteTool
from holdfast.core.tools.schema_arguments import any_arguments
from holdfast.core.tools.tool_search import SEARCH_TOOL, query_of, search_result, too_many, with_search
from holdfast.core.tools.tool_traits import ToolSchema, ToolTraits
from holdfast.core.tools.tools import AnyTool


class ShownTools(NamedTuple):
    """What the loop knows of an agent's tools, what its model is shown, and the tool that searches the others, if any.

    `shown` is without the loop's own tools.
    """

    traits: tuple[ToolTraits, ...]
    shown: tuple[ToolSchema, ...]
    search: AnyTool | None = None

    def with_search(self, toolset: AgentToolset) -> AgentToolset:
        """Return the toolset with the tool that searches."""
        added = {} if self.search is None else {SEARCH_TOOL: self.search}
        return replace(toolset, tools={**toolset.tools, **added})


def shown_tools(tools: Mapping[str, AnyTool], loop_tools: int, window: int | None) -> ShownTools:
    """Return what is shown of an agent's `tools`: all, or for too many of MCP servers the two that stand in for them.

    The loop has `loop_tools` of its own, and the model a context of `window` tokens, none if unknown.
    """
    traits = tuple(tool.traits for tool in tools.values())
    if not too_many(traits, loop_tools, TOOLS_MAX, window):
        return ShownTools(traits, tuple(tool.schema for tool in tools.values()))
    traits, stand_ins = with_search(traits)
    own = tuple(tool.schema for tool in tools.values() if tool.traits.mcp is None)
    deferred = tuple(tool.schema for tool in tools.values() if tool.traits.mcp is not None)
    [searching] = (each for each in traits if each.name == SEARCH_TOOL)
    return ShownTools(traits, (*own, *stand_ins), _search_tool(searching, stand_ins[0], deferred))


def _search_tool(traits: ToolTraits, schema: ToolSchema, deferred: Sequence[ToolSchema]) -> AnyTool:
    def search(*, arguments: Mapping[str, JsonValue]) -> str:
        return search_result(query_of(arguments), deferred)

    return RemoteTool(
        search, schema, traits, any_arguments(SEARCH_TOOL), None, object_parameter="arguments", checked_by_schema=True
    )
