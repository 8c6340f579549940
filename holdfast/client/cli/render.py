"""What the commands print, for people and for programs. Asks nothing and decides nothing."""

from __future__ import annotations

import json
import sys
from contextlib import suppress
from dataclasses import asdict
from datetime import datetime
from functools import cache
from typing import TYPE_CHECKING, Any, Final

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from holdfast.client.report.words import moment
from holdfast.core.digests import short_digest
from holdfast.core.messages import ToolCall
from holdfast.core.state import AgentState, ExecutionStatus
from holdfast.core.steps import AgentStep, InferenceResponse, Outcome
from holdfast.core.texts import printable
from holdfast.core.usage import Usage
from holdfast.core.verdicts import Approval

if TYPE_CHECKING:
    from holdfast.client.summaries import ExecutionSummary

LINE_CHARS_MAX: Final = 100
"""How much of an argument list, a result or a text one line shows."""

TABLE_CHARS: Final = 120
"""How wide a terminal must be for the whole table; in a narrower one ids stay whole and other things give way."""

NO_RUNS: Final = 'no runs yet; start one with: holdfast run AGENT "question"'

NONE_MATCHES: Final = "no {} matches this query"

COLOURS: Final = {
    ExecutionStatus.COMPLETED: "green",
    ExecutionStatus.STOPPED: "yellow",
    ExecutionStatus.FAILED: "red",
    ExecutionStatus.IN_PROGRESS: "cyan",
    ExecutionStatus.PENDING: "dim",
}
MARKS: Final = {
    Outcome.SUCCEEDED: "[green]ok[/green]",
    Outcome.FAILED: "[red]failed[/red]",
    Outcome.BLOCKED: "[yellow]blocked[/yellow]",
    Outcome.DENIED: "[yellow]denied[/yellow]",
    Outcome.CANCELLED: "[yellow]cancelled[/yellow]",
}


class _Unbroken(Console):
    """Leaves it to the program's end to say that a reader has gone."""

    def on_broken_pipe(self) -> None:
        raise BrokenPipeError


def console() -> Console:
    """Return what to print with: it neither wraps lines nor breaks them."""
    return _Unbroken(highlight=False, soft_wrap=True)


@cache
def aside() -> Console:
    """Return what prints what is no answer, to standard error: one for all, so that lines mind a spinner."""
    return _Unbroken(stderr=True, highlight=False, soft_wrap=True)


def tables() -> Console:
    """Return what to print tables with: as wide as the terminal, and wide enough for a program."""
    return _Unbroken(highlight=False, width=None if sys.stdout.isatty() else 200)


def as_json(value: object) -> None:
    """Print `value` as one JSON document."""
    sys.stdout.write(json.dumps(value, default=str) + "\n")
    sys.stdout.flush()


def say(text: str) -> None:
    """Print a line."""
    console().print(escape(printable(text)))


def hint(text: str) -> None:
    """Print a line that is not the answer, to standard error."""
    with suppress(OSError):
        aside().print(f"[dim]{escape(printable(text))}[/dim]")


def outcome(state: AgentState) -> dict[str, Any]:
    """Return what a program wants to know of a run, JSON-ready."""
    return {
        "execution_id": state.execution.execution_id if state.execution else None,
        "status": state.status,
        "stop_reason": state.stop_reason,
        "final_response": state.final_response,
        "steps": state.step_count,
        "usage": state.usage.model_dump(),
        "cost": state.cost,
        "warnings": list(state.warnings),
    }


def started(execution_id: str, page: str | None) -> None:
    """Say which run this is and where to watch it."""
    console().print(f"run [bold]{execution_id}[/bold]" + (f"\n    [dim]{page}[/dim]" if page else ""))


def announce(number: int, response: InferenceResponse | None) -> None:
    """Print which step it is and what the model asks for; it failed to answer where there is no response."""
    said = " [red]failed[/red]" if response is None else "" if response.tool_calls else " answers"
    console().print(f"[bold]step {number}[/bold]{said}")
    if response is not None:
        asked(response)


def cut_off(number: int, partial: InferenceResponse) -> None:
    """Print what had come of an answer when its call was cancelled."""
    screen = console()
    screen.print(f"[bold]step {number}[/bold] [yellow]cut off[/yellow]")
    if partial.text.strip():
        screen.print(escape(printable(partial.text)))
    used = partial.usage.total_tokens
    screen.print(f"    [dim]{f'{used:,} tokens' if used else 'the provider told no usage'}[/dim]")


def asked(response: InferenceResponse) -> None:
    """Print the calls that the model asks for."""
    for call in response.tool_calls:
        console().print(f"  {called(call)}")


def results(step: AgentStep, seconds: float) -> None:
    """Print what came of the step's calls, and what the step took."""
    screen = console()
    for execution in step.tool_executions:
        told = execution.error.message if execution.error else execution.result or ""
        screen.print(f"    {MARKS[execution.outcome]} {escape(execution.call.name)}: [dim]{escape(short(told))}[/dim]")
        if execution.approval is not None:
            screen.print(f"       [dim]{escape(short(_approved(execution.approval)))}[/dim]")
    screen.print(f"    [dim]{seconds:.1f} s, {step.usage.total_tokens:,} tokens[/dim]")


def _approved(approval: Approval) -> str:
    """Return who decided about a call, when, and what."""
    when = moment(approval.at)
    if approval.decision == "expired":
        return f"nobody decided about it until {when}"
    done = {"approve": "approved", "deny": "denied", "edit": "edited"}[approval.decision]
    return f"{done} by {approval.by or 'somebody'} at {when} (digest {short_digest(approval.digest)})"


def waiting(execution_id: str, call: ToolCall, expires_at: datetime | None) -> None:
    """Print that a call waits for a person, and how to decide."""
    until = "" if expires_at is None else f" until {moment(expires_at)}"
    bound = f"{execution_id} {call.id} --digest {short_digest(call.digest)}"
    told = f"{call.name} waits for approval{until}: holdfast approve {bound}"
    console().print(f"    [yellow]{escape(printable(told))}[/yellow]")


def text(part: str) -> None:
    """Print a part of a text, to be gone on with."""
    screen = console()
    screen.out(printable(part), end="")
    screen.file.flush()


def note(told: str) -> None:
    """Print a line about what went on beside the run's steps."""
    console().print(f"    [yellow]{escape(short(told))}[/yellow]")


def event(place: str, kind: str, detail: str) -> None:
    """Print an event's line."""
    console().print(f"[dim]{place}[/dim] [bold]{kind}[/bold] {escape(short(detail))}".rstrip())


def ended(state: AgentState, *, answer: bool = True) -> None:
    """Print the last line of a run, then its answer unless it stands there already."""
    screen = console()
    seconds = state.execution_duration.total_seconds() if state.execution_duration else 0.0
    signal = state.stop_signal
    why = f" ({': '.join(filter(None, (signal.reason, printable(signal.message))))})" if signal else ""
    colour = COLOURS[state.status]
    spent = used(state.step_count, state.usage, state.cost, seconds)
    for warning in state.warnings:
        screen.print(f"[yellow]warning[/yellow] {escape(printable(warning))}")
    screen.print(f"[{colour}]{state.status}[/{colour}]{escape(why)}  [dim]{spent}[/dim]")
    if state.final_response and answer:
        screen.print()
        screen.print(escape(printable(state.final_response)))


def whole(state: AgentState, page: str | None) -> None:
    """Print a run from its beginning to where it is."""
    if state.execution:
        started(state.execution.execution_id, page)
    for done in state.step_executions:
        announce(done.step.number, done.step.inference_response)
        results(done.step, done.duration.total_seconds())
    current = state.execution.current_step if state.execution else None
    if current is not None and current.inference_response is not None:
        announce(current.number, current.inference_response)
    elif current is not None and current.partial_response is not None:
        cut_off(current.number, current.partial_response)
    for each in state.waiting_calls:
        waiting(state.running.execution_id, each.call, each.expires_at)
    for error in state.errors:
        console().print(f"[red]error[/red] {escape(printable(f'{error.source}: {error.type}: {error.message}'))}")
    ended(state)


def line(summary: ExecutionSummary) -> dict[str, Any]:
    """Return a line of the listing, JSON-ready."""
    return {
        name: value.isoformat() if hasattr(value, "isoformat") else value for name, value in asdict(summary).items()
    }


def table(found: list[ExecutionSummary], none: str = NO_RUNS) -> None:
    """Print the listing; `none` is what to say where there is nothing to list."""
    if not found:
        hint(none)
        return
    screen = tables()
    narrow = screen.width < TABLE_CHARS
    shown = Table(box=None, pad_edge=False)
    for name in ("id", "agent", "status", "reason", "steps", "tokens", "cost", *(() if narrow else ("started",))):
        right, folded = name in ("steps", "tokens", "cost"), narrow and name in ("agent", "reason")
        shown.add_column(name, justify="right" if right else "left", no_wrap=not folded, overflow="fold")
    for each in found:
        colour = COLOURS.get(ExecutionStatus(each.status), "") if each.status in set(ExecutionStatus) else "red"
        cells = (
            each.execution_id,
            escape(each.agent or "-"),
            f"[{colour}]{each.status.replace('_', ' ')}[/{colour}]",
            each.stop_reason or "-",
            "-" if each.steps is None else str(each.steps),
            "-" if each.tokens is None else f"{each.tokens:,}",
            "-" if each.cost is None else f"{each.cost:.4f}",
            moment(each.started_at),
        )
        shown.add_row(*cells[: len(shown.columns)])
    screen.print(shown)


def called(call: ToolCall) -> str:
    """Return a call with its arguments, in colours."""
    given = ", ".join(f"{name}={json.dumps(value)}" for name, value in call.arguments.items())
    return f"[cyan]{escape(call.name)}[/cyan]({escape(short(given))})"


def used(steps: int, usage: Usage, cost: float, seconds: float | None) -> str:
    """Return what a run took; `cost` in US dollars, `seconds` none where they are not known."""
    taken = "1 step" if steps == 1 else f"{steps} steps"
    return f"{taken}, {tokens(usage, cost)}{'' if seconds is None else f', {seconds:.1f} s'}"


def tokens(usage: Usage, cost: float) -> str:
    """Return what was used of a model, and its cost in US dollars where there is any."""
    return f"{usage.total_tokens:,} tokens{f', {cost:.4f} USD' if cost else ''}"


def short(text: str) -> str:
    """Return the beginning of `text` on one line, safe for a terminal."""
    flat = " ".join(printable(text).split())
    return flat if len(flat) <= LINE_CHARS_MAX else flat[: LINE_CHARS_MAX - 1] + "…"
