"""The real openai client against the fake endpoint: our terms out, the wire's terms in, nothing taken on trust."""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel, JsonValue

from holdfast.core.agent.answer_types import format_of
from holdfast.core.agent.definition import LLM
from holdfast.core.agent.policies import JsonObjectFormat, JsonSchemaFormat, TextFormat
from holdfast.core.base.bounds import (
    ARGUMENTS_BYTES_MAX,
    CALL_ID_CHARS_MAX,
    CALLS_KEPT_MAX,
    NAME_CHARS_MAX,
    PAYLOAD_BYTES_MAX,
    REASONING_BYTES_MAX,
    REPORTED_TOKENS_MAX,
    RESPONSE_BYTES_MAX,
    WORD_CHARS_MAX,
)
from holdfast.core.base.errors import InvalidInput, ModelFailure
from holdfast.core.base.usage import Usage
from holdfast.core.conversation.messages import ImagePart, Message, TextPart, ToolCall
from holdfast.core.conversation.steps import InferenceResponse
from holdfast.models.endpoint import ProviderSettings
from holdfast.models.openai_chat.model import OpenAIChat
from holdfast.models.openai_endpoint import JSON_INSTRUCTION
from holdfast.runtime.answer_check import checked
from holdfast.testing.script import Call, Reply, call, calls, say
from tests.activities.asking import KEY, REQUEST, answer_to, asking, request, schema


def completion(message: dict[str, Any], **fields: Any) -> Reply:  # noqa: ANN401  # any JSON value
    """Return an answer whose message and other fields are as given, however odd."""
    choice = {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": "x", **message}}
    usual = {"id": "1", "object": "chat.completion", "created": 1, "model": "m", "choices": [choice]}
    return Reply(body=json.dumps({**usual, **fields}))


def wanted(**fields: object) -> dict[str, object]:
    return {"id": "a", "type": "function", "function": {"name": "add", "arguments": "{}"}, **fields}


async def body_of(**changes: object) -> dict[str, Any]:
    """Return the request's body as the endpoint saw it."""
    async with asking(say("x")) as (endpoint, model):
        await model(request(**changes))
        return endpoint.requests[0].body


async def test_an_answer_is_read_with_its_usage_model_and_ids() -> None:
    response = await answer_to(say("It is a test.", usage=(7, 3)))
    assert response == InferenceResponse(
        text="It is a test.",
        finish_reason="stop",
        usage=Usage(input_tokens=7, output_tokens=3),
        model="scripted",
        response_id="chatcmpl-0",
    )


async def test_tool_calls_are_read_in_order() -> None:
    response = await answer_to(calls(Call("add", {"a": 1}), Call("echo", {"text": "ü"}), text="let me see"))
    assert response.text == "let me see"
    assert response.finish_reason == "tool_calls"
    assert response.tool_calls == (
        ToolCall(id="call_0_0", name="add", arguments={"a": 1}, raw_arguments='{"a": 1}'),
        ToolCall(id="call_0_1", name="echo", arguments={"text": "ü"}, raw_arguments='{"text": "\\u00fc"}'),
    )


async def test_prompt_and_conversation_go_out_in_the_providers_terms() -> None:
    conversation = (
        Message(role="user", content="1+2?"),
        Message(role="assistant", content="", tool_calls=(ToolCall(id="a", name="add", arguments={"a": 1, "ü": [2]}),)),
        Message(role="tool", content="3", tool_call_id="a"),
        Message(role="user", content="and?", metadata={"secret note": 1}),
    )
    body = await body_of(messages=conversation)
    function = {"name": "add", "arguments": '{"a":1,"ü":[2]}'}
    assert body["messages"] == [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "1+2?"},
        {"role": "assistant", "content": None, "tool_calls": [{"id": "a", "type": "function", "function": function}]},
        {"role": "tool", "content": "3", "tool_call_id": "a"},
        {"role": "user", "content": "and?"},
    ]


async def test_arguments_go_back_as_the_model_wrote_them() -> None:
    texts = ('{"a": 1}', '{\n  "a": 1e2\n}', ' {"a" :"\\u00fc"} ', '{"a":1}')
    calls_ = tuple(ToolCall.parse(f"c{n}", "add", text) for n, text in enumerate(texts))
    answers = (Message(role="tool", content="3", tool_call_id=each.id) for each in calls_)
    body = await body_of(messages=(Message(role="user"), Message(role="assistant", tool_calls=calls_), *answers))
    assert [each["function"]["arguments"] for each in body["messages"][2]["tool_calls"]] == [*texts]


async def test_arguments_that_a_server_sends_as_an_object_have_our_spelling() -> None:
    (read,) = (
        await answer_to(completion({"tool_calls": [wanted(function={"name": "add", "arguments": {"ü": 1}})]}))
    ).tool_calls
    assert read == ToolCall(id="a", name="add", arguments={"ü": 1})


async def test_a_models_own_texts_are_kept_while_they_and_the_arguments_fit_their_bound() -> None:
    half = {"name": "add", "arguments": json.dumps({"a": "x" * (ARGUMENTS_BYTES_MAX // 4 - 100)})}
    sent = [wanted(id=each, function=half) for each in "abc"]
    read = (await answer_to(completion({"tool_calls": sent}))).tool_calls
    assert [each.malformed for each in read] == [None] * 3
    assert [each.raw_arguments is None for each in read] == [False, True, True]


async def test_words_and_pictures_go_out_as_parts() -> None:
    content = (
        TextPart(text="Which of these is a cat?"),
        ImagePart(url="https://example.com/1.png"),
        ImagePart(url="data:image/png;base64,AAAA", detail="low"),
    )
    said = Message(role="assistant", content=(TextPart(text="The first."),))
    body = await body_of(messages=(Message(role="user", content=content), said))
    assert body["messages"][1:] == [
        {
            "role": "user",
            "content": [
                {"type": "text", "text": "Which of these is a cat?"},
                {"type": "image_url", "image_url": {"url": "https://example.com/1.png"}},
                {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA", "detail": "low"}},
            ],
        },
        {"role": "assistant", "content": [{"type": "text", "text": "The first."}]},
    ]


async def test_what_is_not_set_is_not_sent() -> None:
    assert set(await body_of()) == {"model", "messages", "stream", "stream_options"}
    assert set(await body_of(llm=LLM(stream=False))) == {"model", "messages"}
    assert (await body_of(system_prompt=""))["messages"][0]["role"] == "user"


async def test_settings_of_the_model_are_sent() -> None:
    body = await body_of(llm=LLM(model="m", temperature=0.0), max_output_tokens=77, tools=(schema("add"), schema("b")))
    assert (body["model"], body["temperature"], body["max_completion_tokens"]) == ("m", 0.0, 77)
    assert [each["function"]["name"] for each in body["tools"]] == ["add", "b"]


async def test_a_schema_goes_out_as_the_response_format() -> None:
    schema: dict[str, JsonValue] = {"type": "object", "properties": {"a": {"type": "integer"}}}
    body = await body_of(response_format=JsonSchemaFormat(name="sum", json_schema=schema))
    spec = {"name": "sum", "schema": schema, "strict": False}
    assert body["response_format"] == {"type": "json_schema", "json_schema": spec}
    assert len(body["messages"]) == 2


async def test_the_schema_of_a_type_goes_out_in_its_strict_form() -> None:
    class Sum(BaseModel):
        total: int
        note: str = ""

    body = await body_of(response_format=format_of(Sum, strict=True))
    spec = body["response_format"]["json_schema"]
    assert (spec["name"], spec["strict"]) == ("Sum", True)
    assert (spec["schema"]["required"], spec["schema"]["additionalProperties"]) == (["total", "note"], False)


async def test_an_answer_in_words_asks_for_no_response_format() -> None:
    assert "response_format" not in await body_of(response_format=TextFormat())


@pytest.mark.parametrize("prompt", ["", "Be brief.", "Answer in JSON.", "json"])
async def test_a_json_object_is_asked_for_in_a_conversation_that_names_it(prompt: str) -> None:
    body = await body_of(response_format=JsonObjectFormat(), system_prompt=prompt)
    assert body["response_format"] == {"type": "json_object"}
    named = "json" in prompt.lower()
    assert body["messages"][0] == {
        "role": "system",
        "content": prompt if named else f"{prompt}\n\n{JSON_INSTRUCTION}".strip(),
    }
    said = Message(role="user", content="as Json, please")
    body = await body_of(response_format=JsonObjectFormat(), system_prompt="Be brief.", messages=(said,))
    assert body["messages"][0]["content"] == "Be brief."


async def test_a_response_format_the_endpoint_refuses_is_told_and_not_asked_again() -> None:
    wanted = JsonSchemaFormat(json_schema={"type": "object"}, strict=True)
    with pytest.raises(ModelFailure, match="additionalProperties") as caught:
        await answer_to(say("{}"), request(response_format=wanted))
    assert not caught.value.again


@pytest.mark.parametrize(
    ("turn", "said"),
    [
        (say('{"a": 1}'), None),
        (say("words"), "not usable JSON"),
        (say('```json\n{"a": 1}\n```'), "code fence"),
        (say('{"a": "wo', finish_reason="length"), "cut at the output limit"),
        (say(""), "is empty"),
        (completion({"content": '{"a": "\ud800"}'}), None),
        (completion({"content": '{"a": "\\ud800"}'}), "surrogates"),
        (say("[" * 100_000), "levels deep"),
        (say(json.dumps({"a": "x" * RESPONSE_BYTES_MAX})), "not usable JSON"),
        (call("add"), None),
    ],
)
async def test_what_the_endpoint_answers_is_checked_against_the_form(turn: Reply, said: str | None) -> None:
    wanted = JsonObjectFormat()
    response = checked(await answer_to(turn, request(response_format=wanted)), wanted)
    if said is None:
        assert response.format_problem is None
    else:
        assert said in (response.format_problem or "")
    response.model_dump_json()


async def test_the_client_asks_once_whatever_happens() -> None:
    async with asking(Reply(status=500), Reply(status=500)) as (endpoint, model):
        with pytest.raises(Exception, match="500"):
            await model(REQUEST)
        assert len(endpoint.requests) == 1


async def test_cancelling_a_call_closes_its_connection() -> None:
    async with asking(Reply(hang=True)) as (endpoint, model):
        asked = asyncio.create_task(model(REQUEST))
        await endpoint.until(lambda seen: len(seen) == 1)
        asked.cancel()
        await endpoint.until(lambda seen: seen[0].outcome == "disconnected-by-client", seconds_max=90)


@pytest.mark.parametrize(
    ("message", "text"),
    [
        ({"content": None}, ""),
        ({"content": ""}, ""),
        ({"content": [{"type": "text", "text": "a"}, {"type": "image"}, {"type": "text", "text": "b"}]}, "ab"),
        ({"content": 5}, ""),
        ({"content": "\ud800ü"}, "?ü"),
        ({"content": "\x00\x1b[31m"}, "\x00\x1b[31m"),
    ],
)
async def test_the_text_is_a_text_whatever_comes(message: dict[str, Any], text: str) -> None:
    assert (await answer_to(completion(message))).text == text


@pytest.mark.parametrize("field", ["reasoning", "reasoning_content"])
async def test_reasoning_is_kept_under_either_name_and_bounded(field: str) -> None:
    response = await answer_to(completion({field: "think " * 10_000}))
    assert response.reasoning.startswith("think think")
    assert len(response.reasoning) <= REASONING_BYTES_MAX
    assert (await answer_to(completion({field: {"odd": 1}}))).reasoning == ""


@pytest.mark.parametrize("reason", ["stop", "length", "content_filter", "a new one", "x" * 1_000, "\ud800"])
async def test_an_unknown_finish_reason_is_kept_bounded_and_encodable(reason: str) -> None:
    turn = completion({}, choices=[{"index": 0, "finish_reason": reason, "message": {"content": "x"}}])
    response = await answer_to(turn)
    assert len(response.finish_reason) <= WORD_CHARS_MAX
    response.model_dump_json()


@pytest.mark.parametrize("field", ["model", "id"])
@pytest.mark.parametrize("value", [None, 5, "\ud800", "x" * 10_000])
async def test_odd_names_of_model_and_answer_are_bounded_and_encodable(field: str, value: object) -> None:
    response = await answer_to(completion({}, **{field: value}))
    assert len(response.model) <= 200
    assert len(response.response_id) <= 200
    response.model_dump_json()


@pytest.mark.parametrize(
    ("usage", "tokens"),
    [
        ({"prompt_tokens": 7, "completion_tokens": 3}, (7, 3)),
        ({"prompt_tokens": 0, "completion_tokens": 0}, (None, None)),
        ({"prompt_tokens": 7.9, "completion_tokens": 3}, (7, 3)),
        ({"prompt_tokens": 10**30, "completion_tokens": 3}, (REPORTED_TOKENS_MAX, 3)),
        ({"prompt_tokens": -7, "completion_tokens": 3}, (None, 3)),
        ({"prompt_tokens": 7, "completion_tokens": -1}, (7, None)),
        ({"prompt_tokens": 7}, (7, None)),
        ({"prompt_tokens": "7", "completion_tokens": None}, (None, None)),
        ({}, (None, None)),
        (None, (None, None)),
        ("many", (None, None)),
        ([1], (None, None)),
    ],
)
async def test_missing_or_impossible_usage_is_bounded_from_above(
    usage: object, tokens: tuple[int | None, int | None]
) -> None:
    response = await answer_to(completion({"content": "twelve bytes"}, usage=usage))
    sent, received = response.usage.input_tokens, response.usage.output_tokens
    asked = len("Be brief.") + len("What is it?")
    assert sent == tokens[0] if tokens[0] is not None else asked <= sent < asked + 500
    assert received == tokens[1] if tokens[1] is not None else 12 <= received < 500


async def test_absent_usage_grows_with_what_was_really_sent() -> None:
    long = request(messages=(Message(role="user", content="ü" * 5_000),))
    turn = completion({}, usage=None)
    assert (await answer_to(turn, long)).usage.input_tokens >= 10_000


@pytest.mark.parametrize("reason", ["length", "content_filter", "tool_calls"])
async def test_the_call_in_which_an_answer_was_cut_off_has_no_arguments_yet(reason: str) -> None:
    asked = [wanted(id=id_, function={"name": "add", "arguments": ""}) for id_ in ("a", "b")]
    message = {"role": "assistant", "content": "", "tool_calls": asked}
    turn = completion({}, choices=[{"index": 0, "finish_reason": reason, "message": message}])
    first, last = (await answer_to(turn)).tool_calls
    assert (first.arguments, first.malformed) == ({}, None), "none are none"
    assert (last.malformed is None) == (reason == "tool_calls")


@pytest.mark.parametrize(
    ("odd", "named"),
    [
        (wanted(), ("a", "add", True)),
        (wanted(id=None), ("", "add", True)),
        (wanted(id=5), ("", "add", True)),
        (wanted(id="x" * (CALL_ID_CHARS_MAX + 1)), ("", "add", True)),
        (wanted(function={"name": "add", "arguments": None}), ("a", "add", True)),
        (wanted(function={"name": "add", "arguments": '{"cut'}), ("a", "add", False)),
        (wanted(function={"name": None, "arguments": "{}"}), ("a", "unnamed", False)),
        (wanted(function={"name": "no good", "arguments": "{}"}), ("a", "no_good", False)),
        (wanted(function={}), ("a", "unnamed", False)),
    ],
)
async def test_an_odd_tool_call_is_read_and_marked(odd: object, named: tuple[str, str, bool]) -> None:
    (read,) = (await answer_to(completion({"tool_calls": [odd]}))).tool_calls
    assert (read.id, read.name, read.malformed is None) == named
    assert read.arguments == {}


async def test_arguments_that_come_as_an_object_are_taken_as_one() -> None:
    odd = wanted(function={"name": "add", "arguments": {"a": [1, "ü"]}})
    (read,) = (await answer_to(completion({"tool_calls": [odd]}))).tool_calls
    assert (read.arguments, read.malformed) == ({"a": [1, "ü"]}, None)


async def test_a_call_id_that_cannot_be_stored_is_replaced() -> None:
    response = await answer_to(completion({"tool_calls": [wanted(id="call_\ud800")]}))
    response.model_dump_json()


async def test_more_calls_than_are_kept_are_cut() -> None:
    response = await answer_to(completion({"tool_calls": [wanted()] * (CALLS_KEPT_MAX + 50)}))
    assert len(response.tool_calls) == CALLS_KEPT_MAX


async def test_arguments_that_together_are_too_large_are_marked_from_there_on() -> None:
    large = {"name": "add", "arguments": json.dumps({"a": "x" * (ARGUMENTS_BYTES_MAX - 1_000)})}
    sent = [wanted(id="a", function=large), wanted(id="b", function=large), wanted(id="c")]
    first, second, third = (await answer_to(completion({"tool_calls": sent}))).tool_calls
    assert first.malformed is None
    assert (
        second.malformed
        == third.malformed
        == f"the arguments of this answer's calls pass {ARGUMENTS_BYTES_MAX:,} bytes"
    )
    assert second.arguments == third.arguments == {}


async def test_a_huge_answer_is_cut_to_what_is_kept() -> None:
    response = await answer_to(say("ü" * 10**6))
    assert len(response.text.encode()) <= RESPONSE_BYTES_MAX
    assert "cut" in response.text[-80:]


@pytest.mark.parametrize("filling", ["x", "ü", "😀", '"', "\n", "\x01"])
async def test_the_largest_answer_fits_one_payload_whatever_its_characters(filling: str) -> None:
    large = wanted(function={"name": "add", "arguments": json.dumps({"a": "x" * (ARGUMENTS_BYTES_MAX - 20)})})
    odd = wanted(id="x" * CALL_ID_CHARS_MAX, function={"name": filling * NAME_CHARS_MAX, "arguments": ""})
    sent = [large, *[odd] * CALLS_KEPT_MAX]
    turn = completion({"content": filling * 5 * 10**5, "reasoning": filling * 10**5, "tool_calls": sent})
    assert len((await answer_to(turn)).model_dump_json().encode()) <= PAYLOAD_BYTES_MAX


async def test_the_key_goes_to_the_endpoint_and_nowhere_else() -> None:
    async with asking(call("add")) as (endpoint, model):
        response = await model(REQUEST)
        assert endpoint.requests[0].headers["authorization"] == "redacted"
        assert KEY not in endpoint.requests[0].raw.decode()
    assert KEY not in response.model_dump_json()
    assert KEY not in repr(model.settings)


async def test_a_local_endpoint_needs_no_key_and_never_gets_the_environments(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    async with asking(say("x"), api_key=None) as (endpoint, model):
        await model(REQUEST)
        assert model._client is not None  # pyright: ignore[reportPrivateUsage]  # what it sends is redacted there
        assert model._client.api_key != KEY  # pyright: ignore[reportPrivateUsage]
        assert endpoint.requests[0].outcome == "answered"


async def test_without_key_and_address_nothing_is_asked() -> None:
    with pytest.raises(ModelFailure, match="OPENAI_API_KEY"):
        await OpenAIChat(ProviderSettings())(REQUEST)


def test_settings_are_read_from_the_environment(tmp_path: Path) -> None:
    file = tmp_path / "key"
    file.write_text(f"{KEY}\n")
    read = ProviderSettings.from_environment
    assert read({}) == ProviderSettings()
    assert read({"OPENAI_API_KEY": "", "OPENAI_BASE_URL": "", "HOLDFAST_MODEL": ""}) == ProviderSettings()
    assert read({"OPENAI_API_KEY_FILE": str(file)}).api_key == KEY
    assert read({"OPENAI_API_KEY_FILE": str(file), "OPENAI_API_KEY": "own"}).api_key == "own"
    assert read({"OPENAI_BASE_URL": "http://x/v1", "HOLDFAST_MODEL": "m"}).model == "m"


def test_a_key_file_that_cannot_be_read_is_named_without_a_traceback(tmp_path: Path) -> None:
    binary = tmp_path / "binary"
    binary.write_bytes(b"\xff\xfe\xff")
    for file in (tmp_path / "missing", tmp_path, binary):
        with pytest.raises(InvalidInput, match="OPENAI_API_KEY_FILE"):
            ProviderSettings.from_environment({"OPENAI_API_KEY_FILE": os.fspath(file)})


def test_the_key_is_not_part_of_the_settings_text() -> None:
    assert KEY not in repr(ProviderSettings(api_key=KEY))
    assert KEY not in str(ProviderSettings(api_key=KEY))
