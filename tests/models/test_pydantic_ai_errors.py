"""Faults of an endpoint behind models of Pydantic AI: the same types of error as with our own clients."""

from __future__ import annotations

import asyncio
import json

import pytest
from pydantic_ai.exceptions import (
    ModelAPIError,
    ModelHTTPError,
    ModelQuotaExceededError,
    ModelUnavailableError,
    UnexpectedModelBehavior,
    UserError,
)
from pydantic_ai.messages import ModelMessage, ModelResponse
from pydantic_ai.models.fallback import FallbackModel
from pydantic_ai.models.function import AgentInfo, FunctionModel

from holdfast.core.agent.definition import LLM
from holdfast.core.agent.model import AnswerPart
from holdfast.core.base.usage import Usage
from holdfast.models import ProviderSettings, PydanticAIModel
from holdfast.models.model_apis import PYDANTIC_AI
from holdfast.models.pydantic_ai import answer_stream
from holdfast.models.routes import Timeouts
from holdfast.testing.holds import Hold
from holdfast.testing.openai_server import FakeOpenAI
from holdfast.testing.script import Call, Reply, calls, say
from tests.activities.asking import KEY, REQUEST, request, schema
from tests.models.pydantic_ai_asking import (
    ANTHROPIC,
    CHAT,
    RESPONSES,
    Kind,
    answer_to,
    asking,
    failure_of,
    failure_with,
)

TEXT = "It is so, and so it will be."
EACH = pytest.mark.parametrize("kind", [CHAT, RESPONSES, ANTHROPIC], ids=["chat", "responses", "anthropic"])
EITHER = pytest.mark.parametrize("stream", [True, False], ids=["streamed", "plain"])


@EACH
@pytest.mark.parametrize(
    ("status", "kind_of_failure", "again"),
    [
        (400, "RequestRefused", False),
        (401, "NotAuthorised", False),
        (402, "QuotaExceeded", False),
        (404, "ModelNotFound", False),
        (408, "ProviderUnavailable", True),
        (429, "ProviderUnavailable", True),
        (500, "ProviderUnavailable", True),
        (529, "ProviderUnavailable", True),
    ],
)
async def test_each_status_is_its_type_of_error_and_asked_once(
    kind: Kind, status: int, kind_of_failure: str, *, again: bool
) -> None:
    turn = Reply(status=status, text=f"No: {KEY}", headers={"retry-after": "7"})
    async with asking(kind, turn) as (endpoint, model):
        failure = await failure_with(model)
        assert len(endpoint.requests) == 1
    assert (failure.kind, failure.again) == (kind_of_failure, again)
    assert (failure.after is not None and failure.after.total_seconds() == 7) == again
    assert failure.free is (status != 408)
    assert KEY not in failure.message
    assert str(status) in failure.message


@EACH
async def test_a_context_that_is_too_long_is_said_so(kind: Kind) -> None:
    turn = Reply(status=400, text="prompt is too long: 300000 tokens > 200000 maximum context length")
    failure = await failure_of(kind, turn)
    assert (failure.kind, failure.again, failure.free) == ("ContextTooLong", False, False)


@EACH
async def test_a_bound_above_the_models_own_is_lowered(kind: Kind) -> None:
    refusal = Reply(status=400, text="max_tokens: 99999 > 4096, which is the maximum allowed number of output tokens")
    async with asking(kind, say("x", failures=(refusal,))) as (endpoint, model):
        assert (await model(request(max_output_tokens=99_999))).text == "x"
        assert 4096 in endpoint.requests[1].body.values()


@EACH
@EITHER
async def test_nobody_there_is_free_and_asked_again(kind: Kind, *, stream: bool) -> None:
    model = PydanticAIModel(kind.model("http://127.0.0.1:9/v1"))
    failure = await failure_with(model, request(llm=LLM(stream=stream)))
    await model.close()
    assert (failure.kind, failure.again, failure.free) == ("ProviderUnavailable", True, True)
    assert "127.0.0.1:9" in failure.message


@EACH
@pytest.mark.parametrize("fault", ["disconnect", "reset", "end"])
async def test_an_answer_that_is_cut_is_asked_for_again_and_what_was_used_counts(kind: Kind, fault: str) -> None:
    turn = Reply(
        calls=(Call("add", {"a": 1}),),
        text="Let me see what it can be.",
        pieces_max=4,
        disconnect=fault == "disconnect",
        reset=fault == "reset",
    )
    parts = list[AnswerPart]()
    failure = await failure_of(kind, turn, request(tools=(schema("add"),), listener=parts.append))
    assert (failure.kind, failure.again, failure.free) == ("ProviderUnavailable", True, False)
    if kind is ANTHROPIC:  # says the input's usage first
        assert failure.usage.input_tokens == 100


async def test_behind_the_finish_reason_the_answer_counts() -> None:
    turn = Reply(text="Done.", pieces_max=3, disconnect=True)
    async with asking(CHAT, turn) as (endpoint, model):
        answer = await model(REQUEST)
        assert endpoint.requests[0].outcome == "disconnected-by-server"
    assert (answer.text, answer.finish_reason) == ("Done.", "stop")
    assert answer.usage.estimated_tokens == answer.usage.total_tokens > 0


@EACH
@EITHER
@pytest.mark.parametrize("body", ["", "<html>Welcome</html>", "[]", "{}"], ids=["nothing", "page", "list", "object"])
async def test_what_is_no_answer_is_an_unusable_one(kind: Kind, body: str, *, stream: bool) -> None:
    failure = await failure_of(kind, Reply(body=body), request(llm=LLM(stream=stream)))
    assert failure.kind in ("UnusableAnswer", "ProviderUnavailable")
    assert (failure.again, failure.free) == (True, False)


@pytest.mark.parametrize("kind", [CHAT, RESPONSES, ANTHROPIC], ids=["chat", "responses", "anthropic"])
async def test_an_error_within_a_stream_is_read_by_the_same_table(kind: Kind) -> None:
    errors = {
        CHAT: b'data: {"error": {"message": "overloaded", "code": 503, "type": "server_error"}}\n\n',
        RESPONSES: b'event: error\ndata: {"type": "error", "code": "server_error", "message": "overloaded"}\n\n',
        ANTHROPIC: b'event: error\ndata: {"type": "error", "error": {"type": "overloaded_error", "message": "x"}}\n\n',
    }
    failure = await failure_of(kind, Reply(text=TEXT, piece_chars=2, pieces_max=6, then=errors[kind]))
    assert (failure.kind, failure.again, failure.free) == ("ProviderUnavailable", True, False)


@EACH
@pytest.mark.parametrize("pieces", [0, 6])
async def test_silence_ends_and_is_asked_again(kind: Kind, pieces: int) -> None:
    turn = Reply(text=TEXT, piece_chars=2, pieces_max=pieces or None, hang=True)
    async with kind.endpoint([turn]) as endpoint:
        settings = ProviderSettings(
            base_url=kind.address(endpoint.base_url),
            api_key=KEY,
            model=kind.name,
            api=PYDANTIC_AI,
            timeouts=Timeouts(first_byte_seconds=1.0, silence_seconds=0.5),
        )
        model = PydanticAIModel(settings)
        failure = await failure_with(model)
        await model.close()
    assert (failure.kind, failure.again, failure.free) == ("ProviderUnavailable", True, False)
    assert "did not answer in time" in failure.message


@EACH
@EITHER
async def test_a_stop_closes_the_connection_at_once(kind: Kind, *, stream: bool) -> None:
    hold = Hold()
    turn = Reply(text=TEXT, piece_chars=2, pieces_max=6 if stream else None, hold=hold)
    begun = asyncio.Event()
    async with asking(kind, turn) as (endpoint, model):

        def listen(part: AnswerPart) -> None:
            if part.text or not stream:
                begun.set()

        asked = asyncio.create_task(model(request(llm=LLM(stream=stream), listener=listen)))
        await begun.wait()
        await endpoint.until(bool, seconds_max=90)
        asked.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asked
        await endpoint.until(lambda seen: seen[0].outcome == "disconnected-by-client", seconds_max=90)


async def test_an_answer_without_end_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(answer_stream, "ANSWER_CHARS_MAX", 1_000)
    failure = await failure_of(CHAT, say("x" * 5_000))
    assert failure.kind == "UnusableAnswer"
    assert "more than 1,000 characters" in failure.message


async def test_arguments_that_are_no_json_go_back_to_the_model() -> None:
    answer = await answer_to(CHAT, calls(Call("add", "{not json")), request(tools=(schema("add"),)))
    assert answer.tool_calls[0].malformed is not None
    cut = await answer_to(
        CHAT, Reply(calls=(Call("add", '{"a": '),), finish_reason="length"), request(tools=(schema("add"),))
    )
    assert (cut.finish_reason, cut.tool_calls[0].malformed is not None) == ("length", True)


async def test_a_refusal_in_words_is_the_answers_text() -> None:
    message = {"role": "assistant", "content": None, "refusal": "I cannot."}
    choice = {"index": 0, "message": message, "finish_reason": "stop"}
    body = {"id": "c", "object": "chat.completion", "created": 1, "model": "m", "choices": [choice]}
    answer = await answer_to(CHAT, Reply(body=json.dumps(body)), request(llm=LLM(stream=False)))
    assert (answer.text, answer.finish_reason) == ("I cannot.", "content_filter")


@pytest.mark.parametrize(
    ("error", "kind", "again"),
    [
        (UserError("not so"), "InvalidInput", False),
        (UnexpectedModelBehavior("odd"), "UnusableAnswer", True),
        (ModelAPIError("m", "not JSON"), "UnusableAnswer", True),
        (ModelUnavailableError("m", "later", retry_after=3.0), "ProviderUnavailable", True),
        (ModelUnavailableError("m", "much later", retry_after=1e20), "ProviderUnavailable", True),
        (ModelHTTPError.for_category(ModelQuotaExceededError, status_code=429, model_name="m"), "QuotaExceeded", False),
        (
            ModelHTTPError.for_category(ModelUnavailableError, status_code=403, model_name="m"),
            "ProviderUnavailable",
            True,
        ),
        (ModelHTTPError(503, "m", {"error": "x"}, in_stream=True), "ProviderUnavailable", True),
    ],
)
async def test_pydantic_ais_own_word_for_an_error_counts(error: Exception, kind: str, *, again: bool) -> None:
    def fail(_: list[ModelMessage], __: AgentInfo) -> ModelResponse:
        raise error

    failure = await failure_with(PydanticAIModel(FunctionModel(fail)))
    assert (failure.kind, failure.again) == (kind, again)
    both = FallbackModel(FunctionModel(fail), FunctionModel(fail), fallback_on=(Exception,))
    grouped = await failure_with(PydanticAIModel(both), request(llm=LLM(stream=False)))
    assert grouped.kind == kind


async def test_the_first_of_several_keys_is_never_shown() -> None:
    async with FakeOpenAI([say("x")], api_key="another-key-0123456789") as endpoint:
        model = PydanticAIModel(CHAT.model(endpoint.base_url))
        failure = await failure_with(model)
        await model.close()
    assert failure.kind == "NotAuthorised"
    assert KEY not in failure.message
    assert failure.usage == Usage()
