"""Output of a session's events: a line each, or JSON. Asks nothing and decides nothing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import assert_never

from holdfast.cli.screens import output
from holdfast.cli.screens.run_progress import ID_CHARS
from holdfast.core.conversation.amounts import counted
from holdfast.core.wire.event_envelope import NumberedEvent, to_dict
from holdfast.core.wire.session_contracts import Branch
from holdfast.core.wire.session_events import (
    AnySessionEvent,
    MessageAccepted,
    SessionChanged,
    SessionClosed,
    SessionCreated,
    SessionEvent,
    SessionForked,
    SessionResumed,
    SessionSuspended,
)


def print_events(events: Sequence[NumberedEvent], *, as_json: bool) -> None:
    """Print the events, and on standard error how many earlier ones are not known any more."""
    missing = 0 if not events else events[-1].sequence - len(events)
    if missing > 0:
        output.hint(f"{counted(missing, 'earlier event')} not shown: forgotten by the server, or more than are read")
    for each in events:
        if as_json:
            output.as_json(to_dict(each))
        elif isinstance(each.event, SessionEvent):
            output.event(f"{each.event.at:%Y-%m-%d %H:%M:%S} {each.sequence:>3}", each.event.kind, _detail(each.event))


def _detail(event: AnySessionEvent) -> str:
    """Return what one wants to know of an event first."""
    match event:
        case SessionCreated():
            return event.agent
        case SessionForked():
            return f"from {_place(event.origin)}"
        case MessageAccepted():
            return f"{event.message_id} ({event.while_running}, {event.chars:,} characters): {event.excerpt}"
        case SessionChanged():
            place = "" if event.place is None or "conversation" not in event.changed else f": {_place(event.place)}"
            return ", ".join(event.changed) + place
        case SessionSuspended():
            return "" if event.running_id is None else f"run {event.running_id[:ID_CHARS]} continues to its end"
        case SessionResumed():
            return counted(event.waiting, "message") + " waiting"
        case SessionClosed():
            return counted(event.waiting, "message") + (" kept" if event.at_once else " still to be answered")
        case _:
            assert_never(event)


def _place(place: Branch) -> str:
    after = "" if place.steps is None else f" after step {place.steps}"
    return f"agent {place.agent_id[:ID_CHARS]}, run {place.execution_id[:ID_CHARS]}{after}"
