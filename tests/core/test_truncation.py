"""The last line of a text that is shown in part: it fits, it is true, and it stays true however the text is cut on."""

from __future__ import annotations

import re

from hypothesis import given
from hypothesis import strategies as st
from pydantic_core import to_json

from holdfast.core.base.bounds import CALLS_PER_STEP_MAX, STEP_RESULTS_BYTES_MAX, TOOL_RESULT_CHARS_MAX
from holdfast.core.base.safe_text import clamped, clamped_json
from holdfast.core.base.truncation import LINE_CHARS_MAX, Reference, shortened, trimmed

REF = Reference(ref="0123456789abcdef01234567", total="5,000,000")
LINE = re.compile(
    r'\n\[cut: bytes ([\d,]+) to ([\d,]+) of ([^;]+); fetch_result\(ref="(\w+)", offset=(\d+)\) reads on, .*\]$'
)


def told(text: str) -> tuple[str, int, int, int, str]:
    """Return what is shown, and what the last line says: from, to, the offset to read on at, and the total."""
    found = LINE.search(text)
    assert found, text[-200:]
    numbers = (int(found[1].replace(",", "")), int(found[2].replace(",", "")), int(found[5]))
    return (text[: found.start()], *numbers, found[3])


def test_what_is_shown_fits_and_says_where_to_read_on() -> None:
    shown = REF.shown("é" * 10**6, 10_000, 3_000)
    text, start, end, offset, total = told(shown)
    assert len(shown) <= 3_000
    assert (start, end, offset, total) == (0, len(text.encode()), 2 * len(text), "5,000,000")


def test_a_reference_into_the_middle_counts_from_there() -> None:
    text, start, end, offset, _ = told(Reference("ab", "9", start=1_000).shown("x" * 10_000, 2_000))
    assert (start, end, offset) == (1_000, 1_000 + len(text), 1_000 + len(text))


@given(st.text(min_size=400), st.integers(LINE_CHARS_MAX, 3_000), st.integers(LINE_CHARS_MAX, 3_000))
def test_every_further_cut_keeps_the_line_and_makes_it_true(text: str, first: int, second: int) -> None:
    once = REF.shown(text, first)
    twice = shortened(once, second)
    for shown, most in ((once, first), (twice, second)):
        assert len(to_json(shown)) <= most
        beginning, _, end, offset, _ = told(shown)
        assert end == offset == len(beginning.encode())
        assert text.encode("utf-8", "replace").decode().startswith(beginning)


def test_the_share_of_a_call_among_the_most_there_can_be_has_room_for_the_line() -> None:
    share = STEP_RESULTS_BYTES_MAX // CALLS_PER_STEP_MAX
    text, _, end, _, _ = told(shortened(REF.shown("x" * 10**6, 10**6, TOOL_RESULT_CHARS_MAX), share))
    assert end == len(text) > share - LINE_CHARS_MAX


def test_what_fits_stays_as_it_is() -> None:
    shown = REF.shown("x" * 10_000, 5_000)
    assert shortened(shown, 5_000) == trimmed(shown, 5_000) == shown


def test_a_text_without_a_reference_is_cut_as_ever() -> None:
    plain = "x" * 10_000
    assert shortened(plain, 1_000) == clamped_json(plain, 1_000)
    assert trimmed(plain, 1_000) == clamped(plain, 1_000)


def test_trimming_keeps_the_reference_where_there_is_room_for_it() -> None:
    shown = REF.shown("x" * 10_000, 5_000)
    text, _, end, _, _ = told(trimmed(shown, 1_000))
    assert end == len(text)
    assert len(trimmed(shown, 1_000)) <= 1_000
    assert len(trimmed(shown, 100)) <= 100
