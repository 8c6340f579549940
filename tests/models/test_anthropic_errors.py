"""What the Messages API can refuse, and where its answers can break: what it becomes, and whether it is retried."""

from __future__ import annotations

import asyncio
import dataclasses
import json
from collections.abc import Mapping
from datetime import timedelta
from typing import Any

import pytest

from holdfast.core.agent.definition import LLM
from holdfast.core.agent.model import AnswerPart
from holdfast.models import Anthropic, ProviderSettings
from holdfast.models.model_apis import ANTHROPIC
from holdfast.server.doctor import endpoint_facts
from holdfast.testing.anthropic_server import FakeAnthropic
from holdfast.testing.anthropic_wire_format import event_bytes, events_of, redacted_thinking
from holdfast.testing.holds import Hold
from holdfast.testing.script import Call, Reply, calls, say
from tests.activities.asking import request, schema
from tests.models.anthropic_asking import answer_to, asking, failure_of, failure_with

AGAIN, FINAL = True, False
LONG = (
    "prompt is too long: 209345 tokens > 200000 maximum",
    "input length and `max_tokens` exceed context limit: 199658 + 8192 > 200000",
)
CREDIT = "Your credit balance is too low to access the Anthropic API. Please go to Plans & Billing to upgrade."
LIMITS = "You have reached your specified API usage limits. You will regain access on 2026-12-01 at 00:00 UTC."
MANY = calls(
    *(Call("add", {"a": 1}), Call("add", {"a": 2})),
    text="Let me see.",
    reasoning="I must add.",
    blocks=(redacted_thinking(),),
    piece_chars=4,
)
ASKED = {"model": "claude", "messages": [{"role": "user", "content": "?"}], "stream": True}
EVENTS = tuple(event_bytes(event) for event in events_of(MANY, ASKED))
TOOLS = (schema("add"),)


def error(kind: str, message: str = "the endpoint's words") -> bytes:
    """Return an error within a stream."""
    return event_bytes({"type": "error", "error": {"type": kind, "message": message}})


def stream(*events: Mapping[str, object]) -> Reply:
    """Return an answer of these events behind its beginning."""
    start = next(events_of(say("x"), ASKED))
    return Reply(body=b"".join(event_bytes(each) for each in (start, *events)))


@pytest.mark.parametrize(
    ("turn", "kind", "again", "words"),
    [
        (Reply(status=529, text="Overloaded"), "ProviderUnavailable", AGAIN, "answered 529: error, overloaded_error"),
        (Reply(status=500), "ProviderUnavailable", AGAIN, "api_error"),
        (Reply(status=401), "NotAuthorised", FINAL, "check ANTHROPIC_API_KEY"),
        (Reply(status=404), "ModelNotFound", FINAL, "ANTHROPIC_BASE_URL"),
        (Reply(status=402), "QuotaExceeded", FINAL, "no credit left"),
        (Reply(status=400, text=CREDIT), "QuotaExceeded", FINAL, "no credit left"),
        (Reply(status=400, text=LIMITS), "QuotaExceeded", FINAL, "no credit left"),
        *((Reply(status=400, text=text), "ContextTooLong", FINAL, "context.summary") for text in LONG),
        (Reply(status=413, text="Request exceeds the maximum size"), "RequestRefused", FINAL, "request_too_large"),
        (Reply(status=400), "RequestRefused", FINAL, "answered 400"),
        (Reply(disconnect=True), "ProviderUnavailable", AGAIN, "is ANTHROPIC_BASE_URL right?"),
        (Reply(body="<html>"), "UnusableAnswer", AGAIN, "check ANTHROPIC_BASE_URL"),
        (Reply(body=""), "UnusableAnswer", AGAIN, "empty"),
        (Reply(body="{}"), "UnusableAnswer", AGAIN, "not a message"),
        (Reply(body='{"content": [{"type": "text"}]}'), "UnusableAnswer", AGAIN, "not a message"),
        (Reply(body='{"content": [7]}'), "UnusableAnswer", AGAIN, "not a message"),
        (Reply(body='{"content": [{"type": "tool_use", "id": "a"}]}'), "UnusableAnswer", AGAIN, "not a message"),
        (Reply(body='{"type": "error", "error": {"type": "overloaded_error"}}'), "ProviderUnavailable", AGAIN, "529"),
        (stream({"type": "content_block_start", "index": 0}), "UnusableAnswer", AGAIN, "not a message"),
        (stream({"type": "content_block_delta", "index": 0, "delta": {}}), "UnusableAnswer", AGAIN, "not a message"),
        (Reply(body=(b"data: [1]\n\n",)), "UnusableAnswer", AGAIN, "not of this API"),
        (Reply(body=(b"event: message_start\ndata: {\n\n",)), "UnusableAnswer", AGAIN, "not JSON"),
    ],
)
async def test_the_table_of_failures(turn: Reply, kind: str, again: bool, words: str) -> None:  # noqa: FBT001
    failure = await failure_of(turn)
    assert (failure.kind, failure.again) == (kind, again)
    assert words in failure.message
    assert "OPENAI" not in failure.message


@pytest.mark.parametrize(
    ("error_type", "kind", "again"),
    [
        ("overloaded_error", "ProviderUnavailable", AGAIN),
        ("api_error", "ProviderUnavailable", AGAIN),
        ("rate_limit_error", "ProviderUnavailable", AGAIN),
        ("something_new", "ProviderUnavailable", AGAIN),
        ("invalid_request_error", "RequestRefused", FINAL),
        ("authentication_error", "NotAuthorised", FINAL),
        ("billing_error", "QuotaExceeded", FINAL),
    ],
)
async def test_an_error_within_the_stream_is_what_its_type_says(error_type: str, kind: str, *, again: bool) -> None:
    failure = await failure_of(dataclasses.replace(MANY, pieces_max=5, then=error(error_type)))
    assert (failure.kind, failure.again, failure.free) == (kind, again, False)
    assert "the endpoint's words" in failure.message
    assert failure.usage.input_tokens == 100  # as reported before it broke


@pytest.mark.parametrize("odd", [["x"], {"x": 1}])
async def test_an_odd_place_or_type_is_no_exception_of_ours(odd: object) -> None:
    block = {"type": "content_block_start", "content_block": {"type": "text", "text": "so"}}
    end: dict[str, Any] = {"type": "message_delta", "delta": {"stop_reason": "end_turn"}}
    assert (await answer_to(stream({**block, "index": odd}, end))).text == "so"
    assert (await failure_of(stream({"type": "error", "error": {"type": odd}}))).kind == "ProviderUnavailable"


async def test_a_refusal_says_when_to_ask_again() -> None:
    failure = await failure_of(Reply(status=429, headers={"retry-after": "7"}))
    assert (failure.kind, failure.again, failure.after) == ("ProviderUnavailable", AGAIN, timedelta(seconds=7))


async def test_a_stream_that_is_cut_before_its_stop_reason_is_no_answer() -> None:
    stop = len(EVENTS) - 2
    cuts = tuple(dataclasses.replace(MANY, pieces_max=place) for place in range(1, stop + 1))
    async with asking(dataclasses.replace(MANY, failures=cuts)) as (endpoint, model):
        for place in range(1, stop + 1):
            failure = await failure_with(model, request(tools=TOOLS))
            assert (failure.kind, failure.again) == ("ProviderUnavailable", AGAIN), place
            assert failure.usage.input_tokens == 100
        assert len((await model(request(tools=TOOLS))).tool_calls) == 2
        assert len(endpoint.requests) == stop + 1


@pytest.mark.parametrize("fault", [{"disconnect": True}, {"reset": True}, {}])
async def test_behind_its_stop_reason_an_answer_counts_whatever_becomes_of_the_connection(
    fault: dict[str, Any],
) -> None:
    turn = dataclasses.replace(MANY, pieces_max=len(EVENTS) - 1, **fault)
    answer = await answer_to(turn, request(tools=TOOLS))
    assert (len(answer.tool_calls), answer.usage.output_tokens, len(answer.items)) == (2, 20, 5)


async def test_events_cut_anywhere_are_joined() -> None:
    turn = dataclasses.replace(MANY, text="für 🙂 alle", reasoning="größer", write_bytes=3)
    whole = dataclasses.replace(turn, write_bytes=None, piece_chars=None)
    assert await answer_to(turn, request(tools=TOOLS)) == await answer_to(whole, request(tools=TOOLS))


async def test_unknown_events_are_ignored_and_unknown_deltas_named() -> None:
    told = [*events_of(MANY, ASKED)]
    strange: list[dict[str, Any]] = [{"type": "thread_updated", "note": 1}, {"type": "ping"}]
    answer = await answer_to(Reply(body=b"".join(event_bytes(each) for each in (told[0], *strange, *told[1:]))))
    assert answer == await answer_to(Reply(body=b"".join(EVENTS)))
    grown = {"type": "content_block_delta", "index": 0, "delta": {"type": "colour_delta", "colour": "red"}}
    strange_too = await answer_to(Reply(body=b"".join(map(event_bytes, [*told[:4], grown, *told[4:]]))))
    assert (strange_too.text, strange_too.tool_calls, strange_too.items) == (answer.text, answer.tool_calls, ())
    assert "'colour_delta', which is unknown here" in strange_too.reasoning


async def test_a_block_of_the_providers_own_that_streams_is_kept_whole() -> None:
    searched: dict[str, object] = {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {}}
    events: list[Mapping[str, object]] = [
        {"type": "content_block_start", "index": 0, "content_block": searched},
        *(
            {"type": "content_block_delta", "index": 0, "delta": {"type": "input_json_delta", "partial_json": piece}}
            for piece in ('{"query":', ' "ships"}')
        ),
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 9}},
        {"type": "message_stop"},
    ]
    answer = await answer_to(stream(*events))
    assert [json.loads(item.body) for item in answer.items] == [{**searched, "input": {"query": "ships"}}]
    assert answer.tool_calls == ()


async def test_cancelling_a_call_closes_the_connection_and_reports_what_came() -> None:
    hold, parts, came = Hold(), list[AnswerPart](), asyncio.Event()

    def listen(part: AnswerPart) -> None:
        parts.append(part)
        if part.text:
            came.set()

    turn = dataclasses.replace(say("It is a long story.", piece_chars=5), pieces_max=6, hold=hold)
    async with asking(turn) as (endpoint, model):
        call = asyncio.create_task(model(request(listener=listen)))
        await came.wait()
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        await endpoint.until(lambda records: records[0].outcome == "disconnected-by-client")
    assert "".join(part.text for part in parts).startswith("It is")


@pytest.mark.parametrize("streams", [True, False])
async def test_an_endpoint_that_stays_silent_is_given_up(monkeypatch: pytest.MonkeyPatch, *, streams: bool) -> None:
    monkeypatch.setattr("holdfast.models.answer_transfer.FIRST_BYTE_SECONDS", 0.05)
    monkeypatch.setattr("holdfast.models.answer_transfer.MODEL_SECONDS_MAX", 0.05)
    async with asking(Reply(hang=True)) as (_, model):
        failure = await failure_with(model, request(llm=LLM(stream=streams)))
    assert (failure.kind, failure.again) == ("ProviderUnavailable", AGAIN)
    assert "did not answer in time" in failure.message


@pytest.mark.parametrize("path", ["", "/v1", "/v1/"])
async def test_the_address_may_have_the_version_or_not(path: str) -> None:
    async with FakeAnthropic([say("x")]) as endpoint:
        settings = ProviderSettings(base_url=endpoint.base_url + path, api_key="k", model="m", api=ANTHROPIC)
        model = Anthropic(settings)
        assert (await model(request())).text == "x"
        await model.close()
        facts = await asyncio.to_thread(endpoint_facts.ask, settings)
        assert facts.models == ("scripted",)
