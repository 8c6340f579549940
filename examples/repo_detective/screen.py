"""What the demo shows: coloured and with a spinner on a terminal, plain lines everywhere else. Decides nothing.

Whatever a tool, a model or a file says is shown with its control characters as escapes.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from io import TextIOWrapper
from typing import Final

from rich.console import Console
from rich.table import Table
from rich.text import Text

from examples.repo_detective.evidence import ModelCount, ToolCount
from holdfast import AgentState, AgentStep, ToolExecution
from holdfast.view import printable

PLAIN_CHARS_MAX: Final = 160
"""How long a line of the story may be where there is no terminal whose width decides."""

ARGUMENT_CHARS_MAX: Final = 60


class Screen:
    """The terminal, or the file in its place; times count from `began`."""

    def __init__(self) -> None:
        for stream in (sys.stdout, sys.stderr):
            if isinstance(stream, TextIOWrapper):
                stream.reconfigure(errors="replace")  # a terminal without UTF-8 shows `?`, it must not end the demo
        self._console = Console(markup=False, emoji=False, highlight=False)
        self._status = self._console.status("", spinner="line")
        self.began = time.monotonic()

    def fact(self, name: str, value: str, style: str = "") -> None:
        """Print one line about where things are, whole, so that it can be copied."""
        self._console.print(Text.assemble((f"  {name:<10}", "dim"), (printable(value), style)), soft_wrap=True)

    def title(self, text: str) -> None:
        """Print the first line."""
        self._console.print(Text(text, "bold"), soft_wrap=True)

    def heading(self, text: str) -> None:
        """Print a heading."""
        self._console.print()
        self.title(text)

    def text(self, text: str, style: str = "") -> None:
        """Print a text of several lines; a terminal wraps it."""
        self._console.print(Text(printable(text), style), soft_wrap=not self._console.is_terminal)

    def happened(self, text: str, style: str = "", *, whole: bool = False) -> None:
        """Print one line of the story with its time."""
        seconds = time.monotonic() - self.began
        line = f"{seconds:6.1f} s  {printable(' '.join(text.split(chr(10))))}"
        width = self._console.width if self._console.is_terminal else PLAIN_CHARS_MAX
        if not whole and len(line) > width:
            line = f"{line[: width - 3]}..."
        self._console.print(Text(line, style), soft_wrap=True)

    def working(self, on: str) -> None:
        """Say next to the spinner what is being waited for; without a terminal nothing is shown."""
        self._status.update(Text(on, "dim"))
        self._status.start()

    def ending(self) -> None:
        """Say that everything that was started is being ended."""
        self.working("ending what was started")

    def resting(self) -> None:
        """Take the spinner away."""
        self._status.stop()

    def tools_table(self, counts: Sequence[ToolCount]) -> None:
        """Print how often each tool was at work."""
        table = _table("tool", "asked for", "started", "finished", "failed", "cut off by the kill")
        for each in counts:
            row = (each.asked, each.started, each.finished, each.failed, each.cut)
            table.add_row(printable(each.name), *(str(number) for number in row))
        self._console.print(table)

    def model_table(self, counts: Sequence[ModelCount]) -> None:
        """Print how often the model was asked."""
        table = _table("model call of", "asked", "answered")
        for each in counts:
            table.add_row(f"step {each.step}", str(each.asked), str(each.answered))
        self._console.print()
        self._console.print(table)


class Narrator:
    """Tells a run from its states: what was not told before, once each."""

    def __init__(self, screen: Screen) -> None:
        self._screen = screen
        self._told: set[str] = set()

    def tell(self, state: AgentState) -> None:
        """Tell what is new in `state`."""
        execution = state.execution
        current = execution.current_step if execution else None
        for step in (*state.steps, *([current] if current else [])):
            self._tell_step(step)
        self._screen.working(_waiting_for(current))

    def _tell_step(self, step: AgentStep) -> None:
        said = step.inference_response
        if said is not None and self._is_new(step.id):
            asked = step.requested_tool_calls
            does = f"the model asks for {_count(len(asked), 'tool call')}" if asked else "the model answers"
            tokens = f"{said.usage.input_tokens:,} + {said.usage.output_tokens:,} tokens"
            self._screen.happened(f"step {step.number}  {does} ({tokens})", "bold")
            for call in asked:
                self._screen.happened(f"  -> {_call(call.name, dict(call.arguments))}")
        for each in step.tool_executions:
            if self._is_new(each.id):
                self._screen.happened(f"  <- {_ended(each)}", "yellow" if each.error else "green")

    def _is_new(self, name: str) -> bool:
        new = name not in self._told
        self._told.add(name)
        return new


def _waiting_for(step: AgentStep | None) -> str:
    if step is None:
        return ""
    names = sorted({call.name for _, call in step.unanswered_calls})
    return f"step {step.number}: waiting for {', '.join(names) or 'the model'}"


def _ended(execution: ToolExecution) -> str:
    seconds = (execution.completed_at - execution.started_at).total_seconds()
    first = next(iter(execution.answer.text.splitlines()), "(nothing)")
    return f"{execution.call.name} after {seconds:.1f} s: {first.removesuffix(':')}"


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def _call(name: str, arguments: dict[str, object]) -> str:
    shown = (f"{key}={value!r}" for key, value in arguments.items())
    cut = (text if len(text) <= ARGUMENT_CHARS_MAX else f"{text[:ARGUMENT_CHARS_MAX]}..." for text in shown)
    return f"{name}({', '.join(cut)})"


def _table(*columns: str) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 3, 0, 0), header_style="dim")
    for index, column in enumerate(columns):
        table.add_column(column, justify="right" if index else "left", no_wrap=True)
    return table
