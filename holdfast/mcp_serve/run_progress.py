"""A run's events as the lines that a caller is sent while it waits, and what waits for a person. Calls no server."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Final

from holdfast.client.watch_events import AttemptFailed, ToolProgressed, Watched
from holdfast.core.conversation.display_text import on_a_line
from holdfast.core.wire.execution_events import (
    AgentExecutionCompleted,
    AgentExecutionFailed,
    AgentHandedOff,
    ApprovalRequested,
    ApprovalResolved,
    InferenceRequestStarted,
    SubagentSpawned,
    ToolCallBlocked,
    ToolCallCompleted,
    ToolCallStarted,
)

LINE_CHARS_MAX: Final = 300
"""The longest line: clients show it beside a spinner."""

WAITING_MAX: Final = 32
"""The most waiting calls that are named."""

RESOLVED: Final = {
    "approve": "is approved",
    "deny": "is denied",
    "edit": "is edited and approved",
    "expired": "expired",
}
"""The words for a decision."""


@dataclass(frozen=True, slots=True)
class WaitingTool:
    """A tool call that waits for a person, in the run or in one of its subagents' runs."""

    run_id: str
    call_id: str
    tool: str
    expires_at: datetime | None


class RunProgress:
    """How far one run is, by its events."""

    def __init__(self, run_id: str) -> None:
        self.step = 0
        """The run's own step."""
        self.waiting: dict[tuple[str, str], WaitingTool] = {}
        self._run_id = run_id

    def line(self, event: Watched) -> str | None:
        """Take an event; return the line about it, none where it says nothing new to a caller."""
        if event.execution_id == self._run_id:
            self.step = max(self.step, event.step_number)
        text = self._text(event)
        if text is None:
            return None
        below = "" if event.execution_id == self._run_id else "subagent, "
        return on_a_line(f"{below}step {event.step_number}: {text}", LINE_CHARS_MAX)

    def _text(self, event: Watched) -> str | None:
        match event:
            case ApprovalRequested() | ApprovalResolved():
                return self._approval(event)
            case ToolCallCompleted(tool_execution=ended) | ToolCallBlocked(tool_execution=ended):
                self.waiting.pop((event.execution_id, ended.call.id), None)
                return f"{ended.call.name}: {'failed' if ended.error else 'done'}"
            case AgentExecutionCompleted() | AgentExecutionFailed():
                self.waiting = {key: each for key, each in self.waiting.items() if key[0] != event.execution_id}
                return None
            case _:
                return _work(event)

    def _approval(self, event: ApprovalRequested | ApprovalResolved) -> str:
        key = event.execution_id, event.call.id
        if isinstance(event, ApprovalResolved):
            self.waiting.pop(key, None)
            return f"{event.call.name} {RESOLVED[event.decision]}"
        if len(self.waiting) < WAITING_MAX:
            self.waiting[key] = WaitingTool(*key, event.call.name, event.expires_at)
        return f"{event.call.name} waits for approval: {approve_command(*key)}"


def approve_command(run_id: str, call_id: str) -> str:
    """Return what a person types to approve a call."""
    return f"holdfast approve {run_id} {call_id}"


def _work(event: Watched) -> str | None:
    match event:
        case InferenceRequestStarted():
            return "asks the model"
        case AttemptFailed(message=message):
            return f"the model call failed and is tried again: {message}"
        case ToolCallStarted(call=call):
            return f"calls {call.name}"
        case ToolProgressed(tool=tool):
            return f"{tool}: {event.line}"
        case SubagentSpawned(agent=agent):
            return f"starts the subagent {agent}"
        case AgentHandedOff(to_agent=agent):
            return f"hands over to {agent}"
        case _:
            return None
