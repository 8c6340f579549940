"""Output of a run under way: step by step, or one line per event, with text as it streams. Asks nothing."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final

from holdfast.cli.screens import output
from holdfast.client.watch_events import (
    AttemptFailed,
    RateLimitAwaited,
    TextDelta,
    ToolProgressed,
    Watched,
    WorkerAwaited,
)
from holdfast.core.conversation.amounts import counted, token_count
from holdfast.core.conversation.decision_text import decision_text
from holdfast.core.conversation.handoffs import handoff_text
from holdfast.core.conversation.todos import progress
from holdfast.core.tools.code_mode import RUN_CODE, script_call_id
from holdfast.core.tools.mcp_changes import McpToolsChange
from holdfast.core.wire import execution_events

ID_CHARS: Final = 8
"""How much of an execution's id stands on an event's line: enough to tell a run from its subagents'."""


class StreamedText:
    """Text that is printed as it comes, on lines of its own."""

    def __init__(self) -> None:
        self._within = ""
        """Whose text the cursor stands behind."""

    @property
    def under_way(self) -> bool:
        """Whether the cursor stands behind a text."""
        return bool(self._within)

    def show(self, delta: TextDelta) -> None:
        """Print what has come, on a line of its own where another's text stands."""
        if self._within != delta.execution_id:
            self.end()
        left_out = f"[{delta.skipped:,} characters] " if delta.skipped else ""
        output.text(left_out + delta.text)
        self._within = delta.execution_id

    def end(self) -> None:
        """Begin a new line where text stands on this one."""
        if self._within:
            output.text("\n")
        self._within = ""


class Steps:
    """Prints each step of a run: its calls when they are asked for, their results when it is complete.

    A `live` one prints text while it comes, too.
    """

    def __init__(self, *, live: bool) -> None:
        self.live: Final = live
        self._text = StreamedText()
        self._began: datetime | None = None
        self._announced = 0
        self._agent = ""
        """Whose steps these are, after a handoff."""
        self.streamed = ""
        """The text of the latest answer as far as it was printed."""
        self.doing = "the run starts"
        """What is under way, in a few words."""

    @property
    def within_text(self) -> bool:
        """Whether the cursor stands behind a text that is being printed."""
        return self._text.under_way

    def show(self, watched: Watched) -> None:  # noqa: C901, PLR0912  # one case per kind
        """Print what is new."""
        self.doing = _doing(watched) or self.doing
        match watched:
            case execution_events.AgentStepStarted():
                self._began, self.streamed = watched.at, ""
            case TextDelta() if self.live:
                self._stream(watched)
            case AttemptFailed():
                self._text.end()
                _tell_failure(watched)
                self.streamed = ""
            case WorkerAwaited(over=False):
                self._text.end()
                output.note(f"{watched.tool} {watched.line}")
            case RateLimitAwaited(over=False):
                self._text.end()
                output.note(f"the model call {watched.line}")
            case execution_events.InferenceResponseReceived():
                self._text.end()
                if self._announced < watched.step_number:
                    output.announce(watched.step_number, watched.response, self._agent)
                else:
                    output.requested_calls(watched.response)
                self._announced = watched.step_number
            case execution_events.ApprovalRequested() | execution_events.InputRequested():
                output.note_waiting(output.wait_text(watched))
            case execution_events.AgentStepCompleted():
                self._complete(watched)
                if watched.step.model_call_changes is not None:
                    output.note(watched.step.model_call_changes.line)
            case execution_events.AnswerJudged() | execution_events.AgentWentBack() | execution_events.ModelFellBack():
                self._text.end()
                output.note(_beside(watched))
            case execution_events.AgentHandedOff():
                output.handed_over(watched.from_agent, watched.to_agent, watched.reason)
                self._agent = watched.to_agent
            case execution_events.McpToolsChanged():
                output.note(f"the MCP server {watched.server} has other tools than before: {mcp_changes_text(watched)}")
            case execution_events.StopSignalReceived():
                self.end()
            case _:
                pass

    def end(self) -> None:
        """Begin a new line where a text stands that was cut off."""
        self._text.end()

    def _stream(self, delta: TextDelta) -> None:
        if self._announced < delta.step_number:
            output.console().print(output.step_title(delta.step_number, self._agent))
            self._announced = delta.step_number
        self._text.show(delta)
        self.streamed += delta.text

    def _complete(self, event: execution_events.AgentStepCompleted) -> None:
        self._text.end()
        if self._announced < event.step_number:
            output.announce(event.step_number, event.step.inference_response, self._agent)
        elif (response := event.step.inference_response) and response.route:  # its title came before the answer
            output.note(f"via {response.route}")
        self._announced = event.step_number
        output.results(event.step, (event.at - (self._began or event.at)).total_seconds())


def _tell_failure(failed: AttemptFailed) -> None:
    """Print why an attempt has failed: whole before the run's first step, as nothing else is to be seen of it."""
    line = failed.line(datetime.now(UTC))
    output.note(line) if failed.step_number else output.say(line)


def _beside(
    event: execution_events.AnswerJudged | execution_events.AgentWentBack | execution_events.ModelFellBack,
) -> str:
    match event:
        case execution_events.AnswerJudged():
            return event.judgement.line
        case execution_events.AgentWentBack():
            return event.step_back.line
        case execution_events.ModelFellBack():
            return event.fallback.line


def _doing(watched: Watched) -> str:
    """Return what begins with an event; empty where nothing does."""
    match watched:
        case execution_events.InferenceRequestStarted():
            return f"step {watched.step_number}: calling the model"
        case execution_events.ToolCallStarted():
            return f"step {watched.step_number}: {watched.call.name} runs"
        case ToolProgressed():
            return f"step {watched.step_number}: {watched.tool} runs ({watched.line})"
        case WorkerAwaited():
            return f"step {watched.step_number}: {watched.tool} {'runs' if watched.over else 'waits for a worker'}"
        case RateLimitAwaited():
            return f"step {watched.step_number}: the model call {'is made' if watched.over else watched.line}"
        case execution_events.SubagentSpawned():
            return f"step {watched.step_number}: {watched.agent} runs"
        case execution_events.ApprovalRequested() | execution_events.InputRequested():
            return f"step {watched.step_number}: {watched.call.name} waits for a person"
        case _:
            return ""


def mcp_changes_text(event: execution_events.McpToolsChanged) -> str:
    """Return which tools of a server are new, gone and changed, as its warning says it."""
    names = {"added": event.added, "removed": event.removed, "changed": event.changed}
    return McpToolsChange(server=event.server, **names, more=event.more).line


class EventLines:
    """Prints one line per event, and text as it comes between them."""

    def __init__(self) -> None:
        self._text = StreamedText()
        self._scripts: set[tuple[str, str]] = set()
        """The scripts that run: their executions and calls."""

    def show(self, watched: Watched) -> None:
        """Print what is new."""
        if isinstance(watched, TextDelta):
            self._text.show(watched)
            return
        self._text.end()
        if isinstance(watched, AttemptFailed) and not watched.step_number:
            _tell_failure(watched)
            return
        when = (
            ""
            if isinstance(watched, AttemptFailed | ToolProgressed | WorkerAwaited | RateLimitAwaited)
            else f"{watched.at:%H:%M:%S} "
        )
        where = f"{watched.execution_id[:ID_CHARS]} {watched.step_number:>3}"
        output.event(f"{when:9}{where}", f"{self._indent(watched)}{watched.kind}", _detail(watched))

    def _indent(self, watched: Watched) -> str:
        """Return what stands before the kind: an event of a call that a script makes stands below the script's."""
        match watched:
            case execution_events.ToolCallStarted(call=call) if call.name == RUN_CODE:
                self._scripts.add((watched.execution_id, call.id))
            case execution_events.ToolCallCompleted() | execution_events.ToolCallBlocked():
                self._scripts.discard((watched.execution_id, watched.tool_execution.call.id))
            case execution_events.AgentExecutionStopped():  # a script that was cut off has no end of its own
                self._scripts = {each for each in self._scripts if each[0] != watched.execution_id}
            case _:
                pass
        script = (watched.execution_id, script_call_id(_call_id(watched)))
        return "  " if script in self._scripts else ""


def _call_id(watched: Watched) -> str:
    """Return the id of the call that an event is about; empty where it is about none."""
    match watched:
        case (
            execution_events.ToolCallStarted()
            | execution_events.ApprovalRequested()
            | execution_events.InputRequested()
        ):
            return watched.call.id
        case execution_events.ToolCallCompleted() | execution_events.ToolCallBlocked():
            return watched.tool_execution.call.id
        case execution_events.ApprovalResolved() | execution_events.InputResolved() | ToolProgressed():
            return watched.call_id
        case _:
            return ""


def _detail(watched: Watched) -> str:  # noqa: C901, PLR0912  # one case per kind
    """Return what one wants to know of an event first."""
    match watched:
        case execution_events.AgentExecutionStarted():
            return watched.agent
        case execution_events.InferenceResponseReceived():
            requested = counted(len(watched.response.tool_calls), "call")
            return f"{requested}, {token_count(watched.response.usage)} tokens"
        case execution_events.ToolCallStarted() | execution_events.ApprovalRequested():
            return f"{watched.call.name} {watched.call.id}"
        case execution_events.ToolCallCompleted() | execution_events.ToolCallBlocked():
            done = watched.tool_execution
            return f"{done.call.name} {done.call.id} {done.outcome}"
        case execution_events.TokenUsageReported():
            return f"{output.tokens(watched.total, watched.total_cost, watched.total_unpriced)} so far"
        case execution_events.TodosChanged():
            under_way = (each.line for each in watched.todos if each.status == "in_progress")
            return ", ".join((progress(watched.todos), *under_way))
        case execution_events.AnswerJudged() | execution_events.AgentWentBack() | execution_events.ModelFellBack():
            return _beside(watched)
        case execution_events.AgentHandedOff():
            return handoff_text(watched.from_agent, watched.to_agent, watched.reason)
        case execution_events.McpToolsChanged():
            return f"{watched.server}: {mcp_changes_text(watched)}"
        case execution_events.StopSignalReceived():
            signal = watched.signal
            return f"{signal.reason}: {signal.message}" if signal.message else signal.reason
        case execution_events.AgentExecutionStopped():
            return f"{watched.reason}: {watched.message}" if watched.message else watched.reason
        case execution_events.AgentExecutionCompleted():
            return watched.status
        case execution_events.AgentExecutionFailed():
            return f"{watched.error.type}: {watched.error.message}"
        case execution_events.SubagentSpawned():
            return f"{watched.agent} {watched.call_id}"
        case execution_events.SubagentCompleted():
            spent = output.tokens(watched.usage, watched.cost, watched.unpriced)
            return f"{watched.agent} {watched.call_id} {watched.status}, {spent}"
        case execution_events.ApprovalResolved():
            return f"{watched.call.name} {watched.call_id} {decision_text(watched.approval, watched.call.arguments)}"
        case execution_events.InputRequested():
            return f"{watched.call.name} {watched.call.id} asks: {output.short(watched.request.message)}"
        case execution_events.InputResolved():
            return f"{watched.call_id} {watched.action}{f' by {watched.by}' if watched.by else ''}"
        case execution_events.HookExecuted():
            revised = "" if watched.answer is None else ", changed the answer"
            return f"{watched.hook} at {watched.trigger}{revised}"
        case AttemptFailed():
            return watched.line(datetime.now(UTC))
        case ToolProgressed():
            return f"{watched.tool} {watched.call_id} {watched.line}"
        case WorkerAwaited():
            return f"{watched.tool} {watched.call_id} {watched.line}"
        case RateLimitAwaited():
            return f"the model call {watched.line}"
        case _:
            return ""
