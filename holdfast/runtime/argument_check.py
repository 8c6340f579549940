"""Checks arguments against a tool's schema before a call runs with them. Calls no tool."""

from __future__ import annotations

from collections.abc import Mapping

from pydantic import JsonValue

from holdfast.core.base.bounds import ERROR_CHARS_MAX
from holdfast.core.base.errors import InvalidArguments
from holdfast.core.base.safe_text import clamped
from holdfast.core.tools.tool_context import ToolContext
from holdfast.core.tools.tools import AnyTool

NO_CALL = ToolContext(execution_id="", idempotency_key="", attempt=1)
"""The context that a check binds: nothing runs."""


def argument_problem(tool: AnyTool, arguments: Mapping[str, JsonValue]) -> str | None:
    """Return which of `arguments` do not fit the tool's schema and why, if any; the call makes the same check."""
    if tool.checked_by_schema:
        from holdfast.runtime.json_schema import schema_problems  # noqa: PLC0415  # 0.1 s that only its users pay

        problems = schema_problems(dict(arguments), tool.schema.parameters, foreign=tool.traits.mcp is not None)
        return clamped("; ".join(problems), ERROR_CHARS_MAX) if problems else None
    try:
        tool.bind(arguments, NO_CALL)
    except InvalidArguments as error:
        return error.message
    return None
