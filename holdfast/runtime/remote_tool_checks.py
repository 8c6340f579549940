"""Checks the JSON Schemas that tools bring, and the arguments that models send remote ones. Calls none."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from holdfast.core.base.bounds import MALFORMED_CHARS_MAX
from holdfast.core.base.errors import InvalidInput
from holdfast.core.base.frozen import replace
from holdfast.core.base.safe_text import clamped
from holdfast.core.conversation.messages import ToolCall
from holdfast.core.conversation.steps import InferenceResponse
from holdfast.core.tools.remote_tools import RemoteTool
from holdfast.core.tools.tool_search import CALL_TOOL
from holdfast.core.tools.tools import AnyTool


def refuse_remote(tools: Iterable[AnyTool]) -> None:
    """Raise InvalidInput when one of `tools` is remote: this process cannot call it."""
    for tool in tools:
        if isinstance(tool, RemoteTool) and tool.traits.mcp is None:
            where = f"is served by another worker, on the task queue {tool.traits.task_queue!r}"
            raise InvalidInput(f"the tool {tool.name!r} {where}; here give a @tool function of that name")


def check_schemas(tools: Iterable[AnyTool]) -> None:
    """Raise InvalidInput for a tool whose own JSON Schema is unusable."""
    for tool in tools:
        if tool.checked_by_schema:
            from holdfast.runtime.json_schema import broken_schema  # noqa: PLC0415  # 0.1 s that only its users pay

            if problem := broken_schema(tool.schema.parameters):
                raise InvalidInput(f"tool {tool.name!r}: its JSON Schema: {problem}")


def checked_calls(response: InferenceResponse, tools: Iterable[AnyTool]) -> InferenceResponse:
    """Return `response` with those calls of remote tools marked malformed whose arguments do not fit."""
    remote = {tool.name: tool for tool in tools if isinstance(tool, RemoteTool)}
    if not any(call.name in remote for call in response.tool_calls):
        return response
    calls = tuple(_checked(call, remote[call.name]) if call.name in remote else call for call in response.tool_calls)
    return replace(response, tool_calls=calls)


def checked_catalog_calls(response: InferenceResponse, catalog: Iterable[AnyTool]) -> InferenceResponse:
    """Return `response` with those calls through CALL_TOOL marked malformed whose inner arguments do not fit."""
    if not any(call.name == CALL_TOOL for call in response.tool_calls):
        return response
    by_name = {tool.name: tool for tool in catalog if isinstance(tool, RemoteTool)}
    return replace(response, tool_calls=tuple(_checked_inside(call, by_name) for call in response.tool_calls))


def _checked_inside(call: ToolCall, catalog: Mapping[str, RemoteTool]) -> ToolCall:
    tool, arguments = catalog.get(str(call.arguments.get("name"))), call.arguments.get("arguments", {})
    if call.name != CALL_TOOL or tool is None or not isinstance(arguments, dict):
        return call  # the loop says what is wrong with it
    problem = _checked(replace(call, arguments=arguments), tool).malformed
    return call if problem is None else replace(call, malformed=problem)


def _checked(call: ToolCall, tool: RemoteTool) -> ToolCall:
    if call.malformed is not None:
        return call
    from holdfast.runtime.json_schema import schema_problems  # noqa: PLC0415  # as above

    problems = schema_problems(dict(call.arguments), tool.schema.parameters, foreign=tool.traits.mcp is not None)
    return replace(call, malformed=clamped("; ".join(problems), MALFORMED_CHARS_MAX)) if problems else call
