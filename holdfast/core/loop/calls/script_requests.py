"""What a driver runs a script with, and the event that it reports of it: the same for every driver."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

from holdfast.core.agent.definition import AgentDefinition
from holdfast.core.base.call_digest import Digest
from holdfast.core.loop.commands import CallTool, Script
from holdfast.core.loop.events import ScriptAdvanced, ToolFailed, ToolReturned
from holdfast.core.tools.code_mode import CodeMode, script_tools
from holdfast.core.wire.script_contracts import ScriptAdvance, ScriptRequest, ScriptResult


def script_request(
    command: CallTool, script: Script, definition: AgentDefinition, tools: Iterable[str], mcp: Digest | None = None
) -> ScriptRequest:
    """Return what takes the script of `command` further, for an agent with these tools."""
    return ScriptRequest(
        code=command.call.arguments.get("code"),
        tools=script_tools(tuple(tools), definition.code or CodeMode()),
        results=tuple(map(ScriptResult.of, script.ended)),
        calls_max=script.calls_max,
        mcp=mcp,
    )


def script_event(
    command: CallTool, ran: ScriptAdvance, started_at: datetime, at: datetime
) -> ScriptAdvanced | ToolReturned | ToolFailed:
    """Return the event of a script that came so far."""
    if ran.error is not None:
        return ToolFailed(call_id=command.call.id, error=ran.error, started_at=started_at, at=at)
    if ran.calls:
        return ScriptAdvanced(call_id=command.call.id, calls=ran.calls, at=at)
    return ToolReturned(call_id=command.call.id, result=ran.output, started_at=started_at, at=at)
