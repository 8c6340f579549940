"""Calls, moments and amounts in a few words: one line, bounded, nothing in it that steers or that is a secret."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import JsonValue

from holdfast.core.conversation.amounts import amount, duration, in_full, moment
from holdfast.core.conversation.display_text import (
    CUT,
    HIDDEN,
    SUMMARY_LINE_BYTES_MAX,
    call_line,
    on_a_line,
    summary_line,
)
from holdfast.core.conversation.messages import ToolCall
from tests.rendering import HOSTILE, STEERING, kinds

LENGTHS: dict[float | None, str] = {
    None: "–",
    -1: "0 s",
    0.0: "0 s",
    0.0421: "42 ms",
    0.9996: "1.0 s",
    1.25: "1.2 s",
    9.99: "10.0 s",
    51: "51 s",
    59.96: "1 min",
    61: "1 min 01 s",
    605.0: "10 min 05 s",
    3_600.0: "1 h",
    7_620: "2 h 07 min",
    273_600.0: "3 d 04 h",
}

any_text = st.text(st.characters(codec=None), max_size=400)


def line(arguments: dict[str, JsonValue], chars_max: int = 80) -> str:
    return call_line(ToolCall(id="c", name="do", arguments=arguments), chars_max)


@given(any_text, st.integers(1, 120))
def test_a_line_is_one_line_that_keeps_its_limit(text: str, chars_max: int) -> None:
    made = on_a_line(text, chars_max)
    assert len(made) <= chars_max
    assert made.isprintable()
    made.encode()


def test_a_line_keeps_what_it_can_and_says_where_it_is_cut() -> None:
    assert on_a_line(" two\n\twords ", 80) == "two words"
    assert on_a_line("x" * 81, 80) == "x" * 79 + CUT
    assert on_a_line("x" * 80, 80) == "x" * 80
    assert on_a_line("x" + " " * 1_000 + "y", 80).endswith(CUT)
    assert on_a_line(STEERING, 80) == r"\u202e\x1b[31mred \x00"


@given(any_text)
def test_a_summary_fits_what_a_server_takes(text: str) -> None:
    assert len(summary_line(text).encode()) <= SUMMARY_LINE_BYTES_MAX
    assert len(summary_line("😀" * 120, 120).encode()) <= SUMMARY_LINE_BYTES_MAX


def test_a_summary_makes_no_link_where_it_is_read_as_markdown() -> None:
    links = ("[click](http://evil/)", "![i](http://evil/i)", "<http://evil/>", "[x] \n(http://e)", "[x][y]", "http://e")
    for text in (*links, "<b>bold</b>", HOSTILE):
        made = summary_line(text, 120)
        assert not {"link_open", "image", "html_inline"} & set(kinds(made))
        assert not re.search(r"<|://|\]\s*[(\[]", made)  # not for a more generous reader either


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ({}, "do()"),
        ({"path": "src/a.py"}, "do(src/a.py)"),
        ({"n": 5, "to": "bob"}, "do(n=5, to=bob)"),
        ({"a": [1, {"b": None}], "c": True, "d": 0.5}, "do(a=[1, {b=null}], c=true, d=0.5)"),
        ({"deep": [[[["x"]]]]}, f"do([[[{CUT}]]])"),
        ({"api_key": "k-1"}, f"do({HIDDEN})"),
        ({"headers": {"Authorization": "k-1"}, "url": "x"}, f"do(headers={HIDDEN}, url=x)"),
        ({"a": {"password": "k-1"}, "max_tokens": 5}, f"do(a={{password={HIDDEN}}}, max_tokens=5)"),
    ],
)
def test_a_call_is_told_by_its_arguments_but_for_secrets(arguments: dict[str, JsonValue], told: str) -> None:
    assert line(arguments) == told


def test_a_call_with_much_in_it_is_cut() -> None:
    many: list[dict[str, Any]] = [
        {"a": "x" * 60_000},
        {"a": ["y"] * 9_000},
        {f"n{n}": n for n in range(5_000)},
    ]
    for arguments in many:
        assert 79 <= len(line(arguments)) <= 80
        assert line(arguments).endswith(CUT)


def test_amounts_are_short() -> None:
    told = {0: "0", 999: "999", 1_000: "1.0k", 1_234: "1.2k", 120_000: "120k", 999_999: "1.0M", 3_400_000: "3.4M"}
    assert {count: amount(count) for count in told} == told


def test_limits_are_told_in_full() -> None:
    told = {
        0: "0",
        20: "20",
        2_000_000: "2,000,000",
        2_592_000.0: "2,592,000",
        0.05: "0.05",
        1_234_567.5: "1,234,567.5",
    }
    assert {limit: in_full(limit) for limit in told} == told


def test_lengths_of_time_are_short() -> None:
    assert {seconds: duration(seconds) for seconds in LENGTHS} == LENGTHS


def test_a_moment_is_told_in_utc_with_its_day_unless_that_is_known() -> None:
    noon = datetime(2026, 11, 21, 12, tzinfo=UTC)
    assert moment(noon) == "2026-11-21 12:00:00Z"
    assert moment(noon, noon - timedelta(hours=1)) == "12:00:00Z"
    assert moment(noon, noon - timedelta(days=1)) == "2026-11-21 12:00:00Z"
    assert moment(noon.astimezone(timezone(timedelta(hours=14))), noon) == "12:00:00Z"
    last = datetime.max.replace(tzinfo=timezone(timedelta(hours=-14)))
    assert moment(last).startswith("9999-12-31 23:59:59")
