"""Messages, the store, and reading a tool call from whatever a provider sends."""

from __future__ import annotations

import json

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError

from holdfast.core.agent.state import AgentState
from holdfast.core.base.append_list import AppendList
from holdfast.core.base.bounds import ARGUMENTS_DEPTH_MAX, CALL_ID_CHARS_MAX, MALFORMED_CHARS_MAX, NAME_CHARS_MAX
from holdfast.core.base.errors import InvalidInput
from holdfast.core.base.frozen import canonical
from holdfast.core.base.names import Name
from holdfast.core.conversation.messages import (
    DEFAULT_SECTION,
    MESSAGE_BYTES_MAX,
    NAME_PATTERN,
    PARTS_MAX,
    SECTIONS,
    SECTIONS_MAX,
    ImagePart,
    Message,
    MessageStore,
    Role,
    Section,
    TextPart,
    ToolCall,
    pairing_problem,
)
from tests.core.strategies import calls, conversations, json_maps, messages, stores

PICTURE = ImagePart(url="https://example.com/cat.png", detail="low")

any_text = st.text(st.characters() | st.sampled_from("\ud800\udfff\x00"), max_size=60)  # JSON can carry all of them


def user(content: str) -> Message:
    return Message(role="user", content=content)


def asking(*call_ids: str) -> Message:
    calls = tuple(ToolCall(id=call_id, name="add") for call_id in call_ids)
    return Message(role="assistant", tool_calls=calls)


def answering(call_id: str) -> Message:
    return Message(role="tool", content="3", tool_call_id=call_id)


def stored(*messages: Message) -> MessageStore:
    return MessageStore().extended(*messages)


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
        ('{"a": ' + "1" * 5_000 + "}", "5,000 digits"),
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


@pytest.mark.parametrize(
    ("text", "usable"), [("", False), (" ", False), ("{}", True), ('{"a": 1}', True), ('{"a', False)]
)
def test_a_call_that_was_cut_off_before_its_arguments_is_not_usable(text: str, *, usable: bool) -> None:
    assert (ToolCall.parse("a", "add", text, cut=True).malformed is None) == usable


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
    with pytest.raises(KeyError, match="nope"):
        MessageStore().extended(user("a"), section="nope")


def test_a_message_may_hold_pictures_between_its_words() -> None:
    message = Message(role="user", content=(TextPart(text="What is "), PICTURE, TextPart(text="this?")))
    assert message.text == "What is this?"
    assert message.model_dump(mode="json")["content"][1] == {
        "type": "image_url",
        "url": "https://example.com/cat.png",
        "detail": "low",
    }
    assert user("words").text == "words"


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"role": "robot"}, "'system', 'user', 'assistant' or 'tool'"),
        ({"role": "user", "tool_calls": [{"id": "a", "name": "b"}]}, "only an assistant asks for tool calls"),
        ({"role": "assistant", "tool_calls": [{"id": "a", "name": "b"}] * 129}, "at most 128 items"),
        ({"role": "tool"}, "needs the `tool_call_id`"),
        ({"role": "tool", "tool_call_id": ""}, "at least 1 character"),
        ({"role": "tool", "tool_call_id": "\ud800"}, "unicode"),
        ({"role": "tool", "tool_call_id": "x" * 201}, "at most 200 characters"),
        ({"role": "user", "tool_call_id": "a"}, "only a tool's message answers a call, not the role 'user'"),
        ({"role": "user", "content": "a" * (MESSAGE_BYTES_MAX + 1)}, "has 262,145 bytes, at most 262,144"),
        ({"role": "user", "content": "€" * (MESSAGE_BYTES_MAX // 3 + 1)}, "has 262,146 bytes, at most 262,144"),
        ({"role": "user", "content": "a\ud800"}, "unicode"),
        ({"role": "user", "content": [{"type": "text", "text": "a\udfff"}]}, "unicode"),
        ({"role": "user", "content": [{"type": "text", "text": "a" * 200_000}] * 2}, "has 400,000 bytes"),
        ({"role": "user", "content": []}, "at least 1 item"),
        ({"role": "user", "content": [{"type": "text", "text": "a"}] * (PARTS_MAX + 1)}, f"at most {PARTS_MAX} items"),
        ({"role": "user", "content": [{"type": "sound"}]}, "'text', 'image_url'"),
        ({"role": "user", "content": [{"type": "image_url", "url": "file:///etc/passwd"}]}, "data:image"),
        ({"role": "tool", "tool_call_id": "a", "content": [PICTURE]}, "only a user's message holds pictures"),
        ({"role": "user", "content": 5}, "valid string"),
        ({"role": "user", "name": "Ann"}, "Extra inputs"),
    ],
)
def test_a_message_that_no_provider_or_payload_takes_is_refused(fields: dict[str, object], why: str) -> None:
    with pytest.raises(ValidationError) as caught:
        Message.model_validate(fields)
    assert why in str(caught.value)


@pytest.mark.parametrize("char", ["a", "é", "😀"])
def test_a_content_as_large_as_allowed_is_taken(char: str) -> None:
    assert user(char * (MESSAGE_BYTES_MAX // len(char.encode()))).text[0] == char


BROKEN: dict[str, tuple[tuple[Message, ...], int, str]] = {
    "an answer nobody asked for": ((user("a"), answering("a")), 1, "no message before it requests"),
    "a call without its answer": ((user("a"), asking("a")), 1, "'a' is not answered"),
    "one answer of two missing": ((asking("a", "b"), answering("b"), user("x")), 0, "'a' is not answered"),
    "an answer that comes late": ((asking("a"), user("x"), answering("a")), 0, "'a' is not answered right behind"),
    "an answer given twice": ((asking("a"), answering("a"), answering("a")), 2, "no message before it requests"),
    "two calls of one id": ((asking("a", "a"), answering("a")), 0, "the same id"),
    "an answer to an earlier round": (
        (asking("a"), answering("a"), asking("b"), answering("a"), answering("b")),
        3,
        "no message before it requests",
    ),
}


@pytest.mark.parametrize(("messages", "place", "why"), BROKEN.values(), ids=BROKEN)
def test_a_conversation_whose_calls_and_answers_do_not_pair_is_named_by_its_place(
    messages: tuple[Message, ...], place: int, why: str
) -> None:
    problem = pairing_problem(messages)
    assert problem is not None
    assert problem.startswith(f"message {place}: ")
    assert why in problem

    data = json.loads(canonical(stored(*messages)))
    with pytest.raises(ValidationError) as caught:
        MessageStore.model_validate(data)
    (error,) = caught.value.errors()
    assert error["loc"] == ("sections", 2, "messages", place)
    assert why in error["msg"]


def test_a_broken_conversation_is_found_wherever_the_store_is_kept() -> None:
    moment = "2026-01-01T00:00:00Z"
    store = json.loads(canonical(stored(answering("a"))))
    data = {"agent_id": "0" * 8 + "-0000" * 3 + "-" + "0" * 12, "created_at": moment, "updated_at": moment}
    with pytest.raises(ValidationError, match=r"context\.store\.sections\.2\.messages\.0"):
        AgentState.model_validate_json(json.dumps({**data, "context": {"store": store}}))


@given(conversations)
def test_a_conversation_that_pairs_has_no_problem(messages: tuple[Message, ...]) -> None:
    assert pairing_problem(messages) is None
    store = stored(*messages)
    assert MessageStore.model_validate_json(canonical(store)) == store


@given(conversations, st.data())
def test_a_conversation_that_lost_an_answer_or_a_call_has_one(
    messages: tuple[Message, ...], data: st.DataObject
) -> None:
    traffic = [place for place, message in enumerate(messages) if message.role == "tool" or message.tool_calls]
    if traffic:
        lost = data.draw(st.sampled_from(traffic))
        assert pairing_problem((*messages[:lost], *messages[lost + 1 :])) is not None


def test_appending_is_not_checked_so_that_it_costs_only_what_is_new() -> None:
    store = stored(user("a"))
    assert store.extended(asking("a")).messages._items is store.messages._items  # pyright: ignore[reportPrivateUsage]


@pytest.mark.parametrize(
    ("names", "why"),
    [
        (["messages", "notes", "notes"], "two sections called 'notes'"),
        (["summary"], "'messages' is missing"),
        (["messages", "my notes"], "sections.1.name"),
        (["messages", *(f"s{n}" for n in range(SECTIONS_MAX))], f"at most {SECTIONS_MAX} items"),
    ],
)
def test_a_store_refuses_sections_that_cannot_be_told_apart_or_are_too_many(names: list[str], why: str) -> None:
    with pytest.raises(ValidationError) as caught:
        MessageStore.model_validate({"sections": [{"name": name} for name in names]})
    assert why in str(caught.value)


def test_a_section_takes_the_place_of_its_name_and_a_new_one_stands_where_it_is_wanted() -> None:
    notes = Section(name="notes", messages=AppendList([user("remember")]))
    store = MessageStore().with_section(notes)
    assert [section.name for section in store.sections] == [*SECTIONS, "notes"]
    emptied = store.with_section(Section(name="notes"))
    assert [len(section.messages) for section in emptied.sections] == [0, 0, 0, 0]
    assert store.section("notes").messages[0].text == "remember", "the first store is what it was"
    first = MessageStore().with_section(notes, before="summary")
    assert [section.name for section in first.sections] == ["notes", *SECTIONS]


def test_one_section_too_many_is_refused() -> None:
    store = MessageStore()
    for number in range(SECTIONS_MAX - len(SECTIONS)):
        store = store.with_section(Section(name=f"s{number}"))
    with pytest.raises(InvalidInput, match="'more' would be one section more than 64"):
        store.with_section(Section(name="more"))
    assert store.with_section(Section(name="s0")) == store


def test_messages_can_be_said_in_another_section() -> None:
    store = MessageStore().extended(user("a"), section="summary")
    assert store.section("summary").messages[0].text == "a"
    assert len(store.messages) == 0


def test_moved_messages_stand_behind_those_that_are_there() -> None:
    store = stored(user("b"), asking("a"), answering("a"), user("c")).extended(user("a"), section="buffer")
    moved = store.moved(3, "messages", "buffer")
    assert [message.role for message in moved.section("buffer").messages] == ["user", "user", "assistant", "tool"]
    assert [message.text for message in moved.messages] == ["c"]
    assert len(store.messages) == 4, "the first store is what it was"


@given(stores, st.integers(0, 12))
def test_moving_loses_and_repeats_nothing_or_is_refused(store: MessageStore, count: int) -> None:
    store = store if store.has("buffer") else store.with_section(Section(name="buffer"))
    there, messages = tuple(store.section("buffer").messages), tuple(store.messages)
    try:
        moved = store.moved(count, "messages", "buffer")
    except InvalidInput:
        assert count > len(messages) or pairing_problem(messages[:count]) is not None
        return
    assert tuple(moved.section("buffer").messages) == (*there, *messages[:count])
    assert tuple(moved.messages) == messages[count:]
    assert MessageStore.model_validate_json(canonical(moved)) == moved


@pytest.mark.parametrize(
    ("count", "source", "target", "why"),
    [
        (2, "messages", "buffer", "would part a call from its answers"),
        (5, "messages", "buffer", "cannot move 5 of the 4 messages"),
        (-1, "messages", "buffer", "cannot move -1"),
        (1, "messages", "messages", "name two sections"),
    ],
)
def test_a_move_that_makes_no_sense_is_refused(count: int, source: str, target: str, why: str) -> None:
    store = stored(user("b"), asking("a"), answering("a"), user("c"))
    with pytest.raises(InvalidInput, match=why):
        store.moved(count, source, target)


ROLES: tuple[Role, ...] = ("system", "user", "assistant")


@pytest.mark.parametrize("role", ROLES)
def test_words_in_parts_are_fine_for_everyone(role: Role) -> None:
    assert Message(role=role, content=(TextPart(text="a"), TextPart(text="b"))).text == "ab"


@given(st.text("aZ09_-. \nä", max_size=NAME_CHARS_MAX + 1))
@example("x" * (NAME_CHARS_MAX + 1))
def test_the_names_of_a_definition_and_of_a_providers_functions_follow_one_rule(name: str) -> None:
    try:
        taken = TypeAdapter[str](Name).validate_python(name) == name
    except ValidationError:
        taken = False
    assert taken is bool(NAME_PATTERN.fullmatch(name))
