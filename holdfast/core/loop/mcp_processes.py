"""The processes of MCP servers that remember something: which answered last, and a note when it is another one."""

from __future__ import annotations

from dataclasses import replace

from holdfast.core.conversation.messages import ToolCall
from holdfast.core.loop.events import ToolReturned
from holdfast.core.loop.transition import Transition
from holdfast.core.tools.tool_results import bounded_result

ANEW = "[the MCP server {!r} runs in another process than at the last call: what it remembered is gone]"


def with_process_note(transition: Transition, call: ToolCall, event: ToolReturned) -> ToolReturned:
    """Return the event; where another process of its server answered than before, the model is told so, once."""
    traits = transition.rules.tools.get(call.name)
    server = traits.mcp if traits is not None else None
    if not event.mcp_process or server is None:
        return event
    known = transition.execution.mcp_processes
    before = known.get(server)
    if before == event.mcp_process:
        return event
    transition.change(mcp_processes={**known, server: event.mcp_process})
    if before is None:
        return event
    return replace(event, result=bounded_result(f"{ANEW.format(server)}\n{event.result}"), result_type="text")
