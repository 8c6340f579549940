"""The calls that wait for a person, as people and programs are shown them. Asks nothing."""

from __future__ import annotations

import json
from dataclasses import asdict
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

from rich.markup import escape
from rich.table import Table

from holdfast.client.cli import render
from holdfast.client.report.words import moment
from holdfast.core.digests import short_digest
from holdfast.core.texts import printable

if TYPE_CHECKING:
    from holdfast.client.approvals import WaitingCall, WaitingCalls

COLUMNS: Final = ("run", "agent", "call", "tool", "arguments", "digest", "asked", "expires")
WHOLE: Final = ("run", "call", "digest")
"""What is copied from there and must stay in one piece."""


def line(call: WaitingCall) -> dict[str, Any]:
    """Return a call of the listing, JSON-ready; its arguments are whole."""
    times = {name: None if at is None else at.isoformat() for name, at in _times(call).items()}
    return {**asdict(call), "arguments": dict(call.arguments), **times}


def table(found: WaitingCalls) -> None:
    """Print the listing; arguments are cut to a line, which its last character says."""
    if not found:
        render.hint("no call waits for a person")
        return
    shown = Table(box=None, pad_edge=False)
    for name in COLUMNS:
        shown.add_column(name, overflow="fold", no_wrap=name in WHOLE)
    for each in found:
        arguments = render.short(json.dumps(dict(each.arguments), ensure_ascii=False))
        cells = (each.execution_id, each.agent or "-", each.call_id, each.tool, arguments, short_digest(each.digest))
        shown.add_row(*(escape(printable(cell)) for cell in (*cells, *map(_moment, _times(each).values()))))
    render.tables().print(shown)


def _times(call: WaitingCall) -> dict[str, datetime | None]:
    return {"asked_at": call.asked_at, "expires_at": call.expires_at}


def _moment(at: datetime | None) -> str:
    return "-" if at is None else moment(at)
