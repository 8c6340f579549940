"""A run's events as the lines that a caller is sent while it waits, and what waits for a person. Calls no server."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Final

from holdfast.client.watch_events import AttemptFailed, RateLimitAwaited, ToolProgressed, Watched, WorkerAwaited
from holdfast.core.conversation.display_text import on_a_line
from holdfast.core.conversation.input_requests import InputRequest
from holdfast.core.wire.execution_events import (
    AgentExecutionCompleted,
    AgentExecutionFailed,
    AgentHandedOff,
    ApprovalRequested,
    ApprovalResolved,
    InferenceRequestStarted,
    InputRequested,
    InputResolved,
    SubagentSpawned,
    ToolCallBlocked,
    ToolCallCompleted,
    ToolCallStarted,
)

LINE_CHARS_MAX: Final = 300
"""The longest line: clients show it beside a spinner."""

QUESTION_CHARS_MAX: Final = 120
"""How much of a server's question is told: the command to answer it must still fit into the line."""

WAITING_MAX: Final = 32
"""The most waiting calls that are named."""

RESOLVED: Final = {
    "approve": "is approved",
    "deny": "is denied",
    "edit": "is edited and approved",
    "expired": "expired",
}
"""The words for a decision."""

ANSWERED: Final = {
    "accept": "is answered",
    "decline": "is refused an answer",
    "cancel": "is left without an answer",
    "expired": "was not answered in time",
}
"""The words for what became of a server's question."""


@dataclass(frozen=True, slots=True)
class WaitingTool:
    """A tool call that waits for a person, in the run or in one of its subagents' runs.

    It waits for approval, or for the answer to a `request` of its server.
    """

    run_id: str
    call_id: str
    tool: str
    expires_at: datetime | None
    request: InputRequest | None = None

    @property
    def about(self) -> str:
        """What it waits for, and what a person types to go on."""
        if self.request is None:
            return f"{self.tool} waits for a person's approval: holdfast approve {self.run_id} {self.call_id}"
        question = on_a_line(self.request.message, QUESTION_CHARS_MAX)
        command = f"holdfast answer {self.run_id} {self.call_id}"
        return f"{self.tool} waits for a person's answer: {command} ({question})"


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
            case ApprovalRequested(call=call, expires_at=expires_at):
                return self._waits(WaitingTool(event.execution_id, call.id, call.name, expires_at))
            case InputRequested(call=call, expires_at=expires_at, request=request):
                return self._waits(WaitingTool(event.execution_id, call.id, call.name, expires_at, request))
            case ApprovalResolved(call=call, decision=decision):
                self.waiting.pop((event.execution_id, call.id), None)
                return f"{call.name} {RESOLVED[decision]}"
            case InputResolved(call_id=call_id, action=action):
                waited = self.waiting.pop((event.execution_id, call_id), None)
                return f"{waited.tool if waited else call_id} {ANSWERED[action]}"
            case ToolCallCompleted(tool_execution=ended) | ToolCallBlocked(tool_execution=ended):
                self.waiting.pop((event.execution_id, ended.call.id), None)
                return f"{ended.call.name}: {'failed' if ended.error else 'done'}"
            case AgentExecutionCompleted() | AgentExecutionFailed():
                self.waiting = {key: each for key, each in self.waiting.items() if key[0] != event.execution_id}
                return None
            case _:
                return _work(event)

    def _waits(self, call: WaitingTool) -> str:
        key = call.run_id, call.call_id
        if key in self.waiting or len(self.waiting) < WAITING_MAX:
            self.waiting[key] = call
        return call.about


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
        case WorkerAwaited(tool=tool):
            return f"{tool} {event.line}"
        case RateLimitAwaited():
            return f"the model call {event.line}"
        case SubagentSpawned(agent=agent):
            return f"starts the subagent {agent}"
        case AgentHandedOff(to_agent=agent):
            return f"hands over to {agent}"
        case _:
            return None
