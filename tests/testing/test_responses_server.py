"""The fake Responses API over real HTTP, asked by the real openai client: its answers, and what it refuses."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import openai
import pytest
from openai.types.responses import Response, ResponseStreamEvent
from pydantic import TypeAdapter

from holdfast.testing.responses_request_check import encrypted
from holdfast.testing.responses_server import FakeResponses
from holdfast.testing.responses_wire_format import answer_events, response_object
from holdfast.testing.script import Call, Reply, Scripts, calls, say
from tests.testing.test_openai_server import TLS

EVENT: TypeAdapter[object] = TypeAdapter(ResponseStreamEvent)
SEARCH: dict[str, Any] = {
    "type": "web_search_call",
    "id": "ws",
    "status": "completed",
    "action": {"type": "search", "query": "x"},
}
TURNS = (
    say("Hello, you.", reasoning="hm"),
    calls(Call("add", {"a": 1}), Call("add", {"a": 2}), text="Well."),
    say("no", finish_reason="refusal"),
    say("cut", finish_reason="length"),
    say("x", usage=None),
    Reply(text="found", blocks=(SEARCH,), reasoning="look"),
)
USER: dict[str, Any] = {"role": "user", "content": "1+2?"}
CALL: dict[str, Any] = {"type": "function_call", "call_id": "a", "name": "add", "arguments": "{}"}
OUTPUT: dict[str, Any] = {"type": "function_call_output", "call_id": "a", "output": "3"}
THOUGHT: dict[str, Any] = {
    "type": "reasoning",
    "summary": [{"type": "summary_text", "text": "hm"}],
    "encrypted_content": encrypted("m", "hm", 0),
}
ANSWER: dict[str, Any] = {"role": "assistant", "content": "3"}
TOOL: dict[str, Any] = {"type": "function", "name": "add", "parameters": {"type": "object"}, "strict": False}


@asynccontextmanager
async def playing(script: Scripts) -> AsyncGenerator[openai.AsyncOpenAI]:
    async with (
        FakeResponses(script) as server,
        openai.DefaultAsyncHttpxClient(verify=TLS) as http,
        openai.AsyncOpenAI(base_url=server.base_url, api_key="any", max_retries=0, http_client=http) as client,
    ):
        yield client


async def ask(client: openai.AsyncOpenAI, *items: dict[str, Any], **fields: object) -> Response:
    create: Any = client.responses.create  # requests that its overloads would not allow are asked, too
    answer: Response = await create(**{"model": "m", "input": [*items] or "Hello", "store": False, **fields})
    return answer


@pytest.mark.parametrize("turn", TURNS)
def test_answers_are_what_the_clients_types_say(turn: Reply) -> None:
    request: dict[str, Any] = {"model": "m", "messages": [], "stream": True}
    whole = response_object(turn, request)
    assert Response.model_validate(whole).to_dict(exclude_unset=True) == whole
    for event in answer_events(turn, request):
        EVENT.validate_python(event)


async def test_a_stream_ends_in_the_plain_answer() -> None:
    async with playing([TURNS[0]]) as client:
        plain = await ask(client)
        create: Any = client.responses.create
        async with await create(model="m", input="Hello", store=False, stream=True) as events:
            streamed = [event async for event in events]
    assert streamed[-1].response == plain
    assert "".join(event.delta for event in streamed if event.type == "response.output_text.delta") == "Hello, you."
    assert [event.sequence_number for event in streamed] == list(range(len(streamed)))


async def test_a_turn_is_the_items_between_what_the_model_is_sent() -> None:
    async with playing([say("zero"), say("one"), say("two")]) as client:
        first = (USER, THOUGHT, {**ANSWER, "phase": "commentary"}, CALL, OUTPUT)
        assert (await ask(client, *first)).output_text == "one"
        assert (await ask(client, *first, ANSWER, USER)).output_text == "two"


@pytest.mark.parametrize(
    ("items", "words"),
    [
        ([USER, OUTPUT], "No tool call found for function call output with call_id a"),
        ([USER, CALL], "No tool output found for function call a"),
        ([USER, CALL, OUTPUT, OUTPUT], "No tool output found"),
        ([USER, CALL, CALL, OUTPUT], "Duplicate"),
        ([USER, THOUGHT], "without its required following item"),
        ([USER, THOUGHT, USER], "without its required following item"),
        ([USER, CALL, THOUGHT, OUTPUT], "without its required following item"),
        ([USER, {**THOUGHT, "encrypted_content": "x"}, ANSWER], "could not be verified"),
        ([USER, ANSWER, USER, THOUGHT, ANSWER], "could not be verified"),
        ([USER, {**THOUGHT, "id": "rs_1"}, ANSWER], "Items are not persisted"),
        ([USER, {**THOUGHT, "stars": 1}, ANSWER], "stars"),
        ([{**USER, "id": "msg_1"}], "Items are not persisted"),
        ([{**USER, "content": list[str]()}], "input"),
        ([{**USER, "role": "tool"}], "role"),
        ([{**ANSWER, "content": [{"type": "input_text", "text": "x"}]}], "output_text"),
        ([{**OUTPUT, "type": "astrology"}], "input[0]"),
    ],
)
async def test_conversations_that_the_api_refuses_are_refused(items: list[dict[str, Any]], words: str) -> None:
    async with playing([say("x")]) as client:
        with pytest.raises(openai.APIStatusError) as caught:
            await ask(client, *items)
    assert words in json.dumps(caught.value.body)


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"extra_body": {"max_tokens": 5}}, "Unknown parameter: 'max_tokens'"),
        ({"max_output_tokens": 15}, "max_output_tokens"),
        ({"tools": [TOOL, TOOL]}, "unique"),
        ({"tools": [{**TOOL, "strict": True}]}, "additionalProperties"),
        ({"tools": [{"type": "computer"}]}, "tools"),
        ({"tools": [{"type": "web_search", "max_uses": 3}]}, "tools"),
        ({"tools": [{"type": "file_search"}]}, "tools"),
        ({"tools": [{"type": "code_interpreter"}]}, "tools"),
        ({"text": {"format": {"type": "json_object"}}}, "must contain the word 'json'"),
        ({"text": {"format": {"type": "json_schema", "name": "x", "schema": {}, "strict": True}}}, "object"),
        ({"previous_response_id": "resp_1"}, "previous_response_id"),
        ({"background": True}, "requires 'store'"),
    ],
)
async def test_requests_that_the_api_refuses_are_refused(fields: dict[str, Any], words: str) -> None:
    async with playing([say("x")]) as client:
        with pytest.raises(openai.BadRequestError) as caught:
            await ask(client, USER, **fields)
    assert words in json.dumps(caught.value.body)
