"""What providers say of their rate limits is heeded through Pydantic AI as well, over real HTTP with their clients."""

from __future__ import annotations

import asyncio

import pytest
from pydantic_ai.exceptions import ModelHTTPError
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart
from pydantic_ai.models.function import AgentInfo, FunctionModel

from holdfast.core.agent.model import AnswerPart
from holdfast.core.base.errors import ModelFailure
from holdfast.models import ProviderSettings, PydanticAIModel
from holdfast.models.model_apis import PYDANTIC_AI
from holdfast.models.rate_limits.response_observer import observing_responses
from holdfast.models.rate_limits.route_rate import RouteRate
from holdfast.models.routed_model import RoutedModel
from holdfast.models.routes import RateLimits, Route
from holdfast.testing import Reply, ScriptedModel, say
from tests.activities.asking import request
from tests.models.pydantic_ai_asking import ANTHROPIC, CHAT, RESPONSES, Kind

NOTHING_LEFT = {"x-ratelimit-remaining-requests": "0", "x-ratelimit-reset-requests": "700ms"}


def routed(kind: Kind, base_url: str) -> RoutedModel:
    fields = {"api": "pydantic_ai", "model": kind.name, "base_url": kind.address(base_url)}
    limits = {"requests_per_minute": 6_000}
    return RoutedModel(ScriptedModel([]), {"far": Route.model_validate({**fields, "rate_limits": limits})}, {})


@pytest.mark.parametrize("kind", [CHAT, RESPONSES, ANTHROPIC], ids=lambda kind: kind.name)
@pytest.mark.parametrize("streamed", [True, False])
async def test_what_the_provider_says_it_has_left_is_believed(kind: Kind, *, streamed: bool) -> None:
    far = request(llm=request().llm.model_copy(update={"model": "far", "stream": streamed}))
    async with kind.endpoint([say("done", headers=NOTHING_LEFT)]) as endpoint:
        model = routed(kind, endpoint.base_url)
        await model(far)
        await model(far)
        await model.close()
        first, second = (each.started_at for each in endpoint.requests)
    assert second - first >= 0.6


async def test_a_client_that_pydantic_ai_has_replaced_shows_its_responses_once() -> None:
    seen = list[int]()
    async with CHAT.endpoint([say("done")]) as endpoint:
        settings = ProviderSettings(base_url=endpoint.base_url, api_key="k", model=CHAT.name, api=PYDANTIC_AI)
        model = PydanticAIModel(settings)
        with observing_responses(lambda status, _: seen.append(status)):
            for _ in range(2):
                await model(request())
                await model(request())
                await model.close()
    assert seen == [200] * 4


@pytest.mark.parametrize("kind", [CHAT, ANTHROPIC], ids=lambda kind: kind.name)
async def test_a_429_has_the_other_calls_of_the_route_wait(kind: Kind) -> None:
    answers = iter([Reply(status=429, text="slow down", headers={"retry-after": "1"})])
    parts = list[AnswerPart]()
    async with kind.endpoint(lambda _: next(answers, say("done"))) as endpoint:
        model = routed(kind, endpoint.base_url)
        llm = request().llm.model_copy(update={"model": "far"})
        with pytest.raises(ModelFailure, match="slow down"):
            await model(request(llm=llm))
        await model(request(llm=llm, listener=parts.append))
        await model.close()
        first, second = (each.started_at for each in endpoint.requests)
    assert second - first >= 0.95
    assert [each.wait for each in parts if each.wait] == [
        "the provider of the route 'far', which allows nothing for now"
    ]


async def test_a_429_counts_where_the_client_of_the_provider_shows_no_headers() -> None:
    refusals = iter([ModelHTTPError(429, "m", "slow down", headers={"retry-after": "1"})])

    def answer(_: list[ModelMessage], __: AgentInfo) -> ModelResponse:
        for refusal in refusals:
            raise refusal
        return ModelResponse([TextPart("done")])

    model, rate = PydanticAIModel(FunctionModel(answer)), RouteRate("far", RateLimits(requests_per_minute=6_000))
    plain = request(llm=request().llm.model_copy(update={"stream": False}))
    loop = asyncio.get_running_loop()
    with pytest.raises(ModelFailure, match="slow down"):
        await rate.call(plain, lambda: model(plain))
    began = loop.time()
    assert (await rate.call(plain, lambda: model(plain))).text == "done"
    assert loop.time() - began >= 0.9
