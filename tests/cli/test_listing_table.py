"""Listings at any width: one line per row, and a sign wherever something is cut."""

from __future__ import annotations

import io
import re
from collections.abc import Sequence
from datetime import UTC, datetime
from uuid import uuid4

import pytest
from pydantic import JsonValue
from rich.console import Console

from holdfast.cli.screens import output, pending_calls, run_views, session_views, top_columns
from holdfast.cli.screens.listing_table import Column, print_listing
from holdfast.client.waiting_calls import WaitingCall, WaitingCalls

AT = datetime.now(UTC).isoformat(timespec="seconds")
LONG = "research_assistant_for_europe"
RUN = (str(uuid4()), LONG, "in progress", "response_format_mismatch", "12", "123,456", "1.2345", AT)
SESSION = (str(uuid4()), LONG, "suspended", "12", "3", AT)
UNPRICED = (*RUN[:6], "? (unpriced: a-model)", AT)
WAITING = (str(uuid4()), LONG, "call_2_0", "issue_refund_to_customer", "9c56aa120b71", "12:00:01Z", AT)
AT_WORK = (
    *(LONG, str(uuid4()), "session running", "12", "123,456", "1.2345", "######     60% max_tokens", "1 m 12 s"),
    *("2 calls", "acme", "6f1c2d3e"),
)
RECORD = (str(uuid4()), "7", "completed", "12", "123,456", AT, "What is the airspeed of an unladen swallow? " * 2)


def lines_of(columns: Sequence[Column], row: Sequence[str], width: int) -> list[str]:
    out = io.StringIO()
    print_listing(Console(file=out, width=width, highlight=False), columns, [row])
    return out.getvalue().splitlines()


@pytest.mark.parametrize("width", [50, 60, 80, 100, 120, 200])
@pytest.mark.parametrize(
    ("columns", "row"),
    [
        (output.RUN_COLUMNS, RUN),
        (output.RUN_COLUMNS, UNPRICED),
        (session_views.SESSION_COLUMNS, SESSION),
        (session_views.RECORD_COLUMNS, RECORD),
        (pending_calls.COLUMNS[:-1], WAITING),
        (top_columns.COLUMNS, AT_WORK),
    ],
    ids=["runs", "unpriced", "sessions", "records", "waiting", "top"],
)
def test_a_row_is_one_line_whose_cells_are_whole_or_end_with_a_sign(
    columns: Sequence[Column], row: Sequence[str], width: int
) -> None:
    head, line = lines_of(columns, row, width)
    assert max(len(head.rstrip()), len(line.rstrip())) <= width
    cells = [each for each in line.split("  ") if each.strip()]
    whole = [each for each in row if each in line]
    cut = [each.strip() for each in cells if each.strip().endswith("…")]
    assert all(any(each.startswith(one[:-1].strip()) for each in row) for one in cut)
    assert len(whole) + len(cut) == len(head.split()) - head.count("last activity")
    [id_] = [each for each in row if len(each) == 36]
    assert id_[:8] in line, "so much of the id does for every command"


@pytest.mark.parametrize("width", [30, 60, 80, 100, 120, 200])
def test_a_call_that_waits_is_listed_with_its_digest_whole_and_what_its_arguments_hide(
    monkeypatch: pytest.MonkeyPatch, width: int
) -> None:
    out = io.StringIO()
    monkeypatch.setattr(output, "tables", lambda: Console(file=out, width=width, highlight=False))
    arguments: dict[str, JsonValue] = {"order": 17, "why": "because " * 40}
    moment = datetime.now(UTC)
    ids = str(uuid4()), "clerk", str(uuid4()), None, "call_2_0", "refund"
    pending_calls.table(WaitingCalls((WaitingCall(*ids, arguments, "9c56aa120b71" * 5, moment, moment),)))
    _, line, *below = out.getvalue().splitlines()
    assert "9c56aa120b71" in line
    assert len(below) == (width < 160)
    assert below or ids[0] in line, "a program is told the whole id"
    told = below[0] if below else line
    assert '{"order": 17, "why": ' in told
    assert re.search(r"… \+[0-9]+ characters", told), told


@pytest.mark.parametrize("width", [60, 80, 100, 200])
def test_the_columns_of_steps_leave_room_for_the_calls(width: int) -> None:
    widths = run_views.step_widths(width)
    assert {"step", "in", "out"} <= set(widths)
    assert sum(widths.values()) + 2 * len(widths) + run_views.CALLS_CHARS_MIN <= width


def test_nothing_is_cut_where_there_is_room() -> None:
    _, line = lines_of(output.RUN_COLUMNS, RUN, 200)
    assert "…" not in line
    assert all(each in line for each in RUN)


def test_what_gives_way_last_is_the_name() -> None:
    _, line = lines_of(output.RUN_COLUMNS, RUN, 40)
    assert "…  in progress" in line
