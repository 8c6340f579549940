"""Asking a fake endpoint through models of Pydantic AI and their vendors' own clients, and what comes of it."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

from pydantic_ai.models import Model as AnyModel
from pydantic_ai.models.anthropic import AnthropicModel
from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
from pydantic_ai.providers.anthropic import AnthropicProvider
from pydantic_ai.providers.openai import OpenAIProvider

from holdfast.core.agent.model import Model, ModelRequest
from holdfast.core.base.errors import ModelFailure
from holdfast.core.conversation.messages import Message
from holdfast.core.conversation.steps import InferenceResponse
from holdfast.models import PydanticAIModel
from holdfast.testing.anthropic_server import FakeAnthropic
from holdfast.testing.openai_server import FakeOpenAI
from holdfast.testing.responses_server import FakeResponses
from holdfast.testing.script import Reply
from tests.activities.asking import KEY, REQUEST


class Kind(NamedTuple):
    """A model of Pydantic AI, and the fake endpoint that speaks its API."""

    name: str
    """What names such a model: `PREFIX:MODEL`."""
    endpoint: type[FakeOpenAI]
    model: Callable[[str], AnyModel[Any]]
    """Makes one for the endpoint's address."""

    def address(self, base_url: str) -> str:
        """Return the address as the vendor's client takes it."""
        return base_url.removesuffix("/v1") if self.endpoint is FakeAnthropic else base_url


def _openai(base_url: str) -> OpenAIProvider:
    return OpenAIProvider(base_url=base_url, api_key=KEY)


def _chat(base_url: str) -> AnyModel[Any]:
    return OpenAIChatModel("gpt-5", provider=_openai(base_url))


def _responses(base_url: str) -> AnyModel[Any]:
    return OpenAIResponsesModel("gpt-5", provider=_openai(base_url))


def _anthropic(base_url: str) -> AnyModel[Any]:
    provider = AnthropicProvider(base_url=base_url.removesuffix("/v1"), api_key=KEY)
    return AnthropicModel("claude-opus-4-8", provider=provider)


CHAT = Kind("openai-chat:gpt-5", FakeOpenAI, _chat)
RESPONSES = Kind("openai-responses:gpt-5", FakeResponses, _responses)
ANTHROPIC = Kind("anthropic:claude-opus-4-8", FakeAnthropic, _anthropic)


@asynccontextmanager
async def asking(kind: Kind, *turns: Reply) -> AsyncGenerator[tuple[FakeOpenAI, PydanticAIModel]]:
    """Serve `turns` and give the endpoint and a model that asks it."""
    async with kind.endpoint(turns) as endpoint:
        model = PydanticAIModel(kind.model(endpoint.base_url))
        try:
            yield endpoint, model
        finally:
            await model.close()


async def answer_to(kind: Kind, turn: Reply, asked: ModelRequest = REQUEST) -> InferenceResponse:
    """Return what the model makes of `turn`."""
    async with asking(kind, turn) as (_, model):
        return await model(asked)


async def failure_with(model: Model, asked: ModelRequest = REQUEST) -> ModelFailure:
    """Return the typed failure that asking `model` ends with."""
    try:
        response = await model(asked)
    except ModelFailure as failure:
        return failure
    raise AssertionError(f"it was an answer: {response!r}")


async def failure_of(kind: Kind, turn: Reply, asked: ModelRequest = REQUEST) -> ModelFailure:
    """Return the typed failure that `turn` becomes; AssertionError when it becomes none."""
    async with asking(kind, turn) as (_, model):
        return await failure_with(model, asked)


def said(response: InferenceResponse) -> Message:
    """Return an answer as the message that goes back."""
    return Message(role="assistant", content=response.text, tool_calls=response.tool_calls, items=response.items)
