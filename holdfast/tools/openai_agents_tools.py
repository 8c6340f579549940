"""`from_openai_agents`: tools of the OpenAI Agents SDK (the package `openai-agents`) as ours."""

from __future__ import annotations

import copy
import inspect
import json
from collections.abc import Iterable
from importlib import import_module
from typing import Any, Unpack, cast

from holdfast.core.agent.toolset import Toolset
from holdfast.core.base.errors import InvalidInput
from holdfast.core.tools.tool_context import ToolContext
from holdfast.core.tools.tool_traits import ToolOptions
from holdfast.tools.foreign_tools import ForeignTool, ToolFailed, check_approval, toolset_of


def from_openai_agents(
    tools: Iterable[object],
    *,
    context: object = None,
    approved_by_rules: bool = False,
    **options: Unpack[ToolOptions],
) -> Toolset:
    """Return a toolset of function tools of the OpenAI Agents SDK: `@function_tool`, `FunctionTool`, `agent.as_tool()`.

    Names, descriptions and schemas stay. A call that fails is an error for the model, with the text of the tool's
    failure function where it has one.

    Args:
        tools: the tools, such as the `tools` of one of its agents.
        context: what the tools get as `RunContextWrapper.context`, the same object in every call.
        approved_by_rules: take tools with `needs_approval` too: the agent's `approvals` decide about their calls.
        options: of every tool, as `@tool` has them; `timeout_seconds` is the tool's own by default.

    Raises InvalidInput for a hosted tool, for one that asks for approval, and for one with guardrails or a function as
    `is_enabled`, which need the SDK's own runner. One with `is_enabled=False` is left out.
    """
    enabled = [each for each in tools if getattr(each, "is_enabled", True) is not False]
    return toolset_of([_foreign(each, context, approved_by_rules=approved_by_rules) for each in enabled], options)


def _foreign(tool: Any, context: object, *, approved_by_rules: bool) -> ForeignTool:  # noqa: ANN401  # of the SDK
    name = getattr(tool, "name", None)
    if not hasattr(tool, "on_invoke_tool") or not isinstance(name, str):
        text = f"{type(tool).__name__} is no function tool of the OpenAI Agents SDK"
        raise InvalidInput(f"{text}; OpenAI runs its hosted tools itself, write @function_tool above a function")
    if tool.is_enabled is not True:
        text = f"the tool {name!r} has a function as is_enabled, which needs the SDK's own runner"
        raise InvalidInput(f"{text}; name the tool only in the agents that may have it")
    if tool.tool_input_guardrails or tool.tool_output_guardrails:
        text = f"the tool {name!r} has guardrails, which only the SDK's own runner applies"
        raise InvalidInput(f"{text}; take them off, and write a @hook that checks its calls")
    check_approval(name, asks=tool.needs_approval is not False, approved_by_rules=approved_by_rules)
    failing = _failing(tool)

    async def call(arguments: dict[str, Any], own: ToolContext) -> object:
        text = json.dumps(arguments)
        made = import_module("agents.tool_context").ToolContext(
            context=context, tool_name=name, tool_call_id=own.call_id, tool_arguments=text
        )
        return _plain(await failing.on_invoke_tool(made, text))

    seconds: float | None = tool.timeout_seconds
    return ForeignTool(
        name=name,
        description=tool.description,
        parameters=tool.params_json_schema,
        call=call,
        source=f"the function tool {name!r} of the OpenAI Agents SDK",
        output=tool.output_json_schema,
        options=cast("ToolOptions", {} if seconds is None else {"timeout_seconds": seconds}),
    )


def _failing(tool: Any) -> Any:  # noqa: ANN401  # of the SDK
    """Return a copy of the tool that raises what its failure function says, instead of returning it as a result."""
    sdk = import_module("agents.tool")
    describe = sdk.resolve_function_tool_failure_error_function(tool)
    if describe is None:
        return tool

    async def fail(context: object, error: Exception) -> str:
        text = describe(context, error)
        raise ToolFailed(await text if inspect.isawaitable(text) else text) from error

    return sdk.set_function_tool_failure_error_function(copy.copy(tool), fail)


def _plain(result: object) -> object:
    """Return a result of the SDK's own types as JSON; any other as it is."""
    if isinstance(result, list):
        return [_plain(each) for each in cast("list[object]", result)]
    if type(result).__module__.startswith("agents.") and hasattr(result, "model_dump"):
        plain = cast("Any", result).model_dump(mode="json", exclude_none=True)
        return plain["text"] if plain.get("type") == "text" and "text" in plain else plain
    return result
