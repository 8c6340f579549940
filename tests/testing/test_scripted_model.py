"""One script, played in Python and over HTTP through the real client: equal answers, failures and requests."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import Literal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.core.agent.definition import LLM, AgentDefinition
from holdfast.core.agent.model import AnswerPart, Model, ModelRequest
from holdfast.core.base.bounds import ARGUMENTS_BYTES_MAX, CALLS_KEPT_MAX, RESPONSE_BYTES_MAX
from holdfast.core.base.errors import InvalidInput, ModelFailure
from holdfast.core.base.usage import NOTHING_USED, Usage
from holdfast.core.conversation.messages import Message, ToolCall, user_message
from holdfast.core.conversation.steps import InferenceResponse
from holdfast.core.tools.tools import tool
from holdfast.core.wire.endpoint_refusals import CONTEXT_WORDS
from holdfast.local import LocalDriver
from holdfast.models import OpenAIChat, ProviderSettings
from holdfast.testing import scripted_model
from holdfast.testing.holds import Hold
from holdfast.testing.openai_server import FakeOpenAI
from holdfast.testing.script import Call, Reply, Scripts, call, calls, say
from holdfast.testing.scripted_model import ScriptedModel

Ending = InferenceResponse | tuple[str, bool, timedelta | None, Usage]
"""An answer, or what a driver sees of a failure: kind, whether to ask again, after which wait, and what it used."""


@tool
def add(a: int, b: int = 2) -> int:
    """Add two numbers."""
    return a + b


ASKED = Message(role="assistant", tool_calls=(ToolCall(id="1", name="add", arguments={"a": 1, "b": 2}),))
TOLD = Message(role="tool", tool_call_id="1", content="3")
FIRST = ModelRequest(LLM(), "Be brief.", (user_message("What is it? ü😀"),), (add.schema,), 50)
PLAIN = ModelRequest(LLM(stream=False), "Be brief.", (user_message("What is it?"),), (add.schema,), 50)
SECOND = ModelRequest(LLM(model="m", temperature=0.5), "", (user_message("Add."), ASKED, TOLD), (), None)


@asynccontextmanager
async def both(script: Scripts) -> AsyncGenerator[tuple[ScriptedModel, OpenAIChat, FakeOpenAI]]:
    async with FakeOpenAI(script) as endpoint:
        model = OpenAIChat(ProviderSettings(base_url=endpoint.base_url, api_key="test-key", model="scripted"))
        try:
            yield ScriptedModel(script), model, endpoint
        finally:
            await model.close()


async def ending(model: Model, request: ModelRequest) -> Ending:
    try:
        return await model(request)
    except ModelFailure as failure:
        return failure.kind, failure.again, failure.after, failure.usage


async def same(turn: Reply, request: ModelRequest = FIRST) -> Ending:
    """Return what `turn` is in Python, having checked that it is the same over HTTP."""
    async with both(lambda _: turn) as (local, remote, _):
        mine, theirs = await ending(local, request), await ending(remote, request)
    assert mine == theirs
    return mine


ANSWERS = {
    "text": say("It is a hare. ü😀\n\x00"),
    "nothing": Reply(),
    "empty text": say(""),
    "a lone surrogate": say("\ud800!"),
    "usage": say("x", usage=(7, 3)),
    "no usage": say('"quoted" ü', usage=None),
    "impossible usage": say("x", usage=(-5, -1)),
    "huge usage": say("x", usage=(10**15, 10**15)),
    "no usage of a call": calls(Call("add", {"a": 1}), usage=None),
    "cut off": say("It is", finish_reason="length"),
    "a long word": say("x", finish_reason="y" * 100),
    "a call": call("add", a=1, b=2),
    "calls with text": calls(Call("add", {"a": 1}), Call("echo", {"text": "ü"}), text="Let me see."),
    "malformed arguments": calls(Call("add", '{"a": 1')),
    "no object": calls(Call("add", "[1]"), Call("add", "NaN"), Call("add", '{"a": NaN}')),
    "no name": calls(Call("", {}), Call("a b", {}), Call("x" * 100, {})),
    "ids of its own": calls(Call("add", {}, id=""), Call("add", {}, id="same"), Call("add", {}, id="same")),
    "an id too long": calls(Call("add", {}, id="x" * 100)),
    "too long": say("ü" * RESPONSE_BYTES_MAX),
    "too many arguments": calls(*[Call("add", {"a": "x" * (ARGUMENTS_BYTES_MAX // 2)})] * 3),
    "too many calls": calls(*[Call("add", {"a": 1})] * (CALLS_KEPT_MAX + 2)),
    "another good status": Reply(text="made", status=201),
    "silence between pieces": say("x", piece_seconds=0.01),
}


@pytest.mark.parametrize("turn", ANSWERS.values(), ids=ANSWERS)
@pytest.mark.parametrize("request_", [FIRST, SECOND], ids=["first", "second"])
async def test_an_answer_is_the_same_in_python_and_over_http(turn: Reply, request_: ModelRequest) -> None:
    assert isinstance(await same(turn, request_), InferenceResponse)


ANY_TEXT = st.text(st.characters(), max_size=20)  # lone surrogates and control characters, too
TOKENS = st.integers(-3, 10**13)
CALLS = st.builds(Call, ANY_TEXT, ANY_TEXT | st.dictionaries(ANY_TEXT, ANY_TEXT | st.floats()), st.none() | ANY_TEXT)
TURNS = st.builds(
    Reply,
    text=st.none() | ANY_TEXT,
    calls=st.lists(CALLS, max_size=3).map(tuple),
    usage=st.none() | st.tuples(TOKENS, TOKENS),
    finish_reason=st.none() | ANY_TEXT,
    status=st.just(200) | st.integers(200, 203) | st.integers(400, 599),
)


@given(TURNS)
@settings(max_examples=40, deadline=None)
async def test_any_turn_is_the_same_in_python_and_over_http(turn: Reply) -> None:
    await same(turn)


LONG_AGO = format_datetime(datetime(2020, 1, 1, tzinfo=UTC), usegmt=True)

FAILURES = {
    **{f"{status}": Reply(status=status) for status in (302, 400, 401, 403, 404, 405, 408, 409, 410, 413, 418, 422)},
    **{f"{status}": Reply(status=status) for status in (425, 429, 500, 501, 502, 503, 504, 529)},
    "wait": Reply(status=429, headers={"Retry-After": "2"}),
    "wait a fraction": Reply(status=503, headers={"retry-after": "0.25"}),
    "wait an hour": Reply(status=503, headers={"retry-after": "3600"}),
    "wait for ever": Reply(status=503, headers={"retry-after": "1e300"}),
    "wait backwards": Reply(status=503, headers={"retry-after": "-3"}),
    "wait until long ago": Reply(status=503, headers={"retry-after": LONG_AGO}),
    "wait who knows": Reply(status=503, headers={"retry-after": "soon"}),
    "no wait where it cannot help": Reply(status=400, headers={"retry-after": "2"}),
    "no quota": Reply(status=429, text="insufficient_quota: top up"),
    "no quota in the body": Reply(status=429, body='{"error": {"code": "insufficient_quota"}}'),
    **{word: Reply(status=400, text=f"This is too much: {word} is 8") for word in CONTEXT_WORDS},
    "too long a context in the body": Reply(status=413, body='{"error": {"code": "context_length_exceeded"}}'),
    "a web page": Reply(body="<html>sign in</html>"),
    "nothing at all": Reply(body=""),
    "broken JSON": Reply(body='{"choices": ['),
    "no choices": Reply(body='{"choices": []}'),
    "a list": Reply(body="[]"),
    "an error page": Reply(status=502, body="<html>bad gateway</html>"),
    "closed": Reply(disconnect=True),
    "closed in the middle": say("x", disconnect=True, pieces_max=1),
    "an error that is cut": Reply(status=400, disconnect=True, pieces_max=1),
    "an answer without content": say("x", pieces_max=0),
}


@pytest.mark.parametrize("turn", FAILURES.values(), ids=FAILURES)
async def test_a_failure_is_of_the_same_kind_in_python_and_over_http(turn: Reply) -> None:
    assert isinstance(await same(turn), tuple)


WORDS = "It is a hare, and it is fast."
CUT_CALL = Reply(calls=(Call("add", {"a": 1, "b": 22}),), text="Well.", usage=(7, 3), usage_in="every")
PIECES = range(8)
"""The call above has seven pieces before its finish reason, and then the usage and the end."""


@pytest.mark.parametrize("pieces_max", PIECES)
@pytest.mark.parametrize("usage_in", ["last", "every"])
@pytest.mark.parametrize("disconnect", [False, True])
@pytest.mark.parametrize("request_", [FIRST, PLAIN], ids=["streamed", "plain"])
async def test_an_answer_that_ends_too_early_is_the_same_in_python_and_over_http(
    pieces_max: int, usage_in: Literal["last", "every"], request_: ModelRequest, *, disconnect: bool
) -> None:
    turn = replace(CUT_CALL, pieces_max=pieces_max, usage_in=usage_in, disconnect=disconnect)
    mine = await same(turn, request_)
    complete = pieces_max >= len(PIECES) - 2 if request_.llm.stream else pieces_max > 0 and not disconnect
    assert isinstance(mine, InferenceResponse) is complete


THEN = {
    "corrupt": b"data: {corrupt\n\n",
    "an error": b'data: {"error": {"message": "it broke", "type": "server_error"}}\n\n',
    "a bare error": b'{"error": "it broke"}\n\n',
    "a limit of rate": b'data: {"error": {"message": "slow down", "code": 429}}\n\n',
    "no quota": b'data: {"error": {"message": "pay", "code": "insufficient_quota"}}\n\n',
    "too long": b'data: {"error": {"message": "n", "code": "context_length_exceeded"}}\n\n',
}


@pytest.mark.parametrize("then", THEN.values(), ids=THEN)
@pytest.mark.parametrize("pieces_max", [1, 3])
async def test_a_fault_within_an_answer_is_the_same_in_python_and_over_http(then: bytes, pieces_max: int) -> None:
    ended = await same(say(WORDS, usage=(7, 3), usage_in="every", pieces_max=pieces_max, then=then))
    assert isinstance(ended, tuple)
    assert ended[3] == Usage(input_tokens=7, output_tokens=3)


@pytest.mark.parametrize("request_", [FIRST, PLAIN], ids=["streamed", "plain"])
@pytest.mark.parametrize("turn", [say(WORDS), say(WORDS, usage_in="every"), say(WORDS, piece_chars=3), CUT_CALL])
async def test_a_listener_hears_the_same_in_python_and_over_http(turn: Reply, request_: ModelRequest) -> None:
    heard: tuple[list[AnswerPart], list[AnswerPart]] = [], []
    async with both(lambda _: turn) as (local, remote, _):
        mine = await local(replace(request_, listener=heard[0].append))
        assert mine == await remote(replace(request_, listener=heard[1].append))
    for parts in heard:
        assert "".join(part.text for part in parts) == turn.text
        assert parts[-1].usage == mine.usage
        assert (parts[-1].model, parts[-1].response_id) == (mine.model, mine.response_id)


async def test_an_answer_that_is_held_goes_on_when_the_test_lets_it() -> None:
    heard: list[AnswerPart] = []
    hold = Hold()
    model = ScriptedModel([say(WORDS, piece_chars=5, pieces_max=3, hold=hold)])
    asking = asyncio.ensure_future(model(replace(FIRST, listener=heard.append)))
    await hold.until_held()
    assert "".join(part.text for part in heard) == WORDS[:10]
    hold.release()
    assert (await asking).text == "".join(part.text for part in heard) == WORDS


async def test_failures_come_before_the_turn_and_are_counted_per_conversation() -> None:
    turn = say("at last", failures=(Reply(status=503), Reply(status=429, headers={"retry-after": "1"})))
    async with both(lambda _: turn) as (local, remote, _):
        asked = [FIRST, FIRST, SECOND, FIRST, SECOND, SECOND, SECOND]
        mine = [await ending(local, request) for request in asked]
        theirs = [await ending(remote, request) for request in asked]
    assert mine == theirs
    assert [isinstance(each, InferenceResponse) for each in mine] == [False, False, False, True, False, True, True]


async def test_a_script_is_asked_with_the_same_words() -> None:
    seen: list[object] = []

    def script(body: dict[str, object]) -> Reply:
        seen.append(body)
        return say("x")

    async with both(script) as (local, remote, _):
        for request in (FIRST, SECOND):
            await local(request)
            await remote(request)
    assert seen[0] == seen[1]
    assert seen[2] == seen[3]


async def test_each_model_plays_its_own_script_and_others_are_unknown() -> None:
    async with both({"m": [say("never"), say("mine")]}) as (local, remote, _):
        for request in (FIRST, SECOND):
            assert await ending(local, request) == await ending(remote, request)
        assert (await local(SECOND)).text == "mine"
        with pytest.raises(ModelFailure, match="'scripted'"):
            await local(FIRST)


async def test_what_the_api_would_refuse_is_refused() -> None:
    unanswered = ModelRequest(LLM(), "", (user_message("Add."), ASKED), (), None)
    async with both([say("x")] * 3) as (local, remote, _):
        assert (
            await ending(local, unanswered)
            == await ending(remote, unanswered)
            == ("RequestRefused", False, None, NOTHING_USED)
        )
        with pytest.raises(ModelFailure, match="without an answer: 1"):
            await local(unanswered)


async def test_a_script_that_raises_says_so() -> None:
    def script(_: dict[str, object]) -> Reply:
        raise LookupError("no such turn")

    async with both(script) as (local, remote, _):
        assert (
            await ending(local, FIRST) == await ending(remote, FIRST) == ("RequestRefused", False, None, NOTHING_USED)
        )
        with pytest.raises(ModelFailure, match="LookupError: no such turn"):
            await local(FIRST)


async def test_a_driver_retries_a_scripted_failure() -> None:
    soon = {"retry-after": "0.001"}
    model = ScriptedModel([say("3", failures=(Reply(status=503, headers=soon), Reply(status=429, headers=soon)))])
    state = await LocalDriver(AgentDefinition(name="a", tools="all"), model=model).execute("?")
    assert state.final_response == "3"
    assert len(model.requests) == 3


async def test_a_hanging_turn_ends_when_it_is_cancelled() -> None:
    asking = asyncio.ensure_future(ScriptedModel([Reply(hang=True)])(FIRST))
    done, _ = await asyncio.wait([asking], timeout=0.05)
    assert not done
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking


async def test_a_body_that_is_an_answer_needs_the_server() -> None:
    body = '{"choices": [{"message": {"content": "x"}}]}'
    with pytest.raises(InvalidInput, match="FakeOpenAI"):
        await ScriptedModel([Reply(body=body)])(FIRST)


async def test_only_the_latest_requests_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scripted_model, "REQUESTS_MAX", 2)
    model = ScriptedModel(lambda _: say("x"))
    for request in (FIRST, SECOND, SECOND):
        await model(request)
    assert model.requests == [SECOND, SECOND]
