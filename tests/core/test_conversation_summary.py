"""Moving old messages aside and putting a summary in their place loses no pair and no question."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from holdfast.core.agent.policies import SummaryPolicy
from holdfast.core.base.bounds import PAYLOAD_BYTES_MAX, SUMMARY_BYTES_MAX
from holdfast.core.base.errors import ModelFailure
from holdfast.core.base.frozen import canonical
from holdfast.core.base.safe_text import json_size
from holdfast.core.conversation.messages import (
    MESSAGE_BYTES_MAX,
    ImagePart,
    Message,
    MessageStore,
    Section,
    TextPart,
    ToolCall,
    pairing_problem,
)
from holdfast.core.loop.conversation_summary import (
    INSTRUCTION,
    SUMMARY_HEAD,
    SUMMARY_REQUEST_BYTES_MAX,
    due,
    summarised,
    summary_request,
    to_buffer,
)
from tests.core.strategies import conversations


def keeping(count: int) -> SummaryPolicy:
    return SummaryPolicy(above_input_tokens=1_000, keep_messages=count)


def user(text: str) -> Message:
    return Message(role="user", content=text)


def final(text: str) -> Message:
    return Message(role="assistant", content=text)


def step(call_id: str, result: str = "3") -> tuple[Message, ...]:
    call = ToolCall(id=call_id, name="add", arguments={"a": 1, "b": 2})
    return (
        Message(role="assistant", content="I add.", tool_calls=(call,), metadata={"is_trace": True}),
        Message(role="tool", content=result, tool_call_id=call_id, metadata={"is_trace": True}),
    )


def stored(*messages: Message) -> MessageStore:
    return MessageStore().extended(*messages)


def texts(store: MessageStore, name: str) -> list[str]:
    return [message.text for message in store.section(name).messages]


def record_of(store: MessageStore) -> str:
    return summary_request(store)[1].text


def test_a_summary_is_due_above_the_limit() -> None:
    assert due(keeping(1), 1_001)
    assert not due(keeping(1), 1_000)


def test_old_messages_move_and_the_latest_stay() -> None:
    store = to_buffer(stored(user("One?"), final("1"), user("Two?"), final("2"), user("Three?")), keeping(2))
    assert texts(store, "buffer") == ["One?", "1", "Two?"]
    assert texts(store, "messages") == ["2", "Three?"]


def test_a_call_stays_with_its_answers_so_that_more_stay_than_asked() -> None:
    store = to_buffer(stored(user("One?"), final("1"), user("Two?"), *step("a"), final("2")), keeping(2))
    assert texts(store, "buffer") == ["One?", "1", "Two?"]
    assert texts(store, "messages") == ["I add.", "3", "2"]


def test_the_question_being_worked_on_stays_while_the_steps_it_took_move() -> None:
    store = to_buffer(stored(user("One?"), final("1"), user("Two?"), *step("a"), *step("b")), keeping(2))
    assert texts(store, "buffer") == ["One?", "1", "I add.", "3"]
    assert texts(store, "messages") == ["Two?", "I add.", "3"]
    further = to_buffer(store.extended(*step("c", "4")), keeping(2))
    assert texts(further, "messages") == ["Two?", "I add.", "4"]


def test_a_question_that_has_its_answer_may_move() -> None:
    assert texts(to_buffer(stored(user("One?"), final("1")), keeping(0)), "messages") == []


@pytest.mark.parametrize("count", [1, 3, 20])
def test_nothing_old_leaves_the_very_same_store(count: int) -> None:
    store = stored(user("One?"), *step("a")) if count > 1 else stored(user("One?"))
    assert to_buffer(store, keeping(count)) is store


@given(conversations, conversations, st.integers(0, 12))
@example((), (user("a"), *step("x"), user("b"), *step("y"), *step("z")), 1)
def test_moving_splits_no_pair_loses_and_repeats_nothing_and_keeps_the_question(
    before: tuple[Message, ...], said: tuple[Message, ...], count: int
) -> None:
    store = stored(*said).extended(*before, section="buffer")
    moved = to_buffer(store, keeping(count))
    old, kept = tuple(moved.section("buffer").messages), tuple(moved.messages)

    assert old[: len(before)] == before
    old = old[len(before) :]
    assert pairing_problem(old) is None
    assert pairing_problem(kept) is None
    assert sorted(map(id, (*old, *kept))) == sorted(map(id, said)), "the very same messages, each once"
    place = {id(message): at for at, message in enumerate(said)}
    for part in (old, kept):
        assert [place[id(message)] for message in part] == sorted(place[id(message)] for message in part)
    assert kept[len(kept) - min(count, len(said)) :] == said[len(said) - min(count, len(said)) :]
    questions = [message for message in said if message.role == "user"]
    if questions:
        behind = said[place[id(questions[-1])] :]
        answered = any(m.role == "assistant" and not m.tool_calls for m in behind)
        assert answered or any(message is questions[-1] for message in kept)
    assert MessageStore.model_validate_json(canonical(moved)) == moved


def test_a_store_without_the_sections_gets_them_before_its_messages() -> None:
    bare = MessageStore(sections=(Section(name="notes"), Section(name="messages")))
    moved = to_buffer(bare.extended(user("a"), final("b"), user("c")), keeping(1))
    assert [section.name for section in moved.sections] == ["notes", "summary", "buffer", "messages"]
    assert texts(moved, "buffer") == ["a", "b"]
    assert [section.name for section in summarised(bare, "short").sections] == [
        *("notes", "summary", "buffer", "messages"),
    ]


def test_a_model_is_asked_with_the_conversation_as_words() -> None:
    picture = (TextPart(text="What is this?"), ImagePart(url="https://example.com/1.png"))
    store = stored().extended(Message(role="user", content=picture), *step("a"), final("A cat."), section="buffer")
    instruction, record = summary_request(store)
    assert (instruction.role, instruction.content) == ("system", INSTRUCTION)
    assert record == user(
        "<conversation>\n"
        "user: What is this? [picture]\n\n"
        'assistant: I add.\nassistant calls add (a): {"a":1,"b":2}\n\n'
        "tool result of a: 3\n\n"
        "assistant: A cat.\n"
        "</conversation>"
    )


def test_the_summary_before_is_part_of_what_is_summarised() -> None:
    store = summarised(stored(), "Ann wants tea.").extended(user("And milk."), section="buffer")
    assert record_of(store) == (
        "<summary>\nAnn wants tea.\n</summary>\n\n<conversation>\nuser: And milk.\n</conversation>"
    )


@pytest.mark.parametrize(
    ("count", "shown"),
    [(3, "first 8,000 of"), (30, "first 2,000 of"), (200, "first 500 of"), (700, "first 120 of")],
)
def test_the_longer_the_conversation_the_less_of_each_message_is_shown(count: int, shown: str) -> None:
    store = stored().extended(*(user(f"{number} " + "x" * 9_000) for number in range(count)), section="buffer")
    record = record_of(store)
    assert f"[cut: the {shown} 9,00" in record
    assert all(f"user: {number} " in record for number in range(count))
    assert json_size(record) <= SUMMARY_REQUEST_BYTES_MAX


@pytest.mark.parametrize("char", ["x", "\x01", "€"])
def test_a_conversation_of_any_length_makes_a_request_that_fits(char: str) -> None:
    old = [user(f"{number}: " + char * 400) for number in range(5_000)]
    store = summarised(stored(), char * MESSAGE_BYTES_MAX).extended(*old, section="buffer")
    record = record_of(store)
    assert "messages are left out]" in record
    assert "user: 4999: " in record, "the newest is there"
    assert "user: 0: " not in record
    assert json_size(record) <= SUMMARY_REQUEST_BYTES_MAX
    assert sum(len(canonical(message)) for message in summary_request(store)) <= PAYLOAD_BYTES_MAX


def test_a_summary_takes_the_place_of_the_one_before_and_of_the_buffer() -> None:
    store = to_buffer(summarised(stored(user("a"), final("b"), user("c")), "old"), keeping(1))
    new = summarised(store, "  new \n")
    assert [section.name for section in new.sections] == ["summary", "buffer", "messages"]
    (summary,) = new.section("summary").messages
    assert summary == user(SUMMARY_HEAD + "new")
    assert texts(new, "buffer") == []
    assert texts(new, "messages") == ["c"]


def test_a_summary_that_is_too_long_is_cut() -> None:
    (summary,) = summarised(stored(), "x" * MESSAGE_BYTES_MAX).section("summary").messages
    assert json_size(summary.text.removeprefix(SUMMARY_HEAD)) <= SUMMARY_BYTES_MAX
    assert summary.text.endswith("characters]")


@pytest.mark.parametrize("text", ["", " \n\t"])
def test_an_empty_summary_is_refused_so_that_nothing_is_lost(text: str) -> None:
    with pytest.raises(ModelFailure, match="empty summary") as caught:
        summarised(stored(user("a")), text)
    assert (caught.value.kind, caught.value.again) == ("EmptySummary", True)
