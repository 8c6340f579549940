"""Output of sessions, receipts, records and trees, for people and for programs. Asks nothing and decides nothing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

from rich.markup import escape
from rich.tree import Tree

from holdfast.cli.screens import pending_calls
from holdfast.cli.screens.listing_table import Column, id_column, print_listing
from holdfast.cli.screens.output import as_json as print_json
from holdfast.cli.screens.output import coloured, console, hint, json_line, print_end, say, short, tables, tokens, used
from holdfast.core.agent.execution_state import ExecutionStatus
from holdfast.core.base.safe_text import printable
from holdfast.core.conversation.amounts import counted, moment, token_count
from holdfast.core.wire.records import ExecutionRecord
from holdfast.core.wire.session_contracts import Branch, Receipt, SessionView
from holdfast.view.run_view import RunView, recorded_run

if TYPE_CHECKING:
    from holdfast.client import SessionSummary
    from holdfast.client.waiting_calls import WaitingCalls

SESSION_COLOURS: Final = {
    "idle": "green",
    "running": "cyan",
    "suspended": "yellow",
    "paused": "yellow",
    "closed": "dim",
}
NO_SESSIONS: Final = "no sessions; begin one with: holdfast chat AGENT"
SESSION_COLUMNS: Final = (
    id_column("id"),
    Column("agent", least=8),
    Column("status"),
    Column("runs", right=True),
    Column("waiting", rank=1, right=True),
    Column("last activity", rank=2),
)
RECORD_COLUMNS: Final = (
    id_column("id"),
    Column("run", right=True),
    Column("status"),
    Column("steps", rank=1, right=True),
    Column("tokens", rank=2, right=True),
    Column("ended", rank=3),
    Column("asked", least=12),
)


# --- sessions


def print_session(view: SessionView, calls: WaitingCalls | None = None, *, as_json: bool) -> None:
    """Print a session, for people or for programs; with the `calls` that wait for a person."""
    if as_json:
        waits = {"calls_waiting": [json_line(each) for each in calls]} if calls else {}
        print_json({**view.model_dump(mode="json"), **waits})
        return
    screen, colour = console(), SESSION_COLOURS[view.status]
    screen.print(f"agent [bold]{view.agent_id}[/bold] ({escape(view.definition.name)}): [{colour}]{view.status}[/]")
    lines = {
        "running": view.running_id,
        "last run": _last(view),
        "runs": str(view.executions),
        "stands": _place(view),
        "waiting": counted(len(view.waiting), "message") if view.waiting else None,
        "used": tokens(view.usage, view.cost, view.unpriced),
        "while running": view.settings.while_running,
        "tenant": view.settings.tenant,
        "changed": moment(view.updated_at),
    }
    for name, value in lines.items():
        if value:
            screen.print(f"    [dim]{name:14}[/dim]{escape(printable(value))}")
    pending_calls.print_waiting(calls, view.running_id or "")


def place(branch: Branch) -> str:
    """Return where a conversation stands that has gone back to a run, or to a step of it."""
    if branch.steps is None:
        return f"at the end of run {branch.execution_id}"
    step = f"after step {branch.steps}" if branch.steps else "before the first step"
    return f"{step} of run {branch.execution_id}"


def _place(view: SessionView) -> str | None:
    """Return the same where it is not simply the end of the last run."""
    if view.place is None or (view.place.steps is None and view.place.execution_id == view.last_id):
        return None
    return place(view.place)


def session_line(summary: SessionSummary, view: SessionView | None) -> dict[str, Any]:
    """Return a line of the sessions, JSON-ready; null where nobody said so."""
    line = {**asdict(summary), **_activity(summary, view)}
    return {name: value.isoformat() if isinstance(value, datetime) else value for name, value in line.items()}


def _activity(summary: SessionSummary, view: SessionView | None) -> dict[str, Any]:
    """Return what a worker knows better than the server's listing."""
    if view is None:
        return {"executions": summary.executions, "waiting": None, "updated_at": summary.updated_at}
    return {"executions": view.executions, "waiting": len(view.waiting), "updated_at": view.updated_at}


def sessions(summaries: Sequence[tuple[SessionSummary, SessionView | None]], none: str = NO_SESSIONS) -> None:
    """Print the sessions; `none` is what to say where there is nothing to list."""
    if not summaries:
        hint(none)
        return
    rows: list[Sequence[str]] = []
    for each, view in summaries:
        activity = _activity(each, view)
        rows.append(
            (
                each.agent_id,
                escape(printable(each.agent or "-")),
                coloured(each.status, SESSION_COLOURS),
                *("-" if activity[name] is None else f"{activity[name]:,}" for name in ("executions", "waiting")),
                moment(activity["updated_at"] or each.started_at),
            )
        )
    print_listing(tables(), SESSION_COLUMNS, rows)


def receipt_line(agent_id: str, receipt: Receipt) -> dict[str, Any]:
    """Return a receipt, JSON-ready."""
    return {"agent_id": agent_id, **receipt.model_dump(mode="json")}


def receipt(receipt: Receipt) -> None:
    """Print what becomes of a message."""
    say(f"message {receipt.message_id}: {fate(receipt)}")


def fate(receipt: Receipt) -> str:
    """Return in a few words what becomes of a message."""
    match receipt.state:
        case "waiting" if receipt.ahead:
            return f"waits for its turn behind {counted(receipt.ahead, 'message')}"
        case "waiting" if receipt.running_id:
            return "waits for its turn"
        case "waiting":
            return "is next"
        case "running":
            return f"is with run {receipt.execution_id}"
        case "answered":
            return f"has been answered by run {receipt.execution_id}"


# --- records


def records(entries: Sequence[ExecutionRecord]) -> None:
    """Print an agent's records, the newest first."""
    if not entries:
        hint("no records; one is written when a run of the agent ends")
        return
    rows = (
        (
            each.execution_id,
            str(each.number),
            coloured(each.status),
            str(each.step_count),
            token_count(each.usage),
            moment(each.completed_at),
            escape(short(each.task)),
        )
        for each in entries
    )
    print_listing(tables(), RECORD_COLUMNS, rows)


def record(entry: ExecutionRecord) -> None:
    """Print one record."""
    screen, run = console(), recorded_run(entry)
    screen.print(f"run [bold]{entry.execution_id}[/bold], number {entry.number} of agent {entry.agent_id}")
    screen.print(f"    [dim]{escape(entry.agent)}, {moment(entry.started_at)}[/dim]")
    screen.print(f"[bold]asked[/bold] {escape(printable(entry.task))}")
    print_end(screen, run, run.why_stopped if entry.why else "")


# --- trees


def tree(root: RunView) -> None:
    """Print an execution with its subagents."""
    tables().print(_branch(root, Tree(_label(root))))


def _branch(run: RunView, branch: Tree) -> Tree:
    for child in run.children:
        _branch(child, branch.add(_label(child)))
    if run.more:
        branch.add("[yellow]…and others, which are not shown[/yellow]")
    return branch


def _label(run: RunView) -> str:
    spent = used(run.step_count or 0, run.usage, run.cost, run.seconds, run.unpriced)
    why = f" ({escape(short(run.why))})" if run.why else ""
    name = escape(printable(run.agent or "-"))
    return f"[bold]{name}[/bold] {run.execution_id} {coloured(run.status)}{why} [dim]{escape(spent)}[/dim]"


# --- pieces


def _last(view: SessionView) -> str | None:
    if view.last_id is None:
        return None
    reason = view.last_stop_reason if view.last_status is ExecutionStatus.STOPPED else None
    return f"{view.last_id} {view.last_status or ''}{f' ({reason})' if reason else ''}"
