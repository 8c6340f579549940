"""The real anthropic client against the fake Messages API: our terms out, the API's terms in, nothing lost between."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import pytest
from anthropic.types import Message as WireMessage
from anthropic.types import RawMessageStreamEvent
from pydantic import BaseModel, TypeAdapter

from holdfast.core.agent.answer_types import format_of
from holdfast.core.agent.definition import LLM
from holdfast.core.agent.model import AnswerPart
from holdfast.core.agent.policies import JsonObjectFormat
from holdfast.core.base.bounds import OUTPUT_TOKENS_MAX
from holdfast.core.base.frozen import replace
from holdfast.core.base.usage import Usage
from holdfast.core.conversation.messages import ImagePart, Message, TextPart, ToolCall, user_message
from holdfast.core.conversation.provider_items import ITEMS_MAX, ProviderItem
from holdfast.models import Anthropic, ProviderSettings
from holdfast.models.anthropic.conversation import CONTINUE, EMPTY
from holdfast.models.model_apis import ANTHROPIC
from holdfast.runtime.model_call_changes import with_prompt
from holdfast.testing.anthropic_wire_format import event_bytes, events_of, message_of, redacted_thinking
from holdfast.testing.script import Call, Reply, calls, say
from tests.activities.asking import request, schema
from tests.models.anthropic_asking import answer_to, asking, failure_with, said

PIXEL = "iVBORw0KGgo="
ADD = calls(Call("add", {"a": 1}), Call("echo", {"text": "ü"}), text="Let me see.", reasoning="I must add. 🙂")
COUNTS = ("input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens", "output_tokens")
HIDDEN = dataclasses.replace(ADD, blocks=(redacted_thinking(),))


def results(*texts: str) -> tuple[Message, ...]:
    return tuple(Message(role="tool", content=text, tool_call_id=f"call_0_{n}") for n, text in enumerate(texts))


def block(**fields: Any) -> Reply:  # noqa: ANN401  # any JSON value
    """Return a plain answer whose only block and other fields are as given, however odd."""
    content = [fields.pop("block")] if "block" in fields else [{"type": "text", "text": "x"}]
    usual = {"id": "msg_0", "type": "message", "role": "assistant", "model": "m", "content": content}
    return Reply(body=json.dumps({**usual, "stop_reason": "end_turn", **fields}))


async def body_of(**changes: Any) -> dict[str, Any]:  # noqa: ANN401  # fields of any type
    """Return the request's body as the endpoint saw and accepted it."""
    options: dict[str, Any] = {name: changes.pop(name) for name in ("thinking", "cache") if name in changes}
    async with asking(say("x"), **options) as (endpoint, model):
        await model(request(**changes))
        return endpoint.requests[0].body


@pytest.mark.parametrize("stream", [True, False])
async def test_an_answer_is_read_with_its_usage_model_and_ids(*, stream: bool) -> None:
    response = await answer_to(say("It is a test.", usage=(7, 3)), request(llm=LLM(stream=stream)))
    assert (response.text, response.finish_reason, response.items) == ("It is a test.", "end_turn", ())
    assert (response.model, response.response_id) == ("claude", "msg_0")
    assert (response.usage.input_tokens, response.usage.output_tokens) == (7, 3)


@pytest.mark.parametrize("stream", [True, False])
async def test_thinking_goes_back_signed_and_in_its_place(*, stream: bool) -> None:
    async with asking(HIDDEN, say("3"), thinking=1024) as (endpoint, model):
        asked = request(llm=LLM(stream=stream), tools=(schema("add"), schema("echo")))
        answer = await model(asked)
        assert (answer.text, answer.reasoning) == ("Let me see.", "I must add. 🙂")
        assert [call.arguments for call in answer.tool_calls] == [{"a": 1}, {"text": "ü"}]
        turn = (*asked.messages, said(answer), *results("3", ""))
        assert (await model(request(llm=asked.llm, tools=asked.tools, messages=turn))).text == "3"
        sent = endpoint.requests[1].body["messages"]
    assert [each["type"] for each in sent[1]["content"]] == [
        *("thinking", "redacted_thinking", "text", "tool_use", "tool_use")
    ]
    assert sent[1]["content"][1] == redacted_thinking()
    assert sent[1]["content"][3] == {"type": "tool_use", "id": "call_0_0", "name": "add", "input": {"a": 1}}
    assert [each["role"] for each in sent] == ["user", "assistant", "user"]
    assert [each["type"] for each in sent[2]["content"]] == ["tool_result", "tool_result"]


async def test_items_of_another_route_or_api_stay_here() -> None:
    answer = await answer_to(ADD, request(tools=(schema("add"), schema("echo"))))
    for changed in ({"route": "other"}, {"api": "openai_chat"}):
        message = replace(said(answer), items=tuple(replace(each, **changed) for each in answer.items))
        body = await body_of(messages=(user_message("?"), message, *results("3", "ü")), thinking=1024)
        assert [each["type"] for each in body["messages"][1]["content"]] == ["text", "tool_use", "tool_use"]
        assert "thinking" not in body  # an answer without its thinking cannot be gone on with by one that thinks


async def test_where_a_hook_changed_an_answer_its_thinking_comes_first() -> None:
    answer = await answer_to(HIDDEN, request(tools=(schema("add"), schema("echo"))))
    changed = replace(said(answer), content="Other words.", tool_calls=answer.tool_calls[:1])
    body = await body_of(messages=(user_message("?"), changed, *results("3")))
    assert [each["type"] for each in body["messages"][1]["content"]] == [
        *("thinking", "redacted_thinking", "text", "tool_use")
    ]
    assert body["messages"][1]["content"][2]["text"] == "Other words."


async def test_a_thought_that_was_cut_off_has_no_signature_and_does_not_go_back() -> None:
    thought = {"type": "thinking", "thinking": "I was going to", "signature": ""}
    answer = await answer_to(block(block=thought, stop_reason="max_tokens"), request(llm=LLM(stream=False)))
    assert (answer.reasoning, answer.finish_reason, answer.items) == ("I was going to", "length", ())


async def test_an_unknown_block_is_kept_as_it_came() -> None:
    found = {"type": "container_upload", "file_id": "file_1", "content": [{"url": "https://example.org"}]}
    answer = await answer_to(say("Found.", blocks=(found,)))
    assert [json.loads(item.body) for item in answer.items] == [found, {"text": 6}]
    body = await body_of(messages=(user_message("?"), said(answer), user_message("And?")))
    assert body["messages"][1]["content"] == [found, {"type": "text", "text": "Found."}]


async def test_half_a_character_in_a_block_can_go_back_and_a_number_that_is_none_keeps_it_here() -> None:
    odd = {"type": "container_upload", "file_id": "file_1", "content": [{"title": "hm \ud83d"}]}
    cut = {"type": "text", "text": "so"}
    read = await answer_to(block(content=[odd, cut]))
    body = await body_of(messages=(*request().messages, said(read), user_message("go on")))
    assert body["messages"][1]["content"] == [{**odd, "content": [{"title": "hm ?"}]}, cut]
    none = await answer_to(block(content=[{**odd, "score": float("nan")}, cut]))
    assert (none.text, none.items, "is no JSON; its signed thinking" in none.reasoning) == ("so", (), True)


@pytest.mark.parametrize("bodies", [["{", "[]", "7", "{}", '{"text": "x"}'], ['{"call": 7}'], ['{"type": "text"}']])
async def test_items_that_are_none_change_nothing(bodies: list[str]) -> None:
    items = tuple(ProviderItem(route="", api="anthropic", body=each) for each in bodies)
    forged = Message(role="assistant", content="x", items=items)
    body = await body_of(messages=(*request().messages, forged, user_message("go on")))
    assert body["messages"][1]["content"] == [{"type": "text", "text": "x"}]


async def test_more_blocks_than_are_kept_are_named_in_the_reasoning() -> None:
    answer = await answer_to(say("x", blocks=(redacted_thinking(),) * (ITEMS_MAX + 1)))
    assert (answer.text, answer.items) == ("x", ())
    assert "is not sent back" in answer.reasoning


async def test_cached_tokens_are_parts_of_the_input() -> None:
    usage: dict[str, object] = {
        "input_tokens": 5,
        "cache_read_input_tokens": 100,
        "cache_creation_input_tokens": 7,
        "output_tokens": 9,
    }
    usage |= {"output_tokens_details": {"thinking_tokens": 4}}
    answer = await answer_to(block(usage=usage), request(llm=LLM(stream=False)))
    assert answer.usage == Usage(
        input_tokens=112, output_tokens=9, cached_tokens=100, cache_write_tokens=7, reasoning_tokens=4
    )


@pytest.mark.parametrize(
    ("first", "last", "parts"),
    [  # input, cached, written, output
        ((5, 100, 7, 1), (None, None, None, 9), (112, 100, 7, 9)),
        ((5, 100, 7, 1), (5, 0, 0, 9), (112, 100, 7, 9)),
        ((5, 100, 7, 1), (0, 0, None, 9), (112, 100, 7, 9)),
        ((5, 100, 7, 1), (5, 100, 7, 0), (112, 100, 7, 1)),
        ((0, 0, 0, 0), (5, 100, 7, 9), (112, 100, 7, 9)),
        ((112, None, None, 1), (5, 100, 7, 9), (112, 100, 7, 9)),
        ((112, None, None, 1), (5, 50, None, 9), (112, 0, 0, 9)),
        ((5, 100, 7, 1), (-1, "many", 7, 9), (112, 100, 7, 9)),
        ((5, 100, 7, 1), (200, 0, 0, 9), (200, 0, 0, 9)),
    ],
)
async def test_no_later_event_of_a_stream_makes_its_usage_less(
    first: tuple[object, ...], last: tuple[object, ...], parts: tuple[int, ...]
) -> None:
    start, *others = events_of(say("x"), {"model": "m", "messages": [], "stream": True})
    start["message"]["usage"] = dict(zip(COUNTS, first, strict=True))
    for event in others:
        if event["type"] == "message_delta":
            event["usage"] = dict(zip(COUNTS, last, strict=True))
    used = (await answer_to(Reply(body=b"".join(event_bytes(each) for each in (start, *others))))).usage
    assert (used.input_tokens, used.cached_tokens, used.cache_write_tokens, used.output_tokens) == parts
    assert used.estimated_tokens == 0


@pytest.mark.parametrize(
    "usage", [None, {}, {"input_tokens": None}, {"input_tokens": -1, "output_tokens": "many"}, 7, {"output_tokens": 0}]
)
async def test_usage_that_is_missing_is_bounded(usage: object) -> None:
    answer = await answer_to(block(usage=usage), request(llm=LLM(stream=False)))
    assert answer.usage.estimated_tokens == answer.usage.total_tokens > 0


async def test_absurd_usage_is_clamped() -> None:
    usage = {"input_tokens": 10**15, "cache_read_input_tokens": 10**15, "output_tokens": 10**15}
    used = (await answer_to(block(usage=usage), request(llm=LLM(stream=False)))).usage
    assert used.input_tokens == used.output_tokens == used.cached_tokens == 10**12


@pytest.mark.parametrize(
    ("stop", "finish"),
    [
        ("max_tokens", "length"),
        ("model_context_window_exceeded", "length"),
        ("pause_turn", "length"),
        ("refusal", "content_filter"),
        ("stop_sequence", "stop_sequence"),
        ("something_new", "something_new"),
    ],
)
async def test_stop_reasons_of_cut_answers_are_the_loops_words(stop: str, finish: str) -> None:
    assert (await answer_to(say("x", finish_reason=stop))).finish_reason == finish


async def test_what_a_request_has_at_least() -> None:
    body = await body_of(llm=LLM(stream=False), cache=False)
    assert body == {
        "model": "claude",
        "max_tokens": OUTPUT_TOKENS_MAX,
        "system": [{"type": "text", "text": "Be brief."}],
        "messages": [{"role": "user", "content": [{"type": "text", "text": "What is it?"}]}],
    }
    assert (await body_of(max_output_tokens=77))["max_tokens"] == 77


async def test_turns_are_merged_and_none_is_empty() -> None:
    body = await body_of(
        messages=(
            Message(role="system", content="Earlier they spoke of ships."),
            Message(role="assistant", content="Aye."),
            user_message(" "),
            Message(role="system", content="Speak up."),
            Message(role="assistant"),
        ),
        cache=False,
    )
    assert [each["text"] for each in body["system"]] == ["Be brief.", "Earlier they spoke of ships."]
    turns = [(each["role"], [part["text"] for part in each["content"]]) for each in body["messages"]]
    assert turns == [
        ("user", [CONTINUE]),
        ("assistant", ["Aye."]),
        ("user", [EMPTY, "<system>\nSpeak up.\n</system>"]),
        ("assistant", [EMPTY]),
        ("user", [CONTINUE]),
    ]


async def test_ids_of_other_providers_become_such_that_the_api_takes_in_pairs() -> None:
    call = ToolCall(id="functions.add:0", name="add")
    answered = Message(role="tool", content="3", tool_call_id=call.id)
    body = await body_of(messages=(user_message("?"), Message(role="assistant", tool_calls=(call,)), answered))
    ids = body["messages"][1]["content"][0]["id"], body["messages"][2]["content"][0]["tool_use_id"]
    assert ids[0] == ids[1] != call.id


async def test_pictures_go_as_addresses_or_as_they_are() -> None:
    urls = ("https://example.org/a.png", f"data:image/png;base64,{PIXEL}", "data:image/gif,%89PNG")
    parts = (TextPart(text="Look."), *(ImagePart(url=url) for url in urls))
    content = (await body_of(messages=(Message(role="user", content=parts),), cache=False))["messages"][0]["content"]
    assert [each.get("source") for each in content] == [
        None,
        {"type": "url", "url": urls[0]},
        {"type": "base64", "media_type": "image/png", "data": PIXEL},
        {"type": "base64", "media_type": "image/gif", "data": "iVBORw=="},
    ]


async def test_a_conversation_is_cached_from_call_to_call() -> None:
    turns = [calls(Call("add", {"a": n}), usage=(1_000 * (n + 1), 20)) for n in range(9)]
    async with asking(*turns, say("done", usage=(10_000, 20))) as (endpoint, model):
        messages: tuple[Message, ...] = (user_message("Count. " * 50),)
        used = Usage()
        while True:
            answer = await model(request(messages=messages, tools=(schema("add"),)))
            used += answer.usage
            if not answer.tool_calls:
                break
            result = Message(role="tool", content="x" * 200, tool_call_id=answer.tool_calls[0].id)
            messages = (*messages, said(answer), result)
        marks = [json.dumps(each.body).count("cache_control") for each in endpoint.requests]
    assert max(marks) == 4
    assert used.cached_tokens > used.input_tokens * 0.7
    assert used.cached_tokens + used.cache_write_tokens == used.input_tokens


async def test_a_text_for_one_call_is_behind_what_is_marked_for_the_cache() -> None:
    call = ToolCall(id="a", name="add", arguments={})
    answer = Message(role="assistant", content="", tool_calls=(call,))
    conversation = (user_message("Count."), answer, Message(role="tool", content="3", tool_call_id="a"))
    body = await body_of(messages=with_prompt(conversation, "Be quick."), tools=(schema("add"),))
    last = body["messages"][-1]["content"]
    assert [(each["type"], "cache_control" in each) for each in last] == [("tool_result", True), ("text", False)]
    assert last[1]["text"] == "Be quick."


class Weather(BaseModel):
    city: str
    degrees: int


async def test_a_strict_schema_is_enforced_and_another_is_described() -> None:
    native = await body_of(response_format=format_of(Weather, strict=True))
    assert native["output_config"]["format"]["schema"]["additionalProperties"] is False
    assert [each["text"] for each in native["system"]] == ["Be brief."]
    described = await body_of(response_format=format_of(Weather))
    assert "output_config" not in described
    assert '"degrees"' in described["system"][-1]["text"]
    assert "JSON object" in (await body_of(response_format=JsonObjectFormat()))["system"][-1]["text"]


async def test_thinking_leaves_room_for_the_answer() -> None:
    assert (await body_of(thinking=4_000))["thinking"] == {"type": "enabled", "budget_tokens": 4_000}
    assert (await body_of(thinking=4_000, max_output_tokens=2_000))["thinking"]["budget_tokens"] == 1_999
    assert "thinking" not in await body_of(thinking=4_000, max_output_tokens=1_000)
    assert (await body_of(thinking="adaptive"))["thinking"] == {"type": "adaptive"}


async def test_arguments_that_are_no_json_are_refused_and_never_go_back() -> None:
    answer = await answer_to(calls(Call("add", '{"a": '), Call("add", "[1]")), request(tools=(schema("add"),)))
    assert [call.malformed is not None for call in answer.tool_calls] == [True, True]
    body = await body_of(messages=(user_message("?"), said(answer), *results("no", "no")))
    assert [each["input"] for each in body["messages"][1]["content"]] == [{}, {}]


async def test_a_call_that_was_cut_off_is_not_usable() -> None:
    answer = await answer_to(calls(Call("add", ""), finish_reason="length"), request(tools=(schema("add"),)))
    assert answer.finish_reason == "length"
    assert "cut off" in (answer.tool_calls[0].malformed or "")


async def test_an_answer_without_words_is_an_answer() -> None:
    answer = await answer_to(Reply(usage=(5, 2)))
    assert (answer.text, answer.tool_calls, answer.usage.output_tokens) == ("", (), 2)


async def test_an_answer_of_megabytes_is_cut() -> None:
    answer = await answer_to(say("x" * 5_000_000))
    assert 0 < len(answer.text) < 5_000_000


async def test_a_listener_sees_text_and_thinking_as_they_come() -> None:
    parts: list[AnswerPart] = []
    await answer_to(ADD, request(tools=(schema("add"), schema("echo")), listener=parts.append))
    assert "".join(part.text for part in parts) == "Let me see."
    assert "".join(part.reasoning for part in parts) == "I must add. 🙂"
    assert [part.sent for part in parts[:2]] == [False, True]
    assert sum(part.call_bytes for part in parts) > 20
    reports = [part.usage for part in parts if part.usage is not None]
    assert (reports[0].output_tokens, reports[-1].output_tokens) == (1, 20)
    assert {part.response_id for part in parts[2:]} == {"msg_0"}


async def test_the_servers_answers_are_the_clients_types() -> None:
    turn = HIDDEN
    asked = {"model": "claude", "messages": [{"role": "user", "content": "?"}], "stream": True}
    message = message_of(turn, asked)
    assert WireMessage.model_validate(message).model_dump(exclude_unset=True) == message
    events: TypeAdapter[Any] = TypeAdapter(RawMessageStreamEvent)
    for event in events_of(turn, asked):
        if event["type"] != "ping":
            assert events.validate_python(event).model_dump(exclude_unset=True) == event


@pytest.mark.parametrize("key", ["wrong", None])
async def test_a_wrong_key_is_refused_and_not_shown(key: str | None) -> None:
    async with asking(say("x"), api_key=key) as (endpoint, model):
        endpoint._api_key = "right"  # pyright: ignore[reportPrivateUsage]
        failure = await failure_with(model)
    assert (failure.kind, failure.again, failure.free) == ("NotAuthorised", False, True)
    assert "ANTHROPIC_API_KEY" in failure.message
    assert "wrong" not in failure.message


async def test_without_an_endpoint_or_a_model_nothing_is_sent() -> None:
    model = Anthropic(ProviderSettings(api=ANTHROPIC))
    assert "ANTHROPIC_API_KEY" in model.missing
    failure = await failure_with(model)
    assert (failure.kind, failure.again) == ("InvalidInput", False)
    named = Anthropic(ProviderSettings(api=ANTHROPIC, api_key="k"))
    assert "no model is named" in named.missing
    await named.close()
