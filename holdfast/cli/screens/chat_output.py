"""Output of `holdfast chat`: the agent's text as it streams, and a line for each tool call. Asks nothing."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final

from rich.markup import escape

from holdfast.cli.screens.output import MARKS, called, console, note, short, text, tokens, wait_text
from holdfast.cli.screens.run_progress import StreamedText
from holdfast.client.watch_events import (
    AttemptFailed,
    RateLimitAwaited,
    TextDelta,
    ToolProgressed,
    Watched,
    WorkerAwaited,
)
from holdfast.core.agent.execution_state import ExecutionStatus
from holdfast.core.base.safe_text import printable
from holdfast.core.base.usage import Usage
from holdfast.core.conversation.messages import ToolCall
from holdfast.core.conversation.steps import ToolExecution
from holdfast.core.wire import execution_events

ENDS: Final = (execution_events.AgentExecutionCompleted, execution_events.AgentExecutionFailed)


class ChatOutput:
    """Prints what one agent says and does; what its subagents say is theirs."""

    def __init__(self, agent_id: str) -> None:
        self._agent_id = agent_id
        self._execution_id = ""
        self._call: ToolCall | None = None
        """The call behind whose line the cursor stands."""
        self._text = StreamedText()
        self._printed = ""
        """The text of this execution's latest answer as far as it was printed."""
        self._used: tuple[Usage, float, tuple[str, ...]] | None = None

    def show(self, watched: Watched) -> None:  # noqa: C901, PLR0912  # one case per kind
        """Print what is new."""
        if isinstance(watched, TextDelta | AttemptFailed):
            if watched.execution_id == self._execution_id:
                self._stream(watched)
            return
        if isinstance(watched, WorkerAwaited):
            self.note(f"{watched.tool} {watched.line}")
            return
        if isinstance(watched, RateLimitAwaited):
            if not watched.over:
                self.note(f"the model call {watched.line}")
            return
        if isinstance(watched, ToolProgressed) or watched.agent_id != self._agent_id:
            return
        self._execution_id = watched.execution_id
        match watched:
            case execution_events.AgentExecutionStarted():
                self._printed, self._used = "", None
            case execution_events.InferenceRequestStarted():
                self._printed = ""
            case execution_events.ToolCallStarted():
                self._begin(watched.call)
            case execution_events.ToolCallCompleted() | execution_events.ToolCallBlocked():
                self._complete(watched.tool_execution)
            case execution_events.InputRequested():
                self.note(wait_text(watched))
            case execution_events.AgentHandedOff():
                self._line(f"  [magenta]{escape(printable(watched.to_agent))}[/magenta] goes on")
            case execution_events.SubagentSpawned():
                self._line(f"  [cyan]{escape(watched.agent)}[/cyan] begins: [dim]{escape(short(watched.task))}[/dim]")
            case execution_events.SubagentCompleted():
                used = escape(tokens(watched.usage, watched.cost, watched.unpriced))
                self._line(f"  [cyan]{escape(watched.agent)}[/cyan] {watched.status} [dim]{used}[/dim]")
            case execution_events.TokenUsageReported():
                self._used = watched.total, watched.total_cost, watched.total_unpriced
            case execution_events.AgentExecutionCompleted(status=ExecutionStatus.COMPLETED):
                self._answered(watched.answer)
            case execution_events.AgentExecutionCompleted():
                why = ": ".join(filter(None, (watched.reason, watched.message)))
                self._line(f"[yellow]stopped[/yellow] ({escape(short(why))}){self._usage()}")
            case execution_events.AgentExecutionFailed():
                why = f"{watched.error.type}: {watched.error.message}"
                self._line(f"[red]failed[/red] ({escape(printable(why))}){self._usage()}")
            case _:
                pass

    def note(self, line: str) -> None:
        """Print a line beside what the agent says."""
        self.end()
        note(line)

    def end(self) -> None:
        """Begin a new line where something stands on this one."""
        self._text.end()
        if self._call is not None:
            text("\n")
        self._call = None

    def _stream(self, chunk: TextDelta | AttemptFailed) -> None:
        if isinstance(chunk, AttemptFailed):
            self.note(chunk.line(datetime.now(UTC)))
            self._printed = ""
            return
        if not self._text.under_way:
            self.end()
        self._text.show(chunk)
        self._printed += chunk.text

    def _begin(self, call: ToolCall) -> None:
        self.end()
        console().print(f"  {called(call)} [dim]…[/dim]", end="")
        self._call = call

    def _complete(self, done: ToolExecution) -> None:
        detail = done.error.message if done.error else done.result or ""
        result = f"{MARKS[done.outcome]} [dim]{escape(short(detail))}[/dim]"
        if self._call is not None and self._call.id == done.call.id:
            console().print(f" {result}")
            self._call = None
        else:
            self._line(f"  {called(done.call)} {result}")

    def _answered(self, answer: str) -> None:
        if answer and answer != self._printed:
            self._line(escape(printable(answer)))
        self.end()
        if self._used is not None:
            console().print(self._usage().strip())

    def _usage(self) -> str:
        if self._used is None:
            return ""
        return f"  [dim]{escape(tokens(*self._used))}[/dim]"

    def _line(self, markup: str) -> None:
        self.end()
        console().print(markup)
