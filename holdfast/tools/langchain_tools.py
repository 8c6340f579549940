"""`from_langchain`: tools and toolkits of LangChain as ours."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Unpack, cast

from holdfast.core.agent.toolset import Toolset
from holdfast.core.base.errors import InvalidArguments, InvalidInput
from holdfast.core.base.frozen import trusted
from holdfast.core.tools.tool_context import ToolContext
from holdfast.core.tools.tool_results import ToolReply, is_json
from holdfast.core.tools.tool_traits import ToolOptions
from holdfast.tools.foreign_tools import ForeignTool, ToolFailed, toolset_of


def from_langchain(tools: Iterable[object] | object, **options: Unpack[ToolOptions]) -> Toolset:
    """Return a toolset of LangChain's tools: `@tool`, `StructuredTool`, a `BaseTool`, toolkits, or a list of these.

    Names, descriptions and schemas stay. A `ToolException` is an error for the model, with the text that the tool's
    `handle_tool_error` makes of it. An artifact of `content_and_artifact` is dropped; `return_direct` has no effect.

    Args:
        tools: a toolkit, or a list of tools and toolkits.
        options: of every tool, as `@tool` has them.

    Raises InvalidInput for what is no tool of LangChain.
    """
    single = hasattr(tools, "ainvoke") or hasattr(tools, "get_tools")
    every = (tools,) if single else cast("Iterable[object]", tools)
    return toolset_of([_foreign(each) for each in _flat(every)], options)


def _flat(every: Iterable[object]) -> Iterator[Any]:
    for each in every:
        if hasattr(each, "get_tools"):
            yield from cast("Any", each).get_tools()
        elif hasattr(each, "ainvoke") and hasattr(each, "tool_call_schema"):
            yield each
        else:
            text = f"{type(each).__name__} is no tool of LangChain"
            raise InvalidInput(f"{text}; give a BaseTool or a toolkit, and write LangChain's @tool above a function")


def _foreign(tool: Any) -> ForeignTool:  # noqa: ANN401  # of LangChain
    name: str = tool.name
    schema = tool.tool_call_schema
    parameters = cast("Mapping[str, Any]", schema) if isinstance(schema, Mapping) else schema.model_json_schema()
    injected = _injected(tool, parameters)

    async def call(arguments: dict[str, Any], own: ToolContext) -> object:
        if given := sorted(injected & arguments.keys()):
            raise InvalidArguments(f"{name} has no argument {given[0]!r}")
        request = {"type": "tool_call", "name": name, "args": arguments, "id": own.call_id or name}
        return _reply(name, await tool.ainvoke(request))

    return ForeignTool(
        name=name,
        description=tool.description,
        parameters=parameters,
        call=call,
        source=f"the tool {name!r} of LangChain",
    )


def _injected(tool: Any, parameters: Mapping[str, Any]) -> set[str]:  # noqa: ANN401  # of LangChain
    """Return the arguments that LangChain or the application gives: a model that named one would take their place."""
    every = {} if isinstance(tool.args_schema, Mapping) else getattr(tool.get_input_schema(), "model_fields", {})
    return {*every} - {*parameters.get("properties", {})}


def _reply(name: str, message: Any) -> ToolReply:  # noqa: ANN401  # of LangChain
    """Return what the tool's message says. Raises ToolFailed where it says that the call failed."""
    if getattr(message, "type", None) != "tool":
        text = f"the tool {name!r} returned a {type(message).__name__}"
        raise ToolFailed(f"{text}, which only LangChain's own agents can take")
    text = _text(message.content)
    if message.status == "error":
        raise ToolFailed(text)
    # it may be longer than any value of ours: whoever runs the tool cuts it and keeps the whole
    return trusted(ToolReply, text=text, result_type="json" if text[:1] in ("{", "[") and is_json(text) else "text")


def _text(content: str | list[Any]) -> str:
    """Return a message's content as text: its text blocks, and any other as JSON."""
    if isinstance(content, str):
        return content
    return "\n".join(each if isinstance(each, str) else _block(each) for each in content)


def _block(block: Mapping[str, Any]) -> str:
    return str(block["text"]) if block.get("type") == "text" else json.dumps(block, default=str)
