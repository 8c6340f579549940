"""The real openai client against the fake Responses API: our terms out, the API's in, nothing taken on trust."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from pydantic import JsonValue

from holdfast.core.agent.definition import LLM
from holdfast.core.agent.model import AnswerPart, ModelRequest
from holdfast.core.agent.policies import JsonObjectFormat, JsonSchemaFormat
from holdfast.core.base.bounds import CALLS_KEPT_MAX, REPORTED_TOKENS_MAX, RESPONSE_BYTES_MAX
from holdfast.core.base.errors import ModelFailure
from holdfast.core.base.usage import Usage
from holdfast.core.conversation.messages import ImagePart, Message, TextPart, ToolCall, user_message
from holdfast.core.conversation.provider_items import ProviderItem
from holdfast.core.conversation.steps import InferenceResponse
from holdfast.models import OpenAIResponses
from holdfast.models.endpoint import prices_of
from holdfast.models.model_choice import model_from
from holdfast.models.openai_endpoint import JSON_INSTRUCTION
from holdfast.testing.responses_wire_format import answer_events
from holdfast.testing.script import Call, Reply, calls, say
from tests.activities.asking import KEY, REQUEST, request, schema
from tests.models.asking_responses import answer_to, asking, failure_of

PLAIN = LLM(stream=False)
MESSAGE: dict[str, Any] = {"type": "message", "id": "msg_1", "role": "assistant", "status": "completed"}
EMPTY: dict[str, Any] = {"output": []}
TEXT: dict[str, Any] = {**MESSAGE, "content": [{"type": "output_text", "text": "x", "annotations": []}]}


def response(*output: object, **fields: object) -> Reply:
    """Return an answer whose output and other fields are as given, however odd; it does not stream."""
    usual = {"id": "resp_1", "object": "response", "model": "m", "status": "completed", "output": output}
    return Reply(body=json.dumps({**usual, **fields}))


def event(kind: str, **fields: object) -> bytes:
    return f"event: {kind}\ndata: {json.dumps({'type': kind, **fields})}\n\n".encode()


def stream(*events: bytes) -> Reply:
    return Reply(body=tuple(events))


def called(**fields: object) -> dict[str, Any]:
    usual = {"type": "function_call", "id": "fc_1", "call_id": "a", "name": "add", "arguments": "{}"}
    return {**usual, "status": "completed", **fields}


def reasoning(text: str = "hm", **fields: object) -> dict[str, Any]:
    return {"type": "reasoning", "id": "rs_1", "summary": [{"type": "summary_text", "text": text}], **fields}


async def body_of(**changes: object) -> dict[str, Any]:
    """Return the request's body as the endpoint saw it."""
    async with asking(say("x")) as (endpoint, model):
        await model(request(**changes))
        return endpoint.requests[0].body


def answered(given: InferenceResponse) -> Message:
    """Return the message that an answer becomes in the conversation."""
    return Message(role="assistant", content=given.text, tool_calls=given.tool_calls, items=given.items)


def with_answer(given: InferenceResponse, *more: Message) -> ModelRequest:
    results = (Message(role="tool", content="3", tool_call_id=each.id) for each in given.tool_calls)
    return replace(REQUEST, messages=(*REQUEST.messages, answered(given), *results, *more))


@pytest.mark.parametrize("llm", [LLM(), PLAIN])
async def test_an_answer_is_read_with_its_usage_model_and_id(llm: LLM) -> None:
    assert await answer_to(say("It is a test.", usage=(7, 3)), request(llm=llm)) == InferenceResponse(
        text="It is a test.",
        finish_reason="completed",
        usage=Usage(input_tokens=7, output_tokens=3),
        model="scripted",
        response_id="resp_0",
    )


@pytest.mark.parametrize("llm", [LLM(), PLAIN])
async def test_parallel_calls_are_read_in_order_with_their_own_spelling(llm: LLM) -> None:
    turn = calls(Call("add", {"a": 1}), Call("echo", '{ "text" :"ü😀"}'), text="let me see", piece_chars=1)
    read = await answer_to(turn, request(llm=llm))
    assert read.text == "let me see"
    assert read.tool_calls == (
        ToolCall(id="call_0_0", name="add", arguments={"a": 1}, raw_arguments='{"a": 1}'),
        ToolCall(id="call_0_1", name="echo", arguments={"text": "ü😀"}, raw_arguments='{ "text" :"ü😀"}'),
    )
    assert read.items == ()  # a text and calls behind it need none


async def test_nothing_is_kept_at_the_provider() -> None:
    body = await body_of()
    assert (body["store"], body["include"], body["stream"]) == (False, ["reasoning.encrypted_content"], True)
    assert set(body) == {"model", "input", "instructions", "store", "include", "stream"}
    assert "stream" not in await body_of(llm=PLAIN)


async def test_a_conversation_goes_out_in_the_providers_terms_byte_for_byte() -> None:
    text = ' {"a" :1e2,"\\u00fc":[2]} '
    conversation = (
        Message(role="system", content="So far: nothing."),
        Message(role="user", content="1+2?"),
        Message(role="assistant", content="Well.", tool_calls=(ToolCall.parse("a", "add", text),)),
        Message(role="tool", content="3", tool_call_id="a"),
        Message(role="user", content="and?", metadata={"secret note": 1}),
    )
    body = await body_of(messages=conversation)
    assert body["instructions"] == "Be brief."
    assert body["input"] == [
        {"role": "system", "content": "So far: nothing."},
        {"role": "user", "content": "1+2?"},
        {"role": "assistant", "content": "Well."},
        {"type": "function_call", "call_id": "a", "name": "add", "arguments": text},
        {"type": "function_call_output", "call_id": "a", "output": "3"},
        {"role": "user", "content": "and?"},
    ]


async def test_words_and_pictures_go_out_as_parts() -> None:
    parts = (
        TextPart(text="A cat?"),
        ImagePart(url="https://example.com/1.png"),
        ImagePart(url="data:image/png;base64,AAAA", detail="low"),
    )
    body = await body_of(messages=(Message(role="user", content=parts),))
    assert body["input"][0]["content"] == [
        {"type": "input_text", "text": "A cat?"},
        {"type": "input_image", "image_url": "https://example.com/1.png", "detail": "auto"},
        {"type": "input_image", "image_url": "data:image/png;base64,AAAA", "detail": "low"},
    ]


async def test_settings_and_tools_of_the_model_are_sent() -> None:
    body = await body_of(llm=LLM(model="m", temperature=0.0), max_output_tokens=77, tools=(schema("add"), schema("b")))
    assert (body["model"], body["temperature"], body["max_output_tokens"]) == ("m", 0.0, 77)
    assert [(each["type"], each["name"], each["strict"]) for each in body["tools"]] == [
        ("function", "add", False),
        ("function", "b", False),
    ]


async def test_a_schema_goes_out_as_the_form_of_the_text() -> None:
    wanted: dict[str, JsonValue] = {"type": "object", "properties": {"a": {"type": "integer"}}}
    body = await body_of(response_format=JsonSchemaFormat(name="sum", json_schema=wanted))
    assert body["text"] == {"format": {"type": "json_schema", "name": "sum", "schema": wanted, "strict": False}}


async def test_a_json_object_is_asked_for_in_a_conversation_that_names_it() -> None:
    body = await body_of(response_format=JsonObjectFormat())
    assert body["text"] == {"format": {"type": "json_object"}}
    assert body["input"][0] == {"role": "system", "content": JSON_INSTRUCTION}
    named = (user_message("as Json, please"),)
    assert len((await body_of(response_format=JsonObjectFormat(), messages=named))["input"]) == 1


async def test_reasoning_goes_back_verbatim_in_its_place_and_without_its_id() -> None:
    turns = (
        Reply(text="One.", calls=(Call("add", {"a": 1}),), reasoning="first"),
        Reply(calls=(Call("add", {"a": 2}), Call("add", {"a": 3})), reasoning="second"),
        say("Six."),
    )
    async with asking(*turns) as (endpoint, model):
        first = await model(REQUEST)
        assert first.reasoning == "first"
        asked = with_answer(first)
        second = await model(asked)
        results = tuple(Message(role="tool", content="6", tool_call_id=each.id) for each in second.tool_calls)
        third = await model(replace(asked, messages=(*asked.messages, answered(second), *results)))
        assert third.text == "Six."
        kinds = [each.get("type", each.get("role")) for each in endpoint.requests[2].body["input"]]
    assert kinds == [
        *("user", "reasoning", "assistant", "function_call", "function_call_output"),
        *("reasoning", "function_call", "function_call", "function_call_output", "function_call_output"),
    ]


async def test_an_item_in_between_keeps_its_place_whatever_its_type() -> None:
    search = {"type": "web_search_call", "id": "ws_1", "status": "completed", "action": {"type": "search"}}
    novel = {"type": "astrology", "id": "as_1", "stars": [1, {"é": "☆"}]}
    final = {**TEXT, "id": "msg_2", "phase": "final_answer", "content": [{"type": "output_text", "text": "yz"}]}
    read = await answer_to(response(reasoning(), TEXT, novel, called(), search, called(call_id="b"), final))
    assert (read.text, [each.id for each in read.tool_calls]) == ("xyz", ["a", "b"])
    async with asking(say("ok")) as (endpoint, model):
        with pytest.raises(ModelFailure):  # nobody knows such an item: the fake refuses it, and has it as it came
            await model(with_answer(read))
        sent = endpoint.requests[0].body["input"][1:]
    assert sent[:7] == [
        {name: value for name, value in reasoning().items() if name != "id"},
        {"role": "assistant", "content": "x"},
        {"type": "astrology", "stars": [1, {"é": "☆"}]},
        {"type": "function_call", "call_id": "a", "name": "add", "arguments": "{}"},
        {"type": "web_search_call", "status": "completed", "action": {"type": "search"}},
        {"type": "function_call", "call_id": "b", "name": "add", "arguments": "{}"},
        {"role": "assistant", "content": "yz", "phase": "final_answer"},
    ]


@pytest.mark.parametrize("change", [{"route": "elsewhere"}, {"api": "openai_chat"}])
async def test_items_of_another_route_or_api_are_left_out(change: dict[str, str]) -> None:
    read = await answer_to(Reply(text="x", reasoning="hm"))
    assert read.items
    items = tuple(each.model_copy(update=change) for each in read.items)
    body = await body_of(messages=(*REQUEST.messages, answered(read).model_copy(update={"items": items})))
    assert body["input"] == [{"role": "user", "content": "What is it?"}, {"role": "assistant", "content": "x"}]


async def test_a_text_that_a_hook_has_changed_stands_behind_the_reasoning() -> None:
    read = await answer_to(Reply(text="secret", reasoning="hm", calls=(Call("add", {}),)))
    changed = answered(read).model_copy(update={"content": "[struck out]"})
    body = await body_of(messages=(*REQUEST.messages, changed, Message(role="tool", tool_call_id="call_0_0")))
    assert [each.get("content", each.get("type")) for each in body["input"][2:4]] == ["[struck out]", "function_call"]
    assert body["input"][1]["type"] == "reasoning"


@pytest.mark.parametrize(
    "bodies", [["{", "[]", "7", "{}", '{"text": "x"}', '{"call": true}'], ['{"call": 7}'], ['{"text": 9}']]
)
async def test_items_that_are_none_change_nothing(bodies: list[str]) -> None:
    items = tuple(ProviderItem(route="", api="openai_responses", body=each) for each in bodies)
    said = Message(role="assistant", content="x", items=items)
    assert (await body_of(messages=(*REQUEST.messages, said)))["input"][1:] == [{"role": "assistant", "content": "x"}]


async def test_reasoning_that_nothing_followed_is_not_sent_back() -> None:
    read = await answer_to(
        response(reasoning(), status="incomplete", incomplete_details={"reason": "max_output_tokens"})
    )
    assert (read.text, read.reasoning, read.finish_reason, len(read.items)) == ("", "hm", "length", 1)
    body = await body_of(messages=(*REQUEST.messages, answered(read), user_message("go on")))
    assert body["input"][1:] == [{"role": "assistant", "content": ""}, {"role": "user", "content": "go on"}]


@pytest.mark.parametrize(
    ("ending", "reason"), [("length", "length"), ("content_filter", "content_filter"), (None, "completed")]
)
@pytest.mark.parametrize("llm", [LLM(), PLAIN])
async def test_why_an_answer_is_incomplete_is_its_finish_reason(ending: str | None, reason: str, llm: LLM) -> None:
    assert (await answer_to(say("x", finish_reason=ending), request(llm=llm))).finish_reason == reason


@pytest.mark.parametrize("llm", [LLM(), PLAIN])
async def test_a_refusal_is_the_answers_text(llm: LLM) -> None:
    assert (await answer_to(say("I will not.", finish_reason="refusal"), request(llm=llm))).text == "I will not."


async def test_the_parts_of_the_usage_are_parts_of_it() -> None:
    usage = {
        "input_tokens": 100,
        "input_tokens_details": {"cached_tokens": 60, "cache_write_tokens": 30},
        "output_tokens": 50,
        "output_tokens_details": {"reasoning_tokens": 40},
    }
    used = Usage(input_tokens=100, output_tokens=50, cached_tokens=60, cache_write_tokens=30, reasoning_tokens=40)
    assert (await answer_to(response(TEXT, usage=usage))).usage == used


@pytest.mark.parametrize(
    ("usage", "given", "made", "cached"),
    [
        (None, None, None, 0),
        ("x", None, None, 0),
        ({}, None, None, 0),
        ({"input_tokens": -1, "output_tokens": -1}, None, None, 0),
        ({"input_tokens": True, "output_tokens": "9"}, None, None, 0),
        ({"input_tokens": 10**15, "output_tokens": 10**15}, REPORTED_TOKENS_MAX, REPORTED_TOKENS_MAX, 0),
        ({"input_tokens": 9, "output_tokens": 9, "input_tokens_details": {"cached_tokens": 10**15}}, 9, 9, 9),
        ({"input_tokens": 9, "output_tokens": 9, "input_tokens_details": {"cached_tokens": -3}}, 9, 9, 0),
        ({"input_tokens": 9, "output_tokens": 9, "output_tokens_details": []}, 9, 9, 0),
        ({"output_tokens": 9, "input_tokens_details": {"cached_tokens": 5}}, None, 9, 0),
    ],
)
async def test_usage_that_is_missing_or_absurd_is_bounded(
    usage: object, given: int | None, made: int | None, cached: int
) -> None:
    used = (await answer_to(response(TEXT, usage=usage))).usage
    assert used.input_tokens == given or (given is None and used.input_tokens > 0)
    assert used.output_tokens == made or (made is None and used.output_tokens > 0)
    assert (used.estimated_tokens > 0) is (given is None or made is None)
    assert used.cached_tokens == cached


async def test_an_empty_answer_is_one() -> None:
    used = {"input_tokens": 5, "output_tokens": 0}
    read = await answer_to(response(usage=used))
    assert (read.text, read.tool_calls, read.usage) == ("", (), Usage(input_tokens=5))


@pytest.mark.parametrize("llm", [LLM(), PLAIN])
async def test_an_answer_of_five_megabytes_is_cut_to_its_bound(llm: LLM) -> None:
    read = await answer_to(say("x" * 5_000_000), request(llm=llm))
    assert len(read.text.encode()) <= RESPONSE_BYTES_MAX
    assert "[cut:" in read.text


async def test_missing_double_and_impossible_ids_and_arguments_are_read_as_broken_calls() -> None:
    read = await answer_to(
        response(
            called(call_id="", arguments="{"),
            called(call_id="a"),
            called(call_id="a", name="no tool!"),
            called(call_id=7, name=None, arguments={"a": 1}),
        )
    )
    assert [each.id for each in read.tool_calls] == ["", "a", "a", ""]
    assert [each.malformed is None for each in read.tool_calls] == [False, True, False, False]


async def test_a_thousand_calls_are_cut_to_the_bound() -> None:
    read = await answer_to(response(*(called(call_id=f"c{n}") for n in range(1_000))))
    assert len(read.tool_calls) == CALLS_KEPT_MAX


@pytest.mark.parametrize("kind", ["custom_tool_call", "computer_call", "mcp_approval_request", "local_shell_call"])
async def test_a_call_of_a_tool_that_was_not_offered_is_refused_by_its_name(kind: str) -> None:
    failure = await failure_of(response({"type": kind, "id": "x"}))
    assert (failure.kind, kind in failure.message) == ("UnusableAnswer", True)


@pytest.mark.parametrize(
    "turn",
    [
        Reply(body="<html>"),
        Reply(body=""),
        Reply(body="{"),
        Reply(body="[]"),
        Reply(body='{"choices": []}'),
        response(output=None),
        response("x"),
        response({"type": 7}),
        response({**MESSAGE, "content": [{"type": "hologram"}]}),
        response(*(TEXT for _ in range(5_000))),
        stream(b"data: {corrupt\n\n"),
        stream(event("response.completed")),
        stream(b'data: {"object": "chat.completion.chunk", "choices": []}\n\n'),
    ],
)
async def test_what_is_no_response_is_told_as_such_and_asked_again(turn: Reply) -> None:
    failure = await failure_of(turn)
    assert (failure.kind, failure.again) == ("UnusableAnswer", True)


@pytest.mark.parametrize(
    ("error", "kind", "again"),
    [
        ({"code": "server_error", "message": "broke"}, "ProviderUnavailable", True),
        ({"code": "rate_limit_exceeded", "message": "slow"}, "ProviderUnavailable", True),
        ({"code": "invalid_prompt", "message": "no"}, "RequestRefused", False),
        ({"code": "image_too_large", "message": "no"}, "RequestRefused", False),
        ({"code": "insufficient_quota", "message": "pay"}, "QuotaExceeded", False),
        ({"code": "context_length_exceeded", "message": "long"}, "ContextTooLong", False),
    ],
)
async def test_an_error_within_an_answer_has_its_place_in_the_table(
    error: dict[str, str],
    kind: str,
    again: bool,  # noqa: FBT001  # a parameter of the test
) -> None:
    failed: dict[str, Any] = {
        "status": "failed",
        "error": error,
        "output": [],
        "usage": {"input_tokens": 9, "output_tokens": 1},
    }
    for turn in (
        response(**failed),
        stream(event("response.created", response={"id": "r"}), event("response.failed", response=failed)),
        stream(event("error", **error)),
        stream(f"data: {json.dumps({'type': 'error', 'error': error})}\n\n".encode()),
    ):
        failure = await failure_of(turn)
        assert (failure.kind, failure.again) == (kind, again)
    assert (await failure_of(stream(event("response.failed", response=failed)))).usage.input_tokens == 9


@pytest.mark.parametrize("code", [["odd"], {"odd": 1}, 5, None])
async def test_an_error_whose_code_is_no_word_is_one_of_the_server(code: object) -> None:
    for turn in (
        response(status="failed", error={"code": code, "message": "broke"}),
        stream(event("error", code=code)),
    ):
        assert (await failure_of(turn)).kind == "ProviderUnavailable"


async def test_half_a_character_in_an_item_can_go_back_and_a_number_that_is_none_is_refused() -> None:
    search = {"type": "web_search_call", "id": "ws", "status": "completed", "action": {"query": "hm \ud83d"}}
    read = await answer_to(response(search, TEXT))
    body = await body_of(messages=(*REQUEST.messages, answered(read), user_message("go on")))
    assert body["input"][1]["action"] == {"query": "hm ?"}
    failure = await failure_of(response({**search, "score": float("nan")}, TEXT))
    assert (failure.kind, "no JSON" in failure.message) == ("UnusableAnswer", True)


async def test_refusals_by_status_are_those_of_chat_completions() -> None:
    for status, kind in (
        (401, "NotAuthorised"),
        (404, "ModelNotFound"),
        (400, "RequestRefused"),
        (503, "ProviderUnavailable"),
    ):
        failure = await failure_of(Reply(status=status, text=f"no, {KEY}"))
        assert (failure.kind, KEY in failure.message) == (kind, False)


@pytest.mark.parametrize("status", ["queued", "in_progress"])
async def test_a_response_that_has_not_ended_is_no_answer(status: str) -> None:
    assert (await failure_of(response(TEXT, status=status))).kind == "ProviderUnavailable"


CUT = Reply(text="Well.", calls=(Call("pay", {"cents": 100}),), reasoning="hm", piece_chars=4)
EVENTS = len(tuple(answer_events(CUT, {"model": "scripted", "messages": []})))


@pytest.mark.parametrize("pieces", range(1, EVENTS))
async def test_a_stream_cut_at_any_event_is_no_answer(pieces: int) -> None:
    for reset in (False, True):
        failure = await failure_of(replace(CUT, pieces_max=pieces, reset=reset))
        assert (failure.kind, failure.again) == ("ProviderUnavailable", True)


async def test_the_whole_stream_has_one_event_more() -> None:
    assert (await answer_to(replace(CUT, pieces_max=EVENTS))).text == "Well."


async def test_unknown_events_are_ignored_and_items_come_from_their_own_events() -> None:
    turn = stream(
        event("response.created", response={"id": "resp_9", "model": "m"}),
        event("response.astrology.delta", delta="☆"),
        event("keepalive"),
        event("response.output_item.done", output_index=1, item=TEXT),
        event("response.output_item.done", output_index=0, item=reasoning(encrypted_content="whole")),
        event("response.completed", response={"output": [reasoning(encrypted_content="cut"), TEXT]}),
    )
    read = await answer_to(turn)
    assert (read.text, read.response_id, json.loads(read.items[0].body)["encrypted_content"]) == (
        "x",
        "resp_9",
        "whole",
    )


async def test_a_server_that_lists_items_at_the_end_alone_is_understood() -> None:
    read = await answer_to(stream(event("response.completed", response={"output": [TEXT, called()]})))
    assert (read.text, len(read.tool_calls)) == ("x", 1)


async def test_what_a_stream_began_and_never_ended_is_no_answer() -> None:
    turn = stream(
        event("response.output_text.delta", output_index=0, delta="x"),
        event("response.completed", response=EMPTY),
    )
    assert (await failure_of(turn)).kind == "UnusableAnswer"


async def test_the_listener_hears_the_id_first_then_the_words() -> None:
    parts: list[AnswerPart] = []
    turn = Reply(text="Well, then.", reasoning="hm, hm", calls=(Call("add", {"a": 1}),), piece_chars=2)
    await answer_to(turn, request(listener=parts.append))
    assert "".join(part.text for part in parts) == "Well, then."
    assert "".join(part.reasoning for part in parts) == "hm, hm"
    assert sum(part.call_bytes for part in parts) >= len('{"a":1}')
    assert next(part for part in parts if part.response_id).text == ""


async def test_a_cancelled_call_closes_its_connection() -> None:
    async with asking(say("x", pieces_max=3, hang=True)) as (endpoint, model):
        task = asyncio.ensure_future(model(REQUEST))
        await endpoint.until(lambda seen: len(seen) == 1)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await endpoint.until(lambda seen: seen[0].disconnected_at is not None)


async def test_a_model_that_does_not_reason_is_asked_without_its_reasoning() -> None:
    refused = Reply(status=400, text="Encrypted content is not supported with this model.")
    async with asking(replace(say("x"), failures=(refused,))) as (endpoint, model):
        assert (await model(REQUEST)).text == "x"
        assert (await model(REQUEST)).text == "x"
        sent: Sequence[bool] = ["include" in each.body for each in endpoint.requests]
    assert sent == [True, False, False]


async def test_it_is_chosen_by_its_name_and_priced_and_traced_as_its_providers() -> None:
    environment = {"OPENAI_API_KEY": "k", "HOLDFAST_MODEL": "gpt-4o"}
    model = model_from("openai_responses", environment)
    assert isinstance(model, OpenAIResponses)
    assert model.settings.server.api == "openai"
    price = prices_of(model).of("gpt-4o")
    assert price is not None
    assert price == prices_of(model_from("openai", environment)).of("gpt-4o")
    await model.close()
