"""What the commands print, for people and for programs. Asks nothing and decides nothing."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, replace
from datetime import datetime
from functools import cache
from typing import TYPE_CHECKING, Any, Final, Literal

from rich.console import Console
from rich.markup import escape

from holdfast.cli.screens.listing_table import Column, id_column, print_listing
from holdfast.core.agent.execution_state import ExecutionStatus
from holdfast.core.agent.state import AgentState
from holdfast.core.base.call_digest import short_digest
from holdfast.core.base.safe_text import printable
from holdfast.core.base.usage import Usage
from holdfast.core.conversation.amounts import (
    ESTIMATED,
    counted,
    dollars,
    duration,
    moment,
    server_calls_note,
    tokens_used,
)
from holdfast.core.conversation.attachments import Attachment, size_text
from holdfast.core.conversation.decision_text import decision_text, marked
from holdfast.core.conversation.handoffs import handoff_text
from holdfast.core.conversation.input_requests import InputRequest
from holdfast.core.conversation.messages import ToolCall
from holdfast.core.conversation.steps import AgentStep, InferenceResponse, Outcome
from holdfast.core.wire.execution_events import ApprovalRequested, InputRequested
from holdfast.core.wire.execution_record import question_of
from holdfast.view.run_view import RunView, run_view

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

    from holdfast.client.execution_summaries import ExecutionSummary

LINE_CHARS_MAX: Final = 100
"""How much of an argument list, a result or a text one line shows."""

WAITING_CHARS_MAX: Final = 2_000
"""How much of the arguments of a call is shown beside the command that approves it."""

EVENT_CHARS_MAX: Final = 1_200
"""How much of what an event says one line shows."""

RUN_COLUMNS: Final = (
    id_column("id"),
    Column("agent", least=8),
    Column("status"),
    Column("reason", rank=3, least=10),
    Column("steps", right=True),
    Column("tokens", rank=1, right=True),
    Column("cost", rank=2, least=20, right=True),
    Column("started", rank=4),
)

NO_RUNS: Final = 'no runs yet; start one with: holdfast run AGENT "question"'

NONE_MATCHES: Final = "no {} matches this query"

COLOURS: Final[Mapping[str, str]] = {
    ExecutionStatus.COMPLETED: "green",
    ExecutionStatus.STOPPED: "yellow",
    ExecutionStatus.FAILED: "red",
    ExecutionStatus.IN_PROGRESS: "cyan",
    ExecutionStatus.PENDING: "dim",
    "paused": "yellow",
}
MARKS: Final[Mapping[str, str]] = {
    Outcome.SUCCEEDED: "[green]ok[/green]",
    Outcome.FAILED: "[red]failed[/red]",
    Outcome.BLOCKED: "[yellow]blocked[/yellow]",
    Outcome.DENIED: "[yellow]denied[/yellow]",
    Outcome.CANCELLED: "[yellow]cancelled[/yellow]",
}


class _Unbroken(Console):
    """Leaves it to the program's end to say that a reader has gone; with NO_COLOR it writes no style at all.

    Rich alone would keep bold and dim text, which are escape codes as well (https://no-color.org).
    """

    def __init__(self, *, stderr: bool = False, soft_wrap: bool = False, width: int | None = None) -> None:
        colours: Literal["auto"] | None = None if os.environ.get("NO_COLOR") else "auto"
        super().__init__(color_system=colours, stderr=stderr, highlight=False, soft_wrap=soft_wrap, width=width)

    def on_broken_pipe(self) -> None:
        raise BrokenPipeError


def console() -> Console:
    """Return what to print with: it neither wraps lines nor breaks them."""
    return _Unbroken(soft_wrap=True)


@cache
def aside() -> Console:
    """Return what prints what is no answer, to standard error: one for all, so that lines mind a spinner."""
    return _Unbroken(stderr=True, soft_wrap=True)


def tables() -> Console:
    """Return what to print tables with: as wide as the terminal, and wide enough for a program."""
    return _Unbroken(width=None if sys.stdout.isatty() else 200)


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
        "agent": state.active_agent,
        "status": state.status,
        "stop_reason": state.stop_reason,
        "final_response": state.final_response,
        "partial_response": partial_text(state),
        "steps": state.step_count,
        "usage": state.usage.model_dump(),
        "cost": state.cost,
        "unpriced": list(unpriced_of(state)),
        "warnings": list(state.warnings),
    }


def partial_text(state: AgentState) -> str | None:
    """Return what had come of an answer when its run was ended; none where no answer was cut off."""
    partial = _partial(state)
    return partial.text if partial is not None and partial.text.strip() else None


def _partial(state: AgentState) -> InferenceResponse | None:
    step = state.execution.current_step if state.execution else None
    return None if step is None or step.inference_response is not None else step.partial_response


def started(execution_id: str, page: str | None) -> None:
    """Say which run this is and where to watch it."""
    console().print(f"run [bold]{execution_id}[/bold]" + (f"\n    [dim]{page}[/dim]" if page else ""))


def announce(number: int, response: InferenceResponse | None, agent: str = "") -> None:
    """Print which step it is and what the model asks for; it failed to answer where there is no response.

    `agent` is whose step it is, after a handoff.
    """
    suffix = " [red]failed[/red]" if response is None else "" if response.tool_calls else " final answer"
    route = f" [dim]via {escape(printable(response.route))}[/dim]" if response and response.route else ""
    console().print(f"{step_title(number, agent)}{suffix}{route}")
    if response is not None:
        requested_calls(response)


def step_title(number: int, agent: str = "") -> str:
    """Return a step's title in markup, with its agent after a handoff."""
    return f"[bold]step {number}[/bold]{f' [magenta]{escape(agent)}[/magenta]' if agent else ''}"


def cut_off(number: int, partial: InferenceResponse) -> None:
    """Print what had come of an answer when its call was cancelled."""
    screen = console()
    screen.print(f"[bold]step {number}[/bold] [yellow]cut off[/yellow]")
    if partial.text.strip():
        screen.print(escape(printable(partial.text)))
    screen.print(f"    [dim]{tokens_used(partial.usage)}[/dim]")


def requested_calls(response: InferenceResponse) -> None:
    """Print the calls that the model asks for."""
    for call in response.tool_calls:
        console().print(f"  {called(call)}")


def results(step: AgentStep, seconds: float) -> None:
    """Print what came of the step's calls, and what the step took."""
    screen = console()
    if step.revised is not None:
        line = f"the hook {step.revised.hook} changed the answer: {short(step.revised.text)}"
        screen.print(f"    [dim]{escape(printable(line))}[/dim]")
    for execution in step.tool_executions:
        line = execution.error.message if execution.error else execution.result or ""
        indent = "    " if execution.parent_call_id is None else "      "
        name = escape(execution.call.name)
        screen.print(f"{indent}{MARKS[execution.outcome]} {name}: [dim]{escape(short(line))}[/dim]")
        if execution.approval is not None:
            decided = decision_text(execution.approval, execution.call.arguments)
            bound = f" (digest {short_digest(execution.approval.digest)})"
            screen.print(f"       [dim]{escape(printable(decided + bound))}[/dim]")
    if ran := server_calls_note(step.server_tool_calls):
        screen.print(f"    [dim]the provider ran {escape(printable(ran))}[/dim]")
    screen.print(f"    [dim]{duration(seconds)}, {tokens_used(step.usage)}[/dim]")


def waiting(execution_id: str, call: ToolCall, expires_at: datetime | None, *, agent: str = "") -> None:
    """Print that a call waits for a person, and how to decide; `agent` names the subagent whose call it is."""
    note_waiting(waiting_text(execution_id, call, expires_at, agent=agent))


def note_waiting(line: str) -> None:
    """Print a line about a call that waits for a person."""
    console().print(f"    [yellow]{escape(printable(line))}[/yellow]")


def waiting_text(execution_id: str, call: ToolCall, expires_at: datetime | None, *, agent: str = "") -> str:
    """Return that a call waits for a person, with what it would do and how to decide."""
    until = "" if expires_at is None else f" until {moment(expires_at)}"
    whose = f" of the subagent {agent}" if agent else ""
    arguments = marked(call.arguments_text, WAITING_CHARS_MAX)
    command = approve_command(execution_id, call.id, call.digest)
    return f"{call.name}{whose} waits for approval{until}: {arguments}\n    {command}"


def question_text(
    execution_id: str, call: ToolCall, request: InputRequest, expires_at: datetime | None, *, agent: str = ""
) -> str:
    """Return that a call waits for an answer, with what its server asks and how to answer."""
    until = "" if expires_at is None else f" until {moment(expires_at)}"
    whose = f" of the subagent {agent}" if agent else ""
    message = marked(" ".join(request.message.split()), WAITING_CHARS_MAX)
    link = "" if request.url is None else f"\n    {request.url}"
    settings = "".join(f" --set {each.name}=…" for each in request.fields if each.required)
    command = f"holdfast answer {execution_id} {call.id}{settings}"
    return f"{call.name}{whose} waits for an answer{until}: {message}{link}\n    {command}"


def wait_text(event: ApprovalRequested | InputRequested) -> str:
    """Return that a call waits for a person, and for what."""
    if isinstance(event, InputRequested):
        return question_text(event.execution_id, event.call, event.request, event.expires_at)
    return waiting_text(event.execution_id, event.call, event.expires_at)


def approve_command(execution_id: str, call_id: str, digest: str) -> str:
    """Return the command that lets this very call run."""
    return f"holdfast approve {execution_id} {call_id} --digest {short_digest(digest)}"


def paged(about: str) -> None:
    """Print a text, page by page where it is longer than the terminal."""
    screen = console()
    content = escape(printable(about))
    if about.count("\n") + len(about) // max(1, screen.width) < screen.height - 2:
        screen.print(content)
        return
    with screen.pager():
        screen.print(content)


def text(part: str) -> None:
    """Print a part of a text, to be gone on with."""
    screen = console()
    screen.out(printable(part), end="")
    screen.file.flush()


def note(line: str) -> None:
    """Print a line about what went on beside the run's steps."""
    console().print(f"    [yellow]{escape(short(line, EVENT_CHARS_MAX))}[/yellow]")


def event(place: str, kind: str, detail: str) -> None:
    """Print an event's line."""
    console().print(f"[dim]{place}[/dim] [bold]{kind}[/bold] {escape(short(detail, EVENT_CHARS_MAX))}".rstrip())


def ended(state: AgentState, *, answer: bool = True, status: str = "") -> None:
    """Print the last line of a run, then its answer unless it stands there already; before it what was cut off.

    `status` is how the server ended it, where the state does not know.
    """
    step = state.execution.current_step if state.execution else None
    if answer and step is not None and (partial := _partial(state)) is not None:
        cut_off(step.number, partial)
    has_execution = state.execution is not None
    run, signal = run_view(state) if has_execution else RunView(execution_id="", seconds=0.0), state.stop_signal
    for warning in state.warnings:
        console().print(f"[yellow]warning[/yellow] {escape(printable(warning))}")
    why = ": ".join(filter(None, (signal.reason, signal.message))) if signal else ""
    run = replace(run, answer=run.answer if answer else "", status=status or run.status)
    print_end(console(), run, why)


def print_end(screen: Console, run: RunView, why: str) -> None:
    """Print the last line of a run and its answer."""
    spent = used(run.step_count or 0, run.usage, run.cost, run.seconds, run.unpriced)
    words = escape(f" ({printable(why)})") if why else ""
    screen.print(f"{coloured(run.status)}{words}  [dim]{escape(spent)}[/dim]")
    if run.answer:
        screen.print()
        screen.print(escape(printable(run.answer)))


def handed_over(from_agent: str, to_agent: str, reason: str) -> None:
    """Print a handoff."""
    console().print(f"    [magenta]{escape(printable(short(handoff_text(from_agent, to_agent, reason))))}[/magenta]")


def _beside(state: AgentState, step: AgentStep) -> Iterator[str]:
    """Yield what went on beside a step's calls: its call changed, a fallback, its answer judged, a return."""
    if step.model_call_changes is not None:
        yield step.model_call_changes.line
    yield from (each.line for each in step.fallbacks)
    if step.judgement is not None:
        yield step.judgement.line
    yield from (each.line for each in state.running.steps_back if each.from_step == step.number)


def whole(state: AgentState, page: str | None, *, agent: str = "", status: str = "") -> None:
    """Print a run from its beginning to where it is; `agent` is its agent's name, `status` as for `ended`."""
    if state.execution:
        started(state.execution.execution_id, page)
    if task := " was asked: ".join(filter(None, (agent, short(question_of(state))))):
        console().print(f"    {escape(printable(task))}")
    holder = ""
    for done in state.step_executions:
        announce(done.step.number, done.step.inference_response, holder)
        results(done.step, done.duration.total_seconds())
        for line in _beside(state, done.step):
            note(line)
        for handoff in (each for each in state.running.handoffs if each.step_number == done.step.number):
            handed_over(handoff.from_agent, handoff.to_agent, handoff.reason)
            holder = handoff.to_agent
    current = state.execution.current_step if state.execution else None
    if current is not None and current.inference_response is not None:
        announce(current.number, current.inference_response, holder)
    _waits(state, over=bool(status))
    for todo in state.todos:
        console().print(f"    [cyan]{escape(printable(todo.line))}[/cyan]")
    for error in state.errors:
        console().print(f"[red]error[/red] {escape(printable(f'{error.source}: {error.type}: {error.message}'))}")
    for number, file in enumerate(run_files(state), 1):
        about = f"attachment {number}: {file.name}, {file.media_type}, {size_text(file.size)}"
        console().print(f"    [dim]{escape(printable(about))}[/dim]")
    ended(state, status=status)


def run_files(state: AgentState) -> tuple[Attachment, ...]:
    """Return a run's files, numbered from 1: those that came with messages of its conversation, then its tools'."""
    sent = (file for section in state.store.sections for message in section.messages for file in message.files)
    return (*sent, *state.attachments)


def _waits(state: AgentState, *, over: bool) -> None:
    if over:
        return
    for each in state.waiting_calls:
        waiting(state.running.execution_id, each.call, each.expires_at)
    for each in state.input_calls:
        if each.input_request is not None:
            note_waiting(question_text(state.running.execution_id, each.call, each.input_request, each.expires_at))


def json_line(value: DataclassInstance) -> dict[str, Any]:
    """Return a line of a listing, JSON-ready."""
    fields = asdict(value)
    return {name: each.isoformat() if isinstance(each, datetime) else each for name, each in fields.items()}


def coloured(status: str, colours: Mapping[str, str] = COLOURS) -> str:
    """Return where a run or session stands, in its colour; red is what we have no word of our own for."""
    colour = colours.get(status, "red")
    return f"[{colour}]{escape(status.replace('_', ' '))}[/{colour}]"


def table(summaries: list[ExecutionSummary], none: str = NO_RUNS) -> None:
    """Print the listing; `none` is what to say where there is nothing to list."""
    if not summaries:
        hint(none)
        return
    print_listing(tables(), RUN_COLUMNS, map(_cells, summaries))


def _cells(run: ExecutionSummary) -> tuple[str, ...]:
    return (
        run.execution_id,
        escape(run.agent or "-"),
        coloured(run.status),
        run.stop_reason or "-",
        "-" if run.steps is None else str(run.steps),
        "-" if run.tokens is None else f"{ESTIMATED if run.estimated_tokens else ''}{run.tokens:,}",
        "-" if run.cost is None else escape(dollars(run.cost, run.unpriced, unit="")),
        moment(run.started_at),
    )


def called(call: ToolCall) -> str:
    """Return a call with its arguments, in colours."""
    return f"[cyan]{escape(call.name)}[/cyan]({escape(short(arguments_line(call.arguments)))})"


def arguments_line(arguments: Mapping[str, object]) -> str:
    """Return arguments as `name=value, …`; what is foreign in them is not made safe here."""
    return ", ".join(f"{name}={json.dumps(value, ensure_ascii=False)}" for name, value in arguments.items())


def unpriced_of(state: AgentState) -> tuple[str, ...]:
    """Return the models whose tokens are not in the cost of the state's execution."""
    return state.execution.unpriced if state.execution else ()


def used(steps: int, usage: Usage, cost: float, seconds: float | None, unpriced: Sequence[str] = ()) -> str:
    """Return what a run took; `cost` in US dollars, `seconds` none where they are not known."""
    elapsed = "" if seconds is None else f", {duration(seconds)}"
    return f"{counted(steps, 'step')}, {tokens(usage, cost, unpriced)}{elapsed}"


def tokens(usage: Usage, cost: float, unpriced: Sequence[str] = ()) -> str:
    """Return what was used of a model, and its cost in US dollars where there is any."""
    return f"{tokens_used(usage)}{f', {dollars(cost, unpriced)}' if cost or unpriced else ''}"


def short(text: str, chars_max: int = LINE_CHARS_MAX) -> str:
    """Return the beginning of `text` on one line, safe for a terminal, with how much of it is not shown."""
    flat = " ".join(printable(text).split())
    return marked(flat, chars_max)
