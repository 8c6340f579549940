"""Putting a streamed answer together: however its bytes are cut, whatever servers in the wild make of the format."""

from __future__ import annotations

import json
import time
import tracemalloc
from collections.abc import Iterable, Sequence
from itertools import pairwise, repeat
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.core.agent.model import AnswerPart
from holdfast.core.base.bounds import CALLS_KEPT_MAX
from holdfast.core.base.usage import Usage
from holdfast.core.conversation.messages import ToolCall
from holdfast.core.conversation.steps import InferenceResponse
from holdfast.models.answer_errors import AnswerCut, ErrorInAnswer, UnusableAnswer
from holdfast.models.event_stream import ANSWER_BYTES_MAX, STREAM_BYTES_MAX, Lines
from holdfast.models.openai_chat.chat_completion import read_answer
from holdfast.models.openai_chat.chat_stream import StreamedAnswer

LINEAR_FACTOR_MAX = 30
"""How much longer ten times as much may take: ten, with room for a machine that does other things; not a hundred."""


def chunk(delta: object = None, finish: str | None = None, **fields: object) -> bytes:
    """Return one event of a stream."""
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    return event({"id": "chatcmpl-7", "model": "m", "choices": [choice], **fields})


def event(data: object) -> bytes:
    return b"data: " + json.dumps(data, ensure_ascii=False).encode() + b"\n\n"


def fragment(index: object = None, id_: str | None = None, name: str | None = None, arguments: object = None) -> bytes:
    """Return an event with a piece of a tool call; what is none is not in it."""
    function = {key: value for key, value in (("name", name), ("arguments", arguments)) if value is not None}
    wire: dict[str, Any] = {"index": index, "id": id_, "function": function}
    return chunk({"tool_calls": [{key: value for key, value in wire.items() if value is not None}]})


DONE = b"data: [DONE]\n\n"
END = chunk({}, "stop") + DONE
USED = event({"choices": [], "usage": {"prompt_tokens": 7, "completion_tokens": 3}})
STREAM = (
    chunk({"role": "assistant", "content": ""})
    + b": a comment\r\n\r\n"
    + chunk({"content": "Grüße, 😀\r\n"})
    + fragment(0, "call_a", "add", "")
    + fragment(0, arguments='{"text": "ü')
    + fragment(0, arguments='😀"}')
    + chunk({}, "tool_calls")
    + USED
    + DONE
)


def put_together(*pieces: bytes) -> StreamedAnswer:
    said = StreamedAnswer()
    for piece in pieces:
        said.feed(piece)
    return said


def read(*pieces: bytes) -> InferenceResponse:
    return read_answer(put_together(*pieces).end(), input_max=lambda: 1_000)


def calls_of(*pieces: bytes) -> list[tuple[str, str, object]]:
    return [(each.id, each.name, each.malformed or each.arguments) for each in read(*pieces, END).tool_calls]


def cut_at(body: bytes, places: Iterable[int]) -> list[bytes]:
    edges = [0, *sorted({place % (len(body) + 1) for place in places}), len(body)]
    return [body[start:end] for start, end in pairwise(edges)]


EXPECTED = InferenceResponse(
    text="Grüße, 😀\r\n",
    tool_calls=(ToolCall(id="call_a", name="add", arguments={"text": "ü😀"}, raw_arguments='{"text": "ü😀"}'),),
    finish_reason="tool_calls",
    usage=Usage(input_tokens=7, output_tokens=3),
    model="m",
    response_id="chatcmpl-7",
)


@given(st.lists(st.integers(0, 10_000), max_size=40), st.sampled_from([b"\n", b"\r\n", b"\r"]))
@settings(max_examples=200, deadline=None)
def test_an_answer_is_the_same_wherever_the_network_cuts_it(places: list[int], line_end: bytes) -> None:
    body = STREAM.replace(b"\r\n", b"\n").replace(b"\n", line_end)
    assert read(*cut_at(body, places)) == EXPECTED


def test_one_byte_at_a_time_is_the_same_answer() -> None:
    assert read(*(STREAM[place : place + 1] for place in range(len(STREAM)))) == EXPECTED


@given(st.lists(st.binary(max_size=6) | st.sampled_from([b"\r", b"\n", b"\r\n"]), max_size=30))
def test_lines_are_those_of_the_whole(pieces: list[bytes]) -> None:
    lines = Lines()
    found = [line for piece in pieces for line in lines.feed(piece)]
    *last, _ = lines.end()
    assert [line for line in found + last if line] == [line for line in b"".join(pieces).splitlines() if line]


@pytest.mark.parametrize(
    "body",
    [
        chunk({"content": "x"}, "stop") + DONE,
        chunk({"content": "x"}, "stop"),
        chunk({"content": "x"}) + DONE,
        chunk({"content": "x"}, "stop").rstrip(),
        b"\xef\xbb\xbf" + chunk({"content": "x"}, "stop"),
        b"\n\n: OPENROUTER PROCESSING\n\n" + chunk({"content": "x"}, "stop"),
        (chunk({"content": "x"}, "stop") + DONE).replace(b"data: ", b"data:"),
        b"event: message\nid: 4\nretry: 10\n" + chunk({"content": "x"}, "stop"),
        chunk({"content": "x"}, "stop") + DONE + chunk({"content": "after the end"}),
        chunk({"content": "x"}, "stop") + b'data: {"choi',
        chunk(None) + chunk({"content": None}) + chunk({"content": "x"}, "stop"),
        event({"choices": [{"message": {"content": "x"}, "finish_reason": "stop"}]}) + DONE,
        chunk({"content": [{"type": "text", "text": "x"}]}, "stop"),
        event({"choices": [], "prompt_filter_results": []}) + chunk({"content": "x"}, "stop"),
        b'{"choices": [{"message": {"content": "x"}, "finish_reason": "stop"}]}',
        b' \n\n{"choices": [{"message": {"content": "x"}}]}',
    ],
)
def test_what_servers_make_of_the_format_is_understood(body: bytes) -> None:
    assert read(body).text == "x"
    assert read(*(body[place : place + 1] for place in range(len(body)))).text == "x"


@pytest.mark.parametrize(
    "body",
    [
        chunk({"content": "x"}),
        chunk({"content": "x"}) + b"data: {",
        fragment(0, "a", "pay", '{"cents": 1'),
        fragment(0, "a", "pay", '{"cents": 100}'),
        fragment(0, "a", "pay", '{"cents": 100}') + USED,
    ],
)
def test_an_answer_without_its_end_is_no_answer_whatever_it_asks_for(body: bytes) -> None:
    with pytest.raises(AnswerCut):
        read(body)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b" \r\n",
        b"hello",
        DONE,
        b": keep-alive\n\n",
        event({"choices": []}) + DONE,
        event([]) + END,
        event({"choices": "x"}) + END,
        event({"choices": [None]}) + END,
        b"data: {corrupt\n\n" + END,
        chunk({"content": "x"}) + b"data: " + b"[" * 100_000 + b"\n\n" + END,
        chunk({"content": ["x"]}) + END,
        chunk({"tool_calls": 5}) + END,
        chunk({"tool_calls": [None]}) + END,
        chunk({"tool_calls": [{"index": 0, "id": "a", "type": "custom", "custom": {"name": "x"}}]}) + END,
        b"<html>" + END,
    ],
)
def test_what_is_no_chat_completion_is_told_as_such(body: bytes) -> None:
    with pytest.raises(UnusableAnswer):
        read(body)


@pytest.mark.parametrize(
    ("body", "error"),
    [
        (event({"error": {"message": "broke"}}), {"message": "broke"}),
        (b'{"error": {"message": "broke"}}\n\n', {"message": "broke"}),
        (b'{"error": {"message": "broke"}}', {"message": "broke"}),
        (b'event: error\ndata: {"message": "broke"}\n\n', {"message": "broke"}),
        (b'event: error\ndata: {"error": "broke"}\n\n', "broke"),
        (b"event: error\ndata: broke\n\n", " broke"),
        (b'error: {"message": "broke"}\n\n', {"message": "broke"}),
        (event({"error": "broke", "choices": [{"delta": None, "finish_reason": "error"}]}), "broke"),
    ],
)
@pytest.mark.parametrize("before", [b"", chunk({"content": "x"}), chunk({"content": "x"}, "stop")])
def test_an_error_within_a_stream_is_the_endpoints_own(before: bytes, body: bytes, error: object) -> None:
    with pytest.raises(ErrorInAnswer) as caught:
        read(before + body)
    assert caught.value.error == error


def test_reasoning_and_refusal_are_kept_under_every_name() -> None:
    said = read(chunk({"reasoning": "hm, "}), chunk({"reasoning_content": "well", "reasoning": "well"}), END)
    assert said.reasoning == "hm, well"
    refused = read(chunk({"refusal": "I will "}), chunk({"refusal": "not."}, "content_filter"))
    assert (refused.text, refused.finish_reason) == ("I will not.", "content_filter")
    plain = json.dumps({"choices": [{"message": {"content": None, "refusal": "No."}, "finish_reason": "stop"}]})
    assert read(plain.encode()).text == "No."


def test_two_halves_of_a_character_in_two_events_are_one() -> None:
    halves = [b'data: {"choices": [{"delta": {"content": "\\ud83d"}}]}\n\n', b'data: {"choices": [{"delta": ']
    assert read(halves[0], halves[1] + b'{"content": "\\ude00"}}]}\n\n', END).text == "😀"
    assert read(halves[0], END).text == "?"


@pytest.mark.parametrize("bad", [b"\xff", b"\xf0\x9f", b"\x80"])
def test_bytes_that_are_no_text_spoil_only_themselves(bad: bytes) -> None:
    body = chunk({"content": "a-b"}, "stop").replace(b"-", bad)
    text = read(body).text
    assert (text[0], text[-1]) == ("a", "b")
    text.encode()


def test_calls_are_put_together_by_their_index() -> None:
    pieces = [
        fragment(0, "a", "add", ""),
        fragment(1, "b", "pay"),
        fragment(1, arguments='{"cents": '),
        fragment(0, arguments='{"a": 1'),
        fragment(1, arguments="5}"),
        fragment(0, arguments="}"),
    ]
    assert calls_of(*pieces) == [("a", "add", {"a": 1}), ("b", "pay", {"cents": 5})]


@pytest.mark.parametrize(
    "pieces",
    [
        [fragment(0, "a", "f", '{"n":1}'), fragment(0, "b", "f", '{"n":2}')],  # one index for all
        [fragment(None, "a", "f", '{"n":1}'), fragment(None, "b", "f", '{"n":2}')],  # none at all
        [fragment(0, "a", "f", '{"n":'), fragment(0, "a", "f", "1}"), fragment(1, "b", "f", '{"n":2}')],  # repeated
        [fragment(0, "a", "f", '{"n":'), fragment(0, "x", None, "1}"), fragment(1, "b", "f", '{"n":2}')],  # new ids
        [fragment(0, "a", "f", {"n": 1}), fragment(1, "b", "f", {"n": 2})],  # as objects
        [fragment(7, "a", "f", '{"n":1}'), fragment(-3, "b", "f", '{"n":2}')],  # odd places
        [fragment(0, "a", "f"), fragment(None, arguments='{"n":1}'), fragment(1, "b", "f", '{"n":2}')],
    ],
)
def test_calls_are_told_apart_however_a_server_numbers_them(pieces: Sequence[bytes]) -> None:
    assert calls_of(*pieces) == [("a", "f", {"n": 1}), ("b", "f", {"n": 2})]


def test_whole_calls_without_ids_and_numbers_are_several() -> None:
    pieces = [fragment(0, "", "f", '{"n":1}'), fragment(0, "", "f", '{"n":2}')]
    assert [found for _, _, found in calls_of(*pieces)] == [{"n": 1}, {"n": 2}]


def test_calls_past_what_is_kept_are_dropped_with_their_arguments() -> None:
    pieces = [fragment(index, f"id{index}", "f", "{") for index in range(CALLS_KEPT_MAX + 2)]
    pieces += [fragment(index, None, None, "}") for index in range(CALLS_KEPT_MAX + 2)]
    pieces.append(fragment(None, None, None, "more"))
    found = calls_of(*pieces)
    assert len(found) == CALLS_KEPT_MAX
    assert all(arguments == {} for _, _, arguments in found)


@pytest.mark.parametrize(
    ("told", "used"),
    [
        ([{"prompt_tokens": 7, "completion_tokens": 3}], Usage(input_tokens=7, output_tokens=3)),
        ([{"prompt_tokens": 7, "completion_tokens": n} for n in (1, 2, 3)], Usage(input_tokens=7, output_tokens=3)),
        ([{"prompt_tokens": 7, "completion_tokens": 3}, None], Usage(input_tokens=7, output_tokens=3)),
        ([{"prompt_tokens": -7, "completion_tokens": 3}], Usage(output_tokens=3)),
        ([{"prompt_tokens": 10**30, "completion_tokens": 10**30}], Usage(input_tokens=10**12, output_tokens=10**12)),
        ([None], None),
        (["many"], None),
        ([{"other": 1}], None),
    ],
)
def test_the_latest_possible_usage_counts(told: list[object], used: Usage | None) -> None:
    said = put_together(*(chunk({"content": "x"}, usage=each) for each in told))
    assert said.usage == used


def test_a_stream_without_usage_is_bounded_from_above() -> None:
    usage = read(chunk({"content": "ü" * 50, "reasoning": "hm"}), END).usage
    assert usage.input_tokens == 1_000
    assert 102 <= usage.output_tokens < 400


def test_the_listener_hears_every_part_once_with_what_is_known() -> None:
    heard: list[AnswerPart] = []
    said = StreamedAnswer(heard.append)
    for piece in (chunk({"role": "assistant"}), chunk({"content": "a"}) + chunk({"content": "b", "reasoning": "r"})):
        said.feed(piece)
    assert heard == [AnswerPart("ab", "r", None, model="m", response_id="chatcmpl-7")]
    said.feed(USED)
    assert heard[1:] == [AnswerPart("", "", Usage(input_tokens=7, output_tokens=3), "m", "chatcmpl-7")]
    with pytest.raises(UnusableAnswer):
        said.feed(b'data: {"choices": [{"delta": {"content": "\\ud83d"}}]}\n\ndata: {\n\n')
    assert heard[2].text == "?"  # what came before the fault, and nothing that cannot be told


def test_a_body_that_never_ends_is_given_up_and_takes_no_memory() -> None:
    padding = event({"choices": [], "padding": "x" * 60_000})
    tracemalloc.start()
    with pytest.raises(UnusableAnswer, match="more than"):
        put_together(*repeat(padding, 2 * STREAM_BYTES_MAX // len(padding)))
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert most < 4 * 1024 * 1024


@pytest.mark.parametrize(
    "piece",
    [
        b"x" * 60_000,
        b"data: " + b"x" * 60_000 + b"\n",
        chunk({"content": "x" * 60_000}),
        chunk({"reasoning": "x" * 60_000}),
        fragment(0, "a", None, "x" * 60_000),
    ],
    ids=["a line", "an event", "text", "reasoning", "arguments"],
)
def test_what_is_said_is_bounded(piece: bytes) -> None:
    with pytest.raises(UnusableAnswer, match="more than"):
        put_together(chunk({"content": ""}), *repeat(piece, 2 * ANSWER_BYTES_MAX // 60_000))


def test_a_plain_body_is_bounded_too() -> None:
    with pytest.raises(UnusableAnswer, match="more than"):
        put_together(*repeat(b"{" + b" " * 60_000, 2 * ANSWER_BYTES_MAX // 60_000))


@pytest.mark.slow
@pytest.mark.parametrize("made", ["bytes", "events", "arguments"])
def test_the_time_grows_with_what_comes_and_no_faster(made: str) -> None:
    def seconds(count: int) -> float:
        pieces = {
            "bytes": [b"data: "] + [b"x"] * count,
            "events": [chunk({"content": "x"})] * (count // 10),
            "arguments": [fragment(0, "a", "f", "x}")] * (count // 10),
        }[made]
        said = StreamedAnswer()
        started = time.thread_time()  # of this thread alone: a busy machine takes nothing of it
        for piece in pieces:
            said.feed(piece)
        return time.thread_time() - started

    seconds(1_000)
    small, large = min(seconds(20_000) for _ in range(3)), min(seconds(200_000) for _ in range(3))
    assert large < LINEAR_FACTOR_MAX * small
