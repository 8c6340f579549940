"""Foreign text is bounded and encodable, whatever is in it."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.core.base.bounds import ERROR_CHARS_MAX
from holdfast.core.base.safe_text import clamped, clamped_json, encodable, json_size, printable
from holdfast.core.conversation.error_records import error_record

NOTE_CHARS = 64  # room for the sentence about the cut
any_text = st.text(st.characters() | st.sampled_from("\ud800\udfff\x00\x1b\u202e"), max_size=200)


@given(any_text)
def test_encodable_text_is_utf8_and_good_text_stays_as_it_is(text: str) -> None:
    made = encodable(text)
    made.encode()
    assert len(made) == len(text)
    assert encodable(made) == made


@given(any_text, st.integers(NOTE_CHARS, 150))
def test_a_clamped_text_keeps_its_beginning_and_the_limit(text: str, chars_max: int) -> None:
    made = clamped(text, chars_max)
    assert len(made) <= chars_max
    made.encode()
    if len(text) <= chars_max:
        assert made == encodable(text)
    else:
        kept, note = made.rsplit("\n", 1)
        assert encodable(text).startswith(kept)
        assert note == f"[cut: the first {chars_max:,} of {len(text):,} characters]"


@given(any_text, st.integers(NOTE_CHARS, 300))
def test_a_text_clamped_as_json_takes_no_more_and_is_cut_between_characters(text: str, bytes_max: int) -> None:
    made = clamped_json(text, bytes_max)
    assert json_size(made) <= bytes_max
    whole = encodable(text)
    if json_size(whole) <= bytes_max:
        assert made == whole
    else:
        assert whole.startswith(made.rsplit("\n", 1)[0])


@given(any_text)
def test_a_printable_text_cannot_steer_a_terminal(text: str) -> None:
    made = printable(text)
    assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b-\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]", made)
    assert printable(made) == made


def test_a_printable_text_shows_what_was_there() -> None:
    assert printable("\x1b[31mred\x07\u202e\r\n\tü😀") == "\\x1b[31mred\\x07\\u202e\\r\n\tü😀"


def test_an_error_becomes_its_type_its_text_and_its_source() -> None:
    record = error_record(ValueError("no good"), "add")
    assert (record.type, record.message, record.source) == ("ValueError", "no good", "add")


def test_a_huge_error_is_cut() -> None:
    assert len(error_record(ValueError("x" * 10**6), "add").message) <= ERROR_CHARS_MAX


def test_an_unencodable_error_becomes_encodable() -> None:
    assert error_record(ValueError("\ud800"), "add").message == "?"


class Mute(Exception):
    """An error whose text raises what it was given."""

    def __init__(self, raised: BaseException) -> None:
        super().__init__()
        self.raised = raised

    def __str__(self) -> str:
        raise self.raised


@pytest.mark.parametrize("raised", [ValueError("x"), RecursionError(), SystemExit(3)], ids=repr)
def test_an_error_without_a_readable_text_is_still_told(raised: BaseException) -> None:
    record = error_record(Mute(raised), "add")
    assert record.type == "Mute"
    assert record.message == f"(its text cannot be read: {type(raised).__name__})"
