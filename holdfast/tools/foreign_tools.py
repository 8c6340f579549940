"""What tools of other frameworks have in common when they become ours: schema, options, errors."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, cast

from pydantic import JsonValue

from holdfast.core.agent.toolset import Toolset
from holdfast.core.base.errors import InvalidInput
from holdfast.core.base.frozen import replace as changed
from holdfast.core.tools.tool_context import ToolContext
from holdfast.core.tools.tool_traits import ToolOptions
from holdfast.core.tools.tools import AnyTool, tool

FOREIGN_TOOLS_MAX: Final = 500
"""The most tools that one call takes over; an agent has at most 128 tools in all."""

ForeignCall = Callable[[dict[str, Any], ToolContext], Awaitable[object]]
"""Calls a foreign tool with checked arguments and returns its result."""


class ToolFailed(Exception):
    """A foreign tool has failed and says so in a text of its own, which the model reads."""


@dataclass(frozen=True, slots=True)
class ForeignTool:
    """A tool of another framework: what the model sees of it, and how it is called."""

    name: str
    description: str
    parameters: Mapping[str, Any]
    call: ForeignCall
    source: str
    """Where it comes from, for errors."""
    output: Mapping[str, Any] | None = None
    options: ToolOptions = field(default_factory=ToolOptions)
    """What it says itself, where whoever takes it over says nothing else."""


def toolset_of(tools: Iterable[ForeignTool], options: ToolOptions) -> Toolset:
    """Return the toolset of foreign tools. Raises InvalidInput for two of one name, and for what cannot be offered."""
    every: dict[str, AnyTool] = {}
    for each in tools:
        if each.name in every:
            raise InvalidInput(f"two tools are called {each.name!r}: {every[each.name].source} and {each.source}")
        if len(every) == FOREIGN_TOOLS_MAX:
            raise InvalidInput(f"more than {FOREIGN_TOOLS_MAX} tools are given at once; take over those that you need")
        every[each.name] = _tool(each, options)
    return Toolset(tools=tuple(every.values()))


def check_approval(name: str, *, asks: bool, approved_by_rules: bool) -> None:
    """Raise InvalidInput for a tool that asks for approval, unless whoever takes it over has said who decides."""
    if asks and not approved_by_rules:
        text = f"the tool {name!r} asks for approval, which an agent's `approvals` decide here"
        raise InvalidInput(f"{text}: add a rule for it there, and pass approved_by_rules=True")


def _tool(foreign: ForeignTool, options: ToolOptions) -> AnyTool:
    async def call(arguments: dict[str, Any], context: ToolContext) -> object:
        return await foreign.call(arguments, context)

    about = ("title", "description", "$schema")
    schema: dict[str, JsonValue] = {"type": "object", "properties": {}}
    schema |= {name: value for name, value in foreign.parameters.items() if name not in about}
    try:
        made = tool(
            name=foreign.name,
            description=foreign.description,
            schema=schema,
            **cast("ToolOptions", {**foreign.options, **options}),
        )(call)
    except InvalidInput as error:
        raise InvalidInput(f"{foreign.source}: {error.message}") from None
    output = cast("Mapping[str, JsonValue] | None", foreign.output)
    return replace(cast("AnyTool", made), source=foreign.source, schema=changed(made.schema, output=output))
