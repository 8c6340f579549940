"""Transcripts are named by length and digest: equal marks mean equal conversations."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from holdfast.core.base.frozen import canonical, replace
from holdfast.core.conversation.messages import Message
from holdfast.core.wire.transcript_digest import DIGEST_HEX, TranscriptPrefix, advanced, root, size
from tests.core.building import DEFINITION
from tests.core.strategies import messages

OPENING = TranscriptPrefix(definition=DEFINITION, tools=("add", "echo"))
ROOT = root(OPENING)
seen = st.lists(messages.map(Message.for_model), max_size=5)


def test_the_root_stands_for_definition_and_tools() -> None:
    assert ROOT.length == 0
    assert len(ROOT.digest) == DIGEST_HEX
    assert root(TranscriptPrefix.model_validate_json(canonical(OPENING))) == ROOT
    others = [
        replace(OPENING, tools=("echo", "add")),
        replace(OPENING, tools=()),
        replace(OPENING, definition=replace(DEFINITION, system_prompt="Be brief!")),
        replace(OPENING, definition=replace(DEFINITION, name="other")),
    ]
    assert len({ROOT.digest, *(root(other).digest for other in others)}) == 5


@given(seen, st.integers(0, 5))
def test_a_mark_is_the_same_in_one_go_or_in_parts(said: list[Message], cut: int) -> None:
    assert advanced(advanced(ROOT, said[:cut]), said[cut:]) == advanced(ROOT, said)
    assert advanced(ROOT, said).length == len(said)


@given(seen, seen)
def test_marks_are_equal_exactly_when_the_conversations_are(one: list[Message], other: list[Message]) -> None:
    same = [canonical(message) for message in one] == [canonical(message) for message in other]
    assert (advanced(ROOT, one) == advanced(ROOT, other)) is same


@given(seen)
def test_a_digest_survives_the_trip_through_json(said: list[Message]) -> None:
    arrived = [Message.model_validate_json(canonical(message)) for message in said]
    assert advanced(ROOT, arrived) == advanced(ROOT, said)


def test_the_order_of_messages_counts() -> None:
    one, other = Message(role="user", content="a"), Message(role="user", content="b")
    assert advanced(ROOT, [one, other]) != advanced(ROOT, [other, one])


def test_where_one_message_ends_and_the_next_begins_counts() -> None:
    split = [Message(role="user", content="a"), Message(role="user", content="b")]
    assert advanced(ROOT, split).digest != advanced(ROOT, [Message(role="user", content="ab")]).digest


@given(messages)
def test_the_size_of_a_message_is_its_payload_bytes(message: Message) -> None:
    assert size(message) == len(message.model_dump_json().encode())
