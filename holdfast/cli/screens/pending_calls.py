"""Output about the calls that wait for a person, for people and for programs."""

from __future__ import annotations

import json
from collections.abc import Awaitable
from datetime import datetime
from typing import TYPE_CHECKING, Final

from rich.markup import escape
from rich.text import Text

from holdfast.cli.screens import output
from holdfast.cli.screens.listing_table import Column, id_column, print_listing, whole_width
from holdfast.core.base.call_digest import short_digest
from holdfast.core.base.errors import ServerUnavailable
from holdfast.core.base.safe_text import printable
from holdfast.core.conversation.amounts import moment
from holdfast.core.conversation.input_requests import InputRequest
from holdfast.core.conversation.messages import ToolCall

if TYPE_CHECKING:
    from holdfast.client import Holdfast
    from holdfast.client.waiting_calls import WaitingCall, WaitingCalls
    from holdfast.core.wire.session_contracts import SessionView

COLUMNS: Final = (
    id_column("run"),
    Column("agent", least=8),
    Column("call", rank=2),
    Column("tool", least=8),
    Column("digest"),
    Column("asked", rank=3),
    Column("expires", rank=1),
    Column("arguments"),
)
LINES_CHARS_MIN: Final = 50
"""A narrower terminal breaks the lines itself: in a listing of this width each call has one."""

MARK_CHARS: Final = 24
"""What it takes to part arguments from the rest, and to say how much of them is not shown."""

ARGUMENTS_CHARS_MIN: Final = 24
"""Where less than this is left of a line, the arguments have the line below."""


async def of_session(holdfast: Holdfast, agent_id: str) -> tuple[SessionView, WaitingCalls | None]:
    """Return an agent's session as it is now, with the calls of its run and of all subagents that wait for a person."""
    from holdfast.client.waiting_calls import waiting_of_session

    view = await holdfast.agent(agent_id).view()
    if view.running_id is None:
        return view, None
    return view, await or_hint(waiting_of_session(holdfast.temporal, view.agent_id))


async def or_hint(query: Awaitable[WaitingCalls]) -> WaitingCalls | None:
    """Return the waiting calls. If the server is unavailable, print a hint and return None: they are only an extra."""
    try:
        return await query
    except ServerUnavailable as error:
        output.hint(f"cannot list the calls that wait for a person: {error.message}")
        return None


def print_waiting(calls: WaitingCalls | None, own_id: str = "") -> None:
    """Print calls that wait, of subagents but for those of the run `own_id`, and how to decide."""
    if calls is None:
        return
    for each in calls:
        call = ToolCall(id=each.call_id, name=each.tool, arguments=dict(each.arguments))
        agent = "" if each.execution_id == own_id else each.agent or each.execution_id
        if each.message is not None:
            request = InputRequest(key="", message=each.message, form=each.form, url=each.url)
            output.note_waiting(output.question_text(each.execution_id, call, request, each.expires_at, agent=agent))
            continue
        output.waiting(each.execution_id, call, each.expires_at, agent=agent)
    if calls.more:
        output.hint(f"{len(calls)} waiting calls are shown, there may be more; `holdfast waiting` lists them all")
    unread(calls)


def unread(calls: WaitingCalls) -> None:
    """Print the runs whose waiting calls could not be read."""
    for id_ in calls.unread:
        output.hint(f"calls of run {id_} wait, but no worker can say which; is one running?")


def table(calls: WaitingCalls) -> None:
    """Print the listing; of arguments longer than a line it says how many characters are not shown."""
    if not calls:
        output.hint("no call waits for a person")
        return
    screen, rows = output.tables(), [_cells(each) for each in calls]
    width = screen.width - MARK_CHARS - whole_width(COLUMNS[:-1], rows)
    if width >= ARGUMENTS_CHARS_MIN:
        print_listing(screen, COLUMNS, [(*row, _arguments(each, width)) for row, each in zip(rows, calls, strict=True)])
        return
    screen.width = max(screen.width, LINES_CHARS_MIN)
    with screen.capture() as printed:
        print_listing(screen, COLUMNS[:-1], rows)
    head, *lines = printed.get().splitlines()
    screen.print(Text.from_ansi(head))
    for line, each in zip(lines, calls, strict=True):
        screen.print(Text.from_ansi(line))
        screen.print(f"  {_arguments(each, screen.width - MARK_CHARS)}")


def _cells(call: WaitingCall) -> tuple[str, ...]:
    cells = (call.execution_id, call.agent or "-", call.call_id, call.tool, short_digest(call.digest))
    return tuple(escape(printable(cell)) for cell in (*cells, _moment(call.asked_at), _moment(call.expires_at)))


def _arguments(call: WaitingCall, width: int) -> str:
    """Return at most so many characters of the arguments, or of what the server asks, with how many are not shown."""
    text = json.dumps(dict(call.arguments), ensure_ascii=False) if call.message is None else f"asks: {call.message}"
    return escape(output.short(text, min(width, output.LINE_CHARS_MAX)))


def whole(execution_id: str, call: ToolCall) -> str:
    """Return a call that waits with all of its arguments: what one is to decide about."""
    arguments = json.dumps(dict(call.arguments), indent=2, ensure_ascii=False)
    about = f"{call.name} of run {execution_id}, call {call.id}, digest {short_digest(call.digest)}"
    return printable(f"{about}\n{arguments}")


def _moment(at: datetime | None) -> str:
    return "-" if at is None else moment(at)
