"""Output of a run's views: its transcript, its table of steps, its main facts."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from rich.markup import escape
from rich.table import Table

from holdfast.cli.screens.listing_table import GAP_CHARS
from holdfast.cli.screens.output import console, hint, short, tables, tokens, unpriced_of
from holdfast.core.agent.state import AgentState
from holdfast.core.base.safe_text import printable
from holdfast.core.conversation.amounts import ESTIMATED, counted, duration, moment, short_dollars
from holdfast.core.conversation.decision_text import APPROVAL, decision_text
from holdfast.core.conversation.display_text import beginning
from holdfast.core.conversation.messages import DEFAULT_SECTION, Message
from holdfast.view.run_view import CallView, StepView

ROLES: Final = {"system": "magenta", "user": "blue", "assistant": "green", "tool": "cyan"}

OUTCOMES: Final = {"succeeded": "green", "failed": "red", "running": "cyan", "approval": "yellow"}
"""The colours of calls; what did not run is yellow."""

ROWS_AT_ONCE: Final = 50
"""So many steps are put into one table: it is printed while further ones are read."""

STEP_WIDTHS: Final[Mapping[str, int]] = {"step": 4, "began": 20, "took": 11, "in": 9, "out": 9, "cost": 9}
"""The columns beside a step's calls."""

GIVING_WAY: Final = ("began", "took", "cost")
"""Which of them leave their room to the calls in a narrow terminal, in this order."""

CALLS_CHARS_MIN: Final = 24
"""Less room than this the calls never have, but where no column is left to give way."""

SHOWN_CHARS_MAX: Final = 1_200
"""How much of one text a transcript shows."""


class Transcript:
    """Prints messages one after another; long texts are cut unless it is `full`, and the end says so."""

    def __init__(self, *, full: bool) -> None:
        self._full = full
        self._cut = 0
        self._section = DEFAULT_SECTION
        self._count = 0

    def show(self, section: str, message: Message) -> None:
        """Print a message that stands in that section."""
        screen = console()
        if section != self._section:
            screen.print(f"[dim]— section {escape(section)} —[/dim]")
            self._section = section
        call_id = f" [dim]{escape(printable(message.tool_call_id))}[/dim]" if message.tool_call_id else ""
        screen.print(f"[bold {ROLES[message.role]}]{message.role}[/]{call_id}")
        if APPROVAL in message.metadata:
            screen.print(f"  [dim]{escape(printable(str(message.metadata[APPROVAL])))}[/dim]")
        if message.shown_text:
            screen.print(escape(self._text(message.shown_text)))
        for call in message.tool_calls:
            arguments = self._text(call.arguments_text)
            screen.print(
                f"  [cyan]{escape(call.name)}[/cyan]({escape(arguments)}) [dim]{escape(printable(call.id))}[/dim]"
            )
        screen.print()
        self._count += 1

    def end(self) -> None:
        """Say what was left out, and how to see it."""
        if not self._count:
            hint("no messages yet")
        if self._cut:
            texts = f"{counted(self._cut, 'text')} {'is' if self._cut == 1 else 'are'}"
            hint(f"{texts} cut to {SHOWN_CHARS_MAX:,} characters; --full shows all of it, --json too")

    def _text(self, text: str) -> str:
        excerpt, left_out = beginning(text, len(text) if self._full else SHOWN_CHARS_MAX)
        self._cut += bool(left_out)
        return printable(excerpt) + (f"\n[{left_out}]" if left_out else "")


class Steps:
    """Prints a table of steps, a piece at a time."""

    def __init__(self) -> None:
        self._rows: list[StepView] = []
        self._printed = False

    def show(self, row: StepView) -> None:
        """Take in a step."""
        self._rows.append(row)
        if len(self._rows) >= ROWS_AT_ONCE:
            self._print()

    def end(self, head: AgentState, *, status: str = "") -> None:
        """Print what is left, and what all of them took; `status` is how the server ended the run, if it did."""
        self._print()
        if not self._printed:
            hint("no step has begun yet")
            return
        elapsed = head.execution_duration
        spent = tokens(head.usage, head.cost, unpriced_of(head))
        how = (status or head.status).replace("_", " ")
        total = f"{how}, {spent}, {duration(elapsed.total_seconds() if elapsed else None)}"
        console().print(f"[dim]{escape(total)}[/dim]")

    def _print(self) -> None:
        if not self._rows:
            return
        screen = tables()
        widths = step_widths(screen.width)
        table = Table(box=None, pad_edge=False, show_header=not self._printed)
        for name, width in widths.items():
            right = "left" if name in ("step", "began") else "right"
            table.add_column(name, justify=right, min_width=width, no_wrap=True)  # type: ignore[arg-type]
        table.add_column("calls", overflow="fold")
        for row in self._rows:
            cells = {
                "step": str(row.number),
                "began": moment(row.started_at) if row.started_at else "-",
                "took": duration(row.seconds) if row.completed_at else "under way",
                "in": f"{ESTIMATED if row.usage.estimated_tokens else ''}{row.usage.input_tokens:,}",
                "out": f"{row.usage.output_tokens:,}",
                "cost": short_dollars(row.cost, row.unpriced) if row.cost or row.unpriced else "-",
            }
            table.add_row(*(cells[name] for name in widths), _calls(row))
        screen.print(table)
        self._rows, self._printed = [], True


def step_widths(available: int) -> dict[str, int]:
    """Return the columns of steps for a terminal of that width, with their widths; the calls take the rest."""
    widths = dict(STEP_WIDTHS)
    for name in GIVING_WAY:
        if sum(widths.values()) + GAP_CHARS * len(widths) + CALLS_CHARS_MIN <= available:
            break
        del widths[name]
    return widths


def _calls(row: StepView) -> str:
    """Return what the step came to: its calls with their ends, an error, or that it answers."""
    errors = [f"[red]{escape(short(f'{each.type}: {each.message}'))}[/red]" for each in row.errors]
    answers = ["[green]final answer[/green]"] if row.kind == "final_response" else []
    return "\n".join([*(_call(each, row) for each in row.calls), *errors, *answers])


def _call(call: CallView, row: StepView) -> str:
    elapsed = "" if call.seconds is None else f" [dim]{duration(call.seconds)}[/dim]"
    colour = OUTCOMES.get(call.outcome, "yellow")
    by = ""
    if call.approval is not None:
        by = f", {escape(printable(decision_text(call.approval, call.arguments, since=row.started_at)))}"
    return f"{escape(printable(call.tool))} [{colour}]{call.outcome}[/]{elapsed}{by}"


def debug(facts: Mapping[str, Any]) -> None:
    """Print facts, one per line."""
    for name, value in facts.items():
        text = value if isinstance(value, str) else json.dumps(value, default=str)
        console().print(f"[dim]{escape(name):16}[/dim] {escape(printable(text))}")
