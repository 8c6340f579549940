"""Streamed answers over real HTTP through the real client: told as they come, bounded in time, never taken half."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import pytest

from holdfast.core.agent.definition import LLM
from holdfast.core.agent.model import AnswerPart
from holdfast.core.base.errors import ModelFailure
from holdfast.core.base.usage import NOTHING_USED, Usage
from holdfast.models import OpenAIChat, ProviderSettings
from holdfast.models import answer_transfer as transfer
from holdfast.testing.holds import Hold
from holdfast.testing.script import Call, Reply, calls, say
from tests.activities.asking import KEY, answer_to, asking, failure_of, failure_with, request

TEXT = "Grüße aus Köln, 😀 und so weiter."
USED = Usage(input_tokens=7, output_tokens=3)
GENEROUS_SECONDS = 90


@asynccontextmanager
async def endpoint_that(writes: bytes, *, then_waits: bool = False) -> AsyncGenerator[OpenAIChat]:
    """Serve raw bytes as the answer to anything, headers included, and give a model that asks for it."""
    waiting = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(writes)
        if then_waits:
            await waiting.wait()
        writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        model = OpenAIChat(ProviderSettings(base_url=f"http://127.0.0.1:{port}/v1", api_key=KEY, model="m"))
        try:
            yield model
        finally:
            waiting.set()
            await model.close()


async def test_an_answer_is_told_while_it_still_comes() -> None:
    heard: list[AnswerPart] = []
    half_heard = asyncio.Event()

    def listen(part: AnswerPart) -> None:
        heard.append(part)
        if "".join(each.text for each in heard) == TEXT[:24]:
            half_heard.set()

    hold = Hold()
    async with asking(say(TEXT, pieces_max=3, hold=hold, usage=(7, 3))) as (_, model):
        asked = asyncio.create_task(model(request(listener=listen)))
        await hold.until_held()
        async with asyncio.timeout(GENEROUS_SECONDS):
            await half_heard.wait()
        assert not asked.done()
        hold.release()
        response = await asked
    assert "".join(part.text for part in heard) == response.text == TEXT
    assert heard[:2] == [AnswerPart(sent=False), AnswerPart()]
    assert (heard[2].model, heard[2].response_id) == ("scripted", "chatcmpl-0")
    assert heard[-1].usage == response.usage == USED


async def test_a_definition_can_turn_streaming_off_and_the_listener_hears_the_whole() -> None:
    heard: list[AnswerPart] = []
    async with asking(say(TEXT, usage=(7, 3))) as (endpoint, model):
        response = await model(request(llm=LLM(stream=False), listener=heard.append))
        assert "stream" not in endpoint.requests[0].body
    whole = AnswerPart(TEXT, "", USED, "scripted", "chatcmpl-0")
    assert heard == [AnswerPart(sent=False), AnswerPart(unseen=True), whole]
    assert response.text == TEXT


async def test_streaming_and_not_streaming_give_the_same_answer() -> None:
    turn = calls(Call("add", {"a": 1, "text": "ü😀"}), Call("ping", "{broken"), text=TEXT, usage=(7, 3))
    assert await answer_to(turn) == await answer_to(turn, request(llm=LLM(stream=False)))


async def test_a_plain_answer_to_a_request_for_a_stream_is_understood() -> None:
    message = {"role": "assistant", "content": TEXT}
    usage = {"prompt_tokens": 7, "completion_tokens": 3}
    body = {"id": "1", "model": "m", "choices": [{"message": message, "finish_reason": "stop"}], "usage": usage}
    heard: list[AnswerPart] = []
    turn = Reply(body=json.dumps(body), headers={"content-type": "application/json"})
    response = await answer_to(turn, request(listener=heard.append))
    assert (response.text, response.usage) == (TEXT, USED)
    assert "".join(part.text for part in heard) == TEXT


@pytest.mark.parametrize("write_bytes", [1, 7, 1_000])
async def test_a_character_cut_by_the_network_is_whole(write_bytes: int) -> None:
    turn = calls(Call("echo", {"text": "ü😀"}), text=TEXT, write_bytes=write_bytes)
    response = await answer_to(turn)
    assert response.text == TEXT
    assert response.tool_calls[0].arguments == {"text": "ü😀"}


PAY = Reply(calls=(Call("pay", {"cents": 100}),), usage=(7, 3), usage_in="every")


@pytest.mark.parametrize("pieces_max", [1, 2, 3, 4])
@pytest.mark.parametrize("end", ["closed properly", "closed", "reset"])
async def test_a_call_without_its_end_is_asked_again_and_never_made(pieces_max: int, end: str) -> None:
    turn = Reply(
        calls=PAY.calls,
        usage=PAY.usage,
        usage_in="every",
        pieces_max=pieces_max,
        disconnect=end == "closed",
        reset=end == "reset",
    )
    failure = await failure_of(turn)
    assert (failure.kind, failure.again) == ("ProviderUnavailable", True)
    if end != "reset":  # which takes what was not read yet with it
        assert failure.usage == USED


@pytest.mark.parametrize("breaks", ["disconnect", "hang"])
async def test_an_answer_that_said_it_is_complete_counts_although_the_rest_is_missing(
    breaks: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transfer, "TRAILER_SECONDS", 0.1)
    complete = Reply(calls=PAY.calls, pieces_max=5, disconnect=breaks == "disconnect", hang=breaks == "hang")
    response = await answer_to(complete)
    assert response.tool_calls[0].arguments == {"cents": 100}
    assert response.usage.input_tokens > 20  # bounded from above, as nothing was said of it


@pytest.mark.parametrize("then", [b"data: {corrupt\n\n", b"data: <html>\n\n", b"data: [1]\n\n"])
async def test_a_corrupt_chunk_makes_the_answer_unusable_and_what_it_used_is_known(then: bytes) -> None:
    failure = await failure_of(Reply(calls=PAY.calls, usage=(7, 3), usage_in="every", pieces_max=3, then=then))
    assert (failure.kind, failure.again, failure.usage) == ("UnusableAnswer", True, USED)


@pytest.mark.parametrize(
    ("error", "refused"),
    [
        ({"message": "the engine died", "type": "server_error"}, ("ProviderUnavailable", True)),
        ({"message": "slow down", "code": 429}, ("ProviderUnavailable", True)),
        ({"message": "slow down", "code": "503"}, ("ProviderUnavailable", True)),
        ("out of memory", ("ProviderUnavailable", True)),
        ({"message": "no credit", "code": "insufficient_quota"}, ("QuotaExceeded", False)),
        ({"message": "no credit", "code": 402}, ("QuotaExceeded", False)),
        ({"message": "wrong key", "code": 401}, ("NotAuthorised", False)),
        ({"message": "too long", "code": "context_length_exceeded"}, ("ContextTooLong", False)),
        ({"message": "too long", "type": "exceed_context_size_error", "code": 400}, ("ContextTooLong", False)),
        ({"message": "odd", "code": True}, ("ProviderUnavailable", True)),
    ],
)
@pytest.mark.parametrize("form", ["data", "bare", "event", "alone"])
async def test_an_error_within_an_answer_is_read_by_the_same_table(
    error: object, refused: tuple[str, bool], form: str
) -> None:
    told = json.dumps({"error": error}).encode()
    then = {"data": b"data: %s\n\n", "bare": b"%s\n\n", "event": b"event: error\ndata: %s\n\n", "alone": b"%s"}[form]
    pieces_max = None if form == "alone" else 2
    failure = await failure_of(say(TEXT, pieces_max=pieces_max, then=then % told))
    assert (failure.kind, failure.again) == refused
    assert "http://127.0.0.1" in failure.message
    assert (error if isinstance(error, str) else json.loads(told)["error"]["message"]) in failure.message


async def test_a_key_in_an_error_within_an_answer_is_not_told() -> None:
    failure = await failure_of(say(TEXT, pieces_max=2, then=b'data: {"error": "bad key %s"}\n\n' % KEY.encode()))
    assert "[secret]" in failure.message
    assert KEY not in failure.message


async def test_an_unusable_answer_that_names_its_usage_is_counted() -> None:
    body = json.dumps({"choices": [], "usage": {"prompt_tokens": 7, "completion_tokens": 3}})
    failure = await failure_of(Reply(body=body))
    assert (failure.kind, failure.usage) == ("UnusableAnswer", USED)
    assert (await failure_of(Reply(body="{}"))).usage == NOTHING_USED


async def test_silence_in_the_middle_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transfer, "SILENCE_SECONDS", 0.1)
    async with asking(say(TEXT, usage=(7, 3), usage_in="every", pieces_max=2, hang=True)) as (endpoint, model):
        failure = await failure_with(model)
        await endpoint.until(lambda seen: seen[0].outcome == "disconnected-by-client")
    assert (failure.kind, failure.again, failure.usage) == ("ProviderUnavailable", True, USED)
    assert "did not answer in time" in failure.message


async def test_headers_and_then_silence_are_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transfer, "FIRST_BYTE_SECONDS", 0.1)
    failure = await failure_of(say(TEXT, pieces_max=0, hang=True))
    assert "did not answer in time" in failure.message


async def test_silence_is_counted_from_the_last_word(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transfer, "FIRST_BYTE_SECONDS", 1)
    monkeypatch.setattr(transfer, "SILENCE_SECONDS", 1)
    turn = say("x" * 10, piece_chars=1, piece_seconds=0.15)
    started = time.monotonic()
    assert (await answer_to(turn)).text == "x" * 10
    assert time.monotonic() - started > 1


async def test_one_byte_at_a_time_is_bounded_by_what_an_attempt_may_take(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transfer, "MODEL_SECONDS_MAX", 0.3)
    failure = await failure_of(say(TEXT, write_bytes=1, piece_seconds=0.05))
    assert "did not answer in time" in failure.message


async def test_an_endpoint_that_accepts_and_says_nothing_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transfer, "FIRST_BYTE_SECONDS", 0.1)
    async with endpoint_that(b"", then_waits=True) as model:
        assert "did not answer in time" in (await failure_with(model)).message


async def test_a_stream_that_stays_open_after_its_end_does_not_hold_the_answer_up() -> None:
    event = b'data: {"choices": [{"delta": {"content": "x"}, "finish_reason": "stop"}]}\n\ndata: [DONE]\n\n'
    head = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n"
    async with endpoint_that(head + event, then_waits=True) as model, asyncio.timeout(GENEROUS_SECONDS):
        assert (await model(request())).text == "x"


async def test_an_endpoint_that_says_nothing_more_after_its_end_keeps_the_connection() -> None:
    async with asking(say("a"), say("b")) as (endpoint, model):
        for _ in range(3):
            await model(request())
        assert len(endpoint.requests) == 3
        assert len({each.client_port for each in endpoint.requests}) == 1


@pytest.mark.slow
async def test_a_hundred_megabytes_are_not_read_to_their_end() -> None:
    padding = b"data: " + json.dumps({"choices": [], "padding": "x" * 1_000_000}).encode() + b"\n\n"
    async with asking(Reply(body=(padding,) * 110)) as (endpoint, model):
        failure = await failure_with(model)
        await endpoint.until(lambda seen: seen[0].outcome == "disconnected-by-client", seconds_max=GENEROUS_SECONDS)
    assert failure.kind == "UnusableAnswer"
    assert "bytes" in failure.message


@pytest.mark.slow
async def test_many_tiny_chunks_leave_the_worker_awake() -> None:
    beats = 0

    async def beat() -> None:
        nonlocal beats
        while True:
            await asyncio.sleep(0.01)
            beats += 1

    event = b'data: {"choices": [{"delta": {"content": "x"}}]}\n\n'
    count = 50_000
    chunk = b"%x\r\n%s\r\n" % (len(event), event)
    last = b'data: {"choices": [{"delta": {}, "finish_reason": "stop"}]}\n\n'
    head = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
    body = head + chunk * count + b"%x\r\n%s\r\n0\r\n\r\n" % (len(last), last)
    beating = asyncio.create_task(beat())
    async with endpoint_that(body) as model:
        started = time.thread_time()
        response = await model(request())
        worked = time.thread_time() - started
    beating.cancel()
    assert response.text == "x" * count
    assert beats > worked  # at the very least one in a second of its work: heartbeats and other calls go on


async def test_cancelling_a_call_in_the_middle_closes_its_connection() -> None:
    hold = Hold()
    async with asking(say(TEXT, pieces_max=2, hold=hold)) as (endpoint, model):
        asked = asyncio.create_task(model(request()))
        await hold.until_held()
        asked.cancel()
        await endpoint.until(lambda seen: seen[0].outcome == "disconnected-by-client", seconds_max=GENEROUS_SECONDS)
        with pytest.raises(asyncio.CancelledError):
            await asked


async def test_a_failure_survives_with_its_usage_as_an_exception() -> None:
    with pytest.raises(ModelFailure) as caught:
        await answer_to(Reply(calls=PAY.calls, usage=(7, 3), usage_in="every", pieces_max=3))
    assert caught.value.usage == USED
    assert caught.value.__cause__ is None
