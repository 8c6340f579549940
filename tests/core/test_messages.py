"""Messages, the store, and reading a tool call from whatever a provider sends."""

from __future__ import annotations

import json

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError

from holdfast.core.definition import Name
from holdfast.core.frozen import canonical
from holdfast.core.limits import ARGUMENTS_DEPTH_MAX, CALL_ID_CHARS_MAX, MALFORMED_CHARS_MAX, NAME_CHARS_MAX
from holdfast.core.messages import DEFAULT_SECTION, NAME_PATTERN, SECTIONS, Message, MessageStore, ToolCall
from tests.core.strategies import calls, json_maps, messages

any_text = st.text(st.characters() | st.sampled_from("\ud800\udfff\x00"), max_size=60)  # JSON can carry all of them


def nested(depth: int) -> str:
    return '{"a":' * depth + "1" + "}" * depth


@given(json_maps)
def test_arguments_that_are_a_json_object_are_read_as_they_are(arguments: dict[str, object]) -> None:
    call = ToolCall.parse("a", "add", json.dumps(arguments))
    assert call.malformed is None
    assert call.arguments == arguments
    assert json.loads(call.arguments_text) == arguments


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ('{"a": 1', "Expecting"),
        ("a = 1", "Expecting value"),
        ('{"a": 1} and more', "Extra data"),
        ("[1]", "valid dictionary"),
        ('"a"', "valid dictionary"),
        ("null", "valid dictionary"),
        ("1", "valid dictionary"),
        ('{"a": NaN}', "NaN is not a JSON number"),
        ('{"a": -Infinity}', "-Infinity is not a JSON number"),
        ('{"a": 1e400}', "finite number"),
        ('{"a": [[-1e400]]}', "finite number"),
        ('{"a": "\\ud800"}', "surrogates not allowed"),
        ('{"\\udfff": 1}', "surrogates not allowed"),
        ('{"a": ' + "1" * 5_000 + "}", "4300 digits"),
        (nested(ARGUMENTS_DEPTH_MAX), f"more than {ARGUMENTS_DEPTH_MAX} levels"),
        (nested(10_000), "levels deep"),
        ("[" * 100_000, "levels deep"),
        ('{"a": "' + "\ud800" * 3_000, "Unterminated string"),
    ],
)
def test_arguments_that_cannot_be_used_are_emptied_and_the_reason_kept(text: str, why: str) -> None:
    call = ToolCall.parse("a", "add", text)
    assert call.arguments == {}
    assert call.malformed is not None
    assert why in call.malformed
    assert len(call.malformed) <= MALFORMED_CHARS_MAX


@pytest.mark.parametrize("text", ["", "{}"])
def test_no_arguments_are_an_empty_object(text: str) -> None:
    call = ToolCall.parse("a", "add", text)
    assert (call.arguments, call.malformed) == ({}, None)


def test_arguments_nested_as_deep_as_allowed_are_read() -> None:
    call = ToolCall.parse("a", "add", nested(ARGUMENTS_DEPTH_MAX - 1))
    assert call.malformed is None
    assert ToolCall.model_validate_json(canonical(call)) == call


def test_numbers_beyond_a_machine_word_are_kept_exactly() -> None:
    call = ToolCall.parse("a", "add", '{"a": 123456789012345678901234567890, "b": 5e-324}')
    assert call.arguments == {"a": 123456789012345678901234567890, "b": 5e-324}
    assert ToolCall.model_validate_json(canonical(call)) == call


@pytest.mark.parametrize("name", ["", "add numbers", "add\n", "größe", "a.b", "x" * (NAME_CHARS_MAX + 1), "a\ud800"])
def test_an_illegal_name_is_replaced_by_one_that_servers_take_back(name: str) -> None:
    call = ToolCall.parse("a", name, '{"a": 1}')
    assert NAME_PATTERN.fullmatch(call.name)
    assert call.malformed is not None
    assert "is not a tool name" in call.malformed
    assert call.arguments == {}


def test_an_id_that_no_server_takes_back_is_left_to_the_loop_to_replace() -> None:
    assert ToolCall.parse("x" * CALL_ID_CHARS_MAX, "add", "{}").id == "x" * CALL_ID_CHARS_MAX
    assert ToolCall.parse("x" * (CALL_ID_CHARS_MAX + 1), "add", "{}").id == ""


@given(any_text, any_text, any_text)
@example("call_\ud800", "add", "{}")
@example("a", "\x01" * NAME_CHARS_MAX, "{}")
@example("a", "\U000e0001" * NAME_CHARS_MAX, "{}")
def test_any_words_of_a_provider_become_a_call_that_can_be_stored_and_sent_back(
    call_id: str, name: str, text: str
) -> None:
    call = ToolCall.parse(call_id, name, text)
    assert ToolCall.model_validate_json(canonical(call)) == call
    assert NAME_PATTERN.fullmatch(call.name)
    assert len(call.id) <= CALL_ID_CHARS_MAX
    assert len(call.malformed or "") <= MALFORMED_CHARS_MAX


@given(calls)
def test_arguments_travel_as_compact_json_that_is_valid_utf8(call: ToolCall) -> None:
    assert json.loads(call.arguments_text.encode()) == call.arguments


def test_tags_are_added_to_what_is_there() -> None:
    message = Message(role="user", metadata={"a": 1, "b": 1}).tagged(b=2, c=3)
    assert message.metadata == {"a": 1, "b": 2, "c": 3}


@given(messages)
def test_the_model_never_sees_metadata(message: Message) -> None:
    seen = message.for_model()
    assert seen.metadata == {}
    assert (seen.role, seen.content, seen.tool_calls) == (message.role, message.content, message.tool_calls)


@given(messages)
def test_a_message_survives_json(message: Message) -> None:
    assert Message.model_validate_json(canonical(message)) == message


def test_a_new_store_has_its_sections_in_the_order_the_model_sees_them() -> None:
    assert tuple(section.name for section in MessageStore().sections) == SECTIONS == ("summary", "buffer", "messages")


def test_a_store_grows_in_its_default_section_alone() -> None:
    empty = MessageStore()
    said = empty.extended(Message(role="user", content="a"), Message(role="user", content="b"))
    assert [message.content for message in said.messages] == ["a", "b"]
    assert said.section(DEFAULT_SECTION).messages is said.messages
    assert len(said.section("buffer").messages) == len(empty.messages) == 0


def test_an_unknown_section_is_a_key_error() -> None:
    with pytest.raises(KeyError, match="nope"):
        MessageStore().section("nope")


@given(st.text("aZ09_-. \nä", max_size=NAME_CHARS_MAX + 1))
@example("x" * (NAME_CHARS_MAX + 1))
def test_the_names_of_a_definition_and_of_a_providers_functions_follow_one_rule(name: str) -> None:
    try:
        taken = TypeAdapter[str](Name).validate_python(name) == name
    except ValidationError:
        taken = False
    assert taken is bool(NAME_PATTERN.fullmatch(name))
