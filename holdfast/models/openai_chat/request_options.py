"""A request's tools and options as chat completions take them. What is not set is not sent."""

from __future__ import annotations

from typing import Any, Final

from holdfast.core.agent.model import ModelRequest
from holdfast.core.base.model_options import named_tool
from holdfast.core.tools.tool_traits import ToolSchema
from holdfast.models.strict_tools import can_be_strict

PLAIN: Final = ("top_p", "reasoning_effort", "verbosity", "seed", "service_tier")
"""Options that the API calls as `LLM` does, and takes as they are."""


def wire_tools(request: ModelRequest) -> list[dict[str, Any]]:
    """Return the tools, each `strict` where the definition wishes so and its schema allows it."""
    return [_wire_tool(tool, strict=bool(request.llm.strict)) for tool in request.tools]


def wire_options(request: ModelRequest) -> dict[str, Any]:
    """Return the fields of the body that the definition's options set, `extra` among them."""
    llm = request.llm
    options: dict[str, Any] = dict(llm.extra or {})
    options.update((name, getattr(llm, name)) for name in PLAIN if getattr(llm, name) is not None)
    if llm.stop is not None:
        options["stop"] = list(llm.stop)
    if request.tools:  # without tools OpenAI refuses both
        if llm.tool_choice is not None:
            options["tool_choice"] = _wire_choice(llm.tool_choice)
        if llm.parallel_tool_calls is not None:
            options["parallel_tool_calls"] = llm.parallel_tool_calls
    return options


def _wire_choice(choice: str) -> str | dict[str, Any]:
    """Return the choice of tools: a word, or the tool that must be called."""
    tool = named_tool(choice)
    return choice if tool is None else {"type": "function", "function": {"name": tool}}


def _wire_tool(tool: ToolSchema, *, strict: bool) -> dict[str, Any]:
    function: dict[str, Any] = {
        "name": tool.name,
        "description": tool.description,
        "parameters": dict(tool.parameters),
    }
    if strict and can_be_strict(tool.parameters):
        function["strict"] = True
    return {"type": "function", "function": function}
