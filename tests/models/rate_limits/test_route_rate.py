"""Calls of a route with rate limits wait in their process, over real HTTP with the vendor's client."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from holdfast import LLM, AgentDefinition, user_message
from holdfast.core.agent.model import AnswerPart, BackgroundAnswer, ModelRequest
from holdfast.core.base.errors import ModelFailure
from holdfast.core.base.usage import NOTHING_USED
from holdfast.core.conversation.stop_reasons import StopReason
from holdfast.core.wire.endpoint_refusals import ROUTE_RESTS
from holdfast.local import LocalDriver
from holdfast.models import FunctionModel, InferenceResponse
from holdfast.models.rate_limits import route_rate
from holdfast.models.rate_limits.route_rate import RouteRate
from holdfast.models.route_rests import FAILURES_BEFORE
from holdfast.models.routed_model import RoutedModel
from holdfast.models.routes import RateLimits, Route
from holdfast.runtime.model_progress import Progress
from holdfast.testing import Reply, ScriptedModel, call, say
from holdfast.testing.anthropic_server import FakeAnthropic
from holdfast.testing.openai_server import FakeOpenAI

AGENT = AgentDefinition(name="clerk", llm=LLM(model="large"))


def asked(listener: Any = None) -> ModelRequest:  # noqa: ANN401  # a list's append
    return ModelRequest(LLM(model="large"), "", (user_message("Hello."),), (), max_output_tokens=20, listener=listener)


def routed(endpoint: FakeOpenAI | FakeAnthropic, limits: Mapping[str, int]) -> RoutedModel:
    api = "anthropic" if isinstance(endpoint, FakeAnthropic) else "openai_chat"
    fields = {"api": api, "model": "m", "base_url": endpoint.base_url, "rate_limits": limits}
    return RoutedModel(ScriptedModel([say("own")]), {"large": Route.model_validate(fields)}, {})


def arrivals(endpoint: FakeOpenAI | FakeAnthropic) -> list[float]:
    return [each.started_at for each in endpoint.requests]


async def test_calls_go_out_no_faster_than_the_limit_allows_and_in_their_order() -> None:
    limit, count = 1_200, 60
    async with FakeOpenAI([say("done")]) as endpoint:
        model, began = routed(endpoint, {"requests_per_minute": limit}), time.monotonic()
        await asyncio.gather(*(model(asked()) for _ in range(count)))
        await model.close()
    took = arrivals(endpoint)[-1] - began
    assert len(endpoint.requests) == count
    assert took >= (count - 0.03 * limit - 1) / (0.95 * limit / 60)


async def test_tokens_are_counted_as_used_once_the_answer_is_there() -> None:
    used = 2_000
    async with FakeOpenAI([say("done", usage=(used - 1, 1))]) as endpoint:
        model = routed(endpoint, {"tokens_per_minute": 60_000})
        for _ in range(3):
            await model(asked())
        await model.close()
    first, _, third = arrivals(endpoint)
    assert third - first >= (2 * used - 1_800) / 950 - 0.3  # 1,800 at once, and 950 a second


@pytest.mark.parametrize("fake", [FakeOpenAI, FakeAnthropic])
async def test_a_429_has_the_other_calls_of_the_route_wait(fake: type[FakeOpenAI | FakeAnthropic]) -> None:
    refused = Reply(status=429, text="slow down", headers={"retry-after": "1"})
    parts = list[AnswerPart]()
    answers = iter([refused])
    async with fake(lambda _: next(answers, say("done"))) as endpoint:
        model = routed(endpoint, {"requests_per_minute": 6_000})
        with pytest.raises(ModelFailure, match="slow down"):
            await model(asked())
        answer = await model(asked(parts.append))
        await model.close()
    first, second = arrivals(endpoint)
    assert answer.text == "done"
    assert second - first >= 0.95
    waits = [each for each in parts if each.wait]
    assert [each.wait for each in waits] == ["the provider of the route 'large', which allows nothing for now"]
    assert not waits[0].sent
    assert sum(each.waited_seconds for each in parts) == pytest.approx(second - first, abs=0.5)


async def test_what_the_provider_says_it_has_left_is_believed() -> None:
    headers = {"x-ratelimit-remaining-requests": "0", "x-ratelimit-reset-requests": "700ms"}
    async with FakeOpenAI([say("done", headers=headers)]) as endpoint:
        model = routed(endpoint, {"tokens_per_minute": 1_000_000})
        await model(asked())
        await model(asked())
        await model.close()
    first, second = arrivals(endpoint)
    assert second - first >= 0.6


async def test_a_stop_ends_a_wait_at_once_and_nothing_of_it_counts() -> None:
    """In-process: the first step uses what the limit allows, the second one waits for most of a minute."""
    async with FakeOpenAI([call("nothing"), say("never")]) as endpoint:
        fields = {"api": "openai_chat", "model": "m", "base_url": endpoint.base_url}
        driver = LocalDriver(AGENT, models={"large": {**fields, "rate_limits": {"requests_per_minute": 1}}})
        running = asyncio.create_task(driver.execute("go"))
        async with asyncio.timeout(30):
            while not endpoint.requests:  # noqa: ASYNC110  # the fake has no event for it
                await asyncio.sleep(0.01)
            await asyncio.sleep(0.3)  # into the wait of the second call
        began = time.monotonic()
        driver.stop("enough")
        state = await running
        assert time.monotonic() - began < 5
    assert state.stop_reason is StopReason.USER_REQUESTED
    assert len(endpoint.requests) == 1
    first = state.steps[0].inference_response
    assert first is not None
    assert state.usage == first.usage
    assert state.usage.estimated_tokens == 0


async def test_a_wait_takes_nothing_of_the_patience_with_the_endpoint() -> None:
    """A call may be tried for one second; it fails, waits for two, and is made again."""
    script = [
        say(
            "done",
            failures=(
                Reply(
                    status=503,
                    text="busy",
                    headers={
                        "x-ratelimit-remaining-requests": "0",
                        "x-ratelimit-reset-requests": "2s",
                        "retry-after": "0",
                    },
                ),
            ),
        )
    ]
    async with FakeOpenAI(script) as endpoint:
        fields = {"api": "openai_chat", "model": "m", "base_url": endpoint.base_url}
        agent = AgentDefinition(name="clerk", llm=LLM(model="large"), model_patience_seconds=1)
        driver = LocalDriver(agent, models={"large": {**fields, "rate_limits": {"requests_per_minute": 600}}})
        state = await driver.execute("go")
    assert state.final_response == "done"
    first, second = arrivals(endpoint)
    assert second - first >= 1.9


async def test_who_leaves_the_line_lets_the_next_one_go_on() -> None:
    async def answer(_: ModelRequest) -> InferenceResponse:
        return InferenceResponse(text="done")

    rate, model = RouteRate("large", RateLimits(requests_per_minute=60)), FunctionModel(answer)
    rate.note(429, {"retry-after": "0.4"})

    async def one() -> InferenceResponse:
        return await rate.call(asked(), lambda: model(asked()))

    calls = [asyncio.create_task(one()) for _ in range(3)]
    await asyncio.sleep(0)
    calls[0].cancel()
    answers = await asyncio.gather(*calls, return_exceptions=True)
    assert isinstance(answers[0], asyncio.CancelledError)
    assert [each.text for each in answers[1:] if isinstance(each, InferenceResponse)] == ["done", "done"]


async def test_a_wait_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(route_rate, "RATE_WAIT_SECONDS_MAX", 0.2)
    rate = RouteRate("large", RateLimits(requests_per_minute=60))
    rate.note(429, {"retry-after": "1000000000"})
    with pytest.raises(ModelFailure, match="the call waited 0 s for the rate limit of the route 'large'") as failed:
        await rate.call(asked(), lambda: pytest.fail("it was called"))
    assert (failed.value.kind, failed.value.again, failed.value.free) == ("ProviderUnavailable", True, True)


async def test_a_call_that_another_model_can_answer_does_not_wait_for_a_long_pause() -> None:
    """The first two run into the pause at once; the last two wait behind a call that can only wait."""
    refused = Reply(status=429, text="slow down", headers={"retry-after": "300"})
    fallback = AgentDefinition(name="clerk", llm=LLM.model_validate({"model": "large", "fallback": ["spare"]}))
    patient = AGENT.model_copy(update={"model_patience_seconds": 0})
    async with FakeOpenAI(lambda body: refused if body["model"] == "m" else say("done")) as endpoint:
        fields = {"api": "openai_chat", "model": "m", "base_url": endpoint.base_url}
        model = RoutedModel(
            ScriptedModel([say("own")]),
            {
                "large": Route.model_validate({**fields, "rate_limits": {"requests_per_minute": 6_000}}),
                "spare": Route.model_validate({**fields, "model": "s"}),
            },
            {},
        )
        assert (await LocalDriver(patient, model=model).execute("go")).status == "failed"
        alone = LocalDriver(AGENT, model=model)
        waits = asyncio.create_task(alone.execute("go"))
        await asyncio.sleep(0.2)  # into its wait
        async with asyncio.timeout(20):
            states = await asyncio.gather(*(LocalDriver(fallback, model=model).execute("go") for _ in range(2)))
        assert not waits.done()
        alone.stop("enough")
        await waits
        await model.close()
    for state in states:
        assert state.final_response == "done"
        [passed] = state.steps[0].fallbacks
        assert passed.error.type == ROUTE_RESTS
        assert passed.error.message.startswith("the provider of the route 'large' allows nothing for another ")
        assert state.usage.estimated_tokens == 0
    assert [each.body["model"] for each in endpoint.requests] == ["m", "s", "s"]


async def test_who_waits_in_line_hears_of_a_pause_that_another_model_need_not_wait_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(route_rate, "LOOK_SECONDS", 0.05)
    rate = RouteRate("large", RateLimits(requests_per_minute=1))

    async def answer() -> InferenceResponse:
        return InferenceResponse(text="done")

    await rate.call(asked(), answer)
    heads = [asyncio.create_task(rate.call(asked(), answer)) for _ in range(2)]
    await asyncio.sleep(0)
    parts = list[AnswerPart]()
    with_another = replace(asked(parts.append), may_fall_back=True)
    behind = asyncio.create_task(rate.call(with_another, answer))
    await asyncio.sleep(0)
    rate.note(429, {"retry-after": "60"})
    async with asyncio.timeout(10):
        with pytest.raises(ModelFailure, match="allows nothing for another 60 s") as failed:
            await behind
    assert (failed.value.kind, failed.value.again, failed.value.free) == (ROUTE_RESTS, False, True)
    assert not parts[-1].sent
    assert parts[-1].waited_seconds > 0
    assert not any(each.done() for each in heads), "no other model can answer those"
    for each in heads:
        each.cancel()
    await asyncio.wait(heads)


async def test_an_answer_that_goes_on_at_the_provider_waits_for_nothing() -> None:
    rate = RouteRate("large", RateLimits(requests_per_minute=1))
    rate.note(429, {"retry-after": "300"})

    async def answer() -> InferenceResponse:
        return InferenceResponse(text="done")

    for may_fall_back in (False, True):
        request = replace(asked(), resume=BackgroundAnswer(response_id="resp_1"), may_fall_back=may_fall_back)
        async with asyncio.timeout(10):
            assert (await rate.call(request, answer)).text == "done"


async def test_a_wait_for_limits_is_no_failure_for_which_a_model_rests(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(route_rate, "RATE_WAIT_SECONDS_MAX", 0.05)
    async with FakeOpenAI([say("done")]) as endpoint:
        model = routed(endpoint, {"requests_per_minute": 1})
        request = replace(asked(), may_fall_back=True)
        await model(request)
        for _ in range(FAILURES_BEFORE + 1):
            with pytest.raises(ModelFailure, match="the call waited"):
                await model(request)
        await model.close()


def test_heartbeats_say_what_a_call_waits_for() -> None:
    progress = Progress()
    progress.begin(asked())
    progress.add(AnswerPart(sent=False, wait="the rate limit"))
    assert progress.details().wait == "the rate limit"
    assert progress.partial() is None
    progress.add(AnswerPart(waited_seconds=1.5))
    assert progress.details().wait == ""
    assert "wait" not in progress.details().model_dump()
    assert progress.waited_seconds == 1.5
    progress = Progress()
    progress.begin(asked())
    progress.add(AnswerPart(sent=False, wait="the rate limit"))
    assert progress.fail() == NOTHING_USED
