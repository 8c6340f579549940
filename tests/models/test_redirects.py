"""An endpoint that redirects: keys and headers go to no other host, whichever API it is."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from typing import Any, Final, NamedTuple

import httpx2
import pytest

from holdfast.core.agent.model import Model
from holdfast.models import Anthropic, OpenAIChat, OpenAIResponses, ProviderSettings, PydanticAIModel
from holdfast.models.http_errors import REDIRECTS_MAX, RedirectedAway, staying_at
from holdfast.models.model_apis import ANTHROPIC, OPENAI, OPENAI_RESPONSES, PYDANTIC_AI
from holdfast.testing.anthropic_server import FakeAnthropic
from holdfast.testing.openai_server import FakeOpenAI
from holdfast.testing.responses_server import FakeResponses
from holdfast.testing.script import Reply
from tests.activities.asking import KEY, request
from tests.models.pydantic_ai_asking import failure_with


class Api(NamedTuple):
    """An API, the fake endpoint that speaks it, and how a model for it is made."""

    endpoint: type[FakeOpenAI]
    model: Callable[[ProviderSettings], Model]
    settings: ProviderSettings


OWN: Final = {
    "openai_chat": Api(FakeOpenAI, OpenAIChat, ProviderSettings(api=OPENAI, model="m")),
    "openai_responses": Api(FakeResponses, OpenAIResponses, ProviderSettings(api=OPENAI_RESPONSES, model="m")),
    "anthropic": Api(FakeAnthropic, Anthropic, ProviderSettings(api=ANTHROPIC, model="m")),
}
ALL: Final = {
    **OWN,
    "pydantic_ai, OpenAI": Api(
        FakeOpenAI, PydanticAIModel, ProviderSettings(api=PYDANTIC_AI, model="openai-chat:gpt-5")
    ),
    "pydantic_ai, Anthropic": Api(
        FakeAnthropic, PydanticAIModel, ProviderSettings(api=PYDANTIC_AI, model="anthropic:claude-opus-4-8")
    ),
}


@asynccontextmanager
async def elsewhere() -> AsyncGenerator[tuple[str, list[bytes]]]:
    """Give the address of another endpoint, and what arrives there."""
    arrived = list[bytes]()

    async def take(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        arrived.append(await reader.read(64 * 1024))
        writer.close()

    async with await asyncio.start_server(take, "127.0.0.1", 0) as server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", arrived


@asynccontextmanager
async def redirecting(api: Api, turn: Reply) -> AsyncGenerator[tuple[FakeOpenAI, Model]]:
    """Serve `turn`, and give the endpoint and a model of a route to it that has a header with a secret."""
    async with api.endpoint([turn]) as endpoint:
        own: dict[str, Any] = {name: getattr(api.settings, name) for name in ("api", "model")}
        is_version_free = api.endpoint is FakeAnthropic and own["api"] is PYDANTIC_AI
        base_url = endpoint.base_url.removesuffix("/v1") if is_version_free else endpoint.base_url
        headers = {"x-gateway-token": "gateway-secret-0123"}
        model = api.model(ProviderSettings(base_url=base_url, api_key=KEY, route="far", headers=headers, **own))
        try:
            yield endpoint, model
        finally:
            await model.close()


@pytest.mark.parametrize(("status", "streamed"), [(301, True), (307, True), (308, False)])
@pytest.mark.parametrize("api", ALL)
async def test_nothing_follows_a_redirect_to_another_host(api: str, status: int, *, streamed: bool) -> None:
    async with elsewhere() as (other, arrived):
        turn = Reply(status=status, headers={"location": f"{other}/v1/chat/completions?token=stolen"})
        async with redirecting(ALL[api], turn) as (endpoint, model):
            asked = request(llm=request().llm.model_copy(update={"stream": streamed}))
            failure = await failure_with(model, asked)
            sent = endpoint.requests
        assert arrived == []
    assert len(sent) == 1
    assert sent[0].headers["x-gateway-token"] == "gateway-secret-0123"
    assert (failure.kind, failure.again, failure.free) == ("RequestRefused", False, True)
    assert f"redirects to {other}; nothing was sent there" in failure.message
    assert "gateway-secret" not in failure.message
    assert "stolen" not in failure.message


@pytest.mark.parametrize(
    ("api", "location", "named"),
    [
        ("pydantic_ai, OpenAI", "http://[", "what is no address"),
        ("pydantic_ai, OpenAI", "/v2/chat", "http://127.0.0.1"),
        ("openai_chat", "http://[", "redirects to http://%5B"),
    ],
)
async def test_a_redirect_that_leads_nowhere_is_refused_as_well(api: str, location: str, named: str) -> None:
    async with redirecting(ALL[api], Reply(status=307, headers={"location": location})) as (endpoint, model):
        assert named in (await failure_with(model)).message
        assert len(endpoint.requests) == 1


@pytest.mark.parametrize("api", OWN)
async def test_a_redirect_within_the_endpoint_is_followed(api: str) -> None:
    path = {"openai_chat": "chat/completions", "openai_responses": "responses", "anthropic": "messages"}[api]
    moved = Reply(status=307, headers={"location": f"/v1/{path}"})
    async with redirecting(OWN[api], Reply(text="It left.", failures=(moved,))) as (endpoint, model):
        answer = await model(request())
        assert len(endpoint.requests) == 2
        assert endpoint.requests[1].headers["x-gateway-token"] == "gateway-secret-0123"
    assert answer.text == "It left."


@pytest.mark.parametrize("streamed", [True, False])
@pytest.mark.parametrize("api", OWN)
async def test_an_endpoint_that_redirects_in_a_circle_refuses_after_a_few_requests(api: str, *, streamed: bool) -> None:
    path = {"openai_chat": "chat/completions", "openai_responses": "responses", "anthropic": "messages"}[api]
    async with redirecting(OWN[api], Reply(status=307, headers={"location": f"/v1/{path}"})) as (endpoint, model):
        failure = await failure_with(model, request(llm=request().llm.model_copy(update={"stream": streamed})))
        assert len(endpoint.requests) == REDIRECTS_MAX + 1
    assert (failure.kind, failure.again, failure.free) == ("RequestRefused", False, True)
    assert "redirects from one place to the next, more than 5 times; is the base_url of the route" in failure.message


@pytest.mark.timeout(60)
@pytest.mark.parametrize("api", OWN)
async def test_the_body_of_a_redirect_is_not_read_even_one_without_end(api: str) -> None:
    path = {"openai_chat": "chat/completions", "openai_responses": "responses", "anthropic": "messages"}[api]
    moved = Reply(
        status=307, headers={"location": f"/v1/{path}"}, body="x" * 1_000, write_bytes=1, hang=True, pieces_max=1
    )
    async with redirecting(OWN[api], Reply(text="It left.", failures=(moved,))) as (endpoint, model):
        assert (await model(request())).text == "It left."
        assert len(endpoint.requests) == 2


@pytest.mark.parametrize(
    ("endpoint", "url", "is_same"),
    [
        ("http://models.example.com/v1", "http://models.example.com/other", True),
        ("https://models.example.com/v1", "https://MODELS.example.com:443/v1", True),
        ("http://models.example.com/v1", "https://models.example.com/v1", True),
        ("https://bücher.example/v1", "https://xn--bcher-kva.example/v1", True),
        ("http://[::1]:8080/v1", "http://[::1]:8080/v1", True),
        ("https://models.example.com/v1", "http://models.example.com/v1", False),
        ("http://models.example.com:8080/v1", "https://models.example.com/v1", False),
        ("http://models.example.com:8080/v1", "http://models.example.com:8081/v1", False),
        ("https://models.example.com/v1", "https://models.example.com.attacker.example/v1", False),
        ("https://models.example.com/v1", "https://models.example.com@attacker.example/v1", False),
        ("https://models.example.com/v1", "https://eu.models.example.com/v1", False),
    ],
)
async def test_which_addresses_are_the_endpoint(endpoint: str, url: str, *, is_same: bool) -> None:
    stay = staying_at(httpx2.URL(endpoint))
    if is_same:
        await stay(httpx2.Request("POST", url))
    else:
        with pytest.raises(RedirectedAway):
            await stay(httpx2.Request("POST", url))
