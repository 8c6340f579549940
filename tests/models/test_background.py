"""Answers that OpenAI makes in the background: asked once, resumed after any break, cancelled when given up."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from typing import Any

import pytest

from holdfast.core.agent.definition import LLM
from holdfast.core.agent.model import AnswerPart, BackgroundAnswer
from holdfast.core.base.errors import ModelFailure
from holdfast.core.base.usage import Usage
from holdfast.models import OpenAIResponses, ProviderSettings
from holdfast.models.model_apis import ANTHROPIC, OPENAI, ModelApi
from holdfast.models.openai_responses import background_call
from holdfast.models.options import options_problem
from holdfast.testing.holds import Hold
from holdfast.testing.openai_server import RequestRecord
from holdfast.testing.responses_server import FakeResponses
from holdfast.testing.responses_wire_format import FAILED, event_bytes
from holdfast.testing.script import Call, Reply, calls, say
from tests.activities.asking import KEY, REQUEST, request
from tests.models.asking_responses import asking, failure_of

LLMS = (LLM(background=True), LLM(background=True, stream=False))
BACKGROUND = LLMS[0]
ASKED = request(llm=BACKGROUND)
WORDS = "It left this morning, by rail."
USED = Usage(input_tokens=100, output_tokens=20)


def asked(endpoint: FakeResponses) -> list[RequestRecord]:
    """Return the requests for new answers."""
    return [each for each in endpoint.requests if (each.method, each.path) == ("POST", "/v1/responses")]


def looks(endpoint: FakeResponses) -> list[str]:
    """Return the other requests, without the addresses' beginning."""
    return [
        f"{each.method} {each.path.removeprefix('/v1/responses/')}"
        for each in endpoint.requests
        if each not in asked(endpoint)
    ]


class Heard:
    """What a model tells while it answers."""

    def __init__(self) -> None:
        self.parts: list[AnswerPart] = []
        self.begun = asyncio.Event()

    def __call__(self, part: AnswerPart) -> None:
        self.parts.append(part)
        if part.lives_on:
            self.begun.set()

    @property
    def text(self) -> str:
        return "".join(part.text for part in self.parts)

    @property
    def lives_on(self) -> list[bool]:
        """Whether the answer goes on, each time that this has changed."""
        told = [part.lives_on for part in self.parts if part.lives_on is not None]
        return [each for place, each in enumerate(told) if place == 0 or told[place - 1] != each]


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Look at once: what is tested is no wait."""
    monkeypatch.setattr(background_call, "POLLS", replace(background_call.POLLS, first_seconds=0.01))


@pytest.mark.parametrize("llm", LLMS)
async def test_an_answer_in_the_background_is_stored_and_read_like_any_other(llm: LLM) -> None:
    heard = Heard()
    async with asking(calls(Call("look", {"at": "1"}), reasoning="hm", text=WORDS)) as (endpoint, model):
        answer = await model(request(llm=llm, listener=heard))
        (body,) = (each.body for each in asked(endpoint))
        assert (body["background"], body["store"]) == (True, True)
        assert [each.status for each in endpoint.background] == ["completed"]
    assert (answer.text, answer.reasoning, answer.usage) == (WORDS, "hm", USED)
    assert [call.name for call in answer.tool_calls] == ["look"]
    assert "encrypted_content" in answer.items[0].body
    assert (answer.response_id, heard.lives_on) == ("resp_bg_0", [True, False])


async def test_without_the_option_nothing_is_stored() -> None:
    async with asking(say(WORDS)) as (endpoint, model):
        await model(REQUEST)
        assert endpoint.requests[0].body["store"] is False
        assert endpoint.background == ()


@pytest.mark.parametrize("api", [OPENAI, ANTHROPIC])
def test_apis_without_it_refuse_the_agent(api: ModelApi) -> None:
    assert "does not know llm.background" in options_problem(BACKGROUND, api)


@pytest.mark.parametrize("reset", [True, False])
@pytest.mark.parametrize("pieces", range(1, 9))
async def test_a_stream_that_breaks_at_any_event_goes_on_behind_it(pieces: int, *, reset: bool) -> None:
    heard = Heard()
    turn = say(WORDS, reasoning="hm", pieces_max=pieces, reset=reset, disconnect=not reset)
    async with asking(turn) as (endpoint, model):
        answer = await model(request(llm=BACKGROUND, listener=heard))
        assert len(asked(endpoint)) == len(endpoint.background) == 1
        assert looks(endpoint) == ["GET resp_bg_0"]
    assert (answer.text, answer.reasoning, answer.usage) == (WORDS, "hm", USED)
    assert heard.text == WORDS, "nothing is told twice"


async def test_a_response_that_is_too_old_to_be_streamed_is_polled() -> None:
    async with asking(say(WORDS, pieces_max=4, disconnect=True)) as (endpoint, model):
        heard = Heard()
        task = asyncio.create_task(model(request(llm=BACKGROUND, listener=heard)))
        await heard.begun.wait()
        endpoint.background[0].can_be_streamed = False
        answer = await task
        assert len(asked(endpoint)) == 1
    assert (answer.text, answer.usage) == (WORDS, USED)


@pytest.mark.parametrize("llm", LLMS)
async def test_another_client_resumes_the_answer_without_asking(llm: LLM) -> None:
    hold, heard = Hold(), Heard()
    turn = say(WORDS, pieces_max=5, hold=hold)
    async with asking(turn) as (endpoint, model):
        first = asyncio.create_task(model(request(llm=llm, listener=heard)))
        await heard.begun.wait()
        first.cancel()
        await asyncio.wait([first])
        assert endpoint.background[0].status == "in_progress", "the client's disconnect ends nothing"
        other = OpenAIResponses(ProviderSettings(base_url=endpoint.base_url, api_key=KEY, model="scripted"))
        later = Heard()
        resume = BackgroundAnswer(response_id="resp_bg_0")
        second = asyncio.create_task(other(replace(request(llm=llm, listener=later), resume=resume)))
        await later.begun.wait()
        hold.release()
        answer = await second
        await other.close()
        assert len(asked(endpoint)) == len(endpoint.background) == 1
    assert (answer.text, answer.usage, later.lives_on) == (WORDS, USED, [True, False])


@pytest.mark.parametrize("llm", LLMS)
async def test_a_response_that_is_gone_fails_the_call_and_says_that_it_is_over(llm: LLM) -> None:
    heard = Heard()
    async with asking(say(WORDS)) as (_, model):
        resume = BackgroundAnswer(response_id="resp_nobody_knows")
        with pytest.raises(ModelFailure, match="is not there any more") as caught:
            await model(replace(request(llm=llm, listener=heard), resume=resume))
    assert (caught.value.again, heard.lives_on) == (True, [True, False])


@pytest.mark.parametrize("llm", LLMS)
async def test_a_response_that_fails_is_a_failure_with_its_usage(llm: LLM) -> None:
    heard = Heard()
    failure = await failure_of(Reply(text="out of order", finish_reason=FAILED), request(llm=llm, listener=heard))
    assert (failure.kind, failure.again, failure.usage) == ("ProviderUnavailable", True, USED)
    assert "out of order" in failure.message
    assert heard.lives_on[-1] is False


@pytest.mark.parametrize("llm", LLMS)
async def test_an_incomplete_response_is_a_cut_answer(llm: LLM) -> None:
    async with asking(say(WORDS, finish_reason="length")) as (_, model):
        assert (await model(request(llm=llm))).finish_reason == "length"


@pytest.mark.parametrize("llm", LLMS)
async def test_a_response_that_somebody_cancels_at_the_provider_is_a_failure(llm: LLM) -> None:
    hold, heard = Hold(), Heard()
    async with asking(say(WORDS, hold=hold)) as (endpoint, model):
        task = asyncio.create_task(model(request(llm=llm, listener=heard)))
        await heard.begun.wait()
        endpoint.background[0].cancel()
        with pytest.raises(ModelFailure, match="'cancelled'"):
            await task
    assert heard.lives_on == [True, False]


async def test_a_response_that_came_to_nothing_is_no_empty_answer() -> None:
    """OpenAI names six statuses today; another one without output is not taken for an answer."""
    body = json.dumps({"id": "r", "model": "m", "status": "expired", "output": []})
    failure = await failure_of(Reply(body=body), request(llm=LLMS[1]))
    assert (failure.kind, failure.again) == ("ProviderUnavailable", True)
    assert "the response has the status 'expired'" in failure.message


@pytest.mark.parametrize("hold_at", [None, 5])
async def test_cancelling_twice_is_cancelling_once(hold_at: int | None) -> None:
    hold, heard = Hold(), Heard()
    async with asking(say(WORDS, hold=hold, pieces_max=hold_at)) as (endpoint, model):
        task = asyncio.create_task(model(request(llm=BACKGROUND, listener=heard)))
        await heard.begun.wait()
        for _ in range(2):
            assert await model.cancel(BackgroundAnswer(response_id="resp_bg_0")) is None
        assert endpoint.background[0].status == "cancelled"
        with pytest.raises(ModelFailure):
            await task
        assert len(asked(endpoint)) == 1


async def test_cancelling_what_has_ended_returns_its_usage_and_what_is_gone_is_refused() -> None:
    async with asking(say(WORDS)) as (_, model):
        await model(ASKED)
        assert await model.cancel(BackgroundAnswer(response_id="resp_bg_0")) == USED
        with pytest.raises(ModelFailure) as caught:
            await model.cancel(BackgroundAnswer(response_id="resp_nobody_knows"))
    assert caught.value.again is False


@pytest.mark.parametrize("stream", [True, False])
async def test_a_server_that_ignores_the_option_answers_as_ever(*, stream: bool) -> None:
    heard, asked_so = Heard(), LLM(background=True, stream=stream)
    words = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Hi"}]}
    begun: dict[str, Any] = {"id": "r", "model": "m", "status": "in_progress", "output": []}
    ended: dict[str, Any] = {**begun, "status": "completed", "output": [words]}
    events: list[dict[str, Any]] = [
        {"type": "response.created", "response": begun, "sequence_number": 0},
        {"type": "response.completed", "response": ended, "sequence_number": 1},
    ]
    async with asking(Reply(body=tuple(map(event_bytes, events)) if stream else json.dumps(ended))) as (_, model):
        assert (await model(request(llm=asked_so, listener=heard))).text == "Hi"
    assert heard.lives_on == []
