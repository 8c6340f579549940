"""The fake server over real HTTP, asked by the real openai client."""

from __future__ import annotations

import asyncio
import json
import signal
import socket
import ssl
import subprocess
import sys
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import aiohttp
import openai
import pytest
from openai.types.chat import ChatCompletion, ChatCompletionChunk

from holdfast.core.base.errors import InvalidInput, PortTaken
from holdfast.testing import openai_server
from holdfast.testing.holds import Hold
from holdfast.testing.ledger import Ledger
from holdfast.testing.openai_server import FakeOpenAI, load_script
from holdfast.testing.script import Call, Reply, Scripts, call, calls, say

USER = {"role": "user", "content": "Hello"}
CHAT = b'{"model": "m", "messages": [{"role": "user", "content": %s}]}'
TOOL = {"type": "function", "function": {"name": "add", "parameters": {"type": "object"}}}
NOTICE_SECONDS_MAX = 20  # it takes a few milliseconds, and the turn would take 30 s

TLS = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)  # unused over HTTP, but a client's own one costs 26 ms
SCRIPT_MODULE = "from holdfast.testing.script import call, say\nscript = [call('add'), say('3', delay_seconds=30)]\n"


@asynccontextmanager
async def playing(
    script: Scripts, *, ledger: Path | None = None, api_key: str | None = None, client_key: str = "any"
) -> AsyncGenerator[tuple[FakeOpenAI, openai.AsyncOpenAI]]:
    async with (
        FakeOpenAI(script, ledger=ledger, api_key=api_key) as server,
        openai.DefaultAsyncHttpxClient(verify=TLS) as http,
        openai.AsyncOpenAI(base_url=server.base_url, api_key=client_key, max_retries=0, http_client=http) as client,
    ):
        yield server, client


async def ask(client: openai.AsyncOpenAI, *later: dict[str, Any], **fields: object) -> ChatCompletion:
    create: Any = client.chat.completions.create  # requests that its overloads would not allow are asked, too
    answer: ChatCompletion = await create(**{"model": "m", "messages": [USER, *later], **fields})
    return answer


async def stream(client: openai.AsyncOpenAI, **fields: object) -> list[ChatCompletionChunk]:
    create: Any = client.chat.completions.create
    async with await create(model="m", messages=[USER], stream=True, **fields) as chunks:
        return [chunk async for chunk in chunks]


def asked(*ids: str, arguments: str = "{}", name: str = "add") -> dict[str, Any]:
    function = {"name": name, "arguments": arguments}
    return {"role": "assistant", "tool_calls": [{"id": id_, "type": "function", "function": function} for id_ in ids]}


def schema_named(name: str, **spec: object) -> dict[str, Any]:
    return {"response_format": {"type": "json_schema", "json_schema": {"name": name, "schema": {}, **spec}}}


def closed(more: dict[str, Any]) -> dict[str, Any]:
    return {"type": "object", "additionalProperties": False, **more}


def answered(id_: str) -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": id_, "content": "3"}


async def test_a_turn_with_text_is_a_plain_answer() -> None:
    async with playing([say("Hi.", usage=(7, 3))]) as (_, client):
        answer = await ask(client)
    assert answer.id == "chatcmpl-0"
    assert answer.model == "m"
    assert answer.choices[0].message.content == "Hi."
    assert answer.choices[0].finish_reason == "stop"
    assert answer.usage is not None
    assert (answer.usage.prompt_tokens, answer.usage.completion_tokens, answer.usage.total_tokens) == (7, 3, 10)


async def test_a_turn_with_calls_asks_for_tools() -> None:
    script = [calls(Call("add", {"a": 1}), Call("ping", "{broken", id="mine"), text="One moment.")]
    async with playing(script) as (_, client):
        choice = (await ask(client)).choices[0]
    assert choice.finish_reason == "tool_calls"
    assert choice.message.content == "One moment."
    assert choice.message.tool_calls is not None
    assert [wanted.model_dump() for wanted in choice.message.tool_calls] == [
        {"id": "call_0_0", "type": "function", "function": {"name": "add", "arguments": '{"a": 1}'}},
        {"id": "mine", "type": "function", "function": {"name": "ping", "arguments": "{broken"}},
    ]


async def test_the_turn_depends_on_the_conversation_alone() -> None:
    async with playing([call("add", a=1), say("Sum: 3")]) as (_, client):
        later = (asked("call_0_0"), answered("call_0_0"))
        second, first, again = await ask(client, *later), await ask(client), await ask(client, *later)
        third = await ask(client, *later, {"role": "assistant", "content": "Sum: 3"}, USER)
    assert second == again
    assert second.choices[0].message.content == "Sum: 3"
    assert first.choices[0].finish_reason == "tool_calls"
    assert third.choices[0].message.content == "The script has ended."


async def test_a_script_may_be_a_function_of_the_request() -> None:
    async with playing(lambda request: say(request["messages"][-1]["content"].upper())) as (_, client):
        assert (await ask(client)).choices[0].message.content == "HELLO"


async def test_a_function_that_raises_is_refused_with_its_error() -> None:
    def broken(_: dict[str, Any]) -> Reply:
        raise KeyError("turn")

    async with playing(broken) as (_, client):
        with pytest.raises(openai.BadRequestError, match="The script raised KeyError"):
            await ask(client)


async def test_each_model_plays_its_own_script_and_others_are_unknown() -> None:
    async with playing({"small": [say("s")], "large": [say("l")]}) as (_, client):
        assert (await ask(client, model="small")).choices[0].message.content == "s"
        assert (await ask(client, model="large")).choices[0].message.content == "l"
        assert [model.id async for model in client.models.list()] == ["small", "large"]
        with pytest.raises(openai.NotFoundError) as caught:
            await ask(client, model="other")
    assert caught.value.code == "model_not_found"


async def test_a_model_that_answers_nothing_has_null_content() -> None:
    async with playing([Reply(finish_reason="length")]) as (_, client):
        choice = (await ask(client)).choices[0]
    assert choice.message.content is None
    assert choice.finish_reason == "length"


@pytest.mark.parametrize("usage", [None, (-5, 10**12)])
async def test_usage_can_be_missing_or_absurd(usage: tuple[int, int] | None) -> None:
    async with playing([say("Hi.", usage=usage)]) as (_, client):
        answer = await ask(client)
    assert (answer.usage and (answer.usage.prompt_tokens, answer.usage.completion_tokens)) == usage


async def test_a_long_text_with_every_kind_of_character_survives() -> None:
    text = "😀 مرحبا\x00 ü\n" * 50_000
    async with playing([say(text)]) as (_, client):
        assert (await ask(client)).choices[0].message.content == text
        streamed = [chunk.choices[0].delta.content or "" for chunk in await stream(client)]
    assert "".join(streamed) == text


async def test_a_text_is_streamed_in_pieces() -> None:
    async with playing([say("A text of a few words.")]) as (_, client):
        chunks = await stream(client)
    texts = [chunk.choices[0].delta.content for chunk in chunks if chunk.choices[0].delta.content]
    assert len(texts) > 1
    assert "".join(texts) == "A text of a few words."
    assert [chunk.choices[0].finish_reason for chunk in chunks if chunk.choices[0].finish_reason] == ["stop"]
    assert all(chunk.usage is None for chunk in chunks)


async def test_usage_is_streamed_last_when_asked_for() -> None:
    async with playing([say("Hi.", usage=(7, 3))]) as (_, client):
        *others, last = await stream(client, stream_options={"include_usage": True})
    assert last.choices == []
    assert last.usage is not None
    assert last.usage.total_tokens == 10
    assert all(chunk.usage is None for chunk in others)


async def test_tool_calls_are_streamed_by_index() -> None:
    script = [calls(Call("add", {"first": 1, "second": 2}), Call("ping"))]
    async with playing(script) as (_, client):
        chunks = await stream(client)
    found: dict[int, list[str]] = {}
    for chunk in chunks:
        for part in chunk.choices[0].delta.tool_calls or []:
            assert part.function is not None
            if part.id:
                found[part.index] = [part.id, part.function.name or "", ""]
            found[part.index][2] += part.function.arguments or ""
    assert found == {0: ["call_0_0", "add", '{"first": 1, "second": 2}'], 1: ["call_0_1", "ping", "{}"]}
    assert chunks[-1].choices[0].finish_reason == "tool_calls"


async def test_a_stream_can_end_without_a_finish_reason() -> None:
    async with playing([say("A text of a few words.", pieces_max=2)]) as (_, client):
        chunks = await stream(client)
    assert len(chunks) == 2
    assert chunks[-1].choices[0].finish_reason is None


async def test_a_stream_can_break_in_the_middle() -> None:
    async with playing([say("A text of a few words.", pieces_max=2, disconnect=True)]) as (server, client):
        with pytest.raises(openai.APIError):
            await stream(client)
        await server.until(lambda requests: requests[0].outcome == "disconnected-by-server")


async def test_a_stream_can_fall_silent_after_its_headers() -> None:
    async with playing([say("Never.", pieces_max=0, hang=True)]) as (server, client):
        with pytest.raises(openai.APITimeoutError):
            await stream(client, timeout=0.2)
        await server.until(lambda requests: requests[0].outcome == "disconnected-by-client")


async def test_a_body_in_pieces_goes_out_as_it_is_scripted() -> None:
    smile = json.dumps({"choices": [{"index": 0, "delta": {"content": "😀"}}]}, ensure_ascii=False).encode()
    cut = smile.index(b"\xf0") + 2  # inside the character
    body = (b"data: " + smile[:cut], smile[cut:] + b"\n\n", b"data: [DONE]\n\n")
    async with playing([Reply(body=body, piece_seconds=0.01)]) as (_, client):
        chunks = await stream(client)
    assert [chunk.choices[0].delta.content for chunk in chunks] == ["😀"]


@pytest.mark.parametrize("status", [400, 401, 403, 404, 409, 413, 422, 429, 500, 503, 529])
async def test_an_error_status_comes_in_the_error_shape(status: int) -> None:
    async with playing([Reply(status=status, text="Too bad.", headers={"Retry-After": "7"})]) as (_, client):
        for streamed in (False, True):
            with pytest.raises(openai.APIStatusError, match=r"Too bad\.") as caught:
                await ask(client, stream=streamed)
            assert caught.value.status_code == status
            assert caught.value.type in {"invalid_request_error", "requests", "server_error"}
            assert caught.value.response.headers["retry-after"] == "7"


async def test_failures_come_before_the_turn_and_are_counted_per_conversation() -> None:
    script = [say("At last.", failures=(Reply(status=429), Reply(disconnect=True)))]
    async with playing(script) as (server, client):
        for greeting in ("one", "two"):
            messages = [{"role": "user", "content": greeting}]
            with pytest.raises(openai.RateLimitError):
                await ask(client, messages=messages)
            with pytest.raises(openai.APIConnectionError):
                await ask(client, messages=messages, max_completion_tokens=5)
            for _ in range(2):
                assert (await ask(client, messages=messages)).choices[0].message.content == "At last."
    outcomes = [request.outcome for request in server.requests]
    assert outcomes == ["answered", "disconnected-by-server", "answered", "answered"] * 2


async def test_a_hanging_turn_never_answers_and_does_not_hold_up_the_end() -> None:
    async with playing([Reply(hang=True)]) as (server, client):
        asking = asyncio.create_task(ask(client))
        await server.until(lambda requests: len(requests) == 1)
        leaving = time.monotonic()
        await server.__aexit__()
        assert time.monotonic() - leaving < 20
        with pytest.raises(openai.APIConnectionError):
            await asking
    assert server.requests[0].outcome == "disconnected-by-server"


@pytest.mark.parametrize("streamed", [False, True])
async def test_a_client_that_goes_away_is_noticed_at_once(tmp_path: Path, *, streamed: bool) -> None:
    ledger = Ledger(tmp_path / "ledger.jsonl")
    turn = say("Too late.", piece_seconds=30) if streamed else say("Too late.", delay_seconds=30)
    async with playing([turn], ledger=ledger.path) as (server, client):
        asking = asyncio.create_task(stream(client) if streamed else ask(client))
        await server.until(lambda requests: len(requests) == 1)
        assert server.requests[0].outcome == "pending"
        left = time.monotonic()
        asking.cancel()
        await server.until(lambda requests: requests[0].outcome == "disconnected-by-client")
    noticed = server.requests[0].disconnected_at
    assert noticed is not None
    assert noticed - left < NOTICE_SECONDS_MAX
    assert [entry.phase for entry in ledger.entries()] == ["started", "disconnected"]
    with pytest.raises(asyncio.CancelledError):
        await asking


@pytest.mark.parametrize(
    ("turn", "content_type", "text"),
    [
        (Reply(body="<html>Bad gateway</html>", headers={"content-type": "text/html"}), "text/html", "<html>"),
        (Reply(body=""), "application/json", ""),
        (Reply(body='{"choices": ['), "application/json", '{"choices": ['),
        (Reply(body=b'{"choices": []}'), "application/json", '{"choices": []}'),
        (Reply(status=502, body="upstream"), "application/json", "upstream"),
    ],
)
async def test_a_body_replaces_the_answer_whatever_it_is(turn: Reply, content_type: str, text: str) -> None:
    async with playing([turn]) as (server, _), aiohttp.ClientSession() as session:
        body = {"model": "m", "messages": [USER]}
        async with session.post(f"{server.base_url}/chat/completions", json=body) as response:
            assert response.status == turn.status
            assert response.content_type == content_type
            assert (await response.text()).startswith(text)


PDF = {"filename": "a.pdf", "file_data": "data:application/pdf;base64,JVBERi0xLjc="}

MALFORMED: list[tuple[dict[str, Any], str]] = [
    ({"messages": []}, "'messages'"),
    ({"messages": "Hello"}, "'messages'"),
    ({"messages": [{"role": "robot", "content": "x"}]}, r"messages\[0\]\.role"),
    ({"messages": [{"role": "user", "content": 5}]}, r"messages\[0\]\.content"),
    ({"messages": [{"role": "user", "content": None}]}, "content may be null only"),
    ({"messages": [{"role": "user", "content": []}]}, r"messages\[0\]\.content"),
    ({"messages": [{"role": "user", "content": [{"type": "text"}]}]}, r"content\[0\].*'text'"),
    ({"messages": [{"role": "system", "content": [{"type": "file", "file": PDF}]}]}, "parts of type 'file'"),
    ({"messages": [{"role": "user", "content": [{"type": "file", "file": {}}]}]}, r"content\[0\]"),
    ({"messages": [{"role": "user", "content": "x", "tool_call_id": "a"}]}, "does not take 'tool_call_id'"),
    ({"messages": [{"role": "user", "content": "x", "usage": {}}]}, r"messages\[0\]\.usage"),
    ({"messages": [{"role": "assistant", "content": None}]}, "content may be null only"),
    ({"messages": [{"role": "assistant", "tool_calls": []}]}, r"messages\[0\]\.tool_calls"),
    ({"tools": []}, "'tools'"),
    ({"tools": [TOOL] * 129}, "'tools'"),
    ({"tools": [TOOL, TOOL]}, "tool names must be unique"),
    ({"tools": [{"type": "function", "function": {"name": "a b"}}]}, r"tools\[0\]\.function\.name"),
    ({"tools": [{"type": "function", "function": {"name": "a", "parameters": {}}}]}, "type 'object'"),
    ({"tools": [{"type": "function", "function": {"name": "a", "strict": 1}}]}, r"function\.strict"),
    ({"tool_choice": "auto"}, "'tool_choice' is only allowed"),
    ({"tools": [TOOL], "tool_choice": "sometimes"}, "'tool_choice'"),
    ({"tools": [TOOL], "tool_choice": {"type": "function", "function": {"name": "sub"}}}, "'sub'"),
    ({"parallel_tool_calls": False}, "'parallel_tool_calls' is only allowed"),
    ({"extra_body": {"stream_options": {"include_usage": True}}}, "'stream_options' is only allowed"),
    ({"extra_body": {"stream": "yes"}}, "'stream'"),
    ({"extra_body": {"surprise": 1}}, "Unrecognized request argument supplied: surprise"),
    ({"max_completion_tokens": 0}, "'max_completion_tokens'"),
    ({"max_completion_tokens": 1, "max_tokens": 1}, "exclude each other"),
    ({"temperature": 2.5}, "'temperature'"),
    ({"n": 2}, "'n'"),
    ({"model": 5}, "'model'"),
    ({"response_format": {"type": "yaml"}}, "'response_format'"),
    ({"response_format": {"type": "text", "strict": True}}, "response_format.*strict"),
    ({"response_format": {"type": "json_object"}}, "must contain the word 'json'"),
    ({"response_format": {"type": "json_schema"}}, r"response_format.*json_schema"),
    (schema_named("a b"), "response_format.*name"),
    (schema_named("a", schema=5), "response_format.*schema"),
    (schema_named("a", strict=True, schema={"type": "array"}), 'type: "object"'),
    (schema_named("a", strict=True, schema={"type": "object"}), "additionalProperties"),
    (schema_named("a", strict=True, schema=closed({"properties": {"b": {}}})), "every key"),
    (schema_named("a", strict=True, schema=closed({"$defs": {"b": {"oneOf": []}}})), "'oneOf' is not permitted"),
    (schema_named("a", strict=True, schema=closed({"anyOf": [{"$ref": "#", "title": "b"}]})), r"\$ref cannot have"),
    ({"extra_headers": {"content-type": "text/plain"}}, "Unsupported content type: 'text/plain'"),
]

UNPAIRED: list[tuple[list[dict[str, Any]], str]] = [
    ([asked("a")], "without an answer: a"),
    ([asked("a", "b"), answered("a")], "without an answer: b"),
    ([asked("a"), USER, answered("a")], "without an answer: a"),
    ([asked("a"), answered("a"), answered("a")], r"messages\[3\].*only once"),
    ([asked("a"), answered("b"), answered("a")], r"messages\[2\].*no call 'b' is open"),
    ([answered("a")], r"messages\[1\].*no call 'a' is open"),
    ([asked("a"), answered("a"), USER, answered("a")], r"messages\[4\]"),
    ([asked("a", "a"), answered("a"), answered("a")], "duplicate ids"),
    ([asked(""), answered("")], r"tool_calls\[0\]\.id"),
    ([asked("a" * 65), answered("a" * 65)], r"tool_calls\[0\]\.id"),
    ([asked("a", arguments="{broken"), answered("a")], r"function\.arguments.*not valid JSON"),
    ([asked("a", arguments=""), answered("a")], r"function\.arguments.*not valid JSON"),
    ([asked("a", arguments='{"a": NaN}'), answered("a")], r"function\.arguments.*NaN"),
    ([asked("a", arguments="[" * 100_000), answered("a")], r"function\.arguments.*not valid JSON"),
    ([asked("a", arguments="[]"), answered("a")], r"function\.arguments.*JSON object"),
    ([asked("a", name="a.b"), answered("a")], r"function\.name"),
    ([asked("a"), {"role": "tool", "tool_call_id": "a", "content": None}], "content may be null only"),
    ([asked("a"), {"role": "tool", "content": "3"}], "no call '' is open"),
]


@pytest.mark.parametrize(
    "fields",
    [
        {"response_format": {"type": "text"}},
        {"response_format": {"type": "json_object"}, "messages": [{"role": "user", "content": "Say it as JSON."}]},
        schema_named("a"),
        schema_named("a", schema={"type": "array", "items": {"type": "integer"}}),
        schema_named("a", strict=True, schema=closed({"properties": {"b": {}}, "required": ["b"]})),
    ],
)
async def test_every_response_format_is_taken_and_recorded(fields: dict[str, Any]) -> None:
    async with playing([say("{}")]) as (server, client):
        await ask(client, **fields)
    assert server.requests[0].body["response_format"] == fields["response_format"]


@pytest.mark.parametrize(("fields", "said"), MALFORMED)
async def test_a_malformed_request_is_refused_with_its_reason(fields: dict[str, Any], said: str) -> None:
    async with playing([say("Hi.")]) as (_, client):
        with pytest.raises(openai.BadRequestError, match=said):
            await ask(client, **fields)


@pytest.mark.parametrize(("later", "said"), UNPAIRED)
async def test_calls_and_answers_that_do_not_pair_are_refused(later: list[dict[str, Any]], said: str) -> None:
    async with playing([say("Hi.")]) as (_, client):
        with pytest.raises(openai.BadRequestError, match=said):
            await ask(client, *later)


async def test_what_the_server_said_can_be_sent_back_to_it() -> None:
    async with playing([calls(Call("add", {"a": 1}), Call("add", {"a": 2})), say("Done.")]) as (_, client):
        said: Any = (await ask(client, tools=[TOOL], tool_choice="required")).choices[0].message
        last = await ask(client, said, answered("call_0_1"), answered("call_0_0"), tools=[TOOL])
    assert last.choices[0].message.content == "Done."


@pytest.mark.parametrize(
    "body", [b"", b"{", b"[]", b"\xff", b"[" * 100_000, CHAT % b'"\\ud800"', CHAT % b'"x", "name": NaN']
)
async def test_a_body_that_is_no_request_is_refused(body: bytes) -> None:
    async with playing([say("Hi.")]) as (server, _), aiohttp.ClientSession() as session:
        headers = {"content-type": "application/json"}
        async with session.post(f"{server.base_url}/chat/completions", data=body, headers=headers) as response:
            assert response.status == 400
            assert set((await response.json())["error"]) == {"message", "type", "param", "code"}


async def test_a_body_over_the_limit_and_an_unknown_path_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(openai_server, "REQUEST_BYTES_MAX", 1_000)
    async with playing([say("Hi.")]) as (_, client):
        with pytest.raises(openai.APIStatusError, match="larger than 1000 bytes") as caught:
            await ask(client, messages=[{"role": "user", "content": "x" * 2_000}])
        assert caught.value.status_code == 413
        with pytest.raises(openai.NotFoundError, match="Invalid URL"):
            await client.embeddings.create(model="m", input="x")


async def test_only_the_right_key_is_accepted_and_no_key_is_recorded() -> None:
    async with playing([say("Hi.")], api_key="canary-right", client_key="canary-wrong") as (server, client):
        with pytest.raises(openai.AuthenticationError):
            await ask(client)
        with pytest.raises(openai.AuthenticationError):
            await client.models.list()
        await ask(client.with_options(api_key="canary-right"))
    assert [request.status for request in server.requests] == [401, 401, 200]
    assert "canary" not in repr(server.requests)


async def test_every_request_is_recorded() -> None:
    async with playing([say("Hi.")]) as (server, client):
        await ask(client, temperature=0.5)
        await client.models.list()
    first, second = server.requests
    assert (first.method, first.path, first.outcome, first.status) == ("POST", "/v1/chat/completions", "answered", 200)
    assert first.body == {"model": "m", "messages": [USER], "temperature": 0.5}
    assert first.headers["content-type"] == "application/json"
    assert first.ended_at is not None
    assert first.started_at <= first.ended_at <= second.started_at
    assert (second.path, second.disconnected_at) == ("/v1/models", None)


async def test_only_the_latest_requests_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(openai_server, "REQUESTS_MAX", 2)
    async with playing([say("Hi.")]) as (server, client):
        for _ in range(5):
            await ask(client)
    assert [request.number for request in server.requests] == [3, 4]


async def test_a_taken_port_is_named() -> None:
    async with FakeOpenAI([]) as server:
        port = int(server.base_url.split(":")[2].removesuffix("/v1"))
        with pytest.raises(PortTaken, match=str(port)):
            await FakeOpenAI([], port=port).__aenter__()
        with pytest.raises(PortTaken, match=str(port)), FakeOpenAI.in_thread([], port=port):
            pass


def test_a_server_that_was_not_started_has_no_address() -> None:
    with pytest.raises(InvalidInput, match="enter it first"):
        _ = FakeOpenAI([]).base_url


def test_a_program_without_a_loop_runs_it_in_a_thread() -> None:
    with (
        FakeOpenAI.in_thread([say("Hi.")]) as server,
        openai.OpenAI(base_url=server.base_url, api_key="any", max_retries=0) as client,
    ):
        answer = client.chat.completions.create(model="m", messages=[{"role": "user", "content": "Hello"}])
        assert answer.choices[0].message.content == "Hi."
        assert server.requests[0].outcome == "answered"
    with (
        openai.OpenAI(base_url=server.base_url, api_key="any", max_retries=0) as client,
        pytest.raises(openai.APIConnectionError),
    ):
        client.models.list()


def start(folder: Path, *options: str) -> subprocess.Popen[str]:
    (folder / "scripts_of_a_test.py").write_text(SCRIPT_MODULE, encoding="utf-8")
    command = [sys.executable, "-m", "holdfast.testing.openai_server", *options]
    environment = {"PYTHONPATH": f"{Path(openai_server.__file__).parents[2]}:{folder}"}
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


@pytest.mark.parametrize("signal_", [signal.SIGTERM, signal.SIGINT])
async def test_as_a_process_it_says_its_address_and_ends_on_a_signal(tmp_path: Path, signal_: signal.Signals) -> None:
    ledger = Ledger(tmp_path / "ledger.jsonl")
    options = ("--script", "scripts_of_a_test:script", "--ledger", str(ledger.path), "--api-key", "k")
    with start(tmp_path, *options) as process:
        assert process.stdout is not None
        base_url = (await asyncio.to_thread(process.stdout.readline)).strip()
        async with openai.AsyncOpenAI(base_url=base_url, api_key="k", max_retries=0) as client:
            assert (await ask(client)).choices[0].finish_reason == "tool_calls"
            asking = asyncio.create_task(ask(client, asked("a"), answered("a")))
            while ledger.count(phase="started") < 2:  # noqa: ASYNC110 - another process sets no event of ours
                await asyncio.sleep(0.01)
            process.send_signal(signal_)
            with pytest.raises(openai.APIConnectionError):
                await asking
        out, err = await asyncio.to_thread(process.communicate, timeout=90)
    assert (process.returncode, out, err) == (0, "", "")
    assert [entry.phase for entry in ledger.entries()] == ["started", "finished", "started", "dropped"]
    assert {entry.pid for entry in ledger.entries()} == {process.pid}


def test_as_a_process_it_calls_itself_what_it_was_started_as(tmp_path: Path) -> None:
    with start(tmp_path, "--help") as process:
        shown = process.communicate()[0]
    assert shown.startswith("usage: python -m holdfast.testing.openai_server ")
    assert "/v1/chat/completions" in shown


def test_as_a_process_it_names_a_script_that_is_not_there(tmp_path: Path) -> None:
    with start(tmp_path, "--script", "scripts_of_a_test:missing") as process:
        out, err = process.communicate(timeout=90)
    assert process.returncode == InvalidInput.exit_code
    assert out == ""
    assert "scripts_of_a_test:missing" in err
    assert "Traceback" not in err


def test_a_script_that_cannot_be_loaded_is_an_error_that_says_how_to_name_one() -> None:
    for place in ("no_such_module:script", "holdfast.testing.script:nothing", "", "holdfast.testing.script"):
        with pytest.raises(InvalidInput, match="module:attribute"):
            load_script(place)


def test_only_the_server_needs_aiohttp() -> None:
    program = (
        "import sys; sys.modules['aiohttp'] = None; import holdfast.testing.ledger, holdfast.testing.scripted_model"
    )
    subprocess.run([sys.executable, "-c", program], check=True)
    program += "; holdfast.testing.FakeOpenAI"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert "MissingPart: " in done.stderr
    assert "pip install '/path/to/holdfast[testing]'" in done.stderr


async def test_a_streamed_answer_waits_in_the_middle_until_the_test_lets_it_go() -> None:
    hold = Hold()
    async with playing([say("abcdef", piece_chars=2, pieces_max=3, hold=hold)]) as (server, client):
        streaming = asyncio.create_task(stream(client))
        await hold.until_held()
        before = server.requests[0].outcome
        hold.release()
        chunks = await streaming
    assert [chunk.choices[0].delta.content for chunk in chunks] == ["", "ab", "cd", "ef", None]
    assert (before, server.requests[0].outcome) == ("pending", "answered")


async def test_an_answer_that_waits_does_not_hold_up_the_end() -> None:
    hold = Hold()
    async with playing([say("abcdef", pieces_max=1, hold=hold)]) as (_, client):
        streaming = asyncio.create_task(stream(client))
        await hold.until_held()
    with pytest.raises(openai.APIError):
        await streaming


async def test_a_stream_can_be_reset_in_the_middle() -> None:
    async with playing([say("abcdef", pieces_max=1, reset=True)]) as (server, client):
        with pytest.raises(openai.APIError) as caught:
            await stream(client)
        await server.until(lambda requests: requests[0].outcome == "disconnected-by-server")
    assert type(caught.value.__cause__).__name__ == "ReadError"  # closed, it would be incomplete instead


async def test_something_else_can_come_instead_of_the_rest() -> None:
    async with playing([say("abcdef", pieces_max=2, then=b'data: {"error": {"message": "it broke"}}\n\n')]) as (
        _,
        client,
    ):
        with pytest.raises(openai.APIError, match="it broke"):
            await stream(client)
    async with playing([say("abcdef", then=b"<html>")]) as (_, client):
        with pytest.raises(json.JSONDecodeError):
            await ask(client)


async def test_usage_can_come_with_every_piece_and_the_bytes_one_by_one() -> None:
    async with playing([say("ü😀", usage=(7, 3), usage_in="every", write_bytes=1)]) as (_, client):
        chunks = await stream(client)
    assert [chunk.usage and chunk.usage.total_tokens for chunk in chunks] == [10] * len(chunks)
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks) == "ü😀"


@pytest.mark.parametrize("turns", range(6))
async def test_a_connection_that_comes_as_the_server_ends_is_closed_as_well(turns: int) -> None:
    with socket.socket() as late:
        async with FakeOpenAI([say("hello")]) as server:
            place = urlsplit(server.base_url)
            late.connect((place.hostname, place.port))  # the system takes it before the loop does
            for _ in range(turns):
                await asyncio.sleep(0)
        late.settimeout(0)
        async with asyncio.timeout(NOTICE_SECONDS_MAX):
            with suppress(ConnectionResetError):
                assert await asyncio.get_running_loop().sock_recv(late, 1) == b""
